/* One vector width in C: GCC's vector extensions, and an intrinsic where the compiler would not find the instruction.
   The files of this folder are compiled once per instruction set (kernels/CMakeLists.txt), each time with another
   width VL; a sum that must be rounded once is written as fma_. Conversions to bf16 round to nearest even. */
#pragma once

#include "base/dtype.h"
#include "base/std.h"

#if defined __AVX512F__
#    define VL 16
#    include <immintrin.h>
#elif defined __AVX2__ && defined __FMA__
#    define VL 8
#    include <immintrin.h>
#else
#    define VL 4
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef uint16_t vh __attribute__((vector_size(2 * VL)));
/* These vectors in memory, at any address. */
typedef float vf_mem __attribute__((vector_size(4 * VL), aligned(4), may_alias));
typedef uint32_t vu_mem __attribute__((vector_size(4 * VL), aligned(4), may_alias));
typedef uint16_t vh_mem __attribute__((vector_size(2 * VL), aligned(2), may_alias));

#define INLINE static inline __attribute__((always_inline))
/* Calls an INLINE function whose last argument is the type, so that the type is a constant inside its loops. */
#define BY_TYPE(bf16, function, ...) ((bf16) ? function(__VA_ARGS__, true) : function(__VA_ARGS__, false))

INLINE vf splat(float x) { return x - (vf){0}; }
INLINE vu splat_u(uint32_t x) { return x | (vu){0}; }
INLINE vf select_(vi mask, vf yes, vf no) { return (vf)(((vi)yes & mask) | ((vi)no & ~mask)); }

#if VL == 16
INLINE vf fma_(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE vf max_(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf min_(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf sqrt_(vf a) { return (vf)_mm512_sqrt_ps((__m512)a); }
#elif VL == 8
INLINE vf fma_(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE vf max_(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf min_(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf sqrt_(vf a) { return (vf)_mm256_sqrt_ps((__m256)a); }
#else
INLINE vf fma_(vf a, vf b, vf c) { return a * b + c; }
INLINE vf max_(vf a, vf b) { return select_(a > b, a, b); }
INLINE vf min_(vf a, vf b) { return select_(a < b, a, b); }
INLINE vf sqrt_(vf a)
{
    for (int i = 0; i < VL; i++) a[i] = __builtin_sqrtf(a[i]);
    return a;
}
#endif

/* ---- memory: VL values, or m < VL of them with zeros behind, in f32 or bf16 ---- */

INLINE vf widen(vh h) { return (vf)(__builtin_convertvector(h, vu) << 16); }

/* The upper half of each result is the bf16 value; the lower is rubbish. */
INLINE vu round_bf16(vf x)
{
    vu u = (vu)x, rounded = u + 0x7fff + ((u >> 16) & 1), nan = u | 0x400000;
    vi is_nan = (vi)(u & 0x7fffffff) > 0x7f800000;
    return (vu)select_(is_nan, (vf)nan, (vf)rounded);
}

#if VL == 16 && defined __AVX512BF16__
INLINE vh narrow(vf x) { return (vh)_mm512_cvtneps_pbh((__m512)x); }
#else
INLINE vh narrow(vf x) { return __builtin_convertvector(round_bf16(x) >> 16, vh); }
#endif

/* x rounded as in a tensor of this type. */
INLINE vf rounded(vf x, bool bf16) { return bf16 ? widen(narrow(x)) : x; }

INLINE vf load(const float *p) { return *(const vf_mem *)p; }
INLINE void store(float *p, vf x) { *(vf_mem *)p = x; }
INLINE vu load_u(const uint32_t *p) { return *(const vu_mem *)p; }
INLINE void store_u(uint32_t *p, vu x) { *(vu_mem *)p = x; }
INLINE vh load_h(const uint16_t *p) { return *(const vh_mem *)p; }
INLINE void store_h(uint16_t *p, vh x) { *(vh_mem *)p = x; }

/* Element i of a tensor. m is VL but at the end of a row. */
INLINE vf load_at(const void *p, int64_t i, int64_t m, bool bf16)
{
    if (bf16) {
        const uint16_t *from = (const uint16_t *)p + i;
        if (m >= VL) return widen(load_h(from));
        vh h = {0};
        memcpy(&h, from, (size_t)m * 2);
        return widen(h);
    }
    const float *from = (const float *)p + i;
    if (m >= VL) return load(from);
    vf x = {0};
    memcpy(&x, from, (size_t)m * 4);
    return x;
}

INLINE void store_at(void *p, int64_t i, int64_t m, bool bf16, vf x)
{
    if (bf16) {
        uint16_t *to = (uint16_t *)p + i;
        vh h = narrow(x);
        if (m >= VL)
            store_h(to, h);
        else
            memcpy(to, &h, (size_t)m * 2);
        return;
    }
    float *to = (float *)p + i;
    if (m >= VL)
        store(to, x);
    else
        memcpy(to, &x, (size_t)m * 4);
}

INLINE vf lane_index(void)
{
    vf x;
    for (int i = 0; i < VL; i++) x[i] = (float)i;
    return x;
}
/* All ones in the first m lanes. */
INLINE vi first_lanes(int64_t m) { return lane_index() < splat((float)m); }

/* ---- sums over lanes, in a fixed order ---- */

INLINE float sum_lanes(vf x)
{
    float lane[VL];
    store(lane, x);
    for (int step = VL / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) lane[i] += lane[i + step];
    return lane[0];
}

INLINE float max_lanes(vf x)
{
    float best = x[0];
    for (int i = 1; i < VL; i++) best = x[i] > best ? x[i] : best;
    return best;
}

/* ---- functions ---- */

/* e^x to 1 unit in the last place or so, flushed to about 1e-38 below −87 and held at e^88 above; NaN stays NaN. The
   polynomial is a minimax fit of (e^r − 1 − r)/r² over |r| ≤ ln 2 / 2. */
INLINE vf exp_(vf x)
{
    const float magic = 12582912.0f;                /* 1.5 · 2^23: adding it rounds to an integer */
    x = min_(splat(88.0f), max_(splat(-87.0f), x)); /* x second: NaN passes */
    vf n = fma_(x, splat(1.44269504f), splat(magic)) - magic;
    vf r = fma_(n, splat(-0.693145752f), x);
    r = fma_(n, splat(-1.42860677e-6f), r);
    vf p = fma_(r, splat(1.3950487e-3f), splat(8.3688879e-3f));
    p = fma_(r, p, splat(4.1666206e-2f));
    p = fma_(r, p, splat(0.16666518f));
    p = fma_(r, p, splat(0.5f));
    p = fma_(r * r, p, r);
    vi exponent = (__builtin_convertvector(n, vi) + 127) << 23;
    return fma_((vf)exponent, p, (vf)exponent);
}
