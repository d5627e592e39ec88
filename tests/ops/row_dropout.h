/* A second formula of the dropout of rows (docs/contracts.md 4): one draw by its counter. */
#pragma once

#include <math.h>

#include "kernels/dropout.h"

#define KEY (UINT64_C(42) ^ PHILOX_DROPOUT)

static inline bool row_dropped(uint32_t site, uint32_t batch, uint32_t sequence, uint32_t position, uint32_t column,
                               float p)
{
    Philox4 draws = philox4(KEY, column / 8, position, sequence, site | batch << 10);
    return philox_draw16(&draws, (int)(column % 8)) < (uint32_t)lrint(65536.0 * (double)p);
}
