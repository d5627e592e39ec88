/* Inside the reader of pickles: the unpickling machine (pickle.c), and the globals it knows with their calls
   (pickle_calls.c). */
#pragma once

#include "formats/pickle.h"

#define MAX_MARKS 100

/* The unpickling machine. `at` is the next byte to read. */
typedef struct {
    Pickle *p;
    const uint8_t *data;
    size_t size, at;
    PickleId *stack, *memo;
    uint32_t n_stack, stack_capacity, n_memo, memo_capacity;
    uint32_t marks[MAX_MARKS]; /* heights of the stack */
    int n_marks;
} Machine;

static inline PickleValue *pickle_value(const Machine *m, PickleId id) { return &m->p->values[id]; }

/* ---- pickle.c ---- */

Status pickle_push(Machine *m, PickleId id);
Status pickle_push_value(Machine *m, PickleValue v); /* a new value */
PickleKind pickle_top_kind(const Machine *m);        /* of the value that is popped next; PICKLE_NONE without one */
Status pickle_pop_kind(Machine *m, PickleKind kind, PickleId *id);
Status pickle_append(Machine *m, PickleId list, const PickleId *items, uint32_t n);

/* ---- pickle_calls.c: opcodes that concern globals ---- */

Status pickle_read_global(Machine *m);               /* GLOBAL */
Status pickle_read_stack_global(Machine *m);         /* STACK_GLOBAL */
Status pickle_new_object(Machine *m, bool keywords); /* NEWOBJ, NEWOBJ_EX: opaque objects only */
Status pickle_reduce(Machine *m);                    /* REDUCE */
Status pickle_persistent_id(Machine *m);             /* BINPERSID */
