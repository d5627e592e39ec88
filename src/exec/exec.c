/* Binding a plan and running it. The loop that trains is exec_run_plain. Where the device has graphs, a range is
   captured at its second run in a row bucket and replayed from then on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec_internal.h"

static Operand bind_operand(const Exec *e, Operand shape, TensorId t)
{
    if (t == NONE) return (Operand){0};
    shape.data = exec_data(e, t);
    return shape;
}

static Status bind_instr(Exec *e, InstrId i)
{
    const Instr *instr = &e->plan->instrs[i];
    OpCall *call = &e->calls[i];
    Backend *backend = e->memory->backend;
    plan_call(e->plan, instr, call);
    for (int k = 0; k < OP_MAX_IN; k++) call->in[k] = bind_operand(e, call->in[k], instr->in[k]);
    for (int k = 0; k < OP_MAX_OUT; k++) call->out[k] = bind_operand(e, call->out[k], instr->out[k]);
    call->scratch = instr->scratch ? e->memory->base[REGION_SCRATCH] : NULL;
    call->scratch_bytes = instr->scratch;
    e->ops[i] = &backend->op[instr->op];
    if (op_is_exchange(instr->op)) return OK; /* the comm lane's own */
    if (!e->ops[i]->run)
        return fail(E_FAIL, "the backend '%s' has no op '%s', which instr %d needs", backend->name,
                    op_info(instr->op)->name, i);
    return e->ops[i]->prepare(call, e->buckets, e->n_buckets);
}

/* An event for each instr that another waits for. Instrs of the comm lane need none: the lane itself waits for the
   instr before its turn. */
static void make_events(Exec *e)
{
    const Plan *p = e->plan;
    bool lanes = false;
    for (InstrId i = 0; i < p->n_instrs; i++) {
        lanes |= p->instrs[i].lane != LANE_COMPUTE;
        e->copies |= p->instrs[i].lane == LANE_COPY;
    }
    if (!lanes || !backend_offloads(e->memory->backend)) return;
    e->events = mem_array((size_t)p->n_instrs, sizeof *e->events);
    for (InstrId i = 0; i < p->n_instrs; i++) e->events[i] = NONE;
    for (InstrId i = 0; i < p->n_instrs; i++)
        for (int w = 0; w < 2 && p->instrs[i].lane != LANE_COMM; w++) {
            InstrId other = p->instrs[i].wait[w];
            if (other != NONE && e->events[other] == NONE) e->events[other] = e->n_events++;
        }
}

/* Every bucket from the smallest to the capacity. Masked rows grow in proportion, sequences are always the capacity. */
static void make_buckets(Exec *e)
{
    const RowCounts *cap = &e->plan->capacity;
    int64_t tokens = cap->count[ROWS_TOKENS], masked = cap->count[ROWS_MASKED];
    int cap_buckets = 0;
    for (int64_t n = 1; n <= tokens;) {
        int64_t rows = e->memory->backend->bucket(n, tokens);
        CHECK(rows >= n && rows <= tokens, "bucket of %lld rows is %lld, capacity %lld", (long long)n, (long long)rows,
              (long long)tokens);
        MEM_GROW(e->buckets, e->n_buckets, cap_buckets);
        RowCounts *b = &e->buckets[e->n_buckets];
        *b = *cap;
        b->count[ROWS_TOKENS] = rows;
        b->count[ROWS_MASKED] = (rows * masked + tokens - 1) / tokens;
        b->bucket = e->n_buckets++;
        n = rows + 1;
    }
}

/* A tensor dies at its last use unless another lives on in its memory. */
static void find_dying(Exec *e)
{
    const Plan *p = e->plan;
    bool *inherited = mem_array((size_t)p->n_tensors, sizeof *inherited);
    e->dying = mem_array((size_t)p->n_instrs + 1, sizeof *e->dying);
    e->dead = mem_array((size_t)p->n_tensors, sizeof *e->dead);
    for (TensorId t = 0; t < p->n_tensors; t++)
        if (p->tensors[t].shares != NONE) inherited[p->tensors[t].shares] = true;
    int32_t n = 0;
    for (InstrId i = 0; i < p->n_instrs; i++) {
        e->dying[i] = n;
        for (TensorId t = 0; t < p->n_tensors; t++)
            if (p->tensors[t].region == REGION_ACT && p->tensors[t].last == i && !inherited[t]) e->dead[n++] = t;
    }
    e->dying[p->n_instrs] = n;
    free(inherited);
}

Status exec_init(Exec **exec, const Plan *plan, Memory *memory, ExecOptions options)
{
    Exec *e = mem_alloc(sizeof *e);
    *e = (Exec){.plan = plan, .memory = memory, .options = options};
    e->calls = mem_array((size_t)plan->n_instrs, sizeof *e->calls);
    e->ops = mem_array((size_t)plan->n_instrs, sizeof *e->ops);
    make_buckets(e);
    make_events(e);
    if (options.poison) find_dying(e);
    for (InstrId i = 0; i < plan->n_instrs; i++) {
        Status status = bind_instr(e, i);
        if (status == OK) continue;
        exec_free(e);
        return status;
    }
    Status status = exec_open_lane(e);
    if (status != OK) {
        exec_free(e);
        return status;
    }
    *exec = e;
    return OK;
}

void exec_free(Exec *e)
{
    if (!e) return;
    if (e->lane) e->lane->close(e->lane);
    for (int i = 0; i < e->n_replays; i++)
        if (e->replays[i].graph)
            e->memory->backend->device->graph_free(e->memory->backend->device, e->replays[i].graph);
    free(e->calls);
    free(e->ops);
    free(e->buckets);
    free(e->events);
    free(e->dying);
    free(e->dead);
    free(e->replays);
    free(e->records);
    free(e->marks);
    free(e);
}

void exec_set_check(Exec *e, bool check) { e->options.check = check; }

RowCounts exec_rows(const Exec *e, int64_t n_tokens, int64_t n_seqs, int64_t n_masked)
{
    CHECK(n_seqs <= e->plan->capacity.count[ROWS_SEQS], "%lld sequences, capacity %lld", (long long)n_seqs,
          (long long)e->plan->capacity.count[ROWS_SEQS]);
    for (int b = 0; b < e->n_buckets; b++)
        if (e->buckets[b].count[ROWS_TOKENS] >= n_tokens && e->buckets[b].count[ROWS_MASKED] >= n_masked)
            return e->buckets[b];
    CHECK(0, "%lld tokens and %lld masked positions do not fit the plan's %lld and %lld", (long long)n_tokens,
          (long long)n_masked, (long long)e->plan->capacity.count[ROWS_TOKENS],
          (long long)e->plan->capacity.count[ROWS_MASKED]);
}

/* ---- running ---- */

static Status check_finite(const Exec *e, InstrId i, const RowCounts *rows)
{
    const Instr *instr = &e->plan->instrs[i];
    for (int k = 0; k < OP_MAX_OUT; k++) {
        if (instr->out[k] == NONE) continue;
        const Tensor *t = &e->plan->tensors[instr->out[k]];
        if ((t->dtype != F32 && t->dtype != BF16 && t->dtype != F16) || t->region == REGION_COPY) continue;
        if (t->region == REGION_HOST) continue; /* its source was checked */
        int64_t n = rows_in(t->rows, rows) * t->cols, bad = -1;
        void *host = mem_array((size_t)n, dtype_size(t->dtype));
        Status status =
            backend_download(e->memory->backend, host, exec_data(e, instr->out[k]), (size_t)n * dtype_size(t->dtype));
        for (int64_t j = 0; j < n && bad < 0 && status == OK; j++) {
            float x = t->dtype == F32    ? ((const float *)host)[j]
                      : t->dtype == BF16 ? bf16_to_f32(((const uint16_t *)host)[j])
                                         : f16_to_f32(((const uint16_t *)host)[j]);
            if (!isfinite(x)) bad = j;
        }
        free(host);
        TRY(status);
        if (bad >= 0)
            return fail(
                E_NUMERIC,
                "the first value that is not finite is in tensor '%s' (row %lld, column %lld), made by instr %d (%s)",
                t->name, (long long)(bad / t->cols), (long long)(bad % t->cols), i, op_info(instr->op)->name);
    }
    return OK;
}

static Status poison_dead(const Exec *e, InstrId i)
{
    Status status = OK;
    for (int32_t d = e->dying[i]; d < e->dying[i + 1] && status == OK; d++) {
        const Tensor *t = &e->plan->tensors[e->dead[d]];
        void *nans = mem_alloc(t->bytes);
        memset(nans, 0xff, t->bytes);
        status = backend_upload(e->memory->backend, exec_data(e, e->dead[d]), nans, t->bytes);
        free(nans);
    }
    return status;
}

/* Only a micro-batch may be left half done: nothing of it lasts. An update that stopped between its instrs would leave
   weights of one step under the number of another. */
static bool stopped(const Exec *e, Range range)
{
    return e->options.stop && *e->options.stop && range.first == e->plan->micro.first;
}

/* Before an instr and after it: its lane, and the events of those it waits for and of itself. */
static Status enter(const Exec *e, InstrId i)
{
    Device *d = e->memory->backend->device;
    const Instr *instr = &e->plan->instrs[i];
    if (!e->events) return OK;
    TRY(d->lane(d, instr->lane));
    for (int w = 0; w < 2; w++)
        if (instr->wait[w] != NONE) TRY(d->event_wait(d, e->events[instr->wait[w]]));
    return OK;
}

static Status leave(const Exec *e, InstrId i)
{
    Device *d = e->memory->backend->device;
    return e->events && e->events[i] != NONE ? d->event_record(d, e->events[i]) : OK;
}

Status exec_run_plain(const Exec *e, Range range, const RowCounts *rows)
{
    for (InstrId i = range.first; i < range.first + range.count; i++) {
        if (op_is_exchange(e->plan->instrs[i].op)) continue; /* exec_run_pieces gives it to the lane */
        if (stopped(e, range)) return fail(E_STOPPED, "stopped between two instrs");
        TRY(enter(e, i));
        TRY(e->ops[i]->run(&e->calls[i], rows));
        TRY(leave(e, i));
    }
    return OK;
}

static Status run_one(Exec *e, InstrId i, const RowCounts *rows) { return e->ops[i]->run(&e->calls[i], rows); }

void exec_add_record(Exec *e, ExecRecord record, int mark)
{
    int at = e->n_records;
    MEM_GROW(e->marks, at, e->cap_marks);
    MEM_GROW(e->records, e->n_records, e->cap_records);
    e->marks[at] = mark;
    e->records[e->n_records++] = record;
}

Status exec_run_noted(Exec *e, InstrId i, const RowCounts *rows, int lane, ExecStep run)
{
    Device *d = e->memory->backend->device;
    if (!e->tracing) return run(e, i, rows);
    int mark = d && d->mark ? 1 + 2 * e->n_marks : 0;
    if (mark) TRY(d->mark(d, lane, mark));
    double issued = clock_monotonic();
    TRY(run(e, i, rows));
    double returned = clock_monotonic();
    if (mark) TRY(d->mark(d, lane, mark + 1));
    e->n_marks += mark > 0; /* both are set */
    exec_add_record(e, (ExecRecord){i, *rows, issued, returned, issued, returned}, mark);
    return OK;
}

static Status run_named(Exec *e, InstrId i, const RowCounts *rows)
{
    Device *d = e->memory->backend->device;
    bool named = d && d->range_begin && (e->tracing || d->ranges);
    if (named) {
        char name[PLAN_NAME_MAX];
        plan_instr_name(e->plan, i, name);
        d->range_begin(d, name);
    }
    Status status = enter(e, i);
    int lane = e->events ? e->plan->instrs[i].lane : LANE_COMPUTE;
    if (status == OK) status = exec_run_noted(e, i, rows, lane, run_one);
    if (status == OK) status = leave(e, i);
    if (named) d->range_end(d);
    return status;
}

/* What was run on all lanes is done: before somebody looks at memory, or spoils it. */
static Status settle_lanes(const Exec *e) { return e->events ? backend_wait(e->memory->backend) : OK; }

bool exec_watched(const Exec *e)
{
    const Device *d = e->memory->backend->device;
    return e->options.poison || e->options.check || e->tracing || (d && d->ranges);
}

/* With poison, checks, a trace or names. */
static Status run_watched(Exec *e, Range range, const RowCounts *rows)
{
    for (InstrId i = range.first; i < range.first + range.count; i++) {
        if (op_is_exchange(e->plan->instrs[i].op)) continue;
        if (stopped(e, range)) return fail(E_STOPPED, "stopped between two instrs");
        TRY(run_named(e, i, rows));
        if (e->options.check || e->options.poison) TRY(settle_lanes(e));
        if (e->options.check) TRY(check_finite(e, i, rows));
        if (e->options.poison) TRY(poison_dead(e, i));
        if (e->options.poison) TRY(settle_lanes(e));
    }
    return OK;
}

/* ---- graphs ---- */

/* The one of this range and bucket; NULL the first time, and then it is noted. */
static Replay *find_replay(Exec *e, Range range, const RowCounts *rows)
{
    for (int i = 0; i < e->n_replays; i++) {
        Replay *r = &e->replays[i];
        if (r->range.first == range.first && r->range.count == range.count && r->rows.bucket == rows->bucket &&
            memcmp(r->rows.count, rows->count, sizeof rows->count) == 0)
            return r;
    }
    MEM_GROW(e->replays, e->n_replays, e->cap_replays);
    e->replays[e->n_replays++] = (Replay){.range = range, .rows = *rows};
    return NULL;
}

ExecGraphs exec_graphs(const Exec *e) { return e->graphs; }

/* No op runs while a graph is captured: after a failure the range runs op by op. */
static Status capture(Exec *e, Replay *r)
{
    Device *d = e->memory->backend->device;
    Status status = d->capture_begin(d);
    if (status == OK) {
        status = exec_run_plain(e, r->range, &r->rows);
        if (status == OK) {
            status = d->capture_end(d, &r->graph);
        } else {
            char *why = mem_strdup(status_message());
            void *part = NULL;
            if (d->capture_end(d, &part) == OK && part) d->graph_free(d, part);
            status = fail(status, "%s", why);
            free(why);
        }
    }
    if (status == OK) {
        e->graphs.captured++;
        return d->graph_launch(d, r->graph);
    }
    if (status == E_STOPPED) return status;
    e->graphs.refused++;
    log_debug("instrs %d to %d in %lld rows run one by one: %s", r->range.first, r->range.first + r->range.count - 1,
              (long long)r->rows.count[ROWS_TOKENS], status_message());
    r->graph = NULL;
    r->plain = true;
    return exec_run_plain(e, r->range, &r->rows);
}

/* The first run of a bucket loads and sets up what libraries do late; the second is captured. */
static Status run_graph(Exec *e, Range range, const RowCounts *rows)
{
    Replay *r = find_replay(e, range, rows);
    if (!r || r->plain) return exec_run_plain(e, range, rows);
    if (!r->graph) return capture(e, r);
    if (stopped(e, range)) return fail(E_STOPPED, "stopped before a micro-batch");
    e->graphs.replayed++;
    return e->memory->backend->device->graph_launch(e->memory->backend->device, r->graph);
}

Status exec_run_range(Exec *e, Range range, const RowCounts *rows)
{
    const Device *d = e->memory->backend->device;
    if (exec_watched(e)) return run_watched(e, range, rows);
    return d && d->capture_begin ? run_graph(e, range, rows) : exec_run_plain(e, range, rows);
}

/* At its end a range has one lane again, the plan sees to that; where it broke off, the others must be waited for. */
static Status end_lanes(const Exec *e, Status status)
{
    Device *d = e->memory->backend->device;
    if (status == OK) return d->lane(d, LANE_COMPUTE);
    char *why = mem_strdup(status_message());
    if (d->lane(d, LANE_COMPUTE) == OK) (void)d->wait(d);
    status = fail(status, "%s", why);
    free(why);
    return status;
}

Status exec_run(Exec *e, Range range, const RowCounts *rows)
{
    Status status = exec_in_pieces(e, range) ? exec_run_pieces(e, range, rows) : exec_run_range(e, range, rows);
    return e->events ? end_lanes(e, status) : status;
}

/* ---- data ---- */

void *exec_data(const Exec *e, TensorId t)
{
    const Tensor *x = &e->plan->tensors[t];
    return (char *)e->memory->base[x->region] + x->offset;
}

Status exec_upload(Exec *e, TensorId t, const void *data, size_t bytes)
{
    CHECK(bytes <= e->plan->tensors[t].bytes, "%zu bytes into '%s' of %zu", bytes, e->plan->tensors[t].name,
          e->plan->tensors[t].bytes);
    return backend_upload(e->memory->backend, exec_data(e, t), data, bytes);
}

Status exec_download(Exec *e, TensorId t, void *data, size_t bytes)
{
    CHECK(bytes <= e->plan->tensors[t].bytes, "%zu bytes from '%s' of %zu", bytes, e->plan->tensors[t].name,
          e->plan->tensors[t].bytes);
    return backend_download(e->memory->backend, data, exec_data(e, t), bytes);
}

Status exec_trace_start(Exec *e)
{
    Device *d = e->memory->backend->device;
    e->n_records = e->n_marks = 0;
    e->tracing = true;
    return d && d->mark ? d->mark(d, LANE_COMPUTE, 0) : OK;
}

Status exec_trace_end(Exec *e, const ExecRecord **records, int *n)
{
    Device *d = e->memory->backend->device;
    e->tracing = false;
    if (e->n_marks > 0) {
        int marks = 1 + 2 * e->n_marks;
        double *times = mem_array((size_t)marks, sizeof *times);
        Status status = d->mark_times(d, times, marks);
        for (int r = 0; r < e->n_records && status == OK; r++) {
            if (!e->marks[r]) continue;
            e->records[r].begin = times[e->marks[r]];
            e->records[r].end = times[e->marks[r] + 1];
        }
        free(times);
        TRY(status);
    }
    *records = e->records;
    *n = e->n_records;
    return OK;
}
