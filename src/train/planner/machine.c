#include "train/planner/machine.h"

#include <unistd.h>

#include "base/test_switch.h"

#define PROBE_WIDTH 768
#define PROBE_SHORT 1e-3 /* seconds: too short to be timed alone */
#define PROBE_LONG  0.25 /* enough */

/* Runs it n times; 1e30 where it failed. */
static double time_runs(const Backend *b, OpCall *call, const RowCounts *rows, int n)
{
    double start = clock_monotonic();
    for (int i = 0; i < n; i++)
        if (b->op[call->op].run(call, rows) != OK) return 1e30;
    if (backend_wait(b) != OK) return 1e30;
    return (clock_monotonic() - start) / n;
}

/* Seconds of one call, the best of several. A short call on a device runs many times between two readings of the clock,
   because launching and waiting take time too. */
static double time_call(const Backend *b, OpCall *call, const RowCounts *rows)
{
    double best = 1e30, last = 0;
    for (int i = 0; i < 4 && last < PROBE_LONG; i++) {
        last = time_runs(b, call, rows, b->device && i > 0 && best < PROBE_SHORT ? 16 : 1);
        best = last < best ? last : best;
    }
    return best;
}

static void *region(const Backend *b, size_t bytes)
{
    void *p = NULL;
    return backend_alloc(b, bytes, &p) == OK ? p : NULL;
}

/* One BERT product (LINEAR, 768 → 3072) and one pass over memory (GELU on its output). */
static bool measure(const Backend *b, Dtype compute, int64_t n_rows, CostRates *rates)
{
    RowCounts rows = {.count = {[ROWS_TOKENS] = n_rows, [ROWS_SEQS] = 8}};
    int64_t k = PROBE_WIDTH, n = 4 * PROBE_WIDTH;
    size_t element = dtype_size(compute), copy_bytes = b->copy_bytes(compute, n, k, false);
    size_t sizes[] = {(size_t)(n * k) * 4,
                      copy_bytes,
                      (size_t)(n_rows * k) * element,
                      (size_t)(n_rows * n) * element,
                      (size_t)(n_rows * n) * element,
                      (size_t)n * 4,
                      0};
    void *at[7] = {0};
    Operand tokens = {.dtype = compute, .rows = {ROWS_TOKENS, 0}};
    Operand weight = {.dtype = F32, .rows = {ROWS_FIXED, n}, .cols = k}, copy = weight, bias = weight;
    copy.dtype = compute;
    bias.cols = 1;
    if (b->device) bias.dtype = compute; /* as in a plan */
    OpCall pack = {.op = OP_PACK, .attr = {.pack = {n, k, false}}, .in = {weight}, .out = {copy}};
    OpCall linear = {.op = OP_LINEAR, .attr = {.linear = {k, n}}, .in = {tokens, copy, bias}, .out = {tokens}};
    OpCall gelu = {.op = OP_GELU, .in = {tokens}, .out = {tokens}};
    IN(&linear, LINEAR, x)->cols = k;
    OUT(&linear, LINEAR, y)->cols = IN(&gelu, GELU, pre)->cols = OUT(&gelu, GELU, g)->cols = n;
    OpCall *calls[] = {&pack, &linear, &gelu};
    for (int i = 0; i < 3; i++) {
        calls[i]->scratch_bytes = b->op[calls[i]->op].scratch(calls[i], &rows);
        if (calls[i]->scratch_bytes > sizes[6]) sizes[6] = calls[i]->scratch_bytes;
    }
    bool ok = true;
    for (int i = 0; i < 7; i++)
        if (sizes[i]) ok = ok && (at[i] = region(b, sizes[i])) != NULL;
    IN(&pack, PACK, weight)->data = at[0];
    OUT(&pack, PACK, copy)->data = IN(&linear, LINEAR, w)->data = at[1];
    IN(&linear, LINEAR, x)->data = at[2];
    OUT(&linear, LINEAR, y)->data = IN(&gelu, GELU, pre)->data = at[3];
    OUT(&gelu, GELU, g)->data = at[4];
    IN(&linear, LINEAR, bias)->data = at[5];
    for (int i = 0; ok && i < 3; i++) {
        calls[i]->scratch = at[6];
        ok = b->op[calls[i]->op].prepare(calls[i], &rows, 1) == OK;
    }
    if (ok) {
        time_call(b, &pack, &rows);
        rates->product_flops = 2.0 * (double)n_rows * (double)k * (double)n / time_call(b, &linear, &rows);
        rates->bytes = 2.0 * (double)n_rows * (double)n * (double)element / time_call(b, &gelu, &rows);
        rates->overhead = 2e-6;
    }
    for (int i = 0; i < 7; i++)
        if (at[i]) backend_release(b, at[i], sizes[i]);
    return ok && rates->product_flops > 1e6;
}

#define LINK_BYTES ((size_t)64 << 20)

static double measure_copy(const Backend *b, Op op, void *device, void *host)
{
    int64_t n = 4096, width = (int64_t)LINK_BYTES / n;
    RowCounts rows = {.count = {[ROWS_TOKENS] = n}};
    Operand there = {.data = device, .dtype = I8, .rows = {ROWS_TOKENS, 0}, .cols = width}, here = there;
    here.data = host;
    OpCall call = {.op = op, .in = {op == OP_OFFLOAD ? there : here}, .out = {op == OP_OFFLOAD ? here : there}};
    return (double)LINK_BYTES / time_call(b, &call, &rows);
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
static bool measure_rates(const Backend *b, Dtype compute, CostRates *rates)
{
    static const int64_t rows[] = {64, 1024, 16384};
    double seconds = 0;
    bool measured = false;
    for (int i = 0; i < 3 && 16 * seconds < PROBE_LONG; i++) {
        CostRates now = {0};
        if (!measure(b, compute, rows[i], &now)) break;
        *rates = now;
        measured = true;
        seconds = 2.0 * (double)rows[i] * PROBE_WIDTH * 4 * PROBE_WIDTH / now.product_flops;
    }
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

/* The cache file of this backend, version, thread count and type; NULL without a home directory. */
static char *cache_path(const Backend *b, Dtype compute)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *key = mem_printf("%s|%s|%d|%s", b->name, b->describe, b->threads, dtype_name(compute));
    const char *hex = DIGEST_TEXT(digest_of(key, strlen(key)));
    free(key);
    if (xdg && *xdg) return mem_printf("%s/cairn/rates-%.16s.json", xdg, hex);
    if (home && *home) return mem_printf("%s/.cache/cairn/rates-%.16s.json", home, hex);
    return NULL;
}

/* `busy`: the machine was, when they were measured. */
static bool read_cached(const char *path, const Backend *b, CostRates *rates, bool *busy)
{
    Json *doc = NULL;
    if (!file_exists(path) || js_read(path, &doc) != OK) return false;
    rates->product_flops = js_real(js_get(doc, "product_flops"), 0);
    rates->bytes = js_real(js_get(doc, "bytes"), 0);
    rates->overhead = js_real(js_get(doc, "overhead"), 0);
    rates->link_out = js_real(js_get(doc, "link_out"), 0);
    rates->link_in = js_real(js_get(doc, "link_in"), 0);
    *busy = js_bool(js_get(doc, "busy"), false);
    bool link = !backend_offloads(b) || (js_get(doc, "link_out") && js_get(doc, "link_in"));
    js_free(doc);
    return rates->product_flops > 0 && rates->bytes > 0 && rates->overhead >= 0 && link;
}

static void write_cached(const char *path, const Backend *b, Dtype compute, const CostRates *rates, bool busy)
{
    char *dir = file_directory(path);
    Buf text = {0};
    buf_puts(&text, "{");
    buf_member_text(&text, "backend", b->describe);
    buf_member_text(&text, "compute", dtype_name(compute));
    buf_member(&text, "product_flops", rates->product_flops);
    buf_member(&text, "bytes", rates->bytes);
    buf_member(&text, "overhead", rates->overhead);
    if (backend_offloads(b)) { /* 0: not measured, for want of memory */
        buf_member(&text, "link_out", rates->link_out);
        buf_member(&text, "link_in", rates->link_in);
    }
    buf_puts(&text, busy ? ", \"busy\": true}\n" : "}\n");
    if (file_make_directories(dir) != OK || file_write_text(NULL, path, &text) != OK)
        log_debug("rates are not kept: %s", status_message());
    buf_free(&text);
    free(dir);
}

bool machine_rates(const Backend *b, Dtype compute, CostRates *rates)
{
    bool measured = true, busy_then = false, busy = is_busy(b);
    char *path = cache_path(b, compute);
    *rates = (CostRates){0};
    if (path && read_cached(path, b, rates, &busy_then) && (busy || !busy_then)) {
        snprintf(rates->source, sizeof rates->source, "measured earlier%s, kept in the cache",
                 busy_then ? " on a busy machine" : "");
    } else if (measure_rates(b, compute, rates)) {
        snprintf(rates->source, sizeof rates->source, "measured now%s", busy ? " on a busy machine" : "");
        if (path) write_cached(path, b, compute, rates, busy);
    } else {
        measured = false;
        *rates = (CostRates){.product_flops = 1e9, .bytes = 1e9, .overhead = 2e-6};
        snprintf(rates->source, sizeof rates->source, "not measured; only comparisons between policies mean something");
    }
    free(path);
    return measured;
}
