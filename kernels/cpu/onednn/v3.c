/* oneDNN 3: memory descriptors are handles, a primitive descriptor is made from its operands at once. */

#include "kernels/cpu/onednn/api.h"

struct Desc {
    dnnl_memory_desc_t md;
};

const void *api_desc_handle(const Desc *d) { return d ? (const void *)d->md : NULL; }

void api_desc_free(Desc *d)
{
    if (d) dnnl_memory_desc_destroy(d->md);
    free(d);
}

Desc *api_desc_copy(const void *handle)
{
    Desc *d = mem_alloc(sizeof *d);
    CHECK(dnnl_memory_desc_clone(&d->md, handle) == dnnl_success, "oneDNN cannot copy a memory descriptor");
    return d;
}

dnnl_status_t api_desc_init(Desc **d, dnnl_data_type_t dtype, const dnnl_dims_t dims, const dnnl_dim_t *strides)
{
    *d = mem_alloc(sizeof **d);
    return strides ? dnnl_memory_desc_create_with_strides(&(*d)->md, 2, dims, dtype, strides)
                   : dnnl_memory_desc_create_with_tag(&(*d)->md, 2, dims, dtype, dnnl_format_tag_any);
}

dnnl_status_t api_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

dnnl_status_t api_matmul_create(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *src, const Desc *weights,
                                const Desc *bias, const Desc *dst, const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, api_desc_handle(src), api_desc_handle(weights),
                                             api_desc_handle(bias), api_desc_handle(dst), attr);
}
