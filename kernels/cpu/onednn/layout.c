#include "kernels/cpu/onednn/layout.h"

#include <omp.h>

#include "kernels/cpu/cpu.h"

Status layout_make(PackedLayout *l, dnnl_engine_t engine)
{
    dnnl_primitive_desc_t pd = NULL;
    api_enter(cpu.threads);
    Desc *src = api_row_major(l->dtype, CHUNK, l->depth), *any = api_desc(l->dtype, l->depth, l->columns, NULL);
    Desc *dst = api_row_major(l->dtype, CHUNK, l->columns), *plain[2] = {NULL};
    omp_set_num_threads(1); /* the layout does not depend on them; reorders take all */
    Status status = api_matmul(&pd, engine, src, any, NULL, dst, false);
    omp_set_num_threads(cpu.threads);
    if (status != OK) goto done;
    l->desc = api_weights(pd);
    plain[0] = api_column_major(F32, l->depth, l->columns);
    plain[1] = api_row_major(F32, l->depth, l->columns);
    TRY_DONE(api_memory(&l->packed, engine, l->desc));
    for (int i = 0; i < 2; i++) {
        dnnl_primitive_desc_t reorder = NULL;
        TRY_DONE(api_memory(&l->plain[i], engine, plain[i]));
        TRY_DONE(api_reorder(&reorder, engine, plain[i], l->desc));
        status = api_status(dnnl_primitive_create(&l->pack[i], reorder), "reorder");
        dnnl_primitive_desc_destroy(reorder);
        if (status != OK) goto done;
    }
done:
    if (pd) dnnl_primitive_desc_destroy(pd);
    api_desc_free(src);
    api_desc_free(any);
    api_desc_free(dst);
    api_desc_free(plain[0]);
    api_desc_free(plain[1]);
    api_leave();
    return status_context(status, "packing a (%lld, %lld) weight in %s", (long long)l->depth, (long long)l->columns,
                          dtype_name(l->dtype));
}

Status layout_pack(const PackedLayout *l, dnnl_stream_t stream, void *copy, const float *w, bool transposed)
{
    const ApiArg args[] = {{DNNL_ARG_FROM, l->plain[transposed], w}, {DNNL_ARG_TO, l->packed, copy}};
    return api_run(l->pack[transposed], stream, args, 2, cpu.threads, "reorder");
}

void layout_free(PackedLayout *l)
{
    dnnl_memory_t memories[] = {l->packed, l->plain[0], l->plain[1]};
    for (size_t k = 0; k < sizeof memories / sizeof *memories; k++)
        if (memories[k]) dnnl_memory_destroy(memories[k]);
    for (int k = 0; k < 2; k++)
        if (l->pack[k]) dnnl_primitive_destroy(l->pack[k]);
    api_desc_free(l->desc);
    free(l);
}
