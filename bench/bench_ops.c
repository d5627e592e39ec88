/* What each op of a BERT-Base training step costs on the cpu backend, beside the machine's own oneDNN products measured
   in the same run. One micro-batch of T = 2048 tokens, 16 sequences of 128.

   bench_ops [fp32|bf16] [tokens per sequence]

   Every time is a median over rounds in which all ops take turns, so that a busy machine slows all alike. The model's
   step is put together from its 12 layers; embeddings and optimizer are measured on their own sizes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "kernels/backend.h"

enum { TOKENS = 2048, HIDDEN = 768, HEADS = 12, FFN = 3072, VOCAB = 30528, POSITIONS = 512, LAYERS = 12, ROUNDS = 9 };
#define PARAMETERS 110.0e6                        /* BERT-Base */
#define FLAT       ((int64_t)16 << 20)            /* elements that the optimizer's ops are measured on */
#define PACKED     (12 * HIDDEN * (double)HIDDEN) /* of a layer's weights */

typedef struct {
    const char *name;
    Op op;
    OpAttr attr;
    double times; /* in a step */
    bool product; /* through the product library */
    OpCall call;
    OpCost cost;
    double seconds[ROUNDS], median;
} Row;

static Backend *backend;
static Dtype compute;
static int64_t length = 128;
static RowCounts rows = {.count = {[ROWS_TOKENS] = TOKENS}};
static Ctl *ctl;

/* ---- operands ---- */

static void *region(size_t bytes)
{
    void *p;
    if (backend_alloc(backend, bytes, &p) != OK) {
        fprintf(stderr, "%s\n", status_message());
        exit(1);
    }
    return p;
}

static void fill(void *p, Dtype dtype, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t h = (uint32_t)i * 2654435761u;
        float x = scale * (float)(int32_t)(h ^ h >> 15) * 0x1p-31f;
        if (dtype == F32) ((float *)p)[i] = x;
        if (dtype == BF16) ((uint16_t *)p)[i] = bf16_from_f32(x);
    }
}

static Operand tensor(Dtype dtype, Rows r, int64_t cols)
{
    Operand o = {.dtype = dtype, .rows = r, .cols = cols};
    int64_t n = rows_in(r, &rows) * cols;
    o.data = region((size_t)n * dtype_size(dtype));
    fill(o.data, dtype, n, 1.0f);
    return o;
}

static Rows tokens(void) { return (Rows){ROWS_TOKENS, 0}; }
static Rows fixed(int64_t n) { return (Rows){ROWS_FIXED, n}; }
static Operand activation(int64_t cols) { return tensor(compute, tokens(), cols); }
static Operand parameter(int64_t n, int64_t k) { return tensor(F32, fixed(n), k); }

static Operand copy(int64_t n, int64_t k, bool transposed)
{
    Operand o = {.dtype = compute, .rows = fixed(n), .cols = k};
    o.data = region(backend->copy_bytes(compute, n, k, transposed));
    return o;
}

static Operand inputs(const char *name)
{
    Rows per = strcmp(name, "spans") == 0 || strcmp(name, "seq_index") == 0 ? (Rows){ROWS_SEQS, 0} : tokens();
    Operand o = tensor(I32, per, strcmp(name, "spans") == 0 ? 2 : 1);
    int32_t *p = o.data;
    for (int64_t i = 0; i < rows_in(per, &rows) * o.cols; i++) {
        if (strcmp(name, "ids") == 0) p[i] = (int32_t)((uint32_t)i * 2654435761u % 30522u);
        if (strcmp(name, "types") == 0) p[i] = (int32_t)(i % length * 2 / length);
        if (strcmp(name, "pos") == 0) p[i] = (int32_t)(i % length);
        if (strcmp(name, "seq") == 0) p[i] = (int32_t)(i / length);
        if (strcmp(name, "spans") == 0) p[i] = (int32_t)((i + 1) / 2 * length);
        if (strcmp(name, "seq_index") == 0) p[i] = (int32_t)i;
    }
    return o;
}

static Operand control(void) { return (Operand){ctl, U8, fixed(1), sizeof *ctl}; }

/* Whether a word stands in a list of words. */
static bool among(const char *list, const char *name)
{
    char word[32];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(list, word) != NULL;
}

/* The operand an op's table names, by its meaning here. */
static Operand operand(Row *r, const char *name)
{
    int64_t k = r->attr.linear.k, n = r->attr.linear.n;
    bool linear = r->op == OP_LINEAR || r->op == OP_LINEAR_DGRAD || r->op == OP_LINEAR_WGRAD;
    bool flat = r->op == OP_GRAD_NORM || r->op == OP_ADAMW;
    if (strcmp(name, "ctl") == 0) return control();
    if (strcmp(name, "stats") == 0) return tensor(U8, fixed(1), sizeof(Stats));
    if (strcmp(name, "segments") == 0) {
        Operand o = tensor(U8, fixed(1), sizeof(Segment));
        *(Segment *)o.data = (Segment){.size = FLAT, .decay = 0.01f};
        return o;
    }
    if (flat) return tensor(F32, fixed(FLAT), 1);
    if (linear) {
        if (strcmp(name, "w") == 0) return copy(n, k, r->op == OP_LINEAR_DGRAD);
        if (strcmp(name, "bias") == 0 || strcmp(name, "db") == 0) return parameter(n, 1);
        if (strcmp(name, "dw") == 0) return parameter(n, k);
        if (strcmp(name, "dx") == 0)
            return IN(&r->call, LINEAR_DGRAD, add)->cols ? *IN(&r->call, LINEAR_DGRAD, add) : activation(k);
        return activation(strcmp(name, "x") == 0 || strcmp(name, "add") == 0 ? k : n);
    }
    if (r->op == OP_PACK) {
        bool weight = strcmp(name, "weight") == 0;
        return weight ? parameter(r->attr.pack.n, r->attr.pack.k)
                      : copy(r->attr.pack.n, r->attr.pack.k, r->attr.pack.transposed);
    }
    if (among(" ids types pos seq spans seq_index ", name)) return inputs(name);
    if (strcmp(name, "word") == 0 || strcmp(name, "dword") == 0) return parameter(VOCAB, HIDDEN);
    if (strcmp(name, "position") == 0 || strcmp(name, "dposition") == 0) return parameter(POSITIONS, HIDDEN);
    if (strcmp(name, "type") == 0 || strcmp(name, "dtype") == 0) return parameter(2, HIDDEN);
    if (among(" gamma beta dgamma dbeta ", name)) return parameter(HIDDEN, 1);
    if (strcmp(name, "rstd") == 0) return tensor(F32, tokens(), 1);
    if (strcmp(name, "lse") == 0) return tensor(F32, tokens(), HEADS);
    if (strcmp(name, "qkv") == 0 || strcmp(name, "dqkv") == 0) return activation(3 * HIDDEN);
    return activation(r->op == OP_GELU || r->op == OP_GELU_BWD ? FFN : HIDDEN);
}

static bool left_out(const Row *r, const char *name)
{
    if (strcmp(name, "xhat") == 0 && r->op == OP_ADDNORM) return true;
    if (strcmp(name, "g") == 0 && r->op == OP_GELU_BWD) return true;
    return strcmp(name, "add") == 0 && !strstr(r->name, "+ add");
}

static void build(Row *r)
{
    const OpInfo *info = op_info(r->op);
    r->call.op = r->op;
    r->call.attr = r->attr;
    for (int i = 0; i < info->n_in; i++)
        if (!left_out(r, info->in[i].name)) r->call.in[i] = operand(r, info->in[i].name);
    for (int i = 0; i < info->n_out; i++)
        if (!left_out(r, info->out[i].name)) r->call.out[i] = operand(r, info->out[i].name);
    if (r->op == OP_ADAMW) { /* finite, and moments that are not negative */
        Stats *stats = IN(&r->call, ADAMW, stats)->data;
        *stats = (Stats){.grad_scale = 1, .finite = 1};
        memset(OUT(&r->call, ADAMW, v)->data, 0, FLAT * sizeof(float));
    }
    const OpImpl *impl = &backend->op[r->op];
    r->call.scratch_bytes = impl->scratch(&r->call, &rows);
    r->call.scratch = region(r->call.scratch_bytes);
    if (impl->prepare(&r->call, &rows, 1) != OK) {
        fprintf(stderr, "%s: %s\n", r->name, status_message());
        exit(1);
    }
    r->cost = op_cost(&r->call, &rows, (double)length);
}

/* ---- measuring ---- */

static void measure(Row *list, int n)
{
    for (int round = -1; round < ROUNDS; round++)
        for (int i = 0; i < n; i++) {
            double start = clock_monotonic();
            Status status = backend->op[list[i].op].run(&list[i].call, &rows);
            if (status != OK) {
                fprintf(stderr, "%s: %s\n", list[i].name, status_message());
                exit(1);
            }
            if (round >= 0) list[i].seconds[round] = clock_monotonic() - start;
        }
    for (int i = 0; i < n; i++) list[i].median = sort_median(list[i].seconds, ROUNDS);
}

#define SHAPE(in, out)                                                                                                 \
    {                                                                                                                  \
        .linear = {.k = in, .n = out }                                                                                 \
    }
#define LINEAR(name, op, in, out)                                                                                      \
    {                                                                                                                  \
        name, op, SHAPE(in, out), LAYERS, true, .median = 0                                                            \
    }

static Row products[] = {
    LINEAR("linear 768 to 2304", OP_LINEAR, HIDDEN, 3 * HIDDEN), LINEAR("linear 768 to 768", OP_LINEAR, HIDDEN, HIDDEN),
    LINEAR("linear 768 to 3072", OP_LINEAR, HIDDEN, FFN), LINEAR("linear 3072 to 768", OP_LINEAR, FFN, HIDDEN)};

static Row step[] = {
    LINEAR("qkv", OP_LINEAR, HIDDEN, 3 * HIDDEN),
    LINEAR("out", OP_LINEAR, HIDDEN, HIDDEN),
    LINEAR("up", OP_LINEAR, HIDDEN, FFN),
    LINEAR("down", OP_LINEAR, FFN, HIDDEN),
    LINEAR("qkv + add", OP_LINEAR_DGRAD, HIDDEN, 3 * HIDDEN),
    LINEAR("out", OP_LINEAR_DGRAD, HIDDEN, HIDDEN),
    LINEAR("up + add", OP_LINEAR_DGRAD, HIDDEN, FFN),
    LINEAR("down", OP_LINEAR_DGRAD, FFN, HIDDEN),
    LINEAR("qkv", OP_LINEAR_WGRAD, HIDDEN, 3 * HIDDEN),
    LINEAR("out", OP_LINEAR_WGRAD, HIDDEN, HIDDEN),
    LINEAR("up", OP_LINEAR_WGRAD, HIDDEN, FFN),
    LINEAR("down", OP_LINEAR_WGRAD, FFN, HIDDEN),
    {"", OP_ATTENTION, {.attention = {HEADS, HIDDEN / HEADS, 0.125f, 0.1f, 1, 0}}, LAYERS, false, .median = 0},
    {"", OP_ATTENTION_BWD, {.attention = {HEADS, HIDDEN / HEADS, 0.125f, 0.1f, 1, 0}}, LAYERS, false, .median = 0},
    {"erf", OP_GELU, {.gelu = {GELU_ERF}}, LAYERS, false, .median = 0},
    {"erf", OP_GELU_BWD, {.gelu = {GELU_ERF}}, LAYERS, false, .median = 0},
    {"", OP_ADDNORM, {.norm = {1e-12f, 0.1f, 2, NORM_FORM_Y}}, 2 * LAYERS, false, .median = 0},
    {"", OP_ADDNORM_BWD, {.norm = {1e-12f, 0.1f, 2, NORM_FORM_Y}}, 2 * LAYERS, false, .median = 0},
    {"", OP_EMBED, {.embed = {1e-12f, 0.1f, 0}}, 1, false, .median = 0},
    {"", OP_EMBED_BWD, {.embed = {1e-12f, 0.1f, 0}}, 1, false, .median = 0},
    {"", OP_GRAD_NORM, {.grad_norm = {1.0f, 0}}, PARAMETERS / FLAT, false, .median = 0},
    {"", OP_ADAMW, {.optimizer = {0.9f, 0.999f, 1e-6f}}, PARAMETERS / FLAT, false, .median = 0},
    {"forward copy", OP_PACK, {.pack = {FFN, HIDDEN, false}}, LAYERS *PACKED / (FFN * HIDDEN), false, .median = 0},
    {"transposed copy", OP_PACK, {.pack = {FFN, HIDDEN, true}}, LAYERS *PACKED / (FFN * HIDDEN), false, .median = 0},
    {"of the gradient", OP_ZERO, {.gelu = {GELU_ERF}}, 0, false, .median = 0},
};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static void open_backend(void)
{
    const BackendOptions options = {0};
    char why[256] = "";
    if (backend_open("cpu", &options, &backend) != OK) {
        fprintf(stderr, "%s\n", status_message());
        exit(1);
    }
    if (backend->supports(backend, compute, why, sizeof why)) return;
    fprintf(stderr, "%s\n", why);
    exit(1);
}

/* oneDNN's flops per second over a layer's four products. */
static double product_rate(void)
{
    double flops = 0, seconds = 0;
    char had[16] = "";
    const char *set = getenv("CAIRN_CPU_PRODUCTS");
    if (set) snprintf(had, sizeof had, "%s", set);
    setenv("CAIRN_CPU_PRODUCTS", "onednn", 1);
    open_backend();
    for (int i = 0; i < COUNT(products); i++) {
        products[i].call = (OpCall){0};
        build(&products[i]);
    }
    measure(products, COUNT(products));
    for (int i = 0; i < COUNT(products); i++) {
        flops += products[i].cost.product_flops;
        seconds += products[i].median;
    }
    printf("%s\n", backend->describe);
    for (int i = 0; i < COUNT(products); i++)
        printf("    %-20s %8.2f ms %8.1f GFLOP/s\n", products[i].name, products[i].median * 1e3,
               products[i].cost.product_flops / products[i].median * 1e-9);
    backend_close(backend);
    if (*had)
        setenv("CAIRN_CPU_PRODUCTS", had, 1);
    else
        unsetenv("CAIRN_CPU_PRODUCTS");
    return flops / seconds;
}

static void print_step(double rate)
{
    double total = 0, product = 0, flops = 0;
    for (int i = 0; i < COUNT(step); i++) {
        total += step[i].times * step[i].median;
        if (step[i].product) product += step[i].times * step[i].median;
        flops += step[i].times * step[i].cost.product_flops;
    }
    printf("\n%-14s %-16s %9s %9s %8s %7s %7s\n", "op", "", "ms", "GFLOP/s", "GB/s", "times", "share");
    for (int i = 0; i < COUNT(step); i++) {
        const Row *r = &step[i];
        printf("%-14s %-16s %9.3f %9.1f %8.1f %7.1f %6.2f%%\n", op_info(r->op)->name, r->name, r->median * 1e3,
               r->cost.product_flops / r->median * 1e-9, r->cost.bytes / r->median * 1e-9, r->times,
               100 * r->times * r->median / total);
    }
    printf("\na step of %d sequences of %lld: %.3f s, %.2f seq/s; products %.1f %%, all else %.1f %%\n",
           (int)(TOKENS / length), (long long)length, total, (double)TOKENS / (double)length / total,
           100 * product / total, 100 - 100 * product / total);
    printf("%.1f GFLOP/s in all, %.1f %% of oneDNN's product rate %.1f GFLOP/s\n", flops / total * 1e-9,
           100 * flops / total / rate, rate * 1e-9);
}

int main(int argc, char **argv)
{
    compute = argc > 1 && strcmp(argv[1], "bf16") == 0 ? BF16 : F32;
    if (argc > 2) length = atoll(argv[2]);
    if (length < 1 || length > POSITIONS) {
        fprintf(stderr, "tokens per sequence: expected 1 to %d\n", POSITIONS);
        return 2;
    }
    rows.count[ROWS_SEQS] = TOKENS / length;
    static Ctl control_block = {
        .dropout_key = 42, .scale_seqs = 1, .scale_masked = 1, .learning_rate = 1e-5f, .bias1 = 1, .bias2 = 1};
    ctl = &control_block;
    ctl->n_tokens = TOKENS;
    ctl->n_seqs = (int32_t)rows.count[ROWS_SEQS];
    double rate = product_rate();
    open_backend();
    printf("%s, %s\n", backend->describe, dtype_name(compute));
    for (int i = 0; i < COUNT(step); i++) build(&step[i]);
    measure(step, COUNT(step));
    print_step(rate);
    backend_close(backend);
    return 0;
}
