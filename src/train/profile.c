#include "train/profile.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/box.h"
#include "train/machine.h"

#define TRACE_FILE   "trace-rank0.json" /* rank 0 alone writes a trace: its number is the pid of all events */
#define KERNELS_FILE "kernels.csv"

/* All calls of one op, in one phase and shape: a row of kernels.csv, as ranks send it. */
typedef struct {
    Op op;
    Phase phase;
    int64_t k, n; /* of a product's weight; 0: another op */
    int64_t calls;
    double seconds, flops, bytes;
    double median, p95; /* seconds a call; only in rows */
    int64_t rank;
} Kernel;

typedef struct {
    double *items; // (n)
    int n, cap;
} Times;

struct Profile {
    char *dir;
    Session *session;
    Ranks *ranks;
    int64_t warm_up, wanted, done; /* steps: still to warm up; to profile; profiled */
    bool tracing;                  /* inside a profiled step */
    bool active;                   /* steps are profiled, or will be */
    bool writes;                   /* rank 0, until a file cannot be written */
    double zero, step_began, wall; /* wall: seconds of the profiled steps */
    FileWriter trace;
    Kernel *kernels;
    Times *times; // (n_kernels): of each call
    int n_kernels, cap_kernels, cap_times;
    CostRates rates;
    bool rates_known;
    Sampling *sampling;
};

enum { TRACK_HOST, TRACK_LANES, TRACK_LAUNCHES = TRACK_LANES + 3 };

/* ---- the trace: Chrome's Trace Event Format, one event per line, microseconds since `zero` ---- */

static void give_up(Profile *p)
{
    log_warn("the profile is given up, training continues: %s", status_message());
    file_writer_abandon(&p->trace);
    p->writes = false;
}

static void write_events(Profile *p, Buf *events)
{
    if (p->writes && events->len && file_writer_write(&p->trace, events->data, events->len) != OK) give_up(p);
    buf_free(events);
}

static void put_track(Buf *out, int track, const char *name)
{
    buf_printf(out,
               ",\n{\"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"%s\"}}"
               ",\n{\"ph\": \"M\", \"pid\": 0, \"tid\": %d, \"name\": \"thread_sort_index\", \"args\": "
               "{\"sort_index\": %d}}",
               track, name, track, track);
}

static void put_header(Profile *p)
{
    const Backend *b = p->session->options.backend;
    const Plan *plan = &p->session->plan.train;
    bool used[TRACK_LAUNCHES - TRACK_LANES] = {false};
    Buf text = {0};
    char *process = mem_printf("rank 0: %s", b->describe);
    for (InstrId i = 0; i < plan->n_instrs; i++) used[plan->instrs[i].lane] = true;
    buf_puts(&text, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
                    "{\"ph\": \"M\", \"pid\": 0, \"tid\": 0, \"name\": \"process_name\", \"args\": {\"name\": ");
    buf_json(&text, process);
    buf_puts(&text, "}}");
    put_track(&text, TRACK_HOST, "host");
    for (int lane = 0; lane < TRACK_LAUNCHES - TRACK_LANES; lane++)
        if (used[lane]) put_track(&text, TRACK_LANES + lane, lane_name((Lane)lane));
    if (b->device && b->device->mark) put_track(&text, TRACK_LAUNCHES, "launches");
    write_events(p, &text);
    free(process);
}

/* An event up to its arguments. */
static void put_span(const Profile *p, Buf *out, int track, const char *category, const char *name, double begin,
                     double end)
{
    buf_printf(out,
               ",\n{\"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"cat\": \"%s\", \"name\": ",
               track, 1e6 * (begin - p->zero), 1e6 * (end - begin), category);
    buf_json(out, name);
}

static void put_counter(const Profile *p, Buf *out, double when, const char *name, const char *unit, double value)
{
    if (!isfinite(value)) return;
    buf_printf(out, ",\n{\"ph\": \"C\", \"pid\": 0, \"ts\": %.3f, \"name\": \"%s\", \"args\": {\"%s\": ",
               1e6 * (when - p->zero), name, unit);
    buf_double(out, value);
    buf_puts(out, "}}");
}

void profile_range(Profile *p, double begin, const char *format, ...)
{
    char name[64];
    va_list args;
    if (!p || !p->active || p->warm_up > 0) return;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    Buf text = {0};
    put_span(p, &text, TRACK_HOST, "host", name, begin, clock_monotonic());
    buf_puts(&text, "}");
    write_events(p, &text);
}

/* ---- times of the instrs ---- */

static bool is_product(Op op) { return op == OP_LINEAR || op == OP_LINEAR_DGRAD || op == OP_LINEAR_WGRAD; }

static Kernel *find_kernel(Profile *p, const Instr *instr)
{
    Kernel k = {.op = instr->op, .phase = instr->phase};
    if (is_product(k.op)) {
        k.k = instr->attr.linear.k;
        k.n = instr->attr.linear.n;
    }
    for (int i = 0; i < p->n_kernels; i++) {
        Kernel *at = &p->kernels[i];
        if (at->op == k.op && at->phase == k.phase && at->k == k.k && at->n == k.n) return at;
    }
    MEM_GROW(p->kernels, p->n_kernels, p->cap_kernels);
    MEM_GROW(p->times, p->n_kernels, p->cap_times);
    p->times[p->n_kernels] = (Times){0};
    p->kernels[p->n_kernels] = k;
    return &p->kernels[p->n_kernels++];
}

/* Rows of the first operand whose rows vary with the micro-batch; else of the output. */
static int64_t rows_of_call(const OpCall *call, const RowCounts *rows)
{
    for (int i = 0; i < OP_MAX_IN; i++)
        if (operand_present(&call->in[i]) && call->in[i].rows.kind != ROWS_FIXED)
            return rows_in(call->in[i].rows, rows);
    return rows_in(call->out[0].rows, rows);
}

static void add_record(Profile *p, const ExecRecord *r, double mean_length, Buf *out)
{
    const Plan *plan = &p->session->plan.train;
    const Instr *instr = &plan->instrs[r->instr];
    OpCall call;
    char name[PLAN_NAME_MAX];
    plan_call(plan, instr, &call);
    plan_instr_name(plan, r->instr, name);
    OpCost cost = op_cost(&call, &r->rows, mean_length);
    Kernel *k = find_kernel(p, instr);
    Times *t = &p->times[k - p->kernels];
    MEM_GROW(t->items, t->n, t->cap);
    t->items[t->n++] = r->end - r->begin;
    k->calls++;
    k->seconds += r->end - r->begin;
    k->flops += cost.product_flops;
    k->bytes += cost.bytes;
    put_span(p, out, TRACK_LANES + (int)instr->lane, phase_name(instr->phase), name, r->begin, r->end);
    buf_printf(out, ", \"args\": {\"instr\": %d, \"layer\": %d, \"rows\": %lld, \"flops\": %.0f, \"bytes\": %.0f}}",
               r->instr, instr->layer, (long long)rows_of_call(&call, &r->rows), cost.product_flops, cost.bytes);
    const Device *device = p->session->options.backend->device;
    if (!device || !device->mark) return;
    put_span(p, out, TRACK_LAUNCHES, phase_name(instr->phase), name, r->issued, r->returned);
    buf_puts(out, "}");
}

/* ---- kernels.csv ---- */

static int longest_first(const void *a, const void *b)
{
    double x = ((const Kernel *)a)->seconds, y = ((const Kernel *)b)->seconds;
    return (x < y) - (x > y);
}

static double total_seconds(const Kernel *rows, int n, int64_t rank)
{
    double total = 0;
    for (int i = 0; i < n; i++) total += rows[i].rank == rank ? rows[i].seconds : 0;
    return total;
}

/* Completes this rank's rows and forgets the times. */
static void close_rows(Profile *p)
{
    for (int i = 0; i < p->n_kernels; i++) {
        Quantiles q = quantiles_of(p->times[i].items, p->times[i].n);
        p->kernels[i].median = q.median;
        p->kernels[i].p95 = q.p95;
        p->kernels[i].rank = ranks_rank(p->ranks);
        free(p->times[i].items);
    }
    free(p->times);
    p->times = NULL;
    if (p->n_kernels > 0) qsort(p->kernels, (size_t)p->n_kernels, sizeof *p->kernels, longest_first);
}

static void put_kernel(const Profile *p, const Kernel *k, double total, Buf *out)
{
    double least = fmax(k->flops / p->rates.product_flops, k->bytes / p->rates.bytes), s = k->seconds;
    double known = p->rates_known ? 1 : NAN;
    buf_printf(out, "%s,%s,", op_info(k->op)->name, phase_name(k->phase));
    if (k->n) buf_printf(out, "%lldx%lld", (long long)k->n, (long long)k->k);
    buf_printf(out, ",%lld", (long long)k->calls);
    csv_number(out, s, 9);
    csv_number(out, total > 0 ? s / total : 0, 6);
    csv_number(out, 1e-12 * k->flops / s, 4);
    csv_number(out, known * 1e-12 * p->rates.product_flops, 4);
    csv_number(out, 1e-9 * k->bytes / s, 3);
    csv_number(out, known * 1e-9 * p->rates.bytes, 3);
    csv_number(out, known * least / s, 4);
    csv_number(out, k->median, 9);
    csv_number(out, k->p95, 9);
    buf_printf(out, ",%lld\n", (long long)k->rank);
}

static Status write_kernels(const Profile *p, const Kernel *rows, int n)
{
    Buf text = {0};
    char *path = file_join(p->dir, KERNELS_FILE);
    buf_puts(&text, "op,phase,shape,calls,seconds,share,tflop_s,limit_tflop_s,gbyte_s,limit_gbyte_s,of_limit,median_s,"
                    "p95_s,rank\n");
    for (int i = 0; i < n; i++) put_kernel(p, &rows[i], total_seconds(rows, n, rows[i].rank), &text);
    Status status = file_write_durable(path, text.data, text.len);
    free(path);
    buf_free(&text);
    return status;
}

/* The samples as counters of the trace. */
static void write_samples(Profile *p)
{
    const SampleRecord *r;
    int n = sampling_take(p->sampling, &r);
    Buf counters = {0};
    for (int i = 0; i < n; i++) {
        put_counter(p, &counters, r[i].when, "SM clock", "MHz", r[i].device.sm_mhz);
        put_counter(p, &counters, r[i].when, "memory clock", "MHz", r[i].device.memory_mhz);
        put_counter(p, &counters, r[i].when, "power", "W", r[i].device.watts);
        put_counter(p, &counters, r[i].when, "temperature", "C", r[i].device.celsius);
        put_counter(p, &counters, r[i].when, "memory in use", "bytes", r[i].device.memory_bytes);
    }
    write_events(p, &counters);
}

/* ---- its life ---- */

/* Removes the files of an earlier profile. The trace is written step by step. */
static Status open_files(Profile *p)
{
    const char *const names[] = {TRACE_FILE, KERNELS_FILE};
    Status status = file_make_directories(p->dir);
    if (status == OK) status = file_remove_temporaries(p->dir);
    for (int i = 0; i < 2 && status == OK; i++) {
        char *path = file_join(p->dir, names[i]);
        status = file_remove_tree(path);
        if (status == OK && i == 0) status = file_writer_open(&p->trace, path);
        free(path);
    }
    return status;
}

Profile *profile_open(Run *run, Sampling *sampling, int64_t left)
{
    Session *session = &run->session;
    int64_t wanted = run->c->profile;
    if (wanted <= 0 || left <= 0) return NULL;
    Profile *p = mem_alloc(sizeof *p);
    p->dir = file_join(run->c->output_dir, "profile");
    p->session = session;
    p->ranks = run->ranks;
    p->sampling = sampling;
    p->wanted = wanted < left ? wanted : left;
    p->warm_up = left - p->wanted < PROFILE_WARM_UP ? left - p->wanted : PROFILE_WARM_UP;
    p->active = true;
    p->writes = run_first(run);
    if (!p->writes) return p;
    p->rates_known = machine_rates(session->options.backend, session->plan.input.compute, &p->rates);
    p->zero = clock_monotonic();
    if (open_files(p) != OK)
        give_up(p);
    else
        put_header(p);
    return p;
}

static Status finish_files(Profile *p, const Kernel *rows, int n)
{
    static const char end[] = "\n]}\n";
    write_samples(p);
    if (!p->writes) return OK; /* reported already */
    TRY(write_kernels(p, rows, n));
    TRY(file_writer_write(&p->trace, end, sizeof end - 1));
    return file_writer_close(&p->trace, NULL, NULL);
}

/* Writes (n) rows of ranks, rank 0's first, each rank's longest first. */
static void finish(Profile *p, const Kernel *rows, int n)
{
    p->active = false;
    if (!p->writes) return;
    if (p->done == 0) {
        log_warn("no profile is written: no step of it was finished");
        file_writer_abandon(&p->trace);
        return;
    }
    if (finish_files(p, rows, n) != OK) {
        give_up(p);
        return;
    }
    if (n == 0) return;
    const Kernel *first = &rows[0];
    double total = total_seconds(rows, n, first->rank);
    log_info("profile of %lld steps: instrs took %.3f s of %.3f s, the longest %s (%s) %.1f %%; see %s",
             (long long)p->done, total, p->wall, op_info(first->op)->name, phase_name(first->phase),
             total > 0 ? 100 * first->seconds / total : 0, p->dir);
}

/* Collective: the last profiled step has ended on all ranks. */
static Status finish_all(Profile *p)
{
    close_rows(p);
    size_t bytes = (size_t)p->n_kernels * sizeof *p->kernels;
    void *rows = mem_alloc(bytes ? bytes : 1);
    if (bytes) memcpy(rows, p->kernels, bytes);
    Status status = ranks_gather(p->ranks, &rows, &bytes);
    if (status == OK) finish(p, rows, (int)(bytes / sizeof(Kernel)));
    free(rows);
    return status;
}

Status profile_step_begin(Profile *p)
{
    if (!p || !p->active || p->warm_up > 0) return OK;
    p->tracing = true;
    TRY(exec_trace_start(p->session->train));
    p->step_began = clock_monotonic();
    return OK;
}

Status profile_step_end(Profile *p, int64_t step, double mean_length)
{
    if (!p || !p->active) return OK;
    if (!p->tracing) {
        p->warm_up--;
        return OK;
    }
    const ExecRecord *records;
    int n;
    Buf text = {0};
    double began = p->step_began;
    p->wall += clock_monotonic() - began;
    profile_range(p, began, "step %lld", (long long)step);
    TRY(exec_trace_end(p->session->train, &records, &n));
    p->tracing = false;
    for (int i = 0; i < n; i++) add_record(p, &records[i], mean_length, &text);
    write_events(p, &text);
    return ++p->done == p->wanted ? finish_all(p) : OK;
}

void profile_close(Profile *p)
{
    if (!p) return;
    if (p->active) { /* the others may be gone */
        close_rows(p);
        finish(p, p->kernels, p->n_kernels);
    }
    free(p->kernels);
    free(p->dir);
    free(p);
}
