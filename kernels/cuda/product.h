/* Matrix products on the device. All matrices are row-major; fp32 accumulation. kernels/cuda/product.cu makes them with
   cuBLASLt, tests/cuda_host/product_host.cc by loops. */
#ifndef CAIRN_KERNELS_CUDA_PRODUCT_H
#define CAIRN_KERNELS_CUDA_PRODUCT_H

#include "kernels/backend.h"

typedef enum { BIAS_NONE, BIAS_ADDED } ProductBias;

/* c (m, n) = op(a)·op(b) (+ bias (n), F32) (+ c itself where accumulate). a is (m, k), or (k, m) if a_transposed; b is
   (k, n), or (n, k) if b_transposed. The sum is rounded once to c's type. */
typedef struct {
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements between rows, as stored */
    bool a_transposed, b_transposed, accumulate;
    ProductBias bias;
    Dtype in, out; /* of a and b; of c */
} ProductShape;

#ifdef __cplusplus
extern "C" {
#endif
Status product_open(void);
void product_close(void);
const char *product_describe(void); /* library and version */
size_t product_workspace(void);     /* bytes of scratch that any product may use */
/* Chooses and remembers the algorithm for a shape, by timing where the device allows it; called at bind. */
Status product_prepare(const ProductShape *shape);
Status product_run(const ProductShape *shape, const void *a, const void *b, void *c, const float *bias,
                   void *workspace);
#ifdef __cplusplus
}
#endif

#endif
