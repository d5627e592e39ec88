/* Box plots as SVG: a row per group of values. */
#pragma once

#include "base/base.h"

/* Quantiles of a sample. */
typedef struct {
    double p5, p25, median, p75, p95;
} Quantiles;
Quantiles quantiles_of(double *values, int n); /* sorts them; NaN for none */

typedef struct {
    const char *name;
    Quantiles q;
    bool marked; /* in another colour */
} Box;

/* Whiskers are the quantiles of 5 and 95 %. `about` is a line below the title. `scale` and `unit`: of the axis. */
void box_svg(const char *title, const char *about, const Box *boxes, int n, double scale, const char *unit, int width,
             Buf *out);
