/* A primitive of oneDNN for a product of a given number of rows. */
#pragma once

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn/layout.h"

/* A product of so many rows. */
typedef struct {
    Product product;
    int64_t rows;
    int threads; /* that make it */
    dnnl_primitive_t primitive;
    dnnl_memory_t src, weights, bias, dst, scratch;
    size_t scratch_bytes;
    char implementation[40];
} Matmul;

/* Fills one whose product, rows and threads are set. `l`: of the packed weights; NULL for GRAD, which is
   dw (n, k) = dyᵀ (n, rows) · x (rows, k) + dw. */
Status matmul_make(Matmul *m, dnnl_engine_t engine, const PackedLayout *l);
/* `bias` is read where the product has one; `scratch`: scratch_bytes. */
Status matmul_run(const Matmul *m, dnnl_stream_t stream, const void *src, const void *weights, const float *bias,
                  void *dst, void *scratch);
void matmul_free(Matmul *m); /* and its memory */
