/* GELU and its backward, of the stored (rounded) pre-activation. Both compute g by the same function, so that a
   recomputed g has the same bits. fp32 is as exact as the device's erfc and exp. bf16 and fp16, which the number of
   instructions would otherwise limit, have a shorter form, exact to a fraction of their rounding. Bytes per element in
   bf16: forward 4, backward 6, and 8 where g is written too. */
#include "kernels/cuda/rows.cuh"

#include "kernels/cuda/cuda.h"

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

/* ---- kernels: a thread has PER groups of eight elements, a block's groups are neighbours; backward goes by rows ----
 */

enum { THREADS = 256, PER = 2, BLOCK = THREADS * PER * GROUP };

__device__ static inline int64_t first_of(int u)
{
    return (((int64_t)blockIdx.x * PER + u) * THREADS + threadIdx.x) * GROUP;
}

/* g may lie in pre's memory. */
template <typename T, GeluKind KIND>
__global__ void __launch_bounds__(THREADS) gelu_kernel(const T *pre, T *g, int64_t n, bool wide)
{
    float x[PER][GROUP];
    CUDA_UNROLL for (int u = 0; u < PER; u++) load_group(pre + first_of(u), n - first_of(u), wide, x[u]);
    CUDA_UNROLL for (int u = 0; u < PER; u++)
    {
        CUDA_UNROLL for (int k = 0; k < GROUP; k++) x[u][k] = Gelu<T, KIND>::at(x[u][k]).g;
        store_group(g + first_of(u), n - first_of(u), wide, x[u]);
    }
}

/* dpre may lie in dg's memory, g in pre's; g may be absent. `parts`: of the column sums of dpre (columns.cuh); NULL:
   they are not wanted. */
template <typename T, GeluKind KIND>
__global__ void __launch_bounds__(COLUMNS_THREADS, 4)
    gelu_bwd_kernel(const T *pre, const T *dg, T *dpre, T *g, float *parts, int64_t rows, int64_t cols, bool wide)
{
    CUDA_SHARED(float, sums, [COLUMNS_WARPS * COLUMNS_BLOCK]);
    ColumnsPlace p = columns_place(rows);
    float sum[GROUP] = {};
    CUDA_ROLL
    for (int64_t r = p.row; r < p.end; r += COLUMNS_WARPS) {
        float x[GROUP], dx[GROUP];
        int64_t at = r * cols + p.column, left = cols - p.column;
        load_group(pre + at, left, wide, x);
        load_group(dg + at, left, wide, dx);
        CUDA_UNROLL for (int k = 0; k < GROUP; k++)
        {
            GeluValue value = Gelu<T, KIND>::at(x[k]);
            x[k] = value.g;
            dx[k] = rounded<T>(dx[k] * value.slope);
            sum[k] += dx[k];
        }
        store_group(dpre + at, left, wide, dx);
        if (g) store_group(g + at, left, wide, x);
    }
    if (parts) columns_leave(sum, parts, cols, sums);
}

/* ---- the ops ---- */

template <typename T, GeluKind KIND> static Status gelu(const OpCall *call, int64_t n)
{
    const T *pre = cuda_data<const T>(IN(call, GELU, pre));
    T *g = cuda_data<T>(OUT(call, GELU, g));
    return CUDA_LAUNCH((gelu_kernel<T, KIND>), cuda_blocks(n, BLOCK), THREADS, 0, pre, g, n, on_16(pre, g));
}

size_t cuda_gelu_bwd_scratch(const OpCall *call, const RowCounts *rows)
{
    const Operand *pre = IN(call, GELU_BWD, pre);
    return operand_present(OUT(call, GELU_BWD, db)) ? columns_scratch(rows_in(pre->rows, rows), pre->cols) : 0;
}

template <typename T, GeluKind KIND> static Status gelu_bwd(const OpCall *call, const RowCounts *rows)
{
    const T *pre = cuda_data<const T>(IN(call, GELU_BWD, pre)), *dg = cuda_data<const T>(IN(call, GELU_BWD, dg));
    T *dpre = cuda_data<T>(OUT(call, GELU_BWD, dpre)), *g = cuda_data<T>(OUT(call, GELU_BWD, g));
    const Operand *db = OUT(call, GELU_BWD, db);
    int64_t n = rows_in(call->in[0].rows, rows), cols = call->in[0].cols;
    bool wide = cols % GROUP == 0 && on_16(pre, dg, dpre, g);
    float *parts = static_cast<float *>(cuda_scratch(call, cuda_gelu_bwd_scratch(call, rows)));
    if (!operand_present(db)) parts = NULL;
    TRY(CUDA_LAUNCH((gelu_bwd_kernel<T, KIND>), columns_grid(n, cols), COLUMNS_THREADS, 0, pre, dg, dpre, g, parts, n,
                    cols, wide));
    return parts
               ? columns_add_parts(parts, columns_parts(n), cols, {{cuda_data<float>(db)}, BEGINS(call, GELU_BWD, db)})
               : OK;
}

Status cuda_gelu(const OpCall *call, const RowCounts *rows)
{
    const Operand *pre = IN(call, GELU, pre);
    int64_t n = rows_in(pre->rows, rows) * pre->cols;
    CUDA_BY_TYPE(pre->dtype, T,
                 return call->attr.gelu.kind == GELU_ERF ? gelu<T, GELU_ERF>(call, n) : gelu<T, GELU_TANH>(call, n));
}

Status cuda_gelu_bwd(const OpCall *call, const RowCounts *rows)
{
    CUDA_BY_TYPE(IN(call, GELU_BWD, pre)->dtype, T,
                 return call->attr.gelu.kind == GELU_ERF ? gelu_bwd<T, GELU_ERF>(call, rows)
                                                         : gelu_bwd<T, GELU_TANH>(call, rows));
}
