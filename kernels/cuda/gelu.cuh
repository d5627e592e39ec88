/* GELU and its slope at the stored (rounded) pre-activation: one function for all kernels, so that a recomputed g has
   the same bits. fp32 is as exact as the device's erfc and exp. bf16 and fp16, which the number of instructions would
   otherwise limit, have a shorter form, exact to a fraction of their rounding. */
#pragma once

#include "kernels/cuda/kernel.cuh"

#define TANH_SCALE   0.79788456080286536f /* √(2/π) */
#define TANH_CUBIC   0.044715f
#define INV_SQRT_2PI 0.39894228040143268f
#define INV_SQRT_2   0.70710678118654752f

struct GeluValue {
    float g, slope;
};

/* gelu(x) = x·gate */
__device__ static inline GeluValue gelu_tanh(float x, float gate)
{
    float du = TANH_SCALE * (1.0f + 3.0f * TANH_CUBIC * x * x);
    return {x * gate, gate + x * gate * (1.0f - gate) * 2.0f * du};
}

__device__ static inline float gelu_tanh_u(float x) { return TANH_SCALE * (x + TANH_CUBIC * x * x * x); }

template <typename T, GeluKind KIND> struct Gelu {
    /* Erf: with z = |x| and q = 1 − Φ(z), gelu = max(x, 0) − z·q. q·exp(z²/2) is a polynomial in 1/(1 + 0.308 z)
       without constant term, fitted by exchange to the least relative error: 3.8e-6 up to z = 13.5, where q leaves
       fp32. Of 27 instructions an element 7 are for arguments of __expf and __fdividef beyond fp32's normal range. */
    __device__ static inline GeluValue at(float x)
    {
        if (KIND == GELU_TANH) return gelu_tanh(x, __fdividef(1.0f, 1.0f + __expf(-2.0f * gelu_tanh_u(x))));
        float z = fabsf(x), t = __fdividef(1.0f, fmaf(0.308f, z, 1.0f)), bell = __expf(-0.5f * x * x);
        float p = fmaf(-0.07553238142f, t, 0.1899096897f);
        p = fmaf(p, t, 0.006957068013f);
        p = fmaf(p, t, 0.1366950376f);
        p = fmaf(p, t, 0.1188425155f);
        p = fmaf(p, t, 0.123126165f);
        float q = p * t * bell;
        return {fmaf(-z, q, fmaxf(x, 0.0f)), fmaf(x * INV_SQRT_2PI, bell, x > 0 ? 1.0f - q : q)};
    }
};
template <GeluKind KIND> struct Gelu<float, KIND> {
    __device__ static inline GeluValue at(float x)
    {
        if (KIND == GELU_TANH) return gelu_tanh(x, 1.0f / (1.0f + expf(-2.0f * gelu_tanh_u(x))));
        float gate = 0.5f * erfcf(-x * INV_SQRT_2);
        return {x * gate, gate + x * INV_SQRT_2PI * expf(-0.5f * x * x)};
    }
};
