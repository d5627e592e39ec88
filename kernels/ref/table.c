#include "kernels/backend.h"
#include "kernels/ref/ref.h"

static Status ref_open(Backend *b, const BackendOptions *options)
{
    (void)options;
    b->threads = 1;
    snprintf(b->describe, sizeof b->describe, "ref, 1 thread");
    return OK;
}

static void ref_close(Backend *b) { (void)b; }

static bool ref_supports(const Backend *b, Dtype compute, char *why_not, size_t size)
{
    (void)b;
    if (compute == F32 || compute == BF16 || compute == F16) return true;
    snprintf(why_not, size, "the ref backend computes in f32, bf16 and f16, not %s", dtype_name(compute));
    return false;
}

static Dtype ref_best_compute(const Backend *b)
{
    (void)b;
    return F32;
}

#define BUCKET 64

static int64_t ref_bucket(int64_t n, int64_t capacity)
{
    int64_t rows = n < 1 ? BUCKET : (n + BUCKET - 1) / BUCKET * BUCKET;
    return rows < capacity ? rows : capacity;
}

static size_t ref_copy_bytes(Dtype compute, int64_t n, int64_t k, bool transposed)
{
    (void)transposed;
    return (size_t)n * (size_t)k * dtype_size(compute);
}

void backend_ref_table(Backend *b)
{
    *b = (Backend){
        .name = "ref",
        .op =
            {
#define X(op, run, scratch) [OP_##op] = {run, scratch, no_prepare},
                REF_LIST(X)
#undef X
            },
        .open = ref_open,
        .close = ref_close,
        .supports = ref_supports,
        .best_compute = ref_best_compute,
        .bucket = ref_bucket,
        .copy_bytes = ref_copy_bytes,
    };
}
