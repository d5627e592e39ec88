/* Shared by attention's forward and backward: packing of a head's rows, products of packed operands, and the scratch
   of one thread. Queries go in blocks of BLOCK (whole dropout tiles and whole product tiles), keys in blocks of SPAN.
 */
#pragma once

#include "kernels/cpu/vec.h"
#include "kernels/cpu/vec/philox.h"
#include "kernels/cpu/vec/tile.h"

#define BLOCK 48
#define SPAN  528 /* a multiple of BLOCK, so that queries can be cut the same way; above BERT's 512 */

/* Rows inside a row-major matrix, from a column on. */
typedef struct {
    const char *data;
    int64_t step; /* elements from row to row */
} MatrixRows;

INLINE MatrixRows rows_at(const void *p, int64_t step, int64_t row, int64_t col, bool bf16)
{
    return (MatrixRows){(const char *)p + (size_t)(row * step + col) * (bf16 ? 2 : 4), step};
}

INLINE const uint32_t *row_f32(MatrixRows m, int64_t i)
{
    return (const uint32_t *)(const void *)(m.data + (size_t)(i * m.step) * 4);
}
INLINE const uint16_t *row_bf16(MatrixRows m, int64_t i)
{
    return (const uint16_t *)(const void *)(m.data + (size_t)(i * m.step) * 2);
}

/* Copies rows to be a product's A, units along the columns: to[i·units + p], zeros in rows up to whole tiles. */
INLINE void copy_rows(uint32_t *to, MatrixRows m, int64_t rows, int64_t d, bool bf16)
{
    int64_t units = depth_units(d, bf16);
    for (int64_t i = 0; i < rows; i++) {
        uint32_t *t = to + i * units;
        if (units) t[units - 1] = 0;
        if (bf16)
            memcpy(t, row_bf16(m, i), (size_t)d * 2);
        else
            memcpy(t, row_f32(m, i), (size_t)d * 4);
    }
    memset(to + rows * units, 0, (size_t)((round_up(rows, TILE_ROWS) - rows) * units) * 4);
}

/* Packs B with the rows as columns (K for q·kᵀ): panels of TILE_COLS rows, unit after unit along the columns. */
INLINE void pack_transposed(uint32_t *to, MatrixRows m, int64_t rows, int64_t d, bool bf16)
{
    int64_t units = depth_units(d, bf16), whole = bf16 ? d / 2 : d;
    for (int64_t j = 0; j < rows; j += TILE_COLS, to += units * TILE_COLS) {
        int64_t width = rows - j < TILE_COLS ? rows - j : TILE_COLS;
        const char *from = bf16 ? (const char *)row_bf16(m, j) : (const char *)row_f32(m, j);
        if (bf16 && m.step % 2) { /* rows are not a whole number of units apart */
            for (int64_t c = 0; c < TILE_COLS; c++)
                for (int64_t p = 0; p < whole; p++) {
                    uint32_t unit = 0;
                    if (c < width) memcpy(&unit, row_bf16(m, j + c) + 2 * p, 4);
                    to[p * TILE_COLS + c] = unit;
                }
        } else {
            transpose(to, TILE_COLS, from, bf16 ? m.step / 2 : m.step, width, TILE_COLS, whole);
        }
        for (int64_t c = 0; c < TILE_COLS && whole < units; c++)
            to[whole * TILE_COLS + c] = c < width ? row_bf16(m, j + c)[d - 1] : 0;
    }
}

/* Packs B with the rows as depth (V for p·v): panels of TILE_COLS columns, unit after unit along the rows. */
INLINE void pack_natural(uint32_t *to, MatrixRows m, int64_t rows, int64_t d, bool bf16)
{
    int64_t units = depth_units(rows, bf16);
    for (int64_t j = 0; j < d; j += TILE_COLS, to += units * TILE_COLS) {
        int64_t width = d - j < TILE_COLS ? d - j : TILE_COLS;
        for (int64_t p = 0; p < units; p++)
            for (int64_t c = 0; c < TILE_COLS; c += VL) {
                vu unit = {0};
                if (!bf16) {
                    if (c < width) unit = (vu)load_at(row_f32(m, p) + j, c, width - c, false);
                } else if (c < width) {
                    vu low = (vu)load_at(row_bf16(m, 2 * p) + j, c, width - c, true) >> 16, high = {0};
                    if (2 * p + 1 < rows) high = (vu)load_at(row_bf16(m, 2 * p + 1) + j, c, width - c, true);
                    unit = low | high;
                }
                store_u(to + p * TILE_COLS + c, unit);
            }
    }
}

/* c (rows, cols) = (add ? c : 0) + A·B, rows and cols in whole tiles. */
INLINE void multiply(float *c, int64_t c_step, bool add, const uint32_t *a, int64_t row_step, int64_t depth_step,
                     const uint32_t *b, int64_t depth, int64_t rows, int64_t cols, bool bf16)
{
    for (int64_t j = 0; j < cols; j += TILE_COLS, b += depth * TILE_COLS)
        for (int64_t i = 0; i < rows; i += TILE_ROWS)
            tile(c + i * c_step + j, c_step, add, a + i * row_step, row_step, depth_step, b, depth, bf16);
}

/* Sizes for one call, in 32-bit units, from the longest possible sequence. */
typedef struct {
    int64_t d, d_units, d_cols; /* head size; along the depth; in whole tiles */
    int64_t span, span_cols;    /* most keys of a block; in whole tiles */
    bool spans;                 /* more than one block of keys may be needed */
} AttentionSizes;

INLINE AttentionSizes attention_sizes(const Attention *a)
{
    int64_t span = a->max_length < SPAN ? a->max_length : SPAN;
    return (AttentionSizes){
        .d = a->head_dim,
        .d_units = depth_units(a->head_dim, a->bf16),
        .d_cols = round_up(a->head_dim, TILE_COLS),
        .span = span,
        .span_cols = round_up(span, TILE_COLS),
        .spans = a->max_length > SPAN,
    };
}

INLINE void *take_units(HostScratch *s, int64_t units) { return host_take(s, units, 4); }

INLINE int64_t at_most(int64_t n, int64_t limit) { return n < limit ? n : limit; }
