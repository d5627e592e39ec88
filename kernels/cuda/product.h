/* Matrix products on the device. All matrices are row-major; fp32 accumulation. kernels/cuda/product.cu makes them with
   cuBLASLt, tests/cuda_host/product_host.cc by loops. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
#include "base/base.h"
#include "kernels/op.h"

typedef enum { BIAS_NONE, BIAS_F32, BIAS_OF_C } ProductBias; /* in F32, or in c's type */

/* c (m, n) = op(a)·op(b) (+ bias (n)) (+ c itself where accumulate). a is (m, k), or (k, m) if a_transposed; b is
   (k, n), or (n, k) if b_transposed. The sum is rounded once to c's type. cuBLASLt adds a bias of c's type only. Only
   algorithms whose sums have a fixed order are taken, so results do not change from run to run. */
typedef struct {
    int64_t m, n, k;       /* m or n may be 0; with k 0 only an accumulating product has a meaning: nothing */
    int64_t lda, ldb, ldc; /* elements between rows, as stored */
    bool a_transposed, b_transposed, accumulate;
    ProductBias bias; /* not with accumulate */
    Dtype in, out;    /* of a and b; of c: the same, or F32 */
} ProductShape;

/* A product of operands on 16 bytes. */
typedef struct {
    ProductShape shape;
    const void *a, *b;
    void *c;
    const void *bias;
    void *workspace; /* product_workspace() bytes, on 256 */
    int64_t most;    /* rows in the largest bucket, whose algorithm is taken; 0: this is the largest */
    bool begins;     /* of a shape that accumulates: c counts as 0, whatever it holds; the same algorithm */
} Product;

/* The shape of a product in its largest bucket: rows are m, or k where a is transposed. */
static inline ProductShape product_largest(const Product *p)
{
    ProductShape s = p->shape;
    if (p->most > 0) *(s.a_transposed ? &s.k : &s.m) = p->most;
    return s;
}

/* tf32: products of F32 round a and b to TF32 (10 bits after the binary point). E_USAGE where it is open in the other
   way. */
Status product_open(bool tf32);
void product_close(void);
const char *product_describe(void); /* library and version */
size_t product_workspace(void);     /* bytes of scratch that any product may use; a multiple of 256 */
void product_imagine(int major);    /* product_workspace for this compute capability, while none is open */
/* Chooses the algorithm for a shape and keeps it; called at bind, for the largest bucket first. An earlier run's choice
   comes first. Without one the candidates are timed in the operands; without operands (a, b or c NULL) the library's
   first is taken. A smaller bucket takes the algorithm of the largest, or the library's first where it cannot be run
   so: a choice depends on nothing but the two shapes and the file of choices. With operands the product runs once, so
   that no step loads a kernel: c and workspace are overwritten. */
Status product_prepare(const Product *product);
Status product_run(const Product *product);
/* In linear.cu: the product of a LINEAR, its gradients or a CURVATURE. */
Product linear_product(const OpCall *call, const RowCounts *rows);
/* In product_trial.cu: runs a small product of each type, so that the library has loaded what it needs for them and its
   memory can be measured. Waits. */
Status product_first(void);
/* A matrix of small random numbers in memory of its own (`own`): zeros, which operands hold when a plan is bound, run
   faster. Without that memory it is the operand itself, and `own` is NULL. */
const void *product_random(Dtype dtype, int64_t elements, const void *operand, void **own);
/* In product_loops.cu: the same sums by plain loops, for a shape that cuBLASLt does not take; and a product without
   elements or terms, which leaves c as it is, or 0 where it begins. */
Status product_by_loops(const Product *product);
Status product_empty(const Product *product);
#ifdef __cplusplus
}
#endif
