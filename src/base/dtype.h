/* Element types, and the conversions that every backend must agree on (round to nearest even). */
#pragma once

#include "base/std.h"

/* X(name, bytes, printed name) */
#define DTYPE_LIST(X)                                                                                                  \
    X(F32, 4, "f32")                                                                                                   \
    X(BF16, 2, "bf16")                                                                                                 \
    X(F16, 2, "f16")                                                                                                   \
    X(F64, 8, "f64")                                                                                                   \
    X(I32, 4, "i32")                                                                                                   \
    X(I64, 8, "i64")                                                                                                   \
    X(I16, 2, "i16")                                                                                                   \
    X(I8, 1, "i8")                                                                                                     \
    X(U8, 1, "u8")

typedef enum {
#define X(name, bytes, text) name,
    DTYPE_LIST(X)
#undef X
        N_DTYPES
} Dtype;

size_t dtype_size(Dtype dtype);
const char *dtype_name(Dtype dtype);

static inline uint32_t f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float f32_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }

static inline uint16_t bf16_from_f32(float x)
{
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40); /* NaN stays NaN, made quiet */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

/* IEEE 754 binary16. From f32: beyond 65504 (by half a unit or more) gives infinity, subnormals are kept, NaN stays
 * NaN. */
float f16_to_f32(uint16_t h);
uint16_t f16_from_f32(float x);
