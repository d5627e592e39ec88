#include "train/planner/machine.h"

#include <unistd.h>

#include "base/test_switch.h"
#include "train/planner/probe.h"

#define ENOUGH_SECONDS 0.25
enum { ENOUGH_ROWS = 512 }; /* for each thread of a host */

static Operand of_tokens(Dtype dtype, int64_t cols)
{
    return (Operand){.dtype = dtype, .rows = {ROWS_TOKENS, 0}, .cols = cols};
}

static Operand fixed(Dtype dtype, int64_t rows, int64_t cols, const void *data)
{
    return (Operand){(void *)(uintptr_t)data, dtype, {ROWS_FIXED, rows}, cols};
}

static double larger(double x, double y) { return x > y ? x : y; }

/* The products of the first half of a feed-forward block, and GELU behind them. */
static bool measure_layer(const Backend *b, const ModelConfig *m, Dtype compute, const RowCounts *rows,
                          CostRates *rates, MachineLimits *limits)
{
    int64_t h = m->hidden, f = m->ffn;
    double flops = 2.0 * (double)rows->count[ROWS_TOKENS] * (double)h * (double)f, seconds = 0;
    const Operand x = of_tokens(compute, h), y = of_tokens(compute, f), w = fixed(compute, f, h, NULL);
    const Operand bias = fixed(b->device ? compute : F32, f, 1, NULL); /* as in a plan */
    const OpCall products[] = {
        {.op = OP_LINEAR, .attr = {.linear = {h, f}}, .in = {x, w, bias}, .out = {y}},
        {.op = OP_LINEAR_DGRAD, .attr = {.linear = {h, f}}, .in = {y, w}, .out = {x}},
        {.op = OP_LINEAR_WGRAD, .attr = {.linear = {h, f}}, .in = {x, y}, .out = {fixed(F32, f, h, NULL)}}};
    const OpCall gelu = {.op = OP_GELU, .attr = {.gelu = {m->gelu}}, .in = {y}, .out = {y}};
    double took;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        if (!probe(b, products[i], rows, &took)) return false;
        seconds += took / 3;
        limits->flops = larger(limits->flops, flops / took);
    }
    rates->product_flops = flops / seconds;
    if (!probe(b, gelu, rows, &took)) return false;
    rates->bytes = op_cost(&gelu, rows, 1).bytes / took;
    return rates->product_flops > 1e6;
}

/* Forward and backward of sequences of `length` tokens: products a second. *longest: the time of a call. */
static bool measure_attention(const Backend *b, const ModelConfig *m, Dtype compute, int64_t n_rows, int64_t length,
                              double rate[2], double *longest)
{
    int64_t h = m->hidden, n = n_rows / length;
    RowCounts rows = {.count = {[ROWS_TOKENS] = n_rows, [ROWS_SEQS] = n}};
    const Ctl ctl = {.n_tokens = (int32_t)n_rows, .n_seqs = (int32_t)n};
    int32_t *spans = mem_array((size_t)(3 * n), sizeof *spans), *index = spans + 2 * n;
    for (int64_t s = 0; s < n; s++) {
        spans[2 * s] = (int32_t)(s * length);
        spans[2 * s + 1] = (int32_t)((s + 1) * length);
        index[s] = (int32_t)s;
    }
    const Operand qkv = of_tokens(compute, 3 * h), o = of_tokens(compute, h), lse = of_tokens(F32, m->heads);
    const Operand of_spans = {spans, I32, {ROWS_SEQS, 0}, 2}, of_index = {index, I32, {ROWS_SEQS, 0}, 1};
    const Operand of_ctl = fixed(U8, 1, sizeof ctl, &ctl);
    const OpAttr attr = {.attention = {.heads = m->heads,
                                       .head_dim = m->head_dim,
                                       .scale = 1,
                                       .dropout = m->attention_dropout,
                                       .longest = (int32_t)length}};
    const OpCall calls[] = {
        {.op = OP_ATTENTION, .attr = attr, .in = {qkv, of_spans, of_index, of_ctl}, .out = {o, lse}},
        {.op = OP_ATTENTION_BWD, .attr = attr, .in = {qkv, o, lse, o, of_spans, of_index, of_ctl}, .out = {qkv}}};
    bool ok = true;
    for (int i = 0; i < 2 && ok; i++) {
        double took;
        ok = probe(b, calls[i], &rows, &took);
        if (!ok) break;
        rate[i] = op_cost(&calls[i], &rows, (double)length).product_flops / took;
        *longest = larger(*longest, took);
    }
    free(spans);
    return ok;
}

/* Two lengths give the rate of long sequences and the length that reaches half of it. */
static bool fit_attention(const Backend *b, const ModelConfig *m, Dtype compute, int64_t n_rows, CostRates *rates,
                          double *longest)
{
    double length[] = {n_rows < 1024 ? 8 : 32, n_rows < 1024 ? 64 : 256}, rate[2][2], seconds[2]; /* of 7 FLOPs */
    for (int i = 0; i < 2; i++) {
        if (!measure_attention(b, m, compute, n_rows, (int64_t)length[i], rate[i], longest)) return false;
        seconds[i] = 2 / rate[i][0] + 5 / rate[i][1];
    }
    double slope = (seconds[0] - seconds[1]) / (1 / length[0] - 1 / length[1]);
    slope = larger(0, slope < 0.9 * seconds[1] * length[1] ? slope : 0.9 * seconds[1] * length[1]);
    rates->half_length = slope / (seconds[1] - slope / length[1]);
    for (int i = 0; i < 2; i++) rates->attention_flops[i] = rate[1][i] * (length[1] + rates->half_length) / length[1];
    return true;
}

static int64_t set_bytes(int set) { return (int64_t)65536 << 2 * set; }

int machine_set(double bytes)
{
    int set = 0;
    while (set < N_MACHINE_SETS - 1 && 4 * (double)set_bytes(set + 1) <= bytes) set++;
    return set;
}

/* ADAMW on one segment, and ZERO, both of as many bytes. The larger sets are those of devices; a slow backend stops
   before a set that would take long. */
static bool measure_sets(const Backend *b, CostRates *rates, MachineLimits *limits)
{
    const Ctl ctl = {.learning_rate = 1e-3f, .bias1 = 1, .bias2 = 1};
    const Stats stats = {.finite = 1, .grad_scale = 1};
    const RowCounts none = {0};
    int sets = b->device ? N_MACHINE_SETS : N_MACHINE_SETS - 1;
    double step = 0, clear;
    for (int i = 0; i < sets && 16 * step < ENOUGH_SECONDS; i++) {
        int64_t n = set_bytes(i) / (7 * (int64_t)sizeof(float));
        const Segment segment = {.size = n};
        const Operand flat = fixed(F32, n, 1, NULL);
        const OpCall adamw = {.op = OP_ADAMW,
                              .attr = {.optimizer = {0.9f, 0.999f, 1e-6f}},
                              .in = {flat, fixed(U8, 1, sizeof segment, &segment), fixed(U8, 1, sizeof ctl, &ctl),
                                     fixed(U8, 1, sizeof stats, &stats)},
                              .out = {flat, flat, flat}};
        const OpCall zero = {.op = OP_ZERO, .out = {fixed(F32, 7 * n, 1, NULL)}};
        if (!probe(b, adamw, &none, &step) || !probe(b, zero, &none, &clear)) return i > 0;
        if (!b->device) rates->stream = op_cost(&adamw, &none, 1).bytes / step;
        limits->bytes[i] = op_cost(&adamw, &none, 1).bytes / fmin(step, clear);
    }
    return true;
}

/* A set of a machine with large caches, or with slow starts of threads, may reach more than a smaller one. */
static void close_limits(MachineLimits *limits)
{
    for (int i = 1; i < N_MACHINE_SETS; i++)
        if (limits->bytes[i] == 0) limits->bytes[i] = limits->bytes[i - 1];
    for (int i = N_MACHINE_SETS - 1; i > 0; i--) limits->bytes[i - 1] = larger(limits->bytes[i - 1], limits->bytes[i]);
}

/* The time that a call takes beside its work: of the smallest whose threads start. */
static bool measure_overhead(const Backend *b, CostRates *rates)
{
    const OpCall zero = {.op = OP_ZERO, .out = {fixed(F32, 65536 / sizeof(float), 1, NULL)}};
    const RowCounts none = {0};
    double took;
    if (!probe(b, zero, &none, &took)) return false;
    rates->overhead = took;
    return true;
}

#define LINK_BYTES ((size_t)64 << 20)

static double measure_copy(const Backend *b, Op op, void *device, void *host)
{
    int64_t n = 4096, width = (int64_t)LINK_BYTES / n;
    RowCounts rows = {.count = {[ROWS_TOKENS] = n}};
    Operand there = {.data = device, .dtype = I8, .rows = {ROWS_TOKENS, 0}, .cols = width}, here = there;
    here.data = host;
    OpCall call = {.op = op, .in = {op == OP_OFFLOAD ? there : here}, .out = {op == OP_OFFLOAD ? here : there}};
    return (double)LINK_BYTES / probe_time(b, &call, &rows);
}

/* Between the device and pinned memory, both ways. Where that fails, offload costs as much as other traffic. */
static void measure_link(const Backend *b, CostRates *rates)
{
    Device *d = b->device;
    void *there = NULL, *host = NULL;
    if (!backend_offloads(b) || d->pin(d, LINK_BYTES, &host) != OK) return;
    if (d->alloc(d, LINK_BYTES, &there) == OK) {
        rates->link_out = measure_copy(b, OP_OFFLOAD, there, host);
        rates->link_in = measure_copy(b, OP_FETCH, there, host);
        d->release(d, there, LINK_BYTES);
    }
    d->unpin(d, host, LINK_BYTES);
}

/* Few rows first: a slow backend stops there, a fast one goes up to a micro-batch's rows. */
static bool measure_rates(const Backend *b, const ModelConfig *m, Dtype compute, CostRates *rates,
                          MachineLimits *limits)
{
    static const int64_t most[] = {64, 1024, 16384};
    double seconds = 0;
    bool measured = false;
    *limits = (MachineLimits){0};
    for (int i = 0; i < 3 && 16 * seconds < ENOUGH_SECONDS; i++) {
        CostRates now = {0};
        RowCounts rows = {.count = {[ROWS_TOKENS] = most[i]}};
        if (i > 0 && !b->device && most[i - 1] >= (int64_t)ENOUGH_ROWS * b->threads) break;
        if (!measure_layer(b, m, compute, &rows, &now, limits)) break;
        seconds = 2.0 * (double)most[i] * (double)m->hidden * (double)m->ffn / now.product_flops;
        if (!fit_attention(b, m, compute, most[i], &now, &seconds)) break;
        *rates = now;
        measured = true;
    }
    measured = measured && measure_sets(b, rates, limits) && measure_overhead(b, rates);
    close_limits(limits);
    if (measured) measure_link(b, rates);
    return measured;
}

/* Work of others leaves less than the cores that this backend's threads take: on average over the last minute, or now.
 */
static bool is_busy(const Backend *b)
{
    Buf text = {0};
    const char *given = test_switch("LOAD");
    double load = 0;
    int running = 1; /* this thread */
    if (b->device) return false;
    if (!given && file_read("/proc/loadavg", 4096, &text) == OK && text.data)
        (void)sscanf(text.data, "%lf %*f %*f %d/", &load, &running);
    buf_free(&text);
    if (given) load = strtod(given, NULL);
    double others = load > running - 1 ? load : running - 1;
    return others + b->threads > (double)sysconf(_SC_NPROCESSORS_ONLN) + 0.5;
}

/* The cache file of this backend, version, thread count, type, and shape of a layer; NULL without a home directory. */
static char *cache_path(const Backend *b, const ModelConfig *m, Dtype compute)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *key = mem_printf("%s|%s|%d|%s|%d|%d|%d|%g", b->name, b->describe, b->threads, dtype_name(compute), m->hidden,
                           m->ffn, m->heads, (double)m->attention_dropout);
    const char *hex = DIGEST_TEXT(digest_of(key, strlen(key)));
    free(key);
    if (xdg && *xdg) return mem_printf("%s/cairn/rates-%.16s.json", xdg, hex);
    if (home && *home) return mem_printf("%s/.cache/cairn/rates-%.16s.json", home, hex);
    return NULL;
}

typedef struct {
    const char *name;
    double *value;
} Member;

enum { N_SINGLE = 8, N_LINK = 2, MOST_MEMBERS = N_SINGLE + N_MACHINE_SETS + N_LINK };

/* The members of a cache file. Links that were not measured, for want of memory, are 0. */
static int members(const Backend *b, CostRates *r, MachineLimits *limits, Member m[MOST_MEMBERS])
{
    static const char *const sets[N_MACHINE_SETS] = {"limit_64KiB", "limit_256KiB", "limit_1MiB",  "limit_4MiB",
                                                     "limit_16MiB", "limit_64MiB",  "limit_256MiB"};
    const Member single[N_SINGLE] = {{"product_flops", &r->product_flops},
                                     {"bytes", &r->bytes},
                                     {"stream", &r->stream},
                                     {"overhead", &r->overhead},
                                     {"attention_flops", &r->attention_flops[0]},
                                     {"attention_back_flops", &r->attention_flops[1]},
                                     {"attention_half", &r->half_length},
                                     {"limit_flops", &limits->flops}};
    const Member link[N_LINK] = {{"link_out", &r->link_out}, {"link_in", &r->link_in}};
    int n = N_SINGLE;
    memcpy(m, single, sizeof single);
    for (int i = 0; i < N_MACHINE_SETS; i++) m[n++] = (Member){sets[i], &limits->bytes[i]};
    if (backend_offloads(b)) memcpy(&m[n], link, sizeof link);
    return backend_offloads(b) ? n + N_LINK : n;
}

/* `busy`: the machine was, when they were measured. */
static bool read_cached(const char *path, const Member *m, int n, bool *busy)
{
    Json *doc = NULL;
    bool all = true;
    if (!file_exists(path) || js_read(path, &doc) != OK) return false;
    for (int i = 0; i < n; i++) {
        *m[i].value = js_real(js_get(doc, m[i].name), -1);
        all = all && *m[i].value >= 0;
    }
    *busy = js_bool(js_get(doc, "busy"), false);
    js_free(doc);
    return all;
}

static void write_cached(const char *path, const Backend *b, Dtype compute, const Member *m, int n, bool busy)
{
    char *dir = file_directory(path);
    Buf text = {0};
    buf_puts(&text, "{");
    buf_member_text(&text, "backend", b->describe);
    buf_member_text(&text, "compute", dtype_name(compute));
    for (int i = 0; i < n; i++) buf_member(&text, m[i].name, *m[i].value);
    buf_puts(&text, busy ? ", \"busy\": true}\n" : "}\n");
    if (file_make_directories(dir) != OK || file_write_text(NULL, path, &text) != OK)
        log_debug("rates are not kept: %s", status_message());
    buf_free(&text);
    free(dir);
}

bool machine_rates(const Backend *b, const ModelConfig *model, Dtype compute, CostRates *rates, MachineLimits *limits)
{
    bool measured = true, busy_then = false, busy = is_busy(b);
    char *path = cache_path(b, model, compute);
    MachineLimits own;
    Member m[MOST_MEMBERS];
    if (!limits) limits = &own;
    *rates = (CostRates){0};
    int n = members(b, rates, limits, m);
    if (path && read_cached(path, m, n, &busy_then) && (busy || !busy_then)) {
        snprintf(rates->source, sizeof rates->source, "measured earlier%s, kept in the cache",
                 busy_then ? " on a busy machine" : "");
    } else if (measure_rates(b, model, compute, rates, limits)) {
        snprintf(rates->source, sizeof rates->source, "measured now%s", busy ? " on a busy machine" : "");
        if (path) write_cached(path, b, compute, m, n, busy);
    } else {
        measured = false;
        *rates = (CostRates){.product_flops = 1e9, .bytes = 1e9, .overhead = 2e-6};
        snprintf(rates->source, sizeof rates->source, "not measured; only comparisons between policies mean something");
    }
    free(path);
    return measured;
}
