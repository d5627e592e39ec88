/* Shared by passes that insert instrs: they take the plan's instrs away and append them again, with new ones in
   between. Private to plan/. */
#pragma once

#include "plan/plan.h"

typedef struct {
    Plan *p;
    Instr *old; /* (n) the instrs before the pass */
    InstrId n;
    InstrId *moved; /* (n) their new places, as far as they were kept */
} Rewrite;

void rewrite_begin(Rewrite *r, Plan *p); /* rewrite_end frees */
void rewrite_end(Rewrite *r);
/* Old instr i with its origin and waits translated; those must have been kept before. */
Instr rewrite_old(const Rewrite *r, InstrId i);
/* Appends `instr`, old instr i with the caller's changes. */
InstrId rewrite_keep(Rewrite *r, InstrId i, Instr instr);

void plan_works(Plan *p); /* the ranges of works, where the plan was cut */
InstrId plan_append(Plan *p, Instr instr);
/* Makes an instr wait for another lane's. Lanes are in order: of two instrs of one lane only the later is waited for.
 */
void plan_wait_for(Plan *p, Instr *instr, InstrId other);
/* A new tensor for the value of `t`: its shape and layer, its name with a mark. */
TensorId plan_like(Plan *p, TensorId t, Region region, const char *mark);
