/* Ascending order. The comparisons are for qsort and bsearch. */
#pragma once

#include <stdlib.h>
#include <string.h>

/* Compares doubles, none of them NaN. */
static inline int sort_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Compares texts (char *), byte by byte. */
static inline int sort_by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts the values; of an even number it is the mean of the middle two. n > 0. */
static inline double sort_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, sort_by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}
