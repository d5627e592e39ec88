/* How ranks share the flat parameter space: rank r owns part r of every gradient bucket, a list of intervals determined
   by the sizes and the world size alone (docs/contracts.md 8). Cuts lie between norm blocks (NORM_BLOCK elements,
   counted from a tensor's start), so that a rank computes whole terms of every norm. */
#ifndef CAIRN_MODEL_SLICES_H
#define CAIRN_MODEL_SLICES_H

#include <stdint.h>

#include "base/base.h"
#include "base/norm_block.h"
#include "model/params.h"

/* Fills `slices` (ranks); the caller frees each with intervals_free. `buckets` (n_buckets) are the offsets at which
   buckets begin, the first 0, each the offset of a tensor; NULL: the whole space is one bucket. All slices together are
   the space, each element once. In each bucket no part is more than a norm block and its tensor's padding from the even
   share. */
void param_slices(const ParamTable *params, const int64_t *buckets, int n_buckets, int ranks, Intervals *slices);
/* Returns the end of part `rank` of the bucket [begin, end); a part begins at the end of the previous part. */
int64_t slice_cut(const ParamTable *params, int64_t begin, int64_t end, int rank, int ranks);

#endif
