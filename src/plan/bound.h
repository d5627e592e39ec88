/* The certificate of a plan: what no schedule can do better (docs/contracts.md 6 has the proof). A schedule runs each
   instr of forward and backward at least once, those of backward and losses once, in any order that their data permit;
   it may run forward instrs again, and keep any tensor as long as it likes. In form XHAT it may make y from xhat, by an
   AFFINE, or keep both. */
#pragma once

#include "plan/front.h"

typedef struct PlanBound PlanBound;

/* From a plan after plan_liveness in which layers keep all. Rooms above `most` bytes are not asked for. */
PlanBound *plan_bound_make(const Plan *p, const RowCounts *rows, double seq_len, const CostRates *rates, int64_t most);
void plan_bound_free(PlanBound *b); /* takes NULL */
/* Picoseconds of the instrs that all schedules run. */
int64_t plan_bound_least(const PlanBound *b);
/* No schedule with `room` bytes of activations adds less than so many picoseconds to the instrs that all run;
   INT64_MAX: none has room. */
int64_t plan_bound_added(const PlanBound *b, int64_t room);
/* No schedule that adds at most so many picoseconds has room in less bytes; INT64_MAX: any time. */
int64_t plan_bound_room(const PlanBound *b, int64_t added);
