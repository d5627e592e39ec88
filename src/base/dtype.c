#include "base/dtype.h"

#include "base/status.h"

static const struct {
    size_t bytes;
    const char *name;
} table[N_DTYPES] = {
#define X(name, bytes, text) {bytes, text},
    DTYPE_LIST(X)
#undef X
};

size_t dtype_size(Dtype dtype)
{
    CHECK((unsigned)dtype < N_DTYPES, "element type %d", (int)dtype);
    return table[dtype].bytes;
}

const char *dtype_name(Dtype dtype)
{
    CHECK((unsigned)dtype < N_DTYPES, "element type %d", (int)dtype);
    return table[dtype].name;
}

/* IEEE 754 binary16: sign, 5 bits of exponent (bias 15), 10 of fraction. */

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
    if (exponent == 31) {
        uint32_t quiet = fraction ? 0x400000u : 0; /* NaN stays NaN, made quiet */
        return f32_from_bits(sign | 0x7f800000u | fraction << 13 | quiet);
    }
    if (exponent == 0) { /* zero or subnormal: fraction × 2^-24, exact in f32 */
        return f32_from_bits(sign | f32_bits((float)fraction * 0x1p-24f));
    }
    return f32_from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

uint16_t f16_from_f32(float x)
{
    uint32_t u = f32_bits(x), magnitude = u & 0x7fffffffu;
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* from 65520, halfway above the largest */
    if (magnitude < 0x38800000u) {                                   /* below 2^-14: a multiple of 2^-24 */
        /* Adding 0.5 puts 2^-24 at the last place of the sum, so that the addition rounds, to nearest even. */
        return (uint16_t)(sign | (f32_bits(f32_from_bits(magnitude) + 0.5f) - f32_bits(0.5f)));
    }
    /* Rebias, then round by adding just under half a unit, and the last kept bit; a carry raises the exponent. */
    uint32_t rounded = magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | rounded >> 13);
}
