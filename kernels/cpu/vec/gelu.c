/* GELU and its gradient, both forms; the erf form to fp32 accuracy, also where it is small. */
#include "kernels/cpu/vec.h"
#include "kernels/cpu/vec/simd.h"

/* gelu(x) = x·gate; slope = gelu'(x). */
typedef struct {
    vf gate, slope;
} Gate;

/* Φ(−|x|)·e^(x²/2) is a polynomial in t = 1/(1 + 0.3|x|): a minimax fit over |x| ≤ 12, relative error 6e-8. */
INLINE Gate gate_erf(vf x, bool want_slope)
{
    vf size = max_(x, -x), e = exp_(x * x * splat(-0.5f));
    vf t = splat(1.0f) / fma_(min_(size, splat(12.0f)), splat(0.3f), splat(1.0f));
    vf p = fma_(t, splat(0.038065259496733214f), splat(-0.16763582533093005f));
    p = fma_(t, p, splat(0.22547783060583726f));
    p = fma_(t, p, splat(-0.07283861840291224f));
    p = fma_(t, p, splat(0.13997900046918715f));
    p = fma_(t, p, splat(0.09578424220646786f));
    p = fma_(t, p, splat(0.12163511669992097f));
    p = fma_(t, p, splat(0.11952827766957488f));
    p = fma_(t, p, splat(4.743864695407935e-06f)) * e;
    Gate g = {.gate = select_(x > splat(0), splat(1.0f) - p, p)};
    if (want_slope) g.slope = fma_(x * splat(0.39894228040143268f), e, g.gate);
    return g;
}

/* ½(1 + tanh u) = σ(2u), u = √(2/π)(x + 0.044715 x³) */
INLINE Gate gate_tanh(vf x, bool want_slope)
{
    const float scale = 0.79788456080286536f, cubic = 0.044715f;
    vf u = x * fma_(x * x, splat(scale * cubic), splat(scale));
    Gate g = {.gate = splat(1.0f) / (splat(1.0f) + exp_(u * splat(-2.0f)))};
    if (!want_slope) return g;
    vf du = fma_(x * x, splat(6.0f * scale * cubic), splat(2.0f * scale));
    g.slope = fma_(x * g.gate * (splat(1.0f) - g.gate), du, g.gate);
    return g;
}

INLINE Gate gate(vf x, GeluKind kind, bool want_slope)
{
    return kind == GELU_ERF ? gate_erf(x, want_slope) : gate_tanh(x, want_slope);
}

INLINE void forward(void *g, const void *pre, int64_t n, GeluKind kind, bool bf16)
{
    for (int64_t i = 0; i < n; i += VL) {
        vf x = load_at(pre, i, n - i, bf16);
        store_at(g, i, n - i, bf16, x * gate(x, kind, false).gate);
    }
}

INLINE void backward(void *dpre, void *g, const void *pre, const void *dg, int64_t n, GeluKind kind, bool bf16)
{
    for (int64_t i = 0; i < n; i += VL) {
        vf x = load_at(pre, i, n - i, bf16), dy = load_at(dg, i, n - i, bf16);
        Gate at = gate(x, kind, true);
        store_at(dpre, i, n - i, bf16, dy * at.slope);
        if (g) store_at(g, i, n - i, bf16, x * at.gate); /* g may lie in pre's memory */
    }
}

/* The kind is spelled out so that it is a constant inside the loops. */
void V(gelu)(void *g, const void *pre, int64_t n, bool bf16, GeluKind kind)
{
    if (kind == GELU_ERF)
        BY_TYPE(bf16, forward, g, pre, n, GELU_ERF);
    else
        BY_TYPE(bf16, forward, g, pre, n, GELU_TANH);
}

void V(gelu_bwd)(void *dpre, void *g, const void *pre, const void *dg, int64_t n, bool bf16, GeluKind kind)
{
    if (kind == GELU_ERF)
        BY_TYPE(bf16, backward, dpre, g, pre, dg, n, GELU_ERF);
    else
        BY_TYPE(bf16, backward, dpre, g, pre, dg, n, GELU_TANH);
}
