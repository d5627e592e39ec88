#include "kernels/cpu/onednn/matmul.h"

Status matmul_make(Matmul *m, dnnl_engine_t engine, const PackedLayout *l)
{
    Status status = OK;
    const Product *p = &m->product;
    bool grad = p->kind == PRODUCT_GRAD;
    dnnl_primitive_desc_t pd = NULL;
    Desc *src = NULL, *weights = NULL, *bias = NULL, *dst = NULL, *scratch = NULL;
    api_enter(m->threads);
    src = grad ? api_column_major(p->in, p->n, m->rows) : api_row_major(p->in, m->rows, p->k);
    if (grad) weights = api_row_major(p->in, m->rows, p->k);
    if (p->bias) bias = api_row_major(F32, 1, p->n);
    dst = grad ? api_row_major(F32, p->n, p->k) : api_row_major(p->out, m->rows, p->n);
    const Desc *w = grad ? weights : l->desc;
    TRY_DONE(api_matmul(&pd, engine, src, w, bias, dst, grad || p->add));
    TRY_DONE(api_status(dnnl_primitive_create(&m->primitive, pd), "matmul"));
    const char *name = "";
    TRY_DONE(api_status(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name), "query"));
    snprintf(m->implementation, sizeof m->implementation, "%s", name);
    scratch = api_scratch(pd);
    m->scratch_bytes = api_desc_bytes(scratch);
    TRY_DONE(api_memory(&m->src, engine, src));
    TRY_DONE(api_memory(&m->weights, engine, w));
    TRY_DONE(api_memory(&m->dst, engine, dst));
    TRY_DONE(api_memory(&m->scratch, engine, scratch));
    if (bias) TRY_DONE(api_memory(&m->bias, engine, bias));
done:
    if (pd) dnnl_primitive_desc_destroy(pd);
    api_desc_free(src);
    api_desc_free(weights);
    api_desc_free(bias);
    api_desc_free(dst);
    api_desc_free(scratch);
    api_leave();
    return status_context(status, "product of %lld rows, %lld to %lld, in %s", (long long)m->rows, (long long)p->k,
                          (long long)p->n, dtype_name(p->in));
}

Status matmul_run(const Matmul *m, dnnl_stream_t stream, const void *src, const void *weights, const float *bias,
                  void *dst, void *scratch)
{
    const ApiArg args[] = {{DNNL_ARG_SRC, m->src, src},
                           {DNNL_ARG_WEIGHTS, m->weights, weights},
                           {DNNL_ARG_DST, m->dst, dst},
                           {DNNL_ARG_SCRATCHPAD, m->scratch, scratch},
                           {DNNL_ARG_BIAS, m->bias, bias}};
    return api_run(m->primitive, stream, args, m->bias ? 5 : 4, m->threads, "matmul");
}

void matmul_free(Matmul *m)
{
    dnnl_memory_t memories[] = {m->src, m->weights, m->bias, m->dst, m->scratch};
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (memories[i]) dnnl_memory_destroy(memories[i]);
    if (m->primitive) dnnl_primitive_destroy(m->primitive);
    free(m);
}
