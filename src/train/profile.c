#include "train/profile.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/machine.h"
#include "train/sampling.h"

#define TRACE_FILE   "trace-rank0.json" /* rank 0 alone profiles: its number is the pid of all events */
#define KERNELS_FILE "kernels.csv"
#define GPU_FILE     "gpu.csv"

/* All calls of one op, in one phase and shape. */
typedef struct {
    Op op;
    Phase phase;
    int64_t k, n; /* of a product's weight; 0: another op */
    int64_t calls;
    double seconds, flops, bytes;
} Kernel;

struct Profile {
    char *dir;
    Session *session;
    int64_t warm_up, wanted, done; /* steps: still to warm up; to profile; profiled */
    bool tracing;                  /* inside a profiled step */
    bool active;                   /* the trace's file is open */
    double zero, step_began, wall; /* wall: seconds of the profiled steps */
    FileWriter trace;
    Kernel *kernels;
    int n_kernels, cap_kernels;
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
    p->active = false;
}

static void write_events(Profile *p, Buf *events)
{
    if (p->active && events->len && file_writer_write(&p->trace, events->data, events->len) != OK) give_up(p);
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

static double total_seconds(const Profile *p)
{
    double total = 0;
    for (int i = 0; i < p->n_kernels; i++) total += p->kernels[i].seconds;
    return total;
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
    buf_puts(out, "\n");
}

static Status write_table(const Profile *p, const char *name, Buf *text)
{
    char *path = file_join(p->dir, name);
    Status status = file_write_durable(path, text->data, text->len);
    free(path);
    buf_free(text);
    return status;
}

static Status write_kernels(Profile *p)
{
    Buf text = {0};
    double total = total_seconds(p);
    qsort(p->kernels, (size_t)p->n_kernels, sizeof *p->kernels, longest_first);
    buf_puts(&text, "op,phase,shape,calls,seconds,share,tflop_s,limit_tflop_s,gbyte_s,limit_gbyte_s,of_limit\n");
    for (int i = 0; i < p->n_kernels; i++) put_kernel(p, &p->kernels[i], total, &text);
    return write_table(p, KERNELS_FILE, &text);
}

/* gpu.csv, and the same samples as counters of the trace. */
static Status write_samples(Profile *p)
{
    const SampleRecord *r;
    int n = sampling_stop(p->sampling, &r);
    Buf text = {0}, counters = {0};
    if (n == 0) return OK;
    for (int i = 0; i < n; i++) {
        put_counter(p, &counters, r[i].when, "SM clock", "MHz", r[i].device.sm_mhz);
        put_counter(p, &counters, r[i].when, "memory clock", "MHz", r[i].device.memory_mhz);
        put_counter(p, &counters, r[i].when, "power", "W", r[i].device.watts);
        put_counter(p, &counters, r[i].when, "temperature", "C", r[i].device.celsius);
        put_counter(p, &counters, r[i].when, "memory in use", "bytes", r[i].device.memory_bytes);
    }
    write_events(p, &counters);
    sampling_csv(r, n, p->zero, &text);
    return write_table(p, GPU_FILE, &text);
}

/* ---- its life ---- */

/* Removes the files of an earlier profile. The trace is written step by step. */
static Status open_files(Profile *p)
{
    const char *const names[] = {TRACE_FILE, KERNELS_FILE, GPU_FILE};
    Status status = file_make_directories(p->dir);
    if (status == OK) status = file_remove_temporaries(p->dir);
    for (int i = 0; i < 3 && status == OK; i++) {
        char *path = file_join(p->dir, names[i]);
        status = file_remove_tree(path);
        if (status == OK && i == 0) status = file_writer_open(&p->trace, path);
        free(path);
    }
    return status;
}

Profile *profile_open(const char *output_dir, Session *session, int64_t wanted, int64_t left)
{
    if (wanted <= 0 || left <= 0) return NULL;
    Profile *p = mem_alloc(sizeof *p);
    p->dir = file_join(output_dir, "profile");
    p->session = session;
    p->wanted = wanted < left ? wanted : left;
    p->warm_up = left - p->wanted < PROFILE_WARM_UP ? left - p->wanted : PROFILE_WARM_UP;
    p->rates_known = machine_rates(session->options.backend, session->plan.input.compute, &p->rates);
    p->zero = clock_monotonic();
    p->active = true;
    if (open_files(p) != OK) {
        give_up(p);
        return p;
    }
    p->sampling = sampling_start(session->options.backend->device);
    put_header(p);
    return p;
}

static Status finish_files(Profile *p)
{
    static const char end[] = "\n]}\n";
    TRY(write_samples(p));
    TRY(write_kernels(p));
    if (!p->active) return OK; /* reported already */
    TRY(file_writer_write(&p->trace, end, sizeof end - 1));
    p->active = false;
    return file_writer_close(&p->trace, NULL, NULL);
}

static void finish(Profile *p)
{
    if (!p->active) return;
    if (p->done == 0) {
        log_warn("no profile is written: no step of it was finished");
        file_writer_abandon(&p->trace);
        p->active = false;
        return;
    }
    if (finish_files(p) != OK) {
        give_up(p);
        return;
    }
    if (p->n_kernels == 0) return;
    const Kernel *first = &p->kernels[0];
    double total = total_seconds(p);
    log_info("profile of %lld steps: instrs took %.3f s of %.3f s, the longest %s (%s) %.1f %%; see %s",
             (long long)p->done, total, p->wall, op_info(first->op)->name, phase_name(first->phase),
             total > 0 ? 100 * first->seconds / total : 0, p->dir);
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
    if (++p->done == p->wanted) finish(p);
    return OK;
}

void profile_close(Profile *p)
{
    if (!p) return;
    finish(p);
    sampling_free(p->sampling);
    free(p->kernels);
    free(p->dir);
    free(p);
}
