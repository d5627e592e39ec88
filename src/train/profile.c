#include "train/profile.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/machine.h"
#include "train/profile_works.h"
#include "train/sampling.h"
#include "train/trace.h"

#define TRACE_FILE   "trace-rank0.json" /* without a pipeline rank 0 alone profiles */
#define ALL_FILE     "trace.json"       /* of a pipeline's ranks */
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
    bool instrs;                   /* their times are noted, beside those of a pipeline's works */
    bool tracing;                  /* inside a profiled step */
    bool active;                   /* steps are still to come; in a pipeline the same on all ranks */
    bool writes;                   /* this rank writes files, and no write has failed */
    double step_began, wall;       /* wall: seconds of the profiled steps */
    Trace trace;
    Buf events, works; /* of the trace, to be written; StepWorks, on rank 0 of all ranks */
    FileWriter file;
    Kernel *kernels;
    int n_kernels, cap_kernels;
    CostRates rates;
    bool rates_known;
    Sampling *sampling;
};

enum { TRACK_HOST, TRACK_LANES, TRACK_LAUNCHES = TRACK_LANES + 3, TRACK_WORKS };

static const PipelinePlace *place_of(const Profile *p) { return p->session->plan.input.place; }

/* ---- the trace ---- */

/* The other ranks of a pipeline do not know, so it stays active. */
static void give_up(Profile *p)
{
    log_warn("the profile is given up, training continues: %s", status_message());
    file_writer_abandon(&p->file);
    p->writes = false;
    p->active = place_of(p) != NULL;
}

static void write_events(Profile *p)
{
    if (p->writes && p->events.len && file_writer_write(&p->file, p->events.data, p->events.len) != OK) give_up(p);
    buf_free(&p->events);
}

static void put_header(Profile *p, double clock_error)
{
    const Backend *b = p->session->options.backend;
    bool used[TRACK_LAUNCHES - TRACK_LANES] = {false};
    char *process = mem_printf("rank %d: %s", p->trace.rank, b->describe);
    for (int k = 0; k < session_chunks(p->session); k++) {
        const Plan *plan = run_plan_of(&p->session->plan, k, true);
        for (InstrId i = 0; i < plan->n_instrs; i++) used[plan->instrs[i].lane] = true;
    }
    if (p->trace.rank == 0)
        trace_open(&p->events);
    else
        buf_puts(&p->events, ",\n");
    trace_process(&p->trace, &p->events, process, clock_error);
    trace_track(&p->trace, &p->events, TRACK_HOST, "host");
    for (int lane = 0; lane < TRACK_LAUNCHES - TRACK_LANES && p->instrs; lane++)
        if (used[lane]) trace_track(&p->trace, &p->events, TRACK_LANES + lane, lane_name((Lane)lane));
    if (p->instrs && b->device && b->device->mark) trace_track(&p->trace, &p->events, TRACK_LAUNCHES, "launches");
    if (place_of(p)) trace_track(&p->trace, &p->events, TRACK_WORKS, "works");
    free(process);
}

void profile_range(Profile *p, double begin, const char *format, ...)
{
    char name[64];
    va_list args;
    if (!p || !p->active || p->warm_up > 0) return;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    trace_span(&p->trace, &p->events, TRACK_HOST, "host", name, begin, clock_monotonic());
    buf_puts(&p->events, "}");
}

/* ---- times of the instrs ---- */

static bool is_product(Op op) { return op == OP_LINEAR || op == OP_LINEAR_DGRAD || op == OP_LINEAR_WGRAD; }

static void add_kernel(Profile *p, const Kernel *k)
{
    for (int i = 0; i < p->n_kernels; i++) {
        Kernel *at = &p->kernels[i];
        if (at->op != k->op || at->phase != k->phase || at->k != k->k || at->n != k->n) continue;
        at->calls += k->calls;
        at->seconds += k->seconds;
        at->flops += k->flops;
        at->bytes += k->bytes;
        return;
    }
    MEM_GROW(p->kernels, p->n_kernels, p->cap_kernels);
    p->kernels[p->n_kernels++] = *k;
}

/* Rows of the first operand whose rows vary with the micro-batch; else of the output. */
static int64_t rows_of_call(const OpCall *call, const RowCounts *rows)
{
    for (int i = 0; i < OP_MAX_IN; i++)
        if (operand_present(&call->in[i]) && call->in[i].rows.kind != ROWS_FIXED)
            return rows_in(call->in[i].rows, rows);
    return rows_in(call->out[0].rows, rows);
}

static void add_record(Profile *p, const Plan *plan, const ExecRecord *r, double mean_length)
{
    const Instr *instr = &plan->instrs[r->instr];
    OpCall call;
    char name[PLAN_NAME_MAX];
    plan_call(plan, instr, &call);
    plan_instr_name(plan, r->instr, name);
    OpCost cost = op_cost(&call, &r->rows, mean_length);
    bool product = is_product(instr->op);
    add_kernel(p, &(Kernel){.op = instr->op,
                            .phase = instr->phase,
                            .k = product ? instr->attr.linear.k : 0,
                            .n = product ? instr->attr.linear.n : 0,
                            .calls = 1,
                            .seconds = r->end - r->begin,
                            .flops = cost.product_flops,
                            .bytes = cost.bytes});
    trace_span(&p->trace, &p->events, TRACK_LANES + (int)instr->lane, phase_name(instr->phase), name, r->begin, r->end);
    buf_printf(&p->events,
               ", \"args\": {\"instr\": %d, \"layer\": %d, \"rows\": %lld, \"flops\": %.0f, \"bytes\": %.0f}}",
               r->instr, instr->layer, (long long)rows_of_call(&call, &r->rows), cost.product_flops, cost.bytes);
    const Device *device = p->session->options.backend->device;
    if (!device || !device->mark) return;
    trace_span(&p->trace, &p->events, TRACK_LAUNCHES, phase_name(instr->phase), name, r->issued, r->returned);
    buf_puts(&p->events, "}");
}

static Status take_records(Profile *p, double mean_length)
{
    for (int k = 0; k < session_chunks(p->session) && p->instrs; k++) {
        const ExecRecord *records;
        int n;
        TRY(exec_trace_end(session_exec(p->session, k), &records, &n));
        for (int i = 0; i < n; i++) add_record(p, run_plan_of(&p->session->plan, k, true), &records[i], mean_length);
    }
    return OK;
}

/* ---- a pipeline's ranks ---- */

/* Rank 0 takes what all ranks noted in a step. */
static Status collect(Profile *p, int64_t step)
{
    Ranks *ranks = p->session->options.ranks;
    Buf works = {0}, kernels = {0};
    works_take(p->session, p->trace.rank, step, p->trace.zero, &works);
    works_trace(&works, &p->trace, TRACK_WORKS, &p->events);
    if (!ranks_first(ranks)) {
        buf_append(&kernels, p->kernels, (size_t)p->n_kernels * sizeof *p->kernels);
        p->n_kernels = 0;
    }
    Status status = works_collect(ranks, &works);
    if (status == OK) status = works_collect(ranks, &kernels);
    if (status == OK) status = works_collect(ranks, &p->events);
    const Kernel *k = (const void *)kernels.data;
    for (size_t i = 0; i < kernels.len / sizeof *k; i++) add_kernel(p, &k[i]);
    if (works.len) buf_append(&p->works, works.data, works.len);
    buf_free(&works);
    buf_free(&kernels);
    return status;
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
    Buf text = {0}, *events = &p->events;
    if (n == 0) return OK;
    for (int i = 0; i < n; i++) {
        trace_counter(&p->trace, events, r[i].when, "SM clock", "MHz", r[i].device.sm_mhz);
        trace_counter(&p->trace, events, r[i].when, "memory clock", "MHz", r[i].device.memory_mhz);
        trace_counter(&p->trace, events, r[i].when, "power", "W", r[i].device.watts);
        trace_counter(&p->trace, events, r[i].when, "temperature", "C", r[i].device.celsius);
        trace_counter(&p->trace, events, r[i].when, "memory in use", "bytes", r[i].device.memory_bytes);
    }
    write_events(p);
    sampling_csv(r, n, p->trace.zero, &text);
    return write_table(p, GPU_FILE, &text);
}

/* ---- its life ---- */

/* Removes the files of an earlier profile. The trace is written step by step. */
static Status open_files(Profile *p)
{
    static const char *const names[] = {TRACE_FILE, ALL_FILE, KERNELS_FILE, GPU_FILE, "timeline.svg", "work.csv"};
    Status status = file_make_directories(p->dir);
    if (status == OK) status = file_remove_temporaries(p->dir);
    for (size_t i = 0; i < sizeof names / sizeof *names && status == OK; i++) {
        char *path = file_join(p->dir, names[i]);
        status = file_remove_tree(path);
        free(path);
    }
    char *path = file_join(p->dir, place_of(p) ? ALL_FILE : TRACE_FILE);
    if (status == OK) status = file_writer_open(&p->file, path);
    free(path);
    return status;
}

/* Collective. Times count from rank 0's zero. */
static Status share_zero(Profile *p, double *error)
{
    Ranks *ranks = p->session->options.ranks;
    double ahead;
    TRY(works_clock(ranks, &ahead, error));
    TRY(ranks_broadcast(ranks, &p->trace.zero, sizeof p->trace.zero));
    p->trace.zero += ahead;
    return OK;
}

Status profile_open(const char *output_dir, Session *session, int64_t wanted, int64_t left, Profile **profile)
{
    const PipelinePlace *place = session->plan.input.place;
    double clock_error = 0;
    int rank = ranks_rank(session->options.ranks);
    *profile = NULL;
    if ((wanted <= 0 && !place) || left <= 0 || (rank > 0 && !place)) return OK;
    Profile *p = *profile = mem_alloc(sizeof *p);
    p->instrs = wanted > 0;
    if (!p->instrs) wanted = PROFILE_WORKS;
    p->dir = file_join(output_dir, "profile");
    p->session = session;
    p->wanted = wanted < left ? wanted : left;
    p->warm_up = left - p->wanted < PROFILE_WARM_UP ? left - p->wanted : PROFILE_WARM_UP;
    p->writes = rank == 0;
    if (p->writes && p->instrs)
        p->rates_known = machine_rates(session->options.backend, session->plan.input.compute, &p->rates);
    p->trace = (Trace){rank, clock_monotonic()};
    if (place) TRY(share_zero(p, &clock_error));
    p->active = true;
    if (p->writes && open_files(p) != OK) {
        give_up(p);
        return OK;
    }
    if (p->instrs) p->sampling = sampling_start(session->options.backend->device);
    put_header(p, clock_error);
    return OK;
}

static Status finish_files(Profile *p)
{
    TRY(write_samples(p));
    if (p->instrs) TRY(write_kernels(p));
    if (place_of(p)) TRY(works_write(place_of(p), p->dir, &p->works));
    trace_close(&p->events);
    write_events(p);
    if (!p->writes) return OK; /* reported already */
    p->writes = false;
    return file_writer_close(&p->file, NULL, NULL);
}

static void finish(Profile *p)
{
    bool writes = p->writes;
    if (!p->active) return;
    p->active = false;
    if (!writes) return;
    if (p->done == 0) {
        log_warn("no profile is written: no step of it was finished");
        file_writer_abandon(&p->file);
        return;
    }
    if (finish_files(p) != OK) {
        give_up(p);
        p->active = false;
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
    if (place_of(p)) exec_pipeline_note(session_works(p->session), true);
    for (int k = 0; k < session_chunks(p->session) && p->instrs; k++)
        TRY(exec_trace_start(session_exec(p->session, k)));
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
    double began = p->step_began;
    p->wall += clock_monotonic() - began;
    profile_range(p, began, "step %lld", (long long)step);
    TRY(take_records(p, mean_length));
    p->tracing = false;
    if (place_of(p)) {
        TRY(collect(p, step));
        exec_pipeline_note(session_works(p->session), false);
    }
    write_events(p);
    if (++p->done == p->wanted) finish(p);
    return OK;
}

void profile_close(Profile *p)
{
    if (!p) return;
    finish(p);
    sampling_free(p->sampling);
    buf_free(&p->events);
    buf_free(&p->works);
    free(p->kernels);
    free(p->dir);
    free(p);
}
