/* Choices for layers, one after another from the first one up, of which no other is faster and keeps less: a Pareto
   front. Times are whole picoseconds, so that sums do not depend on their order. */
#pragma once

#include "plan/plan.h"

/* What a choice takes in one layer. */
typedef struct {
    int64_t picoseconds; /* of its instrs in `micro` */
    int64_t forward;     /* of these in forward */
    int64_t kept;        /* bytes between forward and backward */
    int64_t peak; /* bytes of activations while it runs, forward or backward, without what layers below it keep */
} LayerCost;

/* A choice for the layers so far. */
typedef struct {
    int64_t picoseconds, kept;
    int32_t from; /* the point of the layers below that it continues */
    int16_t cost; /* of the last layer, the number of its choice */
} FrontPoint;

typedef struct {
    FrontPoint *points; /* (n) from the fastest to the one that keeps least */
    int n, cap;
} Front;

/* The front of no layers. */
void front_init(Front *f);
void front_free(Front *f);
/* In every respect. */
bool front_as_good(const LayerCost *a, const LayerCost *b);
/* The costs of which no other is as good, and the first of equal ones; (n) numbers. Returns how many. */
int front_useful(const LayerCost *costs, int n, int16_t *useful);
/* The front with one layer more, for which there are `costs` (n), each where its peak beside what is kept below is
   within `room`; without points that take longer than `most`. */
void front_extend(const Front *below, const LayerCost *costs, int n, int64_t room, int64_t most, Front *front);
/* Picoseconds of the fastest point that keeps at most so many bytes; INT64_MAX: none does. */
int64_t front_fastest(const Front *f, int64_t kept);
/* Bytes kept by the point that keeps least, of those that take at most so long; INT64_MAX: none does. */
int64_t front_least(const Front *f, int64_t picoseconds);
