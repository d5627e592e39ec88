/* The calls of oneDNN that this backend makes. v2.c and v3.c hold the few whose form differs between oneDNN 2 and 3;
   CMake compiles the one that fits the installed version. api.c has the rest. */
#pragma once

#include <dnnl.h>

#include "base/base.h"

#define ONEDNN "oneDNN"

/* Around calls that make or run a primitive: so many threads take part. */
void api_enter(int threads);
void api_leave(void); /* cpu.threads again */

/* A two-dimensional tensor's type, sizes and layout. */
typedef struct Desc Desc;

/* strides NULL: oneDNN chooses the layout. CHECKs that it takes the sizes. */
Desc *api_desc(Dtype dtype, int64_t rows, int64_t cols, const int64_t *strides);
Desc *api_row_major(Dtype dtype, int64_t rows, int64_t cols);
Desc *api_column_major(Dtype dtype, int64_t rows, int64_t cols);
void api_desc_free(Desc *d); /* takes NULL */
size_t api_desc_bytes(const Desc *d);

/* dst = src·weights (+ bias, or + dst), scratch given by the caller. `bias` may be NULL. */
Status api_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *src, const Desc *weights,
                  const Desc *bias, const Desc *dst, bool sum);
/* New Descs of the weights and of the scratch as the primitive chose them. */
Desc *api_weights(const_dnnl_primitive_desc_t pd);
Desc *api_scratch(const_dnnl_primitive_desc_t pd);

Status api_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *from, const Desc *to);
/* Without memory of its own; the handle is set before each run. */
Status api_memory(dnnl_memory_t *memory, dnnl_engine_t engine, const Desc *d);

/* An argument of a primitive: its memory, made by api_memory, and where that lies in this run. */
typedef struct {
    int number;
    dnnl_memory_t memory;
    const void *data;
} ApiArg;

/* Runs a primitive with n ≤ 5 arguments by so many threads, and waits for it. `what` is run. */
Status api_run(dnnl_primitive_t primitive, dnnl_stream_t stream, const ApiArg *args, int n, int threads,
               const char *what);

/* dnnl's status as ours; `what` was tried. */
Status api_status(dnnl_status_t status, const char *what);

/* ---- v2.c, v3.c. A handle is dnnl's pointer to a memory descriptor. ---- */
const void *api_desc_handle(const Desc *d); /* NULL of NULL */
Desc *api_desc_copy(const void *handle);
dnnl_status_t api_desc_init(Desc **d, dnnl_data_type_t dtype, const dnnl_dims_t dims, const dnnl_dim_t *strides);
dnnl_status_t api_append_sum(dnnl_post_ops_t ops);
dnnl_status_t api_matmul_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *src, const Desc *weights,
                                const Desc *bias, const Desc *dst, const_dnnl_primitive_attr_t attr);
