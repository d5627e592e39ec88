/* Opening the backend: instruction set, number of threads, oneDNN or own products; and the table. */
#include "kernels/cpu/cpu.h"

#include <omp.h>

#include "base/library.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/product.h"

#define OPENMP "OpenMP"

Cpu cpu;
Status cairn_backend_cpu(Backend *b);
const uint64_t cairn_module_abi = BACKEND_ABI;

/* ---- instruction sets, best first ---- */

typedef struct {
    const char *name; /* for CAIRN_CPU_ISA */
    const Vec *vec;
    bool (*supported)(void);
} Isa;

static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
static bool has_avx512_bf16(void) { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
static bool has_any(void) { return true; }

static const Isa isas[] = {
    {"avx512_bf16", &cpu_vec_avx512_bf16, has_avx512_bf16},
    {"avx512", &cpu_vec_avx512, has_avx512},
    {"avx2", &cpu_vec_avx2, has_avx2},
    {"generic", &cpu_vec_generic, has_any},
};
enum { N_ISAS = sizeof isas / sizeof *isas };

static Status choose_isa(void)
{
    const char *asked = getenv("CAIRN_CPU_ISA");
    for (int i = 0; i < N_ISAS; i++) {
        if (asked && *asked && strcmp(asked, isas[i].name) != 0) continue;
        if (!isas[i].supported()) {
            if (!asked || !*asked) continue;
            return fail(E_USAGE, "CAIRN_CPU_ISA=%s: this CPU does not have it; leave the variable unset", asked);
        }
        cpu.vec = isas[i].vec;
        return OK;
    }
    return fail(E_USAGE, "CAIRN_CPU_ISA is '%s'; expected avx512_bf16, avx512, avx2 or generic", asked);
}

/* CAIRN_CPU_BF16=emulate computes bf16 slowly on any CPU, for tests. */
static bool emulates_bf16(void)
{
    const char *asked = getenv("CAIRN_CPU_BF16");
    return !has_avx512_bf16() && asked && strcmp(asked, "emulate") == 0;
}

/* CAIRN_CPU_PRODUCTS=onednn|own, for tests and measurements; else oneDNN where it serves. */
static Status choose_products(void)
{
    const char *asked = getenv("CAIRN_CPU_PRODUCTS");
    cpu.products = PRODUCTS_BEST;
    if (!asked || !*asked) return OK;
    if (strcmp(asked, "onednn") != 0 && strcmp(asked, "own") != 0)
        return fail(E_USAGE, "CAIRN_CPU_PRODUCTS is '%s'; expected onednn or own", asked);
    cpu.products = strcmp(asked, "onednn") == 0 ? PRODUCTS_ONEDNN : PRODUCTS_OWN;
    return OK;
}

static Dtype best_type(void) { return cpu.bf16 ? BF16 : F32; }

/* Implementation of products, forward and weight gradients, in the best type: part of the fingerprint. */
static const char *products_text(void)
{
    Dtype best = best_type();
    bool rows = onednn_serves(PRODUCT_ROWS, best), grads = onednn_serves(PRODUCT_GRAD, best);
    if (cpu.products == PRODUCTS_ONEDNN || (cpu.products == PRODUCTS_BEST && rows && grads))
        return onednn_implementation();
    if (cpu.products == PRODUCTS_OWN || (!rows && !grads)) return "own tiles";
    return rows ? "brg, weight gradients own tiles" : "own tiles, weight gradients brg";
}

static void nothing(void *arg, int part)
{
    (void)arg;
    (void)part;
}

static Status cpu_open(Backend *b, const BackendOptions *options)
{
    if (options->threads < 0 || options->threads > 1024)
        return fail(E_USAGE, "%d threads: expected 1 to 1024, or 0 for one per core", options->threads);
    __builtin_cpu_init();
    cpu.threads = options->threads ? options->threads : cpu_threads_offered();
    library_enter(OPENMP);
    omp_set_dynamic(0);
    omp_set_num_threads(cpu.threads); /* oneDNN takes its number of threads from here */
    library_leave();
    cpu_parallel(nothing, NULL); /* threads start before libraries take the address space */
    TRY(choose_isa());
    TRY(onednn_open());
    TRY(choose_products());
    cpu.bf16 = has_avx512_bf16() || emulates_bf16();
    b->threads = cpu.threads;
    size_t n = (size_t)snprintf(b->describe, sizeof b->describe, "oneDNN %s (products: %s), %s", onednn_version(),
                                products_text(), cpu.vec->name);
    if (product_threads_matter(best_type()))
        snprintf(b->describe + n, sizeof b->describe - n, ", threads: %d", cpu.threads);
    return OK;
}

static void cpu_close(Backend *b)
{
    (void)b;
    onednn_close();
}

static bool cpu_supports(const Backend *b, Dtype compute, char *why_not, size_t size)
{
    (void)b;
    if (compute == F32 || (compute == BF16 && cpu.bf16)) return true;
    if (compute == BF16)
        snprintf(why_not, size,
                 "bf16 needs a CPU that multiplies it in hardware (AVX512_BF16 or AMX); this one's best is %s. Use "
                 "--precision fp32",
                 has_avx512() ? "AVX-512 without it"
                 : has_avx2() ? "AVX2"
                              : "SSE2");
    else
        snprintf(why_not, size, "the cpu backend computes in f32 and bf16, not %s; ref has plain loops for it%s",
                 dtype_name(compute), cpu.bf16 ? ". Use --precision bf16" : "");
    return false;
}

static Dtype cpu_best_compute(const Backend *b)
{
    (void)b;
    return best_type();
}

static size_t cpu_copy_bytes(Dtype compute, int64_t n, int64_t k, bool transposed)
{
    return product_copy_bytes(compute, transposed ? n : k, transposed ? k : n);
}

static const OpImpl ops[N_OPS] = {
#define X(op, run, scratch, prepare) [OP_##op] = {run, scratch, prepare},
    CPU_LIST(X)
#undef X
};

Status cairn_backend_cpu(Backend *b)
{
    b->name = "cpu";
    b->open = cpu_open;
    b->close = cpu_close;
    b->supports = cpu_supports;
    b->best_compute = cpu_best_compute;
    b->copy_bytes = cpu_copy_bytes;
    for (int op = 0; op < N_OPS; op++)
        if (ops[op].run) b->op[op] = ops[op];
    return OK;
}

/* ---- shared by the ops ---- */

void cpu_parallel(void (*run)(void *arg, int part), void *arg)
{
    library_enter(OPENMP);
#pragma omp parallel num_threads(cpu.threads)
    for (int part = omp_get_thread_num(); part < cpu.threads; part += omp_get_num_threads()) run(arg, part);
    library_leave();
}

bool cpu_is_bf16(Dtype dtype)
{
    CHECK(dtype == F32 || dtype == BF16, "the cpu backend computes in f32 and bf16, not %s", dtype_name(dtype));
    return dtype == BF16;
}

void cpu_check_index(const Operand *index, int64_t n, int64_t limit, const char *what)
{
    const int32_t *at = index->data;
    for (int64_t i = 0; i < n; i++)
        CHECK(at[i] >= 0 && at[i] < limit, "%s of row %lld is %d; expected 0 to %lld", what, (long long)i, at[i],
              (long long)limit - 1);
}

typedef struct {
    float *to;
    const void *x;
    float *blocks;
    int64_t rows, cols, stride;
    bool bf16;
} ColumnSums;

static void sum_part(void *arg, int part)
{
    const ColumnSums *s = arg;
    CpuSpan mine = cpu_span(cpu_blocks(s->rows), 1, part, cpu.threads);
    for (int64_t b = mine.first; b < mine.end; b++) {
        CpuSpan rows = cpu_block(s->rows, b);
        cpu.vec->column_sums(s->blocks + b * s->stride, s->x, rows.first, rows.end, s->cols, s->bf16);
    }
}

static void add_part(void *arg, int part)
{
    const ColumnSums *s = arg;
    CpuSpan cols = cpu_span(s->cols, 64, part, cpu.threads);
    cpu.vec->add_blocks(s->to, s->blocks, cpu_blocks(s->rows), s->stride, cols.first, cols.end);
}

void cpu_add_blocks(float *to, const float *blocks, int64_t rows, int64_t stride, int64_t n)
{
    ColumnSums s = {.to = to, .blocks = (float *)blocks, .rows = rows, .cols = n, .stride = stride};
    if (rows > 0) cpu_parallel(add_part, &s);
}

void cpu_add_column_sums(float *sums, const void *x, int64_t rows, int64_t cols, bool bf16, float *blocks)
{
    ColumnSums s = {sums, x, blocks, rows, cols, (int64_t)(cpu_line((size_t)cols * sizeof(float)) / sizeof(float)),
                    bf16};
    cpu_parallel(sum_part, &s);
    cpu_add_blocks(sums, blocks, rows, s.stride, cols);
}

float *cpu_take_db(HostScratch *s, const Operand *db, int64_t rows, int64_t cols)
{
    return cpu_take_sums(s, rows, operand_present(db) ? cpu_line((size_t)cols * sizeof(float)) : 0);
}

void cpu_add_db(const Operand *db, const Operand *dy, int64_t rows, float *blocks)
{
    if (operand_present(db)) cpu_add_column_sums(db->data, dy->data, rows, dy->cols, cpu_is_bf16(dy->dtype), blocks);
}
