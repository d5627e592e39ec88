/* The host twin of kernels/cuda/fused_gelu_cutlass.cu: the product's twin, then GELU by loops. */
#include "kernels/cuda/gelu.cuh"

#include "kernels/cuda/fused_gelu.h"
#include "kernels/cuda/product.h"

typedef Gelu<__nv_bfloat16, GELU_ERF> GeluOf;
typedef __nv_bfloat16 Value;

const char *fused_gelu_library(void) { return "by loops"; }
Status fused_gelu_load(void) { return OK; }

static Status product(const FusedGelu &f, bool forward)
{
    alignas(256) static unsigned char workspace[4096];
    Product p = {};
    CHECK(product_workspace() <= sizeof workspace, "no room for a workspace");
    p.shape.m = f.m, p.shape.n = f.n, p.shape.k = f.k;
    p.shape.lda = f.k, p.shape.ldb = forward ? f.k : f.n, p.shape.ldc = f.n;
    p.shape.in = p.shape.out = BF16;
    p.shape.b_transposed = forward;
    p.shape.bias = forward ? BIAS_OF_C : BIAS_NONE;
    p.a = f.a, p.b = f.w, p.c = f.out, p.bias = f.bias;
    p.workspace = workspace;
    CHECK(f.m > 0 && f.n % FUSED_COLUMNS == 0 && f.k % 8 == 0,
          "a product of %d × %d × %d that CUTLASS's kernel does not take", f.m, f.n, f.k);
    return product_run(&p);
}

static Value gelu(Value pre) { return from_float<Value>(GeluOf::at(to_float(pre)).g); }

Status fused_gelu_forward(const FusedGelu *fused)
{
    const FusedGelu f = *fused;
    TRY(product(f, true));
    return cuda_host_submit([f]() -> Status {
        const Value *y = static_cast<const Value *>(f.out);
        Value *g = static_cast<Value *>(f.g);
        for (int64_t i = 0; g && i < (int64_t)f.m * f.n; i++) g[i] = gelu(y[i]);
        return OK;
    });
}

Status fused_gelu_backward(const FusedGelu *fused)
{
    const FusedGelu f = *fused;
    TRY(product(f, false));
    return cuda_host_submit([f]() -> Status {
        const Value *pre = static_cast<const Value *>(f.pre);
        Value *dx = static_cast<Value *>(f.out), *g = static_cast<Value *>(f.g);
        for (int64_t r = 0; r < f.m; r++)
            for (int64_t j = 0; j < f.n; j++) {
                int64_t i = r * f.n + j;
                float *part = f.parts ? &f.parts[r / FUSED_ROWS * f.n + j] : NULL;
                Value x = pre[i];
                dx[i] = from_float<Value>(to_float(dx[i]) * GeluOf::at(to_float(x)).slope);
                if (g) g[i] = gelu(x);
                if (part) *part = (r % FUSED_ROWS ? *part : 0.0f) + to_float(dx[i]);
            }
        return OK;
    });
}
