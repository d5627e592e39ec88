/* oneDNN 3: memory descriptors are handles, a primitive descriptor is made from its operands at once. */
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
        s = dnnl_memory_desc_create_with_strides(&d->md, 2, dims, api_dtype(dtype), steps);
    } else {
        s = dnnl_memory_desc_create_with_tag(&d->md, 2, dims, api_dtype(dtype), dnnl_format_tag_any);
    }
    if (s == dnnl_success) return d;
    free(d);
    return NULL;
}

void api_desc_free(Desc *d)
{
    if (d) dnnl_memory_desc_destroy(d->md);
    free(d);
}

size_t api_desc_bytes(const Desc *d) { return dnnl_memory_desc_get_size(d->md); }

Status api_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *src, const Desc *weights,
                  const Desc *bias, const Desc *dst, bool sum)
{
    Status status = OK;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    TRY_DONE(api_status(dnnl_primitive_attr_create(&attr), "attributes"));
    TRY_DONE(api_status(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "user scratch"));
    if (sum) {
        TRY_DONE(api_status(dnnl_post_ops_create(&post), "post-ops"));
        TRY_DONE(api_status(dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef), "sum"));
        TRY_DONE(api_status(dnnl_primitive_attr_set_post_ops(attr, post), "post-ops"));
    }
    TRY_DONE(api_status(
        dnnl_matmul_primitive_desc_create(pd, engine, src->md, weights->md, bias ? bias->md : NULL, dst->md, attr),
        "matmul"));
done:
    if (post) dnnl_post_ops_destroy(post);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

static Desc *queried(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    Desc *d = mem_alloc(sizeof *d);
    CHECK(dnnl_memory_desc_clone(&d->md, dnnl_primitive_desc_query_md(pd, what, 0)) == dnnl_success,
          "oneDNN cannot copy a memory descriptor");
    return d;
}

Desc *api_weights(const_dnnl_primitive_desc_t pd) { return queried(pd, dnnl_query_weights_md); }
Desc *api_scratch(const_dnnl_primitive_desc_t pd) { return queried(pd, dnnl_query_scratchpad_md); }

Status api_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *from, const Desc *to)
{
    return api_status(dnnl_reorder_primitive_desc_create(pd, from->md, engine, to->md, engine, NULL), "reorder");
}

Status api_memory(dnnl_memory_t *memory, dnnl_engine_t engine, const Desc *d)
{
    return api_status(dnnl_memory_create(memory, d->md, engine, DNNL_MEMORY_NONE), "memory");
}
