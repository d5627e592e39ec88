/* How the flat parameter space is cut into parts: between norm blocks (NORM_BLOCK elements, counted from a tensor's
   start), so that a rank computes whole terms of every norm (docs/contracts.md 8). */
#ifndef CAIRN_MODEL_SLICES_H
#define CAIRN_MODEL_SLICES_H

#include <stdint.h>

#include "base/base.h"
#include "base/norm_block.h"
#include "model/params.h"

/* Returns the end of part `rank` of [begin, end), which begins and ends at cuts; a part begins at the end of the
   previous one. No part is more than a norm block and its tensor's padding from the even share. */
int64_t slice_cut(const ParamTable *params, int64_t begin, int64_t end, int rank, int ranks);

#endif
