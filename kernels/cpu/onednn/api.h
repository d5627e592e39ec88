/* The few calls whose form differs between oneDNN 2 and 3. v2.c and v3.c hold the same functions; CMake compiles the
   one that fits the installed version. */
#ifndef CAIRN_KERNELS_CPU_ONEDNN_API_H
#define CAIRN_KERNELS_CPU_ONEDNN_API_H

#include <dnnl.h>

#include "base/base.h"

/* A two-dimensional tensor's type, sizes and layout. */
typedef struct Desc Desc;

/* strides NULL: the layout is oneDNN's choice. NULL if it refuses. */
Desc *api_desc(Dtype dtype, int64_t rows, int64_t cols, const int64_t *strides);
void api_desc_free(Desc *d); /* takes NULL */
size_t api_desc_bytes(const Desc *d);

/* dst = src·weights (+ bias, or + dst), scratch given by the caller. `bias` may be NULL. */
Status api_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *src, const Desc *weights,
                  const Desc *bias, const Desc *dst, bool sum);
/* What the primitive chose: a new Desc of its weights, the bytes of scratch and their description. */
Desc *api_weights(const_dnnl_primitive_desc_t pd);
Desc *api_scratch(const_dnnl_primitive_desc_t pd);

Status api_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *from, const Desc *to);
/* Without memory of its own; the handle is set before each run. */
Status api_memory(dnnl_memory_t *memory, dnnl_engine_t engine, const Desc *d);

/* dnnl's status as ours, with what was tried. */
Status api_status(dnnl_status_t status, const char *what);
/* In v2.c and v3.c alike. */
static inline dnnl_data_type_t api_dtype(Dtype d)
{
    CHECK(d == F32 || d == BF16, "oneDNN products take f32 and bf16, not %s", dtype_name(d));
    return d == F32 ? dnnl_f32 : dnnl_bf16;
}

#endif
