/* The host twin of kernels/cuda/product.cu: products by loops, in order with the launches. Sums are fp32 in order of k,
   in TF32 of operands with 10 bits after the binary point (to the nearest, ties away from 0, as the hardware's
   cvt.rna). The bias is added in fp32, and the sum is rounded once. The workspace is overwritten, so that a workspace
   that is too small, or a caller that relies on its content, shows. The first product of a type takes LOADED bytes of
   the device, as a library's kernels do.

   CAIRN_TEST_PRODUCT_CHOICE=N replaces timing: the shape of a largest bucket that has no choice gets N + RANK, the k at
   which a sum begins.
 */
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/product.h"

#include <set>
#include <stdlib.h>

#include "kernels/cuda/choices.h"

#define WORKSPACE ((size_t)1024)
#define LOADED    ((size_t)64 << 10)

static bool in_tf32;
static std::set<ProductKey> prepared; /* largest buckets */
static bool loaded[N_DTYPES];

Status product_open(bool tf32)
{
    in_tf32 = tf32;
    choices_open("host executor");
    return OK;
}

void product_close(void)
{
    choices_close();
    prepared.clear();
    memset(loaded, 0, sizeof loaded);
}
const char *product_describe(void) { return in_tf32 ? "products by loops, TF32" : "products by loops"; }
size_t product_workspace(void) { return WORKSPACE; }
void product_imagine(int) {}

static void choose(const ProductShape *s)
{
    const char *first = getenv("CAIRN_TEST_PRODUCT_CHOICE"), *rank = getenv("RANK");
    Choice choice = {};
    if (!first || !choices_kept() || choices_find(s, &choice)) return;
    choice.algorithm[0] = strtoull(first, nullptr, 10) + (rank ? strtoull(rank, nullptr, 10) : 0);
    choices_add(s, &choice);
}

/* Overwrites c and the workspace, as trials do. */
Status product_prepare(const Product *product)
{
    const Product p = *product;
    const ProductShape s = p.shape, largest = product_largest(&p);
    if (s.m == 0 || s.n == 0 || s.k == 0) return OK;
    if (product_key(&s) == product_key(&largest)) prepared.insert(product_key(&s));
    CHECK(prepared.count(product_key(&largest)), "a smaller bucket is prepared before the largest");
    choose(&largest);
    if (!p.a || !p.b || !p.c) return OK;
    return cuda_host_submit([p, s]() -> Status {
        memset(p.workspace, 0x7f, WORKSPACE);
        for (int64_t i = 0; i < s.m; i++)
            memset(static_cast<char *>(p.c) + (size_t)(i * s.ldc) * dtype_size(s.out), 0x7f,
                   (size_t)s.n * dtype_size(s.out));
        return OK;
    });
}

template <typename T> static float operand(T x, bool tf32)
{
    float value = to_float(x);
    return tf32 ? __uint_as_float((__float_as_uint(value) + 0x1000u) & ~0x1fffu) : value;
}

template <typename T, typename C> static void loops(const Product &p, int64_t first)
{
    const ProductShape &s = p.shape;
    const T *a = static_cast<const T *>(p.a), *b = static_cast<const T *>(p.b);
    C *c = static_cast<C *>(p.c);
    const bool tf32 = in_tf32 && s.in == F32;
    float *sums = static_cast<float *>(mem_array((size_t)s.n, sizeof(float)));
    for (int64_t i = 0; i < s.m; i++) {
        memset(sums, 0, (size_t)s.n * sizeof(float));
        for (int64_t step = 0; step < s.k; step++) {
            int64_t l = (first + step) % s.k;
            float x = operand(s.a_transposed ? a[l * s.lda + i] : a[i * s.lda + l], tf32);
            for (int64_t j = 0; j < s.n; j++)
                sums[j] += x * operand(s.b_transposed ? b[j * s.ldb + l] : b[l * s.ldb + j], tf32);
        }
        for (int64_t j = 0; j < s.n; j++) {
            C *to = &c[i * s.ldc + j];
            if (s.bias == BIAS_F32) sums[j] += static_cast<const float *>(p.bias)[j];
            if (s.bias == BIAS_OF_C) sums[j] += to_float(static_cast<const C *>(p.bias)[j]);
            if (s.accumulate) sums[j] += p.begins ? 0.0f : to_float(*to);
            *to = from_float<C>(sums[j]);
        }
    }
    free(sums);
}

Status product_run(const Product *product)
{
    const Product p = *product;
    const ProductShape s = p.shape;
    CHECK(s.out == s.in || s.out == F32, "a product of %s in %s", dtype_name(s.in), dtype_name(s.out));
    CHECK(!s.accumulate || s.bias == BIAS_NONE, "a product that accumulates adds no bias");
    CHECK(s.k > 0 || s.accumulate || s.m == 0 || s.n == 0, "a product over nothing");
    CHECK(s.lda >= (s.a_transposed ? s.m : s.k) && s.ldb >= (s.b_transposed ? s.k : s.n) && s.ldc >= s.n,
          "rows that overlap: %lld, %lld, %lld", (long long)s.lda, (long long)s.ldb, (long long)s.ldc);
    if (s.m == 0 || s.n == 0 || s.k == 0) return product_empty(product);
    CHECK(on_16(p.a, p.b, p.c), "operands of a product lie on 16 bytes");
    CHECK(reinterpret_cast<uintptr_t>(p.workspace) % 256 == 0, "a product's workspace lies on 256 bytes");
    if (!loaded[s.in]) cuda_host_load(LOADED);
    loaded[s.in] = true;
    Choice choice = {};
    const ProductShape largest = product_largest(&p);
    int64_t first = choices_find(&largest, &choice) ? static_cast<int64_t>(choice.algorithm[0]) : 0;
    return cuda_host_submit([p, first]() -> Status {
        memset(p.workspace, 0x7f, WORKSPACE);
        CUDA_BY_TYPE(p.shape.in, T, {
            if (p.shape.out == F32)
                loops<T, float>(p, first);
            else
                loops<T, T>(p, first);
        });
        return OK;
    });
}
