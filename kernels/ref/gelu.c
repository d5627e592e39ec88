/* GELU acts on the stored (rounded) pre-activation. Erf form: x·Φ(x). Tanh form: ½x(1 + tanh u), u = √(2/π)(x +
   0.044715 x³), written as x·σ(2u). Both without the cancellation of 1 + erf or 1 + tanh at negative x. */
#include "kernels/ref/ref.h"

#define TANH_SCALE   0.79788456080286536f /* √(2/π) */
#define TANH_CUBIC   0.044715f
#define INV_SQRT_2PI 0.39894228040143268f
#define INV_SQRT_2   0.70710678118654752f

/* gelu(x) = x·gate; `slope` is gelu'(x). */
static float gate_erf(float x, float *slope)
{
    float gate = 0.5f * erfcf(-x * INV_SQRT_2);
    if (slope) *slope = gate + x * INV_SQRT_2PI * expf(-0.5f * x * x);
    return gate;
}

static float gate_tanh(float x, float *slope)
{
    float u = TANH_SCALE * (x + TANH_CUBIC * x * x * x);
    float gate = 1.0f / (1.0f + expf(-2.0f * u));
    float du = TANH_SCALE * (1.0f + 3.0f * TANH_CUBIC * x * x);
    if (slope) *slope = gate + x * gate * (1.0f - gate) * 2.0f * du;
    return gate;
}

Status ref_gelu(const OpCall *call, const RowCounts *rows)
{
    const Operand *pre = IN(call, GELU, pre), *g = OUT(call, GELU, g);
    float (*gate)(float, float *) = call->attr.gelu.kind == GELU_ERF ? gate_erf : gate_tanh;
    int64_t n = rows_in(pre->rows, rows) * pre->cols;
    for (int64_t i = 0; i < n; i++) {
        float x = ref_load(pre, i);
        ref_store(g, i, x * gate(x, NULL));
    }
    return OK;
}

Status ref_gelu_bwd(const OpCall *call, const RowCounts *rows)
{
    const Operand *pre = IN(call, GELU_BWD, pre), *dg = IN(call, GELU_BWD, dg);
    const Operand *dpre = OUT(call, GELU_BWD, dpre), *g = OUT(call, GELU_BWD, g);
    float (*gate)(float, float *) = call->attr.gelu.kind == GELU_ERF ? gate_erf : gate_tanh;
    int64_t n_rows = rows_in(pre->rows, rows);
    for (int64_t i = 0; i < n_rows * pre->cols; i++) {
        float x = ref_load(pre, i), slope, open = gate(x, &slope);
        ref_store(dpre, i, ref_load(dg, i) * slope);
        if (operand_present(g)) ref_store(g, i, x * open); /* g may lie in pre's memory */
    }
    host_begin(call, rows);
    ref_add_columns(OUT(call, GELU_BWD, db), dpre, n_rows);
    return OK;
}
