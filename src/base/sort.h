/* Ascending order. The comparisons are for qsort and bsearch. */
#pragma once

#include "base/mem.h"

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

/* A text that is in the list twice; NULL: all differ. */
static inline const char *sort_find_twice(char *const *texts, size_t n)
{
    char **sorted = (char **)mem_array(n, sizeof *sorted);
    const char *twice = NULL;
    for (size_t i = 0; i < n; i++) sorted[i] = texts[i];
    qsort(sorted, n, sizeof *sorted, sort_by_text);
    for (size_t i = 1; i < n && !twice; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0) twice = sorted[i];
    free(sorted);
    return twice;
}

/* Sorts the values; of an even number it is the mean of the middle two. n > 0. */
static inline double sort_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, sort_by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}
