#include "kernels/cpu/onednn/samples.h"

#include "base/file.h"
#include "base/test_switch.h"
#include "kernels/cpu/cpu.h"

static void fill_numbers(void *to, Dtype dtype, size_t n, uint32_t factor)
{
    for (size_t i = 0; i < n; i++) {
        float x = (float)((uint32_t)i * factor >> 12) * 0x1p-20f - 0.5f;
        if (dtype == F32)
            ((float *)to)[i] = x;
        else
            ((uint16_t *)to)[i] = bf16_from_f32(x);
    }
}

static void *align64(void *p) { return (void *)(((uintptr_t)p + 63) / 64 * 64); }

/* Operands of products of rows that are compared with each other. */
typedef struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Product product;
    PackedLayout *layout;
    void *a, *b; /* (rows, K) and the packed weights, aligned within `weights` */
    void *weights;
} Sample;

static void sample_free(Sample *s)
{
    layout_free(s->layout);
    MEM_FREE(s->a, s->weights);
}

/* Fills one whose engine, stream and product are set. */
static Status sample_init(Sample *s, int64_t rows)
{
    const Product *p = &s->product;
    size_t n_a = (size_t)(rows * p->k), n_b = (size_t)(p->k * p->n);
    s->layout = mem_alloc(sizeof *s->layout);
    *s->layout = (PackedLayout){.dtype = p->in, .depth = p->k, .columns = p->n};
    TRY(layout_make(s->layout, s->engine));
    s->a = mem_array(n_a, dtype_size(p->in));
    fill_numbers(s->a, p->in, n_a, 2654435761u);
    s->weights = mem_alloc(api_desc_bytes(s->layout->desc) + 64);
    s->b = align64(s->weights);
    float *w = mem_array(n_b, sizeof *w); // (N, K)
    fill_numbers(w, F32, n_b, 2246822519u);
    Status status = layout_pack(s->layout, s->stream, s->b, w, false);
    free(w);
    return status;
}

/* The product of a sample's first `rows` rows, by a primitive made for so many threads. NULL where oneDNN fails; else
   the caller frees it. */
static void *sample_product(const Sample *s, int64_t rows, int threads)
{
    const Product *p = &s->product;
    Matmul *m = mem_alloc(sizeof *m);
    *m = (Matmul){.product = *p, .rows = rows, .threads = threads};
    void *scratch = NULL, *c = mem_array((size_t)(rows * p->n), dtype_size(p->out));
    Status status = matmul_make(m, s->engine, s->layout);
    if (status == OK) {
        scratch = mem_alloc(m->scratch_bytes + 64);
        status = matmul_run(m, s->stream, s->a, s->b, NULL, c, align64(scratch));
    }
    matmul_free(m);
    free(scratch);
    if (status == OK) return c;
    free(c);
    return NULL;
}

static bool same_samples(const void *x, const void *y, size_t bytes) { return x && y && memcmp(x, y, bytes) == 0; }

/* For tests, whose processes are many and short: CAIRN_TEST_SAMPLES names a file with a line for each check of samples
   that agreed. */
static bool agreed_before(const char *line)
{
    Buf text = {0};
    const char *path = test_switch("SAMPLES");
    bool found = path && file_exists(path) && file_read(path, 1 << 20, &text) == OK && text.data &&
                 strstr(text.data, line) != NULL;
    buf_free(&text);
    return found;
}

static void note_agreement(const char *line)
{
    const char *path = test_switch("SAMPLES");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f) return;
    fputs(line, f);
    fclose(f);
}

/* Whether neither the number of rows nor so many threads change a row's bits: few rows by one thread, and the same
   among others by all, down a long sum. Some kernels cut the sum between threads where rows are few. Samples that
   agreed are not made again when the process opens the backend again. */
static bool rows_agree(dnnl_engine_t engine, dnnl_stream_t stream, Dtype dtype, const char *kernel, int threads)
{
    enum { FEW = 64, MANY = 320 };
    static uint64_t agreed[2]; /* a bit for each number of threads below 64 */
    uint64_t bit = threads < 64 ? (uint64_t)1 << threads : 0;
    const dnnl_version_t *v = dnnl_version();
    char line[128];
    snprintf(line, sizeof line, "%d.%d.%d %s %s %d\n", v->major, v->minor, v->patch, kernel, dtype_name(dtype),
             threads);
    if (agreed[dtype == BF16] & bit || agreed_before(line)) return true;
    Sample s = {.engine = engine,
                .stream = stream,
                .product = {.kind = PRODUCT_ROWS, .k = 3072, .n = 768, .in = dtype, .out = dtype}};
    size_t bytes = (size_t)(FEW * s.product.n) * dtype_size(dtype);
    bool agree = false;
    if (sample_init(&s, MANY) == OK) {
        void *many = sample_product(&s, MANY, threads), *few = sample_product(&s, FEW, 1);
        void *again = threads > 1 ? sample_product(&s, FEW, threads) : NULL;
        agree = same_samples(many, few, bytes) && (threads == 1 || same_samples(many, again, bytes));
        MEM_FREE(many, few, again);
    }
    sample_free(&s);
    if (!agree) return false;
    agreed[dtype == BF16] |= bit;
    note_agreement(line);
    return true;
}

int samples_threads(dnnl_engine_t engine, dnnl_stream_t stream, Dtype dtype, const char *kernel)
{
    int threads = cpu.threads;
    if (!rows_agree(engine, stream, dtype, kernel, 1)) return 0;
    while (threads > 1 && !rows_agree(engine, stream, dtype, kernel, threads)) threads--;
    return threads;
}
