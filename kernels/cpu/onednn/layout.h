/* The layout of packed weights, as oneDNN chooses it for a product, and packing into it. */
#pragma once

#include "kernels/cpu/onednn/api.h"

#define CHUNK 2048 /* rows of the largest piece of a product, for which layouts are chosen */

/* The packed layout of weights whose product has this depth and these columns. */
typedef struct {
    Dtype dtype;
    int64_t depth, columns;
    Desc *desc;
    dnnl_memory_t packed;   /* handle set at each packing */
    dnnl_memory_t plain[2]; /* the F32 weight as (depth, columns): of x·wᵀ, of dy·w */
    dnnl_primitive_t pack[2];
} PackedLayout;

/* Fills a layout whose dtype, depth and columns are set: the one that oneDNN chooses for a product of a CHUNK. */
Status layout_make(PackedLayout *l, dnnl_engine_t engine);
/* Packs the F32 weight w: (columns, depth), or transposed (depth, columns). */
Status layout_pack(const PackedLayout *l, dnnl_stream_t stream, void *copy, const float *w, bool transposed);
void layout_free(PackedLayout *l); /* and its memory */
