/* K-FAC's kernels of the cpu backend: a weight gradient beside the statistics of the same linear, and inverses beside
   those of a LAPACK that is given, with the rate of the machine's own products.

   bench_kfac [THREADS [LAPACK.so]]

   Times are processor time of all threads, medians over rounds in which all take turns. Flops are 2·tokens·k·n of a
   product and a weight gradient, 2·tokens·n² of statistics, n³ of an inverse. LAPACK's is spotrf, spotri and the copy
   of a triangle, which INVERT makes too. The digests say whether threads change bits; `error` is the largest element of
   |M·M⁻¹ − 1| in a sample of rows. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/digest.h"
#include "base/sort.h"
#include "kernels/backend.h"
#include "kernels/kfac.h"

enum { ROUNDS = 7, TOKENS = 2048, RANK = 96, SAMPLE = 16 };
#define DAMPING 1e-3f

static Backend *backend;
static RowCounts rows = {.count = {[ROWS_TOKENS] = TOKENS, [ROWS_SEQS] = 16}};
static Ctl ctl = {.n_tokens = TOKENS, .n_seqs = 16, .kfac_tokens = TOKENS, .scale_seqs = 1};

static void require(Status status)
{
    if (status == OK) return;
    fprintf(stderr, "%s\n", status_message());
    exit(1);
}

static float *region(int64_t n)
{
    void *p;
    require(backend_alloc(backend, (size_t)n * sizeof(float), &p));
    return p;
}

static float noise(uint32_t i)
{
    uint32_t h = i * 2654435761u;
    return (float)(int32_t)((h ^ h >> 15) * 2246822519u) * 0x1p-31f;
}

/* ---- LAPACK ---- */

typedef void Lapack(const char *uplo, const int *n, float *a, const int *lda, int *info);
static Lapack *potrf, *potri;

static void open_lapack(const char *path, int threads)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&potrf = dlsym(library, "spotrf_");
    *(void **)&potri = dlsym(library, "spotri_");
    void (*set_threads)(int);
    *(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
    if (set_threads) set_threads(threads);
    if (potrf && potri) return;
    fprintf(stderr, "%s has no spotrf_ and spotri_\n", path);
    exit(1);
}

/* ---- what is measured ---- */

typedef enum { LINEAR, WEIGHT, STATISTICS, OWN, LIBRARY } Kind;

typedef struct {
    Kind kind;
    int64_t k, n; /* of an inverse n alone */
    OpCall call;
    float *sums, *a, *b; // (n, n): of an inverse
    double seconds[ROUNDS], median;
} Row;

static Row all[] = {{LINEAR, 768, 3072, .median = 0},      {WEIGHT, 768, 3072, .median = 0},
                    {WEIGHT, 768, 768, .median = 0},       {STATISTICS, 768, 768, .median = 0},
                    {STATISTICS, 3072, 3072, .median = 0}, {OWN, 0, 128, .median = 0},
                    {LIBRARY, 0, 128, .median = 0},        {OWN, 0, 768, .median = 0},
                    {LIBRARY, 0, 768, .median = 0},        {OWN, 0, 1024, .median = 0},
                    {LIBRARY, 0, 1024, .median = 0},       {OWN, 0, 3072, .median = 0},
                    {LIBRARY, 0, 3072, .median = 0}};
enum { COUNT = sizeof all / sizeof *all };
static const char *const names[] = {"product", "weight gradient", "statistics", "inverse", "LAPACK's inverse"};

static bool inverts(const Row *r) { return r->kind == OWN || r->kind == LIBRARY; }
static bool measured(const Row *r) { return r->kind != LIBRARY || potrf; }

static Operand operand(const Row *r, const char *name)
{
    Rows tokens = {ROWS_TOKENS, 0};
    int64_t k = r->k, n = r->n, rows_of = 0, cols = 0;
    if (strcmp(name, "ctl") == 0) return (Operand){&ctl, U8, {ROWS_FIXED, 1}, sizeof ctl};
    if (strcmp(name, "ready") == 0) return (Operand){region(1), F32, {ROWS_FIXED, 1}, 1};
    if (strcmp(name, "a") == 0) return (Operand){r->a, F32, {ROWS_FIXED, n}, n};
    if (strcmp(name, "b") == 0) return (Operand){r->b, F32, {ROWS_FIXED, n}, n};
    if (strcmp(name, "x") == 0) cols = k;
    if (strcmp(name, "y") == 0 || strcmp(name, "dy") == 0) cols = n;
    if (strcmp(name, "bias") == 0 || strcmp(name, "db") == 0) rows_of = n, cols = 1;
    if (strcmp(name, "dw") == 0 || strcmp(name, "factor") == 0) rows_of = n, cols = k;
    if (strcmp(name, "w") == 0) {
        void *p;
        require(backend_alloc(backend, backend->copy_bytes(F32, n, k, false), &p));
        return (Operand){p, F32, {ROWS_FIXED, n}, k};
    }
    if (cols == 0) {
        fprintf(stderr, "operand '%s'\n", name);
        exit(1);
    }
    int64_t count = (rows_of ? rows_of : TOKENS) * cols;
    Operand o = {region(count), F32, rows_of ? (Rows){ROWS_FIXED, rows_of} : tokens, cols};
    for (int64_t i = 0; i < count; i++) ((float *)o.data)[i] = rows_of ? 0 : noise((uint32_t)i);
    return o;
}

/* The sums of RANK vectors, whose trace's mean is about 1 with `scale` 1/TOKENS. */
static void fill_sums(Row *r)
{
    float *x = mem_array((size_t)r->n, sizeof *x);
    for (int v = 0; v < RANK; v++) {
        for (int64_t i = 0; i < r->n; i++) x[i] = noise((uint32_t)(v * r->n + i)) * sqrtf(3.0f * TOKENS / RANK);
        for (int64_t i = 0; i < r->n; i++)
            for (int64_t j = 0; j < r->n; j++) r->sums[i * r->n + j] += x[i] * x[j];
    }
    free(x);
}

static void build(Row *r)
{
    static const Op ops[] = {OP_LINEAR, OP_LINEAR_WGRAD, OP_CURVATURE, OP_INVERT, OP_INVERT};
    r->call = (OpCall){.op = ops[r->kind]};
    if (inverts(r)) {
        r->sums = mem_array((size_t)(r->n * r->n), sizeof(float));
        r->a = region(r->n * r->n);
        r->b = region(r->n * r->n);
        fill_sums(r);
        r->call.attr.kfac.damping = DAMPING;
        r->call.attr.kfac.k = r->call.attr.kfac.n = r->n;
        if (r->kind == LIBRARY) return;
    } else if (r->kind == STATISTICS) {
        r->call.attr.curvature.n = r->n;
        r->call.attr.curvature.interval = 1;
    } else {
        r->call.attr.linear.k = r->k;
        r->call.attr.linear.n = r->n;
    }
    const OpInfo *info = op_info(r->call.op);
    for (int i = 0; i < info->n_in; i++)
        if (strcmp(info->in[i].name, "from") != 0) r->call.in[i] = operand(r, info->in[i].name);
    for (int i = 0; i < info->n_out; i++) r->call.out[i] = operand(r, info->out[i].name);
    const OpImpl *impl = &backend->op[r->call.op];
    r->call.scratch_bytes = impl->scratch(&r->call, &rows);
    r->call.scratch = region((int64_t)(r->call.scratch_bytes / sizeof(float)) + 1);
    require(impl->prepare(&r->call, &rows, 1));
}

static double gamma_of(const Row *r)
{
    double gamma[2], scale[2], trace = kfac_trace(r->sums, r->n), traces[2] = {trace, trace};
    kfac_scales(&ctl, scale);
    if (!kfac_damping(r->call.attr, traces, scale, gamma)) exit(1);
    return gamma[0];
}

/* a = (sums/TOKENS + γ)⁻¹ */
static void library_inverse(Row *r)
{
    int n = (int)r->n, info = 0;
    float gamma = (float)gamma_of(r);
    for (int64_t i = 0; i < r->n * r->n; i++) r->a[i] *= 1.0f / TOKENS;
    for (int64_t i = 0; i < r->n; i++) r->a[i * r->n + i] += gamma;
    potrf("L", &n, r->a, &n, &info);
    if (info == 0) potri("L", &n, r->a, &n, &info);
    if (info != 0) exit(1);
    for (int64_t i = 0; i < r->n; i++)
        for (int64_t j = i + 1; j < r->n; j++) r->a[j * r->n + i] = r->a[i * r->n + j];
}

/* Of all threads: a busy machine changes it less than the clock. */
static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double run(Row *r)
{
    size_t bytes = inverts(r) ? (size_t)(r->n * r->n) * sizeof(float) : 0;
    if (bytes) memcpy(r->a, r->sums, bytes);
    if (bytes) memcpy(r->b, r->sums, bytes);
    double start = processor_seconds();
    if (r->kind == LIBRARY)
        library_inverse(r);
    else
        require(backend->op[r->call.op].run(&r->call, &rows));
    return processor_seconds() - start;
}

static double flops_of(const Row *r)
{
    double k = (double)r->k, n = (double)r->n;
    return inverts(r) ? n * n * n : 2.0 * TOKENS * k * n;
}

static double error_of(const Row *r)
{
    double worst = 0, gamma = gamma_of(r);
    for (int64_t s = 0; s < SAMPLE; s++) {
        int64_t i = s * r->n / SAMPLE;
        for (int64_t j = 0; j < r->n; j++) {
            double sum = gamma * (double)r->a[i * r->n + j];
            for (int64_t l = 0; l < r->n; l++)
                sum += (double)r->sums[i * r->n + l] / TOKENS * (double)r->a[l * r->n + j];
            worst = fmax(worst, fabs(sum - (i == j)));
        }
    }
    return worst;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    const BackendOptions options = {.threads = threads};
    if (argc > 2) open_lapack(argv[2], threads);
    require(backend_open("cpu", &options, &backend));
    for (int i = 0; i < COUNT; i++)
        if (measured(&all[i])) build(&all[i]);
    for (int round = -1; round < ROUNDS; round++)
        for (int i = 0; i < COUNT; i++) {
            double seconds = measured(&all[i]) ? run(&all[i]) : 0;
            if (round >= 0) all[i].seconds[round] = seconds;
        }
    printf("%s, %d thread%s\n\n%-16s %6s %6s %10s %9s %9s %9s  %s\n", backend->describe, threads,
           threads == 1 ? "" : "s", "", "k", "n", "ms", "GFLOP/s", "product", "error", "digest");
    double product = 0;
    for (int i = 0; i < COUNT; i++) {
        Row *r = &all[i];
        char hex[33] = "";
        if (!measured(r)) continue;
        r->median = sort_median(r->seconds, ROUNDS);
        double rate = flops_of(r) / r->median;
        if (r->kind == LINEAR) product = rate;
        printf("%-16s %6lld %6lld %10.3f %9.1f %8.1f%%", names[r->kind], (long long)r->k, (long long)r->n,
               r->median * 1e3, rate * 1e-9, 100 * rate / product);
        if (inverts(r)) digest_format(digest_of(r->a, (size_t)(r->n * r->n) * sizeof(float)), hex);
        if (inverts(r)) printf(" %9.1e  %.8s", error_of(r), hex);
        printf("\n");
    }
    backend_close(backend);
    return 0;
}
