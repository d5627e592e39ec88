/* Philox4x32-10 (Salmon et al., SC'11): a function from (key, counter) to four 32-bit words. Cairn's only randomness.
   Key and counter layout: docs/contracts.md 4. */
#pragma once

#include <stdint.h>

/* Before functions that GPU kernels call too. */
#ifdef __CUDACC__
#    define CAIRN_DEVICE __host__ __device__
#else
#    define CAIRN_DEVICE
#endif

typedef struct {
    uint32_t v[4];
} Philox4;

/* Key of a domain is the seed xor one of these. */
#define PHILOX_INIT    UINT64_C(0x243f6a8885a308d3)
#define PHILOX_ORDER   UINT64_C(0x13198a2e03707344)
#define PHILOX_MASKING UINT64_C(0xa4093822299f31d0)
#define PHILOX_DROPOUT UINT64_C(0x082efa98ec4e6c89)
#define PHILOX_PAIRS   UINT64_C(0x452821e638d01377)
#define PHILOX_AUDIT   UINT64_C(0xbe5466cf34e90c6c)

/* The halves of a product. Shifted out, nvcc's ptxas moves the high one through an addition of zero; PTX's own way to
   split a register pair costs nothing. */
CAIRN_DEVICE static inline void philox_halves(uint64_t product, uint32_t *low, uint32_t *high)
{
#ifdef __CUDA_ARCH__
    asm("mov.b64 {%0, %1}, %2;" : "=r"(*low), "=r"(*high) : "l"(product));
#else
    *low = (uint32_t)product;
    *high = (uint32_t)(product >> 32);
#endif
}

CAIRN_DEVICE static inline Philox4 philox4(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint32_t low0, high0, low2, high2;
        philox_halves((uint64_t)0xD2511F53u * c0, &low0, &high0);
        philox_halves((uint64_t)0xCD9E8D57u * c2, &low2, &high2);
        c0 = high2 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low2;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (Philox4){{c0, c1, c2, c3}};
}

/* The i-th of the eight 16-bit draws of one call, i in 0..7: low half of word i/2 first. */
CAIRN_DEVICE static inline uint32_t philox_draw16(const Philox4 *p, int i)
{
    return (p->v[i >> 1] >> (16 * (i & 1))) & 0xffffu;
}

/* Uniform in (0, 1], from 32 bits. */
CAIRN_DEVICE static inline double philox_unit(uint32_t w) { return ((double)w + 1.0) * 0x1p-32; }

/* A value is dropped if its draw is below this. p in [0, 1). */
CAIRN_DEVICE static inline uint32_t dropout_threshold(float p) { return (uint32_t)((double)p * 65536.0 + 0.5); }
CAIRN_DEVICE static inline float dropout_scale(float p)
{
    return (float)(65536.0 / (65536.0 - (double)dropout_threshold(p)));
}

/* c3 of a dropout counter: site in the low 10 bits, the batch above. */
CAIRN_DEVICE static inline uint32_t dropout_c3(uint32_t site, uint32_t batch) { return (site & 1023u) | batch << 10; }
