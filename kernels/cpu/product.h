/* Matrix products of the cpu backend, by oneDNN (onednn.h) or by the tiles of vec/products.c, which also take products
   too small for oneDNN. Row r of a result depends on row r of x alone, bit for bit. */
#pragma once

#include "kernels/cpu/cpu.h"

typedef enum {
    PRODUCT_ROWS, /* y (rows, n) = x (rows, k)·B (k, n) (+ bias, or + y); B is a packed copy of a weight */
    PRODUCT_GRAD  /* dw (n, k) += dyᵀ·x over the rows; dw is F32 */
} ProductKind;

typedef struct {
    ProductKind kind;
    int64_t k, n;
    Dtype in, out;
    bool bias, add;
} Product;

/* The product of a LINEAR, its gradients or a CURVATURE (linear.c). */
Product product_of(const OpCall *call);

/* Whether products of this type may have other bits with another number of threads. */
bool product_threads_matter(Dtype in);

/* Bytes of the packed copy whose product has `depth` and `columns`. */
size_t product_copy_bytes(Dtype compute, int64_t depth, int64_t columns);
/* Packs w (n, k): for x·wᵀ, or, transposed, for dy·w. */
Status product_pack(void *copy, const float *w, int64_t n, int64_t k, bool transposed, Dtype compute);

/* For products over up to `rows` rows: `any` number of them, or else multiples of 64 alone. Creates the primitives of
   all these, so that their memory is known when the plan is. */
size_t product_scratch(const Product *p, int64_t rows, bool any);
/* Creates the primitives for this number of rows, if product_scratch has not. */
Status product_prepare(const Product *p, int64_t rows);
/* ROWS: a = x, b = the copy, c = y. GRAD: a = x, b = dy, c = dw. */
Status product_run(const Product *p, int64_t rows, const void *a, const void *b, const float *bias, void *c,
                   void *scratch);
