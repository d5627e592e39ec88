/* Elements of a flat space, from `begin` to before `end`; and ascending lists of such intervals without overlap. */
#pragma once

#include "base/std.h"

typedef struct {
    int64_t begin, end; /* begin < end */
} Interval;

typedef struct {
    Interval *intervals; // (count)
    int count, cap;
    int64_t size; /* elements in all */
} Intervals;

bool interval_meets(const Interval *list, int n, Interval v); /* one of (n) has an element of it */
int interval_order(const void *a, const void *b);             /* for qsort: by their begin */
/* Appends; an empty interval is left out, one that begins where the last ends makes that longer. */
void intervals_add(Intervals *list, int64_t begin, int64_t end);
int64_t intervals_before(const Intervals *list, int64_t element); /* the number of its elements below `element` */
/* Sets *v to the first elements behind it, below `end`, that are in the list without a gap between them. False: there
   are none. `list` NULL: every element is in it. */
bool intervals_next(const Intervals *list, int64_t end, Interval *v);
/* The elements of those of `lists` (n) that are chosen (n; NULL: all), which may overlap. The caller frees. */
Intervals intervals_joined(const Intervals *lists, const bool *chosen, int n);
void intervals_free(Intervals *list);             /* takes a zeroed one */
void intervals_free_all(Intervals *lists, int n); // (n) and their array; takes NULL
