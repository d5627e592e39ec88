#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

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

/* ---- memory of a region: whole pages between two that may not be touched ---- */

#define PAGE ((size_t)4096)

static size_t whole_pages(size_t bytes) { return (bytes ? bytes + PAGE - 1 : PAGE) / PAGE * PAGE; }

static Status ref_alloc(size_t bytes, void **p)
{
    if (bytes > SIZE_MAX / 2) return fail(E_MEMORY, "a region of %zu bytes is larger than the address space", bytes);
    size_t inner = whole_pages(bytes);
    char *outer = mmap(NULL, inner + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (outer == MAP_FAILED) return fail(E_MEMORY, "cannot map a region of %zu bytes: %s", bytes, strerror(errno));
    char *start = mmap(outer + PAGE, inner, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (start == MAP_FAILED) {
        int error = errno;
        munmap(outer, inner + 2 * PAGE);
        return fail(E_MEMORY, "cannot map a region of %zu bytes: %s", bytes, strerror(error));
    }
    madvise(start, inner, MADV_HUGEPAGE); /* a wish */
    for (size_t i = 0; i < inner; i += PAGE) ((volatile char *)start)[i] = 0;
    *p = start;
    return OK;
}

static void ref_release(void *p, size_t bytes)
{
    if (p) munmap((char *)p - PAGE, whole_pages(bytes) + 2 * PAGE);
}

static Status ref_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return OK;
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
        .alloc = ref_alloc,
        .release = ref_release,
        .upload = ref_copy,
        .download = ref_copy,
    };
}
