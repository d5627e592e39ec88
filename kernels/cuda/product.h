/* Matrix products on the device. All matrices are row-major; fp32 accumulation. kernels/cuda/product.cu makes them with
   cuBLASLt, tests/cuda_host/product_host.cc by loops. */
#ifndef CAIRN_KERNELS_CUDA_PRODUCT_H
#define CAIRN_KERNELS_CUDA_PRODUCT_H

#ifdef __cplusplus
extern "C" {
#endif
#include "base/base.h"

typedef enum { BIAS_NONE, BIAS_ADDED } ProductBias;

/* c (m, n) = op(a)·op(b) (+ bias (n), F32) (+ c itself where accumulate). a is (m, k), or (k, m) if a_transposed; b is
   (k, n), or (n, k) if b_transposed. The sum is rounded once to c's type. Where c is bf16, cuBLASLt may be able to add
   a bias of that type only; then the bias is rounded first, as autocast does elsewhere. Nothing of a library's choice
   changes a result from run to run: only algorithms whose sums have a fixed order are taken. */
typedef struct {
    int64_t m, n, k;       /* m or n may be 0; with k 0 only an accumulating product has a meaning: nothing */
    int64_t lda, ldb, ldc; /* elements between rows, as stored */
    bool a_transposed, b_transposed, accumulate;
    ProductBias bias; /* not with accumulate */
    Dtype in, out;    /* of a and b; of c: the same, or F32 */
} ProductShape;

/* Where they lie; on 16 bytes. */
typedef struct {
    const void *a, *b;
    void *c;
    const float *bias;
    void *workspace; /* product_workspace() bytes, on 256 */
} ProductData;

/* tf32: products of F32 round a and b to TF32 (10 bits behind the point). One way at a time: E_USAGE. */
Status product_open(bool tf32);
void product_close(void);
const char *product_describe(void); /* library and version */
size_t product_workspace(void);     /* bytes of scratch that any product may use */
void product_imagine(int major);    /* product_workspace for such a compute capability, while none is open */
/* Chooses and remembers the algorithm for a shape; called at bind. product_prepare takes what was chosen before, else
   the library's first; product_prepare_on, where nothing was chosen before, times the candidates in these operands:
   c and workspace are overwritten. */
Status product_prepare(const ProductShape *shape);
Status product_prepare_on(const ProductShape *shape, const ProductData *data);
Status product_run(const ProductShape *shape, const void *a, const void *b, void *c, const float *bias,
                   void *workspace);
#ifdef __cplusplus
}
#endif

#endif
