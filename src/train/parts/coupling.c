#include "train/parts/coupling.h"

static double dot(const float *x, const float *y, int64_t h) // (h), (h)
{
    double sum = 0;
    for (int64_t d = 0; d < h; d++) sum += (double)x[d] * (double)y[d];
    return sum;
}

static double distance(const float *x, const float *y, int64_t h) // (h), (h)
{
    double sum = 0;
    for (int64_t d = 0; d < h; d++) sum += ((double)x[d] - (double)y[d]) * ((double)x[d] - (double)y[d]);
    return sqrt(sum);
}

static double cosine_row(const float *a, const float *p, double score, int64_t h, double scale, float *da, float *dp)
{
    double error = dot(a, p, h) - score, g = 2 * error * scale;
    for (int64_t d = 0; d < h; d++) {
        da[d] = (float)(g * (double)p[d]);
        dp[d] = (float)(g * (double)a[d]);
    }
    return error * error;
}

/* A distance of 0 has no gradient. */
static double triplet_row(const float *a, const float *p, const float *n, double margin, int64_t h, double scale,
                          float *da, float *dp, float *dn)
{
    double near = distance(a, p, h), far = distance(a, n, h), loss = near - far + margin;
    double to_p = loss > 0 && near > 0 ? scale / near : 0, to_n = loss > 0 && far > 0 ? scale / far : 0;
    for (int64_t d = 0; d < h; d++) {
        double gp = to_p * ((double)a[d] - (double)p[d]), gn = to_n * ((double)a[d] - (double)n[d]);
        da[d] = (float)(gp - gn);
        dp[d] = (float)-gp;
        dn[d] = (float)gn;
    }
    return loss > 0 ? loss : 0;
}

double coupling_rows(const Coupling *c, const float *e, const float *scores, int64_t n, int64_t apart, int64_t h,
                     float scale, float *de)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at[3];
        for (int k = 0; k < c->texts; k++) at[k] = (k * apart + i) * h;
        if (c->loss == COUPLE_COSINE)
            sum += cosine_row(e + at[0], e + at[1], (double)scores[i], h, (double)scale, de + at[0], de + at[1]);
        else
            sum += triplet_row(e + at[0], e + at[1], e + at[2], (double)c->margin, h, (double)scale, de + at[0],
                               de + at[1], de + at[2]);
    }
    return sum;
}
