/* oneDNN 2: memory descriptors are structs, operations have descriptors of their own. */
#include <stdlib.h>

#include "kernels/cpu/onednn/api.h"

struct Desc {
    dnnl_memory_desc_t md;
};

Desc *api_desc(Dtype dtype, int64_t rows, int64_t cols, const int64_t *strides)
{
    Desc *d = mem_alloc(sizeof *d);
    dnnl_dims_t dims = {rows, cols};
    dnnl_status_t s;
    if (strides) {
        dnnl_dims_t steps = {strides[0], strides[1]};
        s = dnnl_memory_desc_init_by_strides(&d->md, 2, dims, api_dtype(dtype), steps);
    } else {
        s = dnnl_memory_desc_init_by_tag(&d->md, 2, dims, api_dtype(dtype), dnnl_format_tag_any);
    }
    if (s == dnnl_success) return d;
    free(d);
    return NULL;
}

void api_desc_free(Desc *d) { free(d); }

size_t api_desc_bytes(const Desc *d) { return dnnl_memory_desc_get_size(&d->md); }

Status api_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *src, const Desc *weights,
                  const Desc *bias, const Desc *dst, bool sum)
{
    Status status = OK;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_matmul_desc_t op;
    TRY_DONE(api_status(dnnl_primitive_attr_create(&attr), "attributes"));
    TRY_DONE(api_status(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "user scratch"));
    if (sum) {
        TRY_DONE(api_status(dnnl_post_ops_create(&post), "post-ops"));
        TRY_DONE(api_status(dnnl_post_ops_append_sum(post, 1.0f), "sum"));
        TRY_DONE(api_status(dnnl_primitive_attr_set_post_ops(attr, post), "post-ops"));
    }
    TRY_DONE(
        api_status(dnnl_matmul_desc_init(&op, &src->md, &weights->md, bias ? &bias->md : NULL, &dst->md), "matmul"));
    TRY_DONE(api_status(dnnl_primitive_desc_create(pd, &op, attr, engine, NULL), "matmul"));
done:
    if (post) dnnl_post_ops_destroy(post);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

static Desc *queried(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    Desc *d = mem_alloc(sizeof *d);
    d->md = *dnnl_primitive_desc_query_md(pd, what, 0);
    return d;
}

Desc *api_weights(const_dnnl_primitive_desc_t pd) { return queried(pd, dnnl_query_weights_md); }
Desc *api_scratch(const_dnnl_primitive_desc_t pd) { return queried(pd, dnnl_query_scratchpad_md); }

Status api_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *from, const Desc *to)
{
    return api_status(dnnl_reorder_primitive_desc_create(pd, &from->md, engine, &to->md, engine, NULL), "reorder");
}

Status api_memory(dnnl_memory_t *memory, dnnl_engine_t engine, const Desc *d)
{
    return api_status(dnnl_memory_create(memory, &d->md, engine, DNNL_MEMORY_NONE), "memory");
}
