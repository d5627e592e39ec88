/* Digest of values in the flat space, as a sum over blocks: it does not depend on who adds which of them. */
#include <stdatomic.h>

#include "base/norm_block.h"
#include "base/parallel.h"
#include "model/params.h"

#define GRAIN 1024 /* blocks of a thread, at least: 4 MiB */

typedef struct {
    const float *x;       /* the values of block `first` */
    int64_t place, count; /* element in the space of x[0]; elements */
    _Atomic uint64_t sum;
} SumPart;

static void sum_blocks(void *arg, size_t begin, size_t end)
{
    SumPart *p = arg;
    uint64_t sum = 0;
    for (size_t b = begin; b < end; b++) {
        int64_t at = (int64_t)b * NORM_BLOCK, n = p->count - at < NORM_BLOCK ? p->count - at : NORM_BLOCK;
        struct {
            Digest values;
            int64_t place;
        } block = {digest_of(p->x + at, (size_t)n * sizeof *p->x), p->place + at};
        sum += digest_of(&block, sizeof block).lo;
    }
    atomic_fetch_add(&p->sum, sum);
}

uint64_t param_sum(const float *values, int64_t count, int64_t place)
{
    SumPart p = {.x = values, .place = place, .count = count};
    parallel_ranges((size_t)norm_blocks(count), GRAIN, sum_blocks, &p);
    return p.sum;
}
