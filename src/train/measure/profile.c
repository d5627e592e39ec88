#include "train/measure/profile.h"

#include "train/measure/profile_files.h"

#define TRACE_FILE   "trace-rank0.json" /* without a pipeline rank 0 alone writes a trace */
#define ALL_FILE     "trace.json"       /* of a pipeline's ranks */
#define KERNELS_FILE "kernels.csv"

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
    Kernels kernels;
    MachineLimits limits;
    bool limits_known;
    Sampling *sampling;
};

enum { TRACK_HOST, TRACK_LANES, TRACK_LAUNCHES = TRACK_LANES + 3, TRACK_WORKS };

static bool has_works(const Session *s) { return session_works(s) != NULL; }

/* ---- the trace ---- */

/* The other ranks do not know, so it stays active. */
static void give_up(Profile *p)
{
    log_warn("the profile is given up, training continues: %s", status_message());
    file_writer_abandon(&p->file);
    p->writes = false;
    p->active = p->session->options.ranks != NULL;
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
        const Plan *plan = &p->session->plan.chunk[k].train;
        for (InstrId i = 0; i < plan->n_instrs; i++) used[plan->instrs[i].lane] = true;
    }
    buf_puts(&p->events, p->trace.rank == 0 ? TRACE_BEGIN : ",\n");
    trace_process(&p->trace, &p->events, process, clock_error);
    trace_track(&p->trace, &p->events, TRACK_HOST, "host");
    for (int lane = 0; lane < TRACK_LAUNCHES - TRACK_LANES && p->instrs; lane++)
        if (used[lane]) trace_track(&p->trace, &p->events, TRACK_LANES + lane, lane_name((Lane)lane));
    if (p->instrs && b->device && b->device->mark) trace_track(&p->trace, &p->events, TRACK_LAUNCHES, "launches");
    if (has_works(p->session)) trace_track(&p->trace, &p->events, TRACK_WORKS, "works");
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
    kernels_add(&p->kernels, &(Kernel){.op = instr->op,
                                       .phase = instr->phase,
                                       .k = product ? instr->attr.linear.k : 0,
                                       .n = product ? instr->attr.linear.n : 0,
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
        TRY(exec_trace_end(p->session->train[k], &records, &n));
        for (int i = 0; i < n; i++) add_record(p, &p->session->plan.chunk[k].train, &records[i], mean_length);
    }
    return OK;
}

/* ---- a pipeline's ranks ---- */

/* Rank 0 takes what all ranks noted in a step. */
static Status collect(Profile *p, int64_t step)
{
    Ranks *ranks = p->session->options.ranks;
    Buf works = {0};
    works_take(p->session, p->trace.rank, step, p->trace.zero, &works);
    works_trace(&works, &p->trace, TRACK_WORKS, &p->events);
    Status status = works_collect(ranks, &works);
    if (status == OK) status = works_collect(ranks, &p->events);
    if (works.len) buf_append(&p->works, works.data, works.len);
    buf_free(&works);
    return status;
}

/* ---- files ---- */

/* The samples as counters of the trace. */
static void write_samples(Profile *p)
{
    const SampleRecord *r;
    int n = sampling_take(p->sampling, &r);
    Buf *events = &p->events;
    for (int i = 0; i < n; i++) {
        trace_counter(&p->trace, events, r[i].when, "SM clock", "MHz", r[i].device.sm_mhz);
        trace_counter(&p->trace, events, r[i].when, "memory clock", "MHz", r[i].device.memory_mhz);
        trace_counter(&p->trace, events, r[i].when, "power", "W", r[i].device.watts);
        trace_counter(&p->trace, events, r[i].when, "temperature", "C", r[i].device.celsius);
        trace_counter(&p->trace, events, r[i].when, "memory in use", "bytes", r[i].device.memory_bytes);
    }
    write_events(p);
}

/* Removes the files of an earlier profile. The trace is written step by step. */
static Status open_files(Profile *p)
{
    static const char *const names[] = {TRACE_FILE, ALL_FILE, KERNELS_FILE, "timeline.svg", "work.csv"};
    Status status = file_make_directories(p->dir);
    if (status == OK) status = file_remove_temporaries(p->dir);
    for (size_t i = 0; i < sizeof names / sizeof *names && status == OK; i++) {
        char *path = file_join(p->dir, names[i]);
        status = file_remove_tree(path);
        free(path);
    }
    char *path = file_join(p->dir, has_works(p->session) ? ALL_FILE : TRACE_FILE);
    if (status == OK) status = file_writer_open(&p->file, path);
    free(path);
    return status;
}

/* ---- its life ---- */

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

Status profile_open(const char *output_dir, Session *session, Sampling *sampling, int64_t wanted, int64_t left,
                    Profile **profile)
{
    double clock_error = 0;
    CostRates rates;
    int rank = ranks_rank(session->options.ranks);
    *profile = NULL;
    if ((wanted <= 0 && !has_works(session)) || left <= 0) return OK;
    Profile *p = *profile = mem_alloc(sizeof *p);
    p->instrs = wanted > 0;
    if (!p->instrs) wanted = PROFILE_WORKS;
    p->dir = file_join(output_dir, "profile");
    p->session = session;
    p->sampling = sampling;
    p->wanted = wanted < left ? wanted : left;
    p->warm_up = left - p->wanted < PROFILE_WARM_UP ? left - p->wanted : PROFILE_WARM_UP;
    p->writes = rank == 0;
    if (p->writes && p->instrs)
        p->limits_known = machine_rates(session->options.backend, &session->model->config, session->plan.input.compute,
                                        &rates, &p->limits);
    p->trace = (Trace){rank, clock_monotonic()};
    if (has_works(session)) TRY(share_zero(p, &clock_error));
    p->active = true;
    if (p->writes && open_files(p) != OK) {
        give_up(p);
        return OK;
    }
    put_header(p, clock_error);
    return OK;
}

static Status finish_files(Profile *p, const Kernel *rows, int n)
{
    write_samples(p);
    if (p->instrs) TRY(kernels_write(p->dir, KERNELS_FILE, rows, n, p->limits_known ? &p->limits : NULL));
    if (has_works(p->session)) TRY(works_write(p->session->plan.input.place, p->dir, &p->works));
    buf_puts(&p->events, TRACE_END);
    write_events(p);
    if (!p->writes) return OK; /* reported already */
    p->writes = false;
    return file_writer_close(&p->file, NULL, NULL);
}

/* Writes (n) rows of ranks, rank 0's first, each rank's longest first. */
static void finish(Profile *p, const Kernel *rows, int n)
{
    bool writes = p->writes;
    p->active = false;
    if (!writes) return;
    if (p->done == 0) {
        log_warn("no profile is written: no step of it was finished");
        file_writer_abandon(&p->file);
        return;
    }
    if (finish_files(p, rows, n) != OK) {
        give_up(p);
        p->active = false;
        return;
    }
    if (n == 0) return;
    const Kernel *first = &rows[0];
    double total = kernels_seconds(rows, n, first->rank);
    log_info("profile of %lld steps: instrs took %.3f s of %.3f s, the longest %s (%s) %.1f %%; see %s",
             (long long)p->done, total, p->wall, op_info(first->op)->name, phase_name(first->phase),
             total > 0 ? 100 * first->seconds / total : 0, p->dir);
}

/* Collective: the last profiled step has ended on all ranks. */
static Status finish_all(Profile *p)
{
    kernels_close(&p->kernels, p->trace.rank);
    Buf rows = {0};
    buf_append(&rows, p->kernels.rows, (size_t)p->kernels.n * sizeof *p->kernels.rows);
    Status status = works_collect(p->session->options.ranks, &rows);
    if (status == OK) finish(p, (const void *)rows.data, (int)(rows.len / sizeof(Kernel)));
    buf_free(&rows);
    return status;
}

Status profile_step_begin(Profile *p)
{
    if (!p || !p->active || p->warm_up > 0) return OK;
    p->tracing = true;
    if (has_works(p->session)) exec_pipeline_note(session_works(p->session), true);
    for (int k = 0; k < session_chunks(p->session) && p->instrs; k++) TRY(exec_trace_start(p->session->train[k]));
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
    if (has_works(p->session)) {
        TRY(collect(p, step));
        exec_pipeline_note(session_works(p->session), false);
    }
    write_events(p);
    return ++p->done == p->wanted ? finish_all(p) : OK;
}

void profile_close(Profile *p)
{
    if (!p) return;
    kernels_close(&p->kernels, p->trace.rank);
    if (p->active) finish(p, p->kernels.rows, p->kernels.n); /* the others may be gone */
    BUF_FREE(&p->events, &p->works);
    MEM_FREE(p->kernels.rows, p->dir, p);
}
