/* How two lists of numbers go together, to 1e-12 as SciPy. NaN: one number or none, equal ones alone, or one that is
   not finite. */
#pragma once

#include <stddef.h>

double correlation_pearson(const double *x, const double *y, size_t n);  // (n), (n)
double correlation_spearman(const double *x, const double *y, size_t n); /* by ranks; equal values share their mean */
