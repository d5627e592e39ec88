/* oneDNN; its types appear in onednn.c and onednn/ alone. Sizes are fixed when a primitive is made; primitives are kept
   by shape until onednn_close, and running one allocates no tensors. From the step's thread only. */
#pragma once

#include "kernels/cpu/product.h"

Status onednn_open(void); /* after omp_set_num_threads */
void onednn_close(void);
const char *onednn_version(void);
/* Whether its products in this type serve on this CPU: weights in a layout of their own, scratch from the caller
   (brgemm kernels; others allocate inside a run and gain nothing from packing), and rows with the same bits in any
   bucket. */
bool onednn_serves(ProductKind kind, Dtype in);
bool onednn_can(ProductKind kind, Dtype in); /* whether it has them at all */
/* Whether its products in the best type may have other bits with another number of threads. With AMX sums are cut by
   the number of threads in some sizes, and the samples are of one size. */
bool onednn_threads_matter(void);
const char *onednn_implementation(void); /* name of its kernel for a layer's product in the best type */

/* What product.h's functions of these names do, by oneDNN. */
size_t onednn_copy_bytes(Dtype compute, int64_t depth, int64_t columns);
Status onednn_pack(void *copy, const float *w, int64_t n, int64_t k, bool transposed, Dtype compute);
size_t onednn_scratch(const Product *p, int64_t rows, bool any);
Status onednn_prepare(const Product *p, int64_t rows);
Status onednn_run(const Product *p, int64_t rows, const void *a, const void *b, const float *bias, void *c,
                  void *scratch);
