/* The host twin of kernels/cuda/product.cu: products by loops, in order with the launches. Sums are fp32 in order of k,
   in TF32 of operands with 10 bits behind the point (to the nearest, ties away from 0, as the hardware's cvt.rna),
   the bias is added in fp32, one rounding. A workspace is asked for and written, so that who gives too little, or
   counts on what stands in it, is found out. */
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/product.h"

#define WORKSPACE ((size_t)1024)

static bool in_tf32;

Status product_open(bool tf32)
{
    in_tf32 = tf32;
    return OK;
}

void product_close(void) {}
const char *product_describe(void) { return in_tf32 ? "products by loops, TF32" : "products by loops"; }
size_t product_workspace(void) { return WORKSPACE; }
void product_imagine(int) {}
Status product_prepare(const ProductShape *) { return OK; }
Status product_prepare_on(const ProductShape *, const ProductData *) { return OK; }

template <typename T> static float operand(T x, bool tf32)
{
    float value = to_float(x);
    return tf32 ? __uint_as_float((__float_as_uint(value) + 0x1000u) & ~0x1fffu) : value;
}

template <typename T, typename C> static void loops(const ProductShape &s, const ProductData &d)
{
    const T *a = static_cast<const T *>(d.a), *b = static_cast<const T *>(d.b);
    C *c = static_cast<C *>(d.c);
    const bool tf32 = in_tf32 && s.in == F32;
    float *sums = static_cast<float *>(mem_array((size_t)s.n, sizeof(float)));
    for (int64_t i = 0; i < s.m; i++) {
        memset(sums, 0, (size_t)s.n * sizeof(float));
        for (int64_t l = 0; l < s.k; l++) {
            float x = operand(s.a_transposed ? a[l * s.lda + i] : a[i * s.lda + l], tf32);
            for (int64_t j = 0; j < s.n; j++)
                sums[j] += x * operand(s.b_transposed ? b[j * s.ldb + l] : b[l * s.ldb + j], tf32);
        }
        for (int64_t j = 0; j < s.n; j++) {
            C *to = &c[i * s.ldc + j];
            if (d.bias) sums[j] += d.bias[j];
            if (s.accumulate) sums[j] += to_float(*to);
            *to = from_float<C>(sums[j]);
        }
    }
    free(sums);
}

static bool on_16(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

Status product_run(const ProductShape *shape, const void *a, const void *b, void *c, const float *bias, void *workspace)
{
    ProductShape s = *shape;
    ProductData d = {a, b, c, s.bias == BIAS_ADDED ? bias : nullptr, workspace};
    CHECK(s.out == s.in || s.out == F32, "a product of %s in %s", dtype_name(s.in), dtype_name(s.out));
    CHECK(!s.accumulate || s.bias == BIAS_NONE, "a product that accumulates adds no bias");
    CHECK(s.k > 0 || s.accumulate || s.m == 0 || s.n == 0, "a product over nothing");
    CHECK(s.lda >= (s.a_transposed ? s.m : s.k) && s.ldb >= (s.b_transposed ? s.k : s.n) && s.ldc >= s.n,
          "rows that overlap: %lld, %lld, %lld", (long long)s.lda, (long long)s.ldb, (long long)s.ldc);
    if (s.m == 0 || s.n == 0 || s.k == 0) return OK;
    CHECK(on_16(a) && on_16(b) && on_16(c), "operands of a product lie on 16 bytes");
    CHECK(reinterpret_cast<uintptr_t>(workspace) % 256 == 0, "a product's workspace lies on 256 bytes");
    return cuda_host_submit([s, d]() -> Status {
        memset(d.workspace, 0x7f, WORKSPACE);
        CUDA_BY_TYPE(s.in, T, {
            if (s.out == F32)
                loops<T, float>(s, d);
            else
                loops<T, T>(s, d);
        });
        return OK;
    });
}
