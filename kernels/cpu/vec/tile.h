/* The inner loop of every product of ours: a tile of TILE_ROWS × TILE_COLS in registers. Operands are 32-bit units: one
   fp32 value, or two bf16 values that lie one behind the other along the summed dimension, so that one loop serves
   both. B is in panels: for each TILE_COLS columns the units of all depths, depth after depth. */
#pragma once

#include "kernels/cpu/vec/simd.h"

#define TILE_ROWS (VL == 16 ? 8 : 6)
#define TILE_VECS 2
#define TILE_COLS (TILE_VECS * VL)

INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
/* Units along the summed dimension. */
INLINE int64_t depth_units(int64_t n, bool bf16) { return bf16 ? (n + 1) / 2 : n; }

INLINE vf dot(vf sum, vu a, vu b, bool bf16)
{
    if (!bf16) return fma_((vf)a, (vf)b, sum);
#if VL == 16 && defined __AVX512BF16__
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    sum = fma_((vf)(a << 16), (vf)(b << 16), sum);
    return fma_((vf)(a & 0xffff0000u), (vf)(b & 0xffff0000u), sum);
#endif
}

/* c = (add ? c : 0) + A·B over `depth` units; a[i·row_step + p·depth_step]. c is fp32, row-major. */
INLINE void tile(float *c, int64_t c_step, bool add, const uint32_t *a, int64_t row_step, int64_t depth_step,
                 const uint32_t *b, int64_t depth, bool bf16)
{
    vf sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < TILE_VECS; j++) sum[i][j] = add ? load(c + i * c_step + j * VL) : (vf){0};
    for (int64_t p = 0; p < depth; p++) {
        vu b0 = load_u(b), b1 = load_u(b + VL);
        b += TILE_COLS;
#pragma GCC unroll 8
        for (int i = 0; i < TILE_ROWS; i++) {
            vu ai = splat_u(a[i * row_step + p * depth_step]);
            sum[i][0] = dot(sum[i][0], ai, b0, bf16);
            sum[i][1] = dot(sum[i][1], ai, b1, bf16);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < TILE_VECS; j++) store(c + i * c_step + j * VL, sum[i][j]);
}

/* ---- transposing units ---- */

typedef uint32_t Quad __attribute__((vector_size(16)));
typedef uint32_t QuadMem __attribute__((vector_size(16), aligned(2), may_alias)); /* rows of bf16 start anywhere */

/* Two vectors' units by number, those of b from 4 on. gcc before 12 has only its own builtin for it. */
#if defined __clang__ || __GNUC__ >= 12
#    define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#    define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (Quad){__VA_ARGS__})
#endif

INLINE uint32_t unit_at(const char *from, int64_t i)
{
    uint32_t unit;
    memcpy(&unit, from + 4 * i, 4);
    return unit;
}

/* to[p·to_step + i] = from[i·from_step + p], 4×4 */
INLINE void transpose4(uint32_t *to, int64_t to_step, const char *from, int64_t from_step)
{
    Quad r[4], s[4];
    for (int i = 0; i < 4; i++) r[i] = *(const QuadMem *)(const void *)(from + 4 * i * from_step);
    s[0] = SHUFFLE(r[0], r[1], 0, 4, 1, 5);
    s[1] = SHUFFLE(r[0], r[1], 2, 6, 3, 7);
    s[2] = SHUFFLE(r[2], r[3], 0, 4, 1, 5);
    s[3] = SHUFFLE(r[2], r[3], 2, 6, 3, 7);
    *(QuadMem *)(to) = SHUFFLE(s[0], s[2], 0, 1, 4, 5);
    *(QuadMem *)(to + to_step) = SHUFFLE(s[0], s[2], 2, 3, 6, 7);
    *(QuadMem *)(to + 2 * to_step) = SHUFFLE(s[1], s[3], 0, 1, 4, 5);
    *(QuadMem *)(to + 3 * to_step) = SHUFFLE(s[1], s[3], 2, 3, 6, 7);
}

/* to[p·to_step + i] = from[i·from_step + p] for rows i and depths p, steps in units; rows up to `rows_padded` become 0.
 */
INLINE void transpose(uint32_t *to, int64_t to_step, const void *from, int64_t from_step, int64_t rows,
                      int64_t rows_padded, int64_t depth)
{
    const char *x = from;
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        int64_t p = 0;
        for (; p + 4 <= depth; p += 4)
            transpose4(to + p * to_step + i, to_step, x + 4 * (i * from_step + p), from_step);
        for (; p < depth; p++)
            for (int64_t k = i; k < i + 4; k++) to[p * to_step + k] = unit_at(x, k * from_step + p);
    }
    for (; i < rows_padded; i++)
        for (int64_t p = 0; p < depth; p++) to[p * to_step + i] = i < rows ? unit_at(x, i * from_step + p) : 0;
}
