/* Binding a plan and running it. The loop that trains is exec_run_plain; graphs.c replays it. */

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
    e->summed[i] = exec_summed_rows(e, i);
    if (op_is_exchange(instr->op) || op_is_link(instr->op)) return OK; /* the comm lane's own, and works' */
    if (!e->ops[i]->run)
        return fail(E_FAIL, "the backend '%s' has no op '%s', which instr %d needs", backend->name,
                    op_info(instr->op)->name, i);
    bool read = e->read_buckets && call->in[0].rows.kind == ROWS_READ;
    const RowCounts *buckets = read ? e->read_buckets : e->buckets;
    int n = read ? e->n_read_buckets : e->n_buckets;
    call->largest = n > 0 ? &buckets[n - 1] : NULL;
    return e->ops[i]->prepare(call, buckets, n);
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
    e->looked = e->n_events++;
}

/* The buckets of a kind of rows, from the smallest to the capacity. */
static RowCounts *make_buckets(const Exec *e, RowKind kind, int *n_buckets)
{
    int64_t most = e->plan->capacity.count[kind];
    RowCounts *buckets = NULL;
    int cap = 0;
    *n_buckets = 0;
    for (int64_t n = 1; n <= most;) {
        int64_t rows = e->memory->backend->bucket(n, most);
        CHECK(rows >= n && rows <= most, "bucket of %lld rows is %lld, capacity %lld", (long long)n, (long long)rows,
              (long long)most);
        MEM_GROW(buckets, *n_buckets, cap);
        RowCounts *b = &buckets[*n_buckets];
        *b = e->plan->capacity;
        b->count[kind] = rows;
        b->bucket = (*n_buckets)++;
        n = rows + 1;
    }
    return buckets;
}

static bool computes_read_rows(const Plan *p)
{
    for (InstrId i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].op == OP_LINEAR && p->tensors[p->instrs[i].in[LINEAR_IN_x]].rows.kind == ROWS_READ)
            return true;
    return false;
}

/* Masked rows grow in proportion to tokens; sequences are always the capacity, and so are read rows where they are
   gathered only, so that graphs do not depend on them. */
static void make_all_buckets(Exec *e)
{
    int64_t tokens = e->plan->capacity.count[ROWS_TOKENS], masked = e->plan->capacity.count[ROWS_MASKED];
    e->buckets = make_buckets(e, ROWS_TOKENS, &e->n_buckets);
    if (computes_read_rows(e->plan)) e->read_buckets = make_buckets(e, ROWS_READ, &e->n_read_buckets);
    for (int b = 0; b < e->n_buckets; b++)
        e->buckets[b].count[ROWS_MASKED] = (e->buckets[b].count[ROWS_TOKENS] * masked + tokens - 1) / tokens;
}

/* A tensor dies at its last use unless another lives on in its memory. Those that wait for K-FAC's statistics, which
   run in any order, are left out. */
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
            if (p->tensors[t].region == REGION_ACT && p->tensors[t].last == i && p->tensors[t].slot < N_ORDER_SLOTS &&
                !inherited[t])
                e->dead[n++] = t;
    }
    e->dying[p->n_instrs] = n;
    free(inherited);
}

Status exec_init(Exec **exec, const Plan *plan, Memory *memory, ExecOptions options)
{
    Exec *e = mem_alloc(sizeof *e);
    *e = (Exec){.plan = plan, .memory = memory, .options = options, .gathers = true, .captures = true};
    e->calls = mem_array((size_t)plan->n_instrs, sizeof *e->calls);
    e->ops = mem_array((size_t)plan->n_instrs, sizeof *e->ops);
    e->summed = mem_array((size_t)plan->n_instrs, sizeof *e->summed);
    make_all_buckets(e);
    make_events(e);
    if (options.poison) find_dying(e);
    for (InstrId i = 0; i < plan->n_instrs; i++) {
        Status status = bind_instr(e, i);
        if (status == OK) continue;
        exec_free(e);
        return status;
    }
    exec_open_virtual(e);
    *exec = e;
    return OK;
}

void exec_free(Exec *e)
{
    if (!e) return;
    exec_close_lane(e);
    for (int i = 0; i < e->n_replays; i++)
        if (e->replays[i].graph)
            e->memory->backend->device->graph_free(e->memory->backend->device, e->replays[i].graph);
    MEM_FREE(e->calls, e->ops, e->buckets, e->read_buckets, e->events, e->dying, e->dead, e->replays, e->records,
             e->marks, e->summed, e->grains, e);
}

void exec_set_check(Exec *e, bool check) { e->options.check = check; }
void exec_set_gathers(Exec *e, bool gathers) { e->gathers = gathers; }
void exec_set_captures(Exec *e, bool captures) { e->captures = captures; }
void exec_set_flip(Exec *e, const ExecFlip *flip)
{
    e->flip = flip;
    e->turns = 0;
}
int64_t exec_turns(const Exec *e) { return e->turns; }

RowCounts exec_rows(const Exec *e, int64_t n_tokens, int64_t n_seqs, int64_t n_masked)
{
    CHECK(n_seqs <= e->plan->capacity.count[ROWS_SEQS], "%lld sequences, capacity %lld", (long long)n_seqs,
          (long long)e->plan->capacity.count[ROWS_SEQS]);
    for (int b = 0; b < e->n_buckets; b++) {
        RowCounts rows = e->buckets[b];
        if (rows.count[ROWS_TOKENS] < n_tokens || rows.count[ROWS_MASKED] < n_masked) continue;
        if (e->read_buckets)
            rows.count[ROWS_READ] = e->memory->backend->bucket(n_seqs + n_masked, rows.count[ROWS_READ]);
        return rows;
    }
    CHECK(0, "%lld tokens and %lld masked positions do not fit the plan's %lld and %lld", (long long)n_tokens,
          (long long)n_masked, (long long)e->plan->capacity.count[ROWS_TOKENS],
          (long long)e->plan->capacity.count[ROWS_MASKED]);
}

/* ---- running ---- */

/* Before the host reads or overwrites memory. Beside works other lanes may have messages that wait for a rank that
   waits for this one. */
static Status wait_for_lanes(const Exec *e)
{
    static const int lanes[] = {LANE_COPY, LANE_COMPUTE}; /* the last one stays chosen */
    Device *d = e->memory->backend->device;
    if (!e->events) return OK;
    if (!e->slots) return backend_wait(e->memory->backend);
    for (size_t k = 0; k < sizeof lanes / sizeof *lanes; k++) {
        bool done = false;
        TRY(d->choose_lane(d, lanes[k]));
        TRY(d->event_record(d, e->looked));
        while (!done) TRY(d->event_done(d, e->looked, &done));
    }
    return OK;
}

Status exec_check_finite(const Exec *e, InstrId i, const RowCounts *rows)
{
    const Instr *instr = &e->plan->instrs[i];
    TRY(wait_for_lanes(e));
    for (int k = 0; k < OP_MAX_OUT; k++) {
        if (instr->out[k] == NONE) continue;
        const Tensor *t = &e->plan->tensors[instr->out[k]];
        if ((t->dtype != F32 && t->dtype != BF16 && t->dtype != F16) || t->region == REGION_COPY) continue;
        if (t->region == REGION_HOST) continue; /* its source was checked */
        int64_t n = rows_in(t->rows, rows) * t->cols, bad = -1;
        void *host = mem_array((size_t)n, dtype_size(t->dtype));
        Status status = backend_download(e->memory->backend, host, exec_place(e, instr->out[k], e->slots),
                                         (size_t)n * dtype_size(t->dtype));
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

Status exec_poison(const Exec *e, void *memory, size_t bytes)
{
    void *nans = mem_alloc(bytes);
    memset(nans, 0xff, bytes);
    Status status = backend_upload(e->memory->backend, memory, nans, bytes);
    free(nans);
    return status;
}

Status exec_poison_dead(const Exec *e, InstrId i)
{
    TRY(wait_for_lanes(e));
    for (int32_t d = e->dying[i]; d < e->dying[i + 1]; d++)
        TRY(exec_poison(e, exec_place(e, e->dead[d], e->slots), e->plan->tensors[e->dead[d]].bytes));
    return wait_for_lanes(e);
}

static Status flip_bit(const Exec *e, unsigned char *memory, size_t bytes)
{
    uint64_t bit = e->flip->bit % (8 * bytes);
    unsigned char byte, *place = memory + bit / 8;
    TRY(backend_download(e->memory->backend, &byte, place, 1));
    byte ^= (unsigned char)(1u << bit % 8);
    return backend_upload(e->memory->backend, place, &byte, 1);
}

static Status flip_output(const Exec *e, InstrId i, const RowCounts *rows)
{
    if (!e->flip || e->flip->of || e->flip->instr != i) return OK;
    TensorId t = e->plan->instrs[i].out[e->flip->out];
    return flip_bit(e, exec_place(e, t, e->slots), plan_tensor_bytes(e->plan, t, rows));
}

Status exec_turn(Exec *e)
{
    if (!e->flip || !e->flip->of || ++e->turns != e->flip->turn) return OK;
    if (strcmp(e->flip->of, "copies") == 0)
        return flip_bit(e, e->memory->base[REGION_COPY], e->plan->region_bytes[REGION_COPY]);
    TensorId t = plan_find(e->plan, e->flip->of);
    CHECK(t != NONE, "no tensor '%s' to flip a bit in", e->flip->of);
    return flip_bit(e, exec_data(e, t), e->plan->tensors[t].bytes);
}

/* Before an instr and after it: its lane, and the events of those it waits for and of itself. */
static Status wait_before(const Exec *e, InstrId i)
{
    Device *d = e->memory->backend->device;
    const Instr *instr = &e->plan->instrs[i];
    if (!e->events) return OK;
    TRY(d->choose_lane(d, instr->lane));
    for (int w = 0; w < 2; w++)
        if (instr->wait[w] != NONE) TRY(d->event_wait(d, e->events[instr->wait[w]]));
    return OK;
}

static Status record_after(const Exec *e, InstrId i)
{
    Device *d = e->memory->backend->device;
    return e->events && e->events[i] != NONE ? d->event_record(d, e->events[i]) : OK;
}

Status exec_run_plain(const Exec *e, Range range, const RowCounts *rows)
{
    for (InstrId i = range.first; i < range.first + range.count; i++) {
        if (op_is_exchange(e->plan->instrs[i].op)) continue; /* exec_run_pieces gives it to the lane */
        if (exec_stopped(e, range)) return fail(E_STOPPED, "stopped between two instrs");
        TRY(wait_before(e, i));
        TRY(exec_run_op(e, i, rows));
        TRY(record_after(e, i));
    }
    return OK;
}

static Status run_one(Exec *e, InstrId i, const RowCounts *rows) { return exec_run_op(e, i, rows); }

Status exec_run_watched(Exec *e, InstrId i, const RowCounts *rows)
{
    Device *d = e->memory->backend->device;
    bool named = d && d->range_begin && (e->tracing || d->ranges);
    if (named) {
        char name[PLAN_NAME_MAX];
        plan_instr_name(e->plan, i, name);
        d->range_begin(d, name);
    }
    Status status = wait_before(e, i);
    int lane = e->events ? e->plan->instrs[i].lane : LANE_COMPUTE;
    if (status == OK) status = exec_run_noted(e, i, rows, lane, run_one);
    if (status == OK) status = record_after(e, i);
    if (named) d->range_end(d);
    TRY(status);
    TRY(flip_output(e, i, rows));
    return exec_turn(e);
}

bool exec_watched(const Exec *e)
{
    const Device *d = e->memory->backend->device;
    return e->options.poison || e->options.check || e->flip || e->tracing || (d && d->ranges);
}

/* With poison, checks, faults, a trace or names. */
static Status run_watched(Exec *e, Range range, const RowCounts *rows)
{
    for (InstrId i = range.first; i < range.first + range.count; i++) {
        if (op_is_exchange(e->plan->instrs[i].op)) continue;
        if (exec_stopped(e, range)) return fail(E_STOPPED, "stopped between two instrs");
        TRY(exec_run_watched(e, i, rows));
        if (e->options.check) TRY(exec_check_finite(e, i, rows));
        if (e->options.poison) TRY(exec_poison_dead(e, i));
    }
    return OK;
}

/* ---- ranges ---- */

/* What one part of a coupled step's micro-batch copies the other waits for: a graph has no place for that. */
static bool waits_for_part(const Exec *e, Range range)
{
    const Range f = e->plan->forward;
    return e->copies && f.count > 0 &&
           ((range.first == f.first && range.count == f.count) || range.first == f.first + f.count);
}

Status exec_run_range(Exec *e, Range range, const RowCounts *rows)
{
    const Device *d = e->memory->backend->device;
    if (exec_watched(e)) return run_watched(e, range, rows);
    return d && d->capture_begin && !waits_for_part(e, range) ? exec_run_graph(e, range, rows)
                                                              : exec_run_plain(e, range, rows);
}

/* The plan joins all lanes where a range ends; a range that failed must wait for them here. */
Status exec_end_lanes(const Exec *e, Status status)
{
    Device *d = e->memory->backend->device;
    if (status == OK) return d->choose_lane(d, LANE_COMPUTE);
    char *why = mem_strdup(status_message());
    if (d->choose_lane(d, LANE_COMPUTE) == OK) (void)d->wait(d);
    status = fail(status, "%s", why);
    free(why);
    return status;
}

static Status run_whole(Exec *e, Range range, const RowCounts *rows)
{
    Status status = exec_in_pieces(e, range) ? exec_run_pieces(e, range, rows) : exec_run_range(e, range, rows);
    return e->events ? exec_end_lanes(e, status) : status;
}

static bool starts(Range range, Range of) { return range.count > 0 && range.first == of.first; }
static bool ends(Range range, Range of)
{
    return range.first >= of.first && range.first + range.count == of.first + of.count && range.count > 0;
}

Status exec_run(Exec *e, Range range, const RowCounts *rows)
{
    bool micro = ends(range, e->plan->micro); /* with the instrs that begin gradients */
    CHECK(!micro || !e->plan->slots[SLOT_ACTIVATION], "a stage runs in works");
    if (starts(range, e->plan->update)) TRY(exec_complete(e));
    e->first = micro && e->open;
    if (micro) e->open = false;
    Status status = run_whole(e, range, rows);
    e->first = false;
    if (starts(range, e->plan->begin)) e->open = true;
    if (e->events && e->copies && starts(range, e->plan->micro) && !micro && status == OK)
        status = backend_wait(e->memory->backend); /* nothing in `forward` joins the lanes */
    return status;
}

Status exec_complete(Exec *e)
{
    bool due = e->open && e->plan->clear.count > 0;
    e->open = false;
    return due ? run_whole(e, e->plan->clear, &e->plan->capacity) : OK;
}
