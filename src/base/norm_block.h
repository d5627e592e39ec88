/* Norms are sums over blocks of this many elements, counted from a tensor's start (docs/contracts.md 5). Backends sum
   the blocks; ranks divide the parameters at their borders. */
#pragma once

#include <stdint.h>

#define NORM_BLOCK 1024

static inline int64_t norm_blocks(int64_t elements) { return (elements + NORM_BLOCK - 1) / NORM_BLOCK; }
