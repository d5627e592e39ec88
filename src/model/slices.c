#include "model/slices.h"

/* The cut nearest to `ideal`: a tensor's start, or a whole number of norm blocks after it. Padding after the last block
   of a tensor belongs to that block. */
static int64_t nearest_cut(const ParamTable *t, int64_t begin, int64_t end, int64_t ideal)
{
    int low = 0, high = t->count - 1; /* the last tensor that starts at or before `ideal` */
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (t->params[middle].offset <= ideal)
            low = middle;
        else
            high = middle - 1;
    }
    const Param *p = &t->params[low];
    int64_t next = low + 1 < t->count ? t->params[low + 1].offset : t->size, held = param_held(p);
    int64_t below = p->offset + (ideal - p->offset) / NORM_BLOCK * NORM_BLOCK;
    int64_t last = p->offset + (held > 0 ? (held - 1) / NORM_BLOCK * NORM_BLOCK : 0); /* start of the last block */
    if (below > last) below = last;
    int64_t above = below == last ? next : below + NORM_BLOCK;
    int64_t cut = ideal - below <= above - ideal ? below : above;
    return cut < begin ? begin : cut > end ? end : cut;
}

int64_t slice_cut(const ParamTable *params, int64_t begin, int64_t end, int rank, int ranks)
{
    /* (end - begin)·(rank + 1) stays far below 2^63 */
    return rank + 1 == ranks ? end : nearest_cut(params, begin, end, begin + (end - begin) * (rank + 1) / ranks);
}
