#include "kernels/cpu/onednn/api.h"

#include <omp.h>

#include "base/library.h"
#include "base/machine_memory.h"
#include "kernels/cpu/cpu.h"

void api_enter(int threads)
{
    omp_set_num_threads(threads);
    library_enter(ONEDNN);
}

void api_leave(void)
{
    library_leave();
    omp_set_num_threads(cpu.threads);
}

/* Address space for a primitive and its code. oneDNN crashes where it finds none. */
#define PRIMITIVE_ADDRESSES ((size_t)16 << 20)

static void require_addresses(void)
{
    if (process_free_addresses() < PRIMITIVE_ADDRESSES) mem_exhausted(PRIMITIVE_ADDRESSES);
}

Status api_status(dnnl_status_t status, const char *what)
{
    static const char *const names[] = {
        [dnnl_invalid_arguments] = "invalid arguments",
        [dnnl_unimplemented] = "not implemented on this CPU",
        [dnnl_runtime_error] = "runtime error",
    };
    if (status == dnnl_success) return OK;
    if (status == dnnl_out_of_memory) mem_exhausted(0); /* else another implementation, with other bits, would serve */
    const char *name = (size_t)status < sizeof names / sizeof *names ? names[status] : NULL;
    return fail(E_FAIL, "oneDNN %s: %s (status %d)", what, name ? name : "unknown error", (int)status);
}

Desc *api_desc(Dtype dtype, int64_t rows, int64_t cols, const int64_t *strides)
{
    Desc *d = NULL;
    CHECK(dtype == F32 || dtype == BF16, "oneDNN products take f32 and bf16, not %s", dtype_name(dtype));
    CHECK(api_desc_init(&d, dtype == F32 ? dnnl_f32 : dnnl_bf16, (const dnnl_dims_t){rows, cols}, strides) ==
              dnnl_success,
          "oneDNN refuses a (%lld, %lld) matrix", (long long)rows, (long long)cols);
    return d;
}

Desc *api_row_major(Dtype dtype, int64_t rows, int64_t cols)
{
    return api_desc(dtype, rows, cols, (const int64_t[]){cols, 1});
}

Desc *api_column_major(Dtype dtype, int64_t rows, int64_t cols)
{
    return api_desc(dtype, rows, cols, (const int64_t[]){1, rows});
}

size_t api_desc_bytes(const Desc *d) { return dnnl_memory_desc_get_size(api_desc_handle(d)); }

Status api_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *src, const Desc *weights,
                  const Desc *bias, const Desc *dst, bool sum)
{
    Status status = OK;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    require_addresses();
    TRY_DONE(api_status(dnnl_primitive_attr_create(&attr), "attributes"));
    TRY_DONE(api_status(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "user scratch"));
    if (sum) {
        TRY_DONE(api_status(dnnl_post_ops_create(&post), "post-ops"));
        TRY_DONE(api_status(api_append_sum(post), "sum"));
        TRY_DONE(api_status(dnnl_primitive_attr_set_post_ops(attr, post), "post-ops"));
    }
    TRY_DONE(api_status(api_matmul_create(pd, engine, src, weights, bias, dst, attr), "matmul"));
done:
    if (post) dnnl_post_ops_destroy(post);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return status;
}

Desc *api_weights(const_dnnl_primitive_desc_t pd)
{
    return api_desc_copy(dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
}

Desc *api_scratch(const_dnnl_primitive_desc_t pd)
{
    return api_desc_copy(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}

Status api_reorder(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const Desc *from, const Desc *to)
{
    require_addresses();
    return api_status(
        dnnl_reorder_primitive_desc_create(pd, api_desc_handle(from), engine, api_desc_handle(to), engine, NULL),
        "reorder");
}

Status api_memory(dnnl_memory_t *memory, dnnl_engine_t engine, const Desc *d)
{
    return api_status(dnnl_memory_create(memory, api_desc_handle(d), engine, DNNL_MEMORY_NONE), "memory");
}

Status api_run(dnnl_primitive_t primitive, dnnl_stream_t stream, const ApiArg *args, int n, int threads,
               const char *what)
{
    Status status = OK;
    dnnl_exec_arg_t theirs[5];
    api_enter(threads);
    for (int i = 0; i < n; i++) {
        TRY_DONE(api_status(dnnl_memory_set_data_handle(args[i].memory, (void *)(uintptr_t)args[i].data), "memory"));
        theirs[i] = (dnnl_exec_arg_t){args[i].number, args[i].memory};
    }
    TRY_DONE(api_status(dnnl_primitive_execute(primitive, stream, n, theirs), what));
    status = api_status(dnnl_stream_wait(stream), what);
done:
    api_leave();
    return status;
}
