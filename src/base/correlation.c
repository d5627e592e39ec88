#include "base/correlation.h"

#include "base/base.h"

static bool varies(const double *x, size_t n) // (n)
{
    bool differs = false;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
        differs |= x[i] != x[0];
    }
    return differs;
}

/* Mean by compensated summation (Neumaier). */
static double mean(const double *x, size_t n) // (n)
{
    double sum = 0, lost = 0;
    for (size_t i = 0; i < n; i++) {
        double next = sum + x[i];
        lost += fabs(sum) >= fabs(x[i]) ? (sum - next) + x[i] : (x[i] - next) + sum;
        sum = next;
    }
    return (sum + lost) / (double)n;
}

double correlation_pearson(const double *x, const double *y, size_t n) // (n), (n)
{
    if (n < 2 || !varies(x, n) || !varies(y, n)) return NAN;
    double mx = mean(x, n), my = mean(y, n), sxx = 0, syy = 0, sxy = 0;
    for (size_t i = 0; i < n; i++) {
        double dx = x[i] - mx, dy = y[i] - my;
        sxx += dx * dx;
        syy += dy * dy;
        sxy += dx * dy;
    }
    if (!(sxx > 0) || !(syy > 0) || isinf(sxx) || isinf(syy)) return NAN;
    return fmax(-1.0, fmin(1.0, sxy / (sqrt(sxx) * sqrt(syy))));
}

typedef struct {
    double value;
    size_t at;
} Ranked;

static int by_value(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Ranks from 1; equal values share the mean of their ranks. */
static void average_ranks(const double *x, size_t n, double *ranks) // (n), (n)
{
    Ranked *order = mem_array(n, sizeof *order);
    for (size_t i = 0; i < n; i++) order[i] = (Ranked){x[i], i};
    qsort(order, n, sizeof *order, by_value);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && order[j].value == order[i].value;) j++;
        for (size_t k = i; k < j; k++) ranks[order[k].at] = 0.5 * (double)(i + 1 + j);
    }
    free(order);
}

double correlation_spearman(const double *x, const double *y, size_t n) // (n), (n)
{
    if (n < 2 || !varies(x, n) || !varies(y, n)) return NAN;
    double *rx = mem_array(n, sizeof *rx), *ry = mem_array(n, sizeof *ry);
    average_ranks(x, n, rx);
    average_ranks(y, n, ry);
    double r = correlation_pearson(rx, ry, n);
    MEM_FREE(rx, ry);
    return r;
}
