/* Philox4x32-10 with VL calls at once, for dropout (contracts.md 4). */
#pragma once

#include "kernels/cpu/vec/simd.h"
#include "kernels/dropout.h"

#if VL == 16
INLINE void wide_multiply(vu a, uint32_t m, vu *high, vu *low)
{
    __m512i by = _mm512_set1_epi32((int)m), even = _mm512_mul_epu32((__m512i)a, by);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), by);
    *low = (vu)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
    *high = (vu)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}
#elif VL == 8
INLINE void wide_multiply(vu a, uint32_t m, vu *high, vu *low)
{
    __m256i by = _mm256_set1_epi32((int)m), even = _mm256_mul_epu32((__m256i)a, by);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), by);
    *low = (vu)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    *high = (vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}
#else
INLINE void wide_multiply(vu a, uint32_t m, vu *high, vu *low)
{
    for (int i = 0; i < VL; i++) {
        uint64_t product = (uint64_t)a[i] * m;
        (*high)[i] = (uint32_t)(product >> 32);
        (*low)[i] = (uint32_t)product;
    }
}
#endif

typedef struct {
    vu v[4];
} PhiloxLanes;

INLINE PhiloxLanes philox_lanes(uint64_t key, vu c0, vu c1, vu c2, vu c3)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        vu high0, low0, high1, low1;
        wide_multiply(c0, 0xD2511F53u, &high0, &low0);
        wide_multiply(c2, 0xCD9E8D57u, &high1, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (PhiloxLanes){{c0, c1, c2, c3}};
}

INLINE vu lane_numbers(void)
{
    vu x;
    for (int i = 0; i < VL; i++) x[i] = (uint32_t)i;
    return x;
}

/* Four of a vector's 32-bit values, from lane 4·quad, to memory. */
INLINE void store_quad(void *to, vu x, int quad) { memcpy(to, (const char *)&x + 16 * quad, 16); }

/* The draws of a row's columns 0 … cols−1 and up to 8·VL − 1 more, in order. */
INLINE void row_draws(uint16_t *draws, const Dropout *d, uint32_t position, uint32_t sequence, int64_t cols)
{
    for (int64_t first = 0; first < cols; first += 8 * VL) {
        PhiloxLanes p = philox_lanes(d->key, lane_numbers() + (uint32_t)(first / 8), splat_u(position),
                                     splat_u(sequence), splat_u(d->c3));
        /* 4×4 transposition in each quad of lanes: call after call, its four words side by side */
        uint32_t word[4][VL], *to = (uint32_t *)(void *)(draws + first);
        for (int i = 0; i < 4; i++) store_u(word[i], p.v[i]);
        for (int i = 0; i < VL; i++)
            for (int j = 0; j < 4; j++) to[4 * i + j] = word[j][i];
    }
}

/* Draws of `queries` ≤ 16·n rows of probabilities from a query that starts a tile, over keys first_key (which starts a
   tile) … first_key + keys − 1 and up to 4·VL more; draws[query · stride + key − first_key]. */
INLINE void tile_draws(uint16_t *draws, int64_t stride, const Dropout *d, uint32_t head, uint32_t sequence,
                       int64_t first_query, int64_t queries, int64_t first_key, int64_t keys)
{
    for (int64_t q = 0; q < queries; q += 16)
        for (int g = 0; g < 8 && q + g < queries; g++) {
            uint32_t c1 = (uint32_t)((first_query + q) / 16 * 8 + g) | head << 16;
            for (int64_t k = 0; k < keys; k += 4 * VL) {
                uint32_t c0 = (uint32_t)((first_key + k) / 16 * 4);
                PhiloxLanes p =
                    philox_lanes(d->key, lane_numbers() + c0, splat_u(c1), splat_u(sequence), splat_u(d->c3));
                for (int half = 0; half < 2 && q + g + 8 * half < queries; half++) {
                    uint16_t *to = draws + (q + g + 8 * half) * stride + k;
                    for (int tile = 0; tile < VL / 4; tile++) {
                        store_quad(to + 16 * tile, p.v[2 * half], tile);
                        store_quad(to + 16 * tile + 8, p.v[2 * half + 1], tile);
                    }
                }
            }
        }
}

/* All ones where a value is kept; `draws` holds VL of them (or m < VL and rubbish behind). */
INLINE vi kept_lanes(const uint16_t *draws, uint32_t threshold)
{
    return __builtin_convertvector(__builtin_convertvector(load_h(draws), vu), vi) >= (vi)splat_u(threshold);
}
