/* Products by oneDNN's matmul. The layout of packed weights is the one it chooses for CHUNK rows; primitives for every
   other number of rows are made with that layout given. A primitive takes some 50 KB. Rows go in pieces of few sizes,
   so that the number of primitives depends neither on the capacity nor on how many numbers of rows it holds. */
#include "kernels/cpu/onednn.h"

#include "base/library.h"
#include "kernels/cpu/onednn/samples.h"

#define BUCKET 64

/* ---- kept between calls ---- */

/* Products that are not made by brgemm kernels allocate inside a run. */
typedef enum { USE_NONE, USE_ALLOCATES, USE_SERVES } Use;

/* A product's primitives: the one of r rows at r / BUCKET − 1, NULL until it is made. */
typedef struct {
    Product product;
    Matmul *of_rows[CHUNK / BUCKET];
} KeptProduct;

static struct {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    PackedLayout **layouts; /* pointers, so that growing moves none */
    int n_layouts, cap_layouts;
    KeptProduct *products;
    int n_products, cap_products;
    char version[24];
    Use use[2][2];           /* by product kind and bf16 */
    int row_threads[2];      /* of products of rows, by bf16: the most that leave their bits as one thread makes them */
    char implementation[40]; /* of a layer's product in the best type */
    int opened;
} dnn;

const char *onednn_version(void) { return dnn.version; }
const char *onednn_implementation(void) { return dnn.implementation; }

/* ---- packed layouts ---- */

static Status find_layout(Dtype dtype, int64_t depth, int64_t columns, PackedLayout **layout)
{
    for (int i = 0; i < dnn.n_layouts; i++) {
        *layout = dnn.layouts[i];
        if ((*layout)->dtype == dtype && (*layout)->depth == depth && (*layout)->columns == columns) return OK;
    }
    PackedLayout *l = mem_alloc(sizeof *l);
    *l = (PackedLayout){.dtype = dtype, .depth = depth, .columns = columns};
    MEM_GROW(dnn.layouts, dnn.n_layouts, dnn.cap_layouts);
    dnn.layouts[dnn.n_layouts++] = *layout = l; /* kept even if it fails: close frees it */
    return layout_make(l, dnn.engine);
}

size_t onednn_copy_bytes(Dtype compute, int64_t depth, int64_t columns)
{
    PackedLayout *l;
    CHECK(find_layout(compute, depth, columns, &l) == OK && l->desc, "%s", status_message());
    return api_desc_bytes(l->desc);
}

Status onednn_pack(void *copy, const float *w, int64_t n, int64_t k, bool transposed, Dtype compute)
{
    PackedLayout *l;
    TRY(find_layout(compute, transposed ? n : k, transposed ? k : n, &l));
    return layout_pack(l, dnn.stream, copy, w, transposed);
}

/* ---- products ---- */

static Status make(Matmul *m)
{
    const Product *p = &m->product;
    PackedLayout *l = NULL;
    if (p->kind != PRODUCT_GRAD) TRY(find_layout(p->in, p->k, p->n, &l));
    m->threads = p->kind == PRODUCT_ROWS ? dnn.row_threads[p->in == BF16] : cpu.threads;
    return matmul_make(m, dnn.engine, l);
}

static bool same_product(const Product *p, const Product *q)
{
    return q->kind == p->kind && q->k == p->k && q->n == p->n && q->in == p->in && q->out == p->out &&
           q->bias == p->bias && q->add == p->add;
}

/* Creates it at the first call, finds it at later ones. `rows`: a multiple of BUCKET up to CHUNK. */
static Status find_matmul(const Product *p, int64_t rows, Matmul **matmul)
{
    int i = 0;
    while (i < dnn.n_products && !same_product(&dnn.products[i].product, p)) i++;
    if (i == dnn.n_products) MEM_PUSH(dnn.products, dnn.n_products, dnn.cap_products, (KeptProduct){.product = *p});
    Matmul **place = &dnn.products[i].of_rows[rows / BUCKET - 1];
    if (!*place) {
        Matmul *m = mem_alloc(sizeof *m);
        *m = (Matmul){.product = *p, .rows = rows};
        Status status = make(m);
        if (status != OK) {
            matmul_free(m);
            return status;
        }
        *place = m;
    }
    *matmul = *place;
    return OK;
}

/* The first piece of so many rows: a CHUNK, or a multiple of BUCKET: the last rows, fewer than a BUCKET, are multiplied
   as one, since AMX kernels give few rows other bits. */
static int64_t first_piece(int64_t rows)
{
    if (rows >= CHUNK) return CHUNK;
    return rows >= BUCKET ? rows / BUCKET * BUCKET : BUCKET;
}

Status onednn_prepare(const Product *p, int64_t rows)
{
    for (int64_t first = 0; first < rows; first += first_piece(rows - first)) {
        Matmul *m;
        TRY(find_matmul(p, first_piece(rows - first), &m));
    }
    return OK;
}

/* A BUCKET of x and one of y, before the scratch of its product. */
typedef struct {
    size_t x, y; /* bytes, whole cache lines */
} Padding;

static Padding padding_of(const Product *p)
{
    return (Padding){cpu_line((size_t)(BUCKET * p->k) * dtype_size(p->in)),
                     cpu_line((size_t)(BUCKET * p->n) * dtype_size(p->out))};
}

/* The largest of all pieces, and a little more. */
size_t onednn_scratch(const Product *p, int64_t rows, bool any)
{
    size_t most = 0;
    int64_t largest = first_piece(rows);
    Padding padding = padding_of(p);
    for (int64_t r = BUCKET; r <= largest; r += BUCKET) {
        Matmul *m;
        CHECK(find_matmul(p, r, &m) == OK, "%s", status_message());
        if (m->scratch_bytes > most) most = m->scratch_bytes;
    }
    if (most) most += most / 8 + 4096;
    return most + (any || rows % BUCKET ? padding.x + padding.y : 0);
}

/* The last rows, fewer than a BUCKET, in scratch: zeros follow them. */
static Status run_last(const Product *p, int64_t rows, const void *x, const void *b, const float *bias, void *y,
                       char *scratch)
{
    Matmul *m;
    Padding padding = padding_of(p);
    size_t x_bytes = (size_t)(rows * p->k) * dtype_size(p->in), y_bytes = (size_t)(rows * p->n) * dtype_size(p->out);
    char *padded_x = scratch, *padded_y = scratch + padding.x;
    TRY(find_matmul(p, BUCKET, &m));
    memcpy(padded_x, x, x_bytes);
    memset(padded_x + x_bytes, 0, padding.x - x_bytes);
    memset(padded_y, 0, padding.y);
    if (p->add) memcpy(padded_y, y, y_bytes);
    TRY(matmul_run(m, dnn.stream, padded_x, b, bias, padded_y, padded_y + padding.y));
    memcpy(y, padded_y, y_bytes);
    return OK;
}

Status onednn_run(const Product *p, int64_t rows, const void *a, const void *b, const float *bias, void *c,
                  void *scratch)
{
    size_t in = dtype_size(p->in), out = dtype_size(p->out);
    for (int64_t first = 0, piece; first < rows; first += piece) {
        Matmul *m;
        const char *x = (const char *)a + (size_t)(first * p->k) * in;
        char *y = (char *)c + (size_t)(first * p->n) * out;
        piece = first_piece(rows - first);
        if (rows - first < piece) return run_last(p, rows - first, x, b, bias, y, scratch);
        TRY(find_matmul(p, piece, &m));
        if (p->kind == PRODUCT_GRAD)
            TRY(matmul_run(m, dnn.stream, (const char *)b + (size_t)(first * p->n) * in, x, NULL, c, scratch));
        else
            TRY(matmul_run(m, dnn.stream, x, b, bias, y, scratch));
    }
    return OK;
}

/* ---- opening: whether oneDNN serves on this CPU ---- */

/* Weight gradients by oneDNN only where it has AMX: its AVX-512 kernels are no faster than our tiles (RESULTS.md), take
   scratch that grows with the threads, and cut sums between them. */
static Use find_use(ProductKind kind, Dtype dtype, char *name, size_t size)
{
    const Product p = {.kind = kind, .k = 768, .n = 3072, .in = dtype, .out = kind == PRODUCT_GRAD ? F32 : dtype};
    Matmul *m = mem_alloc(sizeof *m);
    *m = (Matmul){.product = p, .rows = CHUNK};
    Use use = USE_NONE;
    if (make(m) != OK) goto done;
    use = USE_ALLOCATES;
    snprintf(name, size, "%s", m->implementation);
    if (strncmp(name, "brg", 3) != 0) goto done;
    if (kind == PRODUCT_GRAD) {
        if (strstr(name, "amx")) use = USE_SERVES;
    } else {
        int most = samples_threads(dnn.engine, dnn.stream, dtype, name);
        if (most > 0) dnn.row_threads[dtype == BF16] = most, use = USE_SERVES;
    }
done:
    matmul_free(m);
    return use;
}

Status onednn_open(void)
{
    if (dnn.opened++) return OK;
    const dnnl_version_t *v = dnnl_version();
    snprintf(dnn.version, sizeof dnn.version, "%d.%d.%d", v->major, v->minor, v->patch);
    library_enter(ONEDNN);
    Status status = api_status(dnnl_engine_create(&dnn.engine, dnnl_cpu, 0), "engine");
    if (status == OK)
        status = api_status(dnnl_stream_create(&dnn.stream, dnn.engine, dnnl_stream_default_flags), "stream");
    library_leave();
    TRY(status);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        Dtype dtype = bf16 ? BF16 : F32;
        char name[sizeof dnn.implementation] = "", other[sizeof name] = "";
        dnn.row_threads[bf16] = cpu.threads;
        dnn.use[PRODUCT_ROWS][bf16] = find_use(PRODUCT_ROWS, dtype, name, sizeof name);
        dnn.use[PRODUCT_GRAD][bf16] = find_use(PRODUCT_GRAD, dtype, other, sizeof other);
        if (dtype == F32 || onednn_serves(PRODUCT_ROWS, BF16)) strcpy(dnn.implementation, name);
    }
    return OK;
}

bool onednn_serves(ProductKind kind, Dtype in) { return dnn.use[kind][in == BF16] == USE_SERVES; }
bool onednn_threads_matter(void) { return strstr(dnn.implementation, "amx") != NULL; }
bool onednn_can(ProductKind kind, Dtype in) { return dnn.use[kind][in == BF16] != USE_NONE; }

void onednn_close(void)
{
    if (--dnn.opened > 0) return;
    for (int i = 0; i < dnn.n_products; i++)
        for (int r = 0; r < CHUNK / BUCKET; r++)
            if (dnn.products[i].of_rows[r]) matmul_free(dnn.products[i].of_rows[r]);
    for (int i = 0; i < dnn.n_layouts; i++) layout_free(dnn.layouts[i]);
    MEM_FREE(dnn.layouts, dnn.products);
    if (dnn.stream) dnnl_stream_destroy(dnn.stream);
    if (dnn.engine) dnnl_engine_destroy(dnn.engine);
    memset(&dnn, 0, sizeof dnn);
}
