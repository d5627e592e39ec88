#include "train/parts/coupling.h"

double coupling_rows(const Coupling *c, const float *e, const float *scores, int64_t n, int64_t apart, int64_t h,
                     float scale, float *de)
{
    (void)c, (void)e, (void)scores, (void)n, (void)apart, (void)h, (void)scale, (void)de;
    return 0;
}
