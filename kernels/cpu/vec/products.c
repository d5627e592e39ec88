/* Products of packed operands, for CPUs on which oneDNN has none, and for small ones. Each element is a sum over the
   depth in order, whatever rows are beside it, so a row has the same bits in any number of rows. */
#include "kernels/cpu/vec.h"
#include "kernels/cpu/vec/tile.h"

#define DEPTH      384 /* of a panel that stays in the first-level cache */
#define BLOCK_ROWS 192 /* of A, packed, that stay in the second */
#define GRAD_DEPTH 768 /* rows of a weight gradient's operands that are packed at a time */
#define GRAD_COLS  768
#define GRAD_ROWS  96

/* ---- packing ---- */

/* Two values along the depth as one unit; `last` where there is only the first. */
INLINE uint32_t pair(const uint16_t *a, const uint16_t *b, bool last) { return *a | (last ? 0 : (uint32_t)*b << 16); }

/* Rows [0, rows) of a row-major matrix, depths [first, first + units) in units, as a tile's A: unit after unit the
   TILE_ROWS rows. `k` is the matrix's depth in values. */
INLINE void pack_rows(uint32_t *to, const void *x, int64_t k, int64_t rows, int64_t first, int64_t units, bool bf16)
{
    for (int64_t i = 0; i < rows; i += TILE_ROWS, to += units * TILE_ROWS) {
        int64_t m = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
        if (!bf16) {
            transpose(to, TILE_ROWS, (const uint32_t *)x + i * k + first, k, m, TILE_ROWS, units);
        } else {
            const uint16_t *from = (const uint16_t *)x + i * k + 2 * first;
            for (int64_t p = 0; p < units; p++)
                for (int64_t r = 0; r < TILE_ROWS; r++)
                    to[p * TILE_ROWS + r] =
                        r < m ? pair(from + r * k + 2 * p, from + r * k + 2 * p + 1, 2 * (first + p) + 1 >= k) : 0;
        }
    }
}

/* Columns [0, cols) of `depth` rows of a row-major matrix in groups of `group` columns, each unit after unit. `step` is
   the matrix's width. */
INLINE void pack_columns(uint32_t *to, const void *x, int64_t step, int64_t depth, int64_t cols, int64_t group,
                         bool bf16)
{
    int64_t units = depth_units(depth, bf16);
    for (int64_t j = 0; j < cols; j += group, to += units * group) {
        int64_t m = cols - j < group ? cols - j : group;
        for (int64_t p = 0; p < units; p++) {
            uint32_t *unit = to + p * group;
            if (!bf16) {
                const uint32_t *from = (const uint32_t *)x + p * step + j;
                if (m == group)
                    memcpy(unit, from, (size_t)group * 4);
                else
                    for (int64_t c = 0; c < group; c++) unit[c] = c < m ? from[c] : 0;
            } else {
                const uint16_t *from = (const uint16_t *)x + 2 * p * step + j;
                for (int64_t c = 0; c < group; c++)
                    unit[c] = c < m ? pair(from + c, from + c + step, 2 * p + 1 >= depth) : 0;
            }
        }
    }
}

/* ---- weights ---- */

int64_t V(weight_panels)(int64_t cols) { return (cols + TILE_COLS - 1) / TILE_COLS; }

size_t V(weight_bytes)(int64_t depth, int64_t cols, bool bf16)
{
    return (size_t)(V(weight_panels)(cols) * TILE_COLS * depth_units(depth, bf16)) * sizeof(uint32_t);
}

INLINE uint32_t weight_unit(const float *w, int64_t at, int64_t step, bool bf16, bool last)
{
    if (!bf16) return f32_bits(w[at]);
    return bf16_from_f32(w[at]) | (last ? 0 : (uint32_t)bf16_from_f32(w[at + step]) << 16);
}

/* Panels [first, end) of the copy of a (n, k) weight: the product's columns are n and its depth k, or, transposed, its
   columns k and its depth n. */
void V(pack_weight)(void *to, const float *w, int64_t n, int64_t k, bool transposed, bool bf16, int64_t first,
                    int64_t end)
{
    int64_t depth = transposed ? n : k, cols = transposed ? k : n, units = depth_units(depth, bf16);
    for (int64_t panel = first; panel < end; panel++) {
        uint32_t *t = (uint32_t *)to + panel * units * TILE_COLS;
        int64_t col = panel * TILE_COLS, m = cols - col < TILE_COLS ? cols - col : TILE_COLS;
        if (!bf16 && transposed)
            pack_columns(t, w + col, k, depth, m, TILE_COLS, false);
        else if (!bf16)
            transpose(t, TILE_COLS, w + col * k, k, m, TILE_COLS, units);
        else
            for (int64_t p = 0; p < units; p++)
                for (int64_t c = 0; c < TILE_COLS; c++) {
                    int64_t at = transposed ? 2 * p * k + col + c : (col + c) * k + 2 * p;
                    bool last = 2 * p + 1 >= depth;
                    t[p * TILE_COLS + c] = c < m ? weight_unit(w, at, transposed ? k : 1, true, last) : 0;
                }
    }
}

/* Prefetches the rows that a tile is added to. An address past the end of the matrix is harmless. */
INLINE void prefetch_tile(const void *to, size_t step)
{
    for (size_t i = 0; i < TILE_ROWS; i++) __builtin_prefetch((const void *)((uintptr_t)to + i * step), 1);
}

/* ---- y = x·B ---- */

/* An output in bf16 cannot hold a partial sum: then the depth is not cut. */
static int64_t rows_depth(int64_t k, bool bf16) { return bf16 ? depth_units(k, true) : k < DEPTH ? k : DEPTH; }

size_t V(rows_scratch)(int64_t k, bool bf16) { return (size_t)(BLOCK_ROWS * rows_depth(k, bf16)) * sizeof(uint32_t); }

/* Writes m rows of a tile to y. `first`: of the depth's chunks; the later ones add to y. */
INLINE void write_tile(const RowProduct *a, const float *sum, int64_t row, int64_t col, int64_t m, bool first)
{
    int64_t width = a->n - col < TILE_COLS ? a->n - col : TILE_COLS;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < width; j += VL) {
            int64_t at = (row + i) * a->n + col + j;
            vf x = load(sum + i * TILE_COLS + j);
            if (a->add || !first) x += load_at(a->y, at, width - j, a->y_bf16);
            if (a->bias && first) x += load_at(a->bias, col + j, width - j, false);
            store_at(a->y, at, width - j, a->y_bf16, x);
        }
}

INLINE void rows_product(const RowProduct *a, int64_t first, int64_t end, int64_t panel, int64_t panel_end,
                         uint32_t *packed, bool bf16)
{
    int64_t units = depth_units(a->k, bf16), chunk = rows_depth(a->k, bf16);
    _Alignas(64) float sum[TILE_ROWS * TILE_COLS];
    for (int64_t row = first; row < end; row += BLOCK_ROWS)
        for (int64_t p = 0; p < units; p += chunk) {
            int64_t rows = end - row < BLOCK_ROWS ? end - row : BLOCK_ROWS;
            int64_t depth = units - p < chunk ? units - p : chunk;
            const char *x = (const char *)a->x + (size_t)(row * a->k) * (bf16 ? 2 : 4);
            pack_rows(packed, x, a->k, rows, p, depth, bf16);
            for (int64_t j = panel; j < panel_end; j++) {
                const uint32_t *b = (const uint32_t *)a->b + (j * units + p) * TILE_COLS;
                for (int64_t i = 0; i < rows; i += TILE_ROWS) {
                    prefetch_tile((const char *)a->y + (size_t)((row + i) * a->n + j * TILE_COLS) * (a->y_bf16 ? 2 : 4),
                                  (size_t)a->n * (a->y_bf16 ? 2 : 4));
                    tile(sum, TILE_COLS, false, packed + i * depth, 1, TILE_ROWS, b, depth, bf16);
                    write_tile(a, sum, row + i, j * TILE_COLS, rows - i < TILE_ROWS ? rows - i : TILE_ROWS, p == 0);
                }
            }
        }
}

void V(rows_product)(const RowProduct *a, int64_t first, int64_t end, int64_t panel, int64_t panel_end, void *scratch)
{
    BY_TYPE(a->x_bf16, rows_product, a, first, end, panel, panel_end, scratch);
}

/* ---- dw += dyᵀ·x ---- */

size_t V(grad_scratch)(void) { return (size_t)GRAD_DEPTH * (GRAD_COLS + GRAD_ROWS) * sizeof(uint32_t); }

INLINE void add_tile(const GradProduct *a, const float *sum, int64_t row, int64_t col, int64_t m, int64_t width)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < width; j += VL) {
            int64_t at = (row + i) * a->k + col + j;
            store_at(a->dw, at, width - j, false, load_at(a->dw, at, width - j, false) + load(sum + i * TILE_COLS + j));
        }
}

/* One block: packed dy (GRAD_ROWS of its columns) and packed x (GRAD_COLS), `units` deep. */
INLINE void grad_block(const GradProduct *a, int64_t row, int64_t rows, int64_t col, int64_t cols, const uint32_t *pa,
                       const uint32_t *pb, int64_t units, bool bf16)
{
    _Alignas(64) float sum[TILE_ROWS * TILE_COLS];
    for (int64_t p = 0; p < units; p += DEPTH) {
        int64_t depth = units - p < DEPTH ? units - p : DEPTH;
        for (int64_t j = 0; j < cols; j += TILE_COLS)
            for (int64_t i = 0; i < rows; i += TILE_ROWS) {
                prefetch_tile(a->dw + (row + i) * a->k + col + j, (size_t)a->k * sizeof(float));
                tile(sum, TILE_COLS, false, pa + i * units + p * TILE_ROWS, 1, TILE_ROWS,
                     pb + j * units + p * TILE_COLS, depth, bf16);
                add_tile(a, sum, row + i, col + j, rows - i < TILE_ROWS ? rows - i : TILE_ROWS,
                         cols - j < TILE_COLS ? cols - j : TILE_COLS);
            }
    }
}

INLINE void grad_product(const GradProduct *a, int64_t n_first, int64_t n_end, int64_t k_first, int64_t k_end,
                         uint32_t *scratch, bool bf16)
{
    uint32_t *pa = scratch, *pb = scratch + (size_t)GRAD_DEPTH * GRAD_ROWS;
    size_t size = bf16 ? 2 : 4;
    for (int64_t t = 0; t < a->rows; t += GRAD_DEPTH)
        for (int64_t col = k_first; col < k_end; col += GRAD_COLS) {
            int64_t depth = a->rows - t < GRAD_DEPTH ? a->rows - t : GRAD_DEPTH;
            int64_t cols = k_end - col < GRAD_COLS ? k_end - col : GRAD_COLS;
            pack_columns(pb, (const char *)a->x + (size_t)(t * a->k + col) * size, a->k, depth, cols, TILE_COLS, bf16);
            for (int64_t row = n_first; row < n_end; row += GRAD_ROWS) {
                int64_t rows = n_end - row < GRAD_ROWS ? n_end - row : GRAD_ROWS;
                const char *dy = (const char *)a->dy + (size_t)(t * a->n + row) * size;
                pack_columns(pa, dy, a->n, depth, rows, TILE_ROWS, bf16);
                grad_block(a, row, rows, col, cols, pa, pb, depth_units(depth, bf16), bf16);
            }
        }
}

void V(grad_product)(const GradProduct *a, int64_t n_first, int64_t n_end, int64_t k_first, int64_t k_end,
                     void *scratch)
{
    BY_TYPE(a->bf16, grad_product, a, n_first, n_end, k_first, k_end, scratch);
}
