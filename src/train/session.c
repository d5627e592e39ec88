#include "train/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine_memory.h"

size_t session_memory_used(const Session *s)
{
    Device *d = s->options.backend->device;
    return d ? d->used(d) : process_resident();
}

/* A sharded optimizer's. */
static Status upload_own_segments(Session *s)
{
    const Intervals *slice = exchange_slice(s->plan.input.exchange);
    if (!slice) return OK;
    Segment *own = mem_array((size_t)(s->model->params.count + slice->count), sizeof *own);
    int64_t n = optim_slice_segments(s->model, &s->plan.input.optimizer, slice, own);
    Status status =
        exec_upload(s->train, s->plan.train_tensors.own_segments, own, (size_t)(n > 0 ? n : 1) * sizeof *own);
    free(own);
    return status;
}

static Status bind_plans(Session *s)
{
    ExecOptions options = {.poison = s->options.poison, .stop = s->options.stop};
    size_t before = process_resident();
    if (s->plan.input.training) {
        ExecOptions train = options;
        if (s->options.ranks) { /* one that stopped within a step would leave the others alone in it */
            train.stop = NULL;
            train.ranks = &s->exec_ranks;
        }
        TRY(exec_init(&s->train, &s->plan.train, &s->memory, train));
        TRY(exec_upload(s->train, s->plan.train_tensors.segments, s->plan.segments,
                        (size_t)s->model->params.count * sizeof(Segment)));
        TRY(upload_own_segments(s));
    }
    if (s->plan.input.evaluation) TRY(exec_init(&s->eval, &s->plan.eval, &s->memory, options));
    size_t after = process_resident();
    s->library_bytes = after > before ? after - before : 0;
    return OK;
}

static void unbind(Session *s)
{
    exec_free(s->train);
    exec_free(s->eval);
    s->train = s->eval = NULL;
}

static Status meet(void *self) { return ranks_meet(self); }

static Status open_lane(Session *s)
{
    const Exchange *x = s->plan.input.exchange;
    if (!s->options.ranks || !s->plan.input.training) return OK;
    TRY(ranks_connect(s->options.ranks, &s->lane));
    s->exec_ranks = (ExecRanks){.comm = s->lane,
                                .starts = x->starts,
                                .parts = x->parts,
                                .wire = x->wire,
                                .n_buckets = x->n,
                                .device = s->options.gpus,
                                .sums = x->sums,
                                .scratch_bytes = x->scratch_bytes,
                                .meet = meet,
                                .self = s->options.ranks};
    return OK;
}

Status session_open(Session *s, RunPlan *plan, const SessionOptions *options)
{
    Status status = OK;
    *s = (Session){.model = plan->input.model, .options = *options, .plan = *plan};
    *plan = (RunPlan){0};
    s->ctl = (Ctl){.dropout_key = options->seed ^ PHILOX_DROPOUT, .bias1 = 1, .bias2 = 1};
    const Plan *plans[] = {&s->plan.train, &s->plan.eval};
    TRY_DONE(memory_init(&s->memory, options->backend, plans, 2));
    TRY_DONE(open_lane(s));
    TRY_DONE(bind_plans(s));
    TRY_DONE(session_set_scaling(s, (LossScaling){.scale = s->plan.input.optimizer.loss_scale}));
done:
    if (status != OK) session_close(s);
    return status;
}

float *session_save_buffer(const Session *s) { return s->memory.base[REGION_SAVE]; }

static void drop_filled(Session *s, StateArray which)
{
    if (s->filled[which] && !session_save_buffer(s)) free(s->filled[which]);
    s->filled[which] = NULL;
}

void session_close(Session *s)
{
    comm_device_abort(s->options.gpus); /* what is left of a step that failed */
    unbind(s);
    for (StateArray i = 0; i < N_STATE_ARRAYS; i++) drop_filled(s, i);
    memory_free(&s->memory);
    comm_close(s->lane);
    run_plan_free(&s->plan);
    *s = (Session){0};
}

/* ---- weights and moments, for the host ---- */

static size_t array_bytes(const Session *s) { return (size_t)s->model->params.size * sizeof(float); }

/* Where an array lies, in the backend's memory. */
static float *place_of(const Session *s, StateArray which)
{
    float *start = s->memory.base[which == STATE_WEIGHTS ? REGION_WEIGHT : REGION_MOMENT];
    CHECK(start, "a session without training has no moments");
    if (which != STATE_V) return start;
    return start + s->plan.train.tensors[s->plan.train_tensors.moments_v].offset / sizeof(float);
}

bool session_sharded(const Session *s) { return s->plan.input.exchange && s->plan.input.exchange->shard; }

/* ---- moments of a sharded optimizer: of this rank's slice, in the order of its intervals ---- */

static void copy_slice(float *space, float *slice, const Intervals *of, bool out_of_space)
{
    for (int k = 0; k < of->count; k++) {
        size_t n = (size_t)(of->intervals[k].end - of->intervals[k].begin);
        float *there = space + of->intervals[k].begin;
        memcpy(out_of_space ? slice : there, out_of_space ? there : slice, n * sizeof *slice);
        slice += n;
    }
}

/* This rank's own, as the host sees it: on a device that is a copy, made here (`read`) or to be written back. */
static Status borrow_slice(const Session *s, StateArray which, bool read, float **slice)
{
    const Backend *b = s->options.backend;
    size_t n = (size_t)s->plan.input.exchange->slices[ranks_rank(s->options.ranks)].size;
    *slice = place_of(s, which);
    if (!b->device) return OK;
    *slice = mem_array(n > 0 ? n : 1, sizeof **slice);
    return read && n ? backend_download(b, *slice, place_of(s, which), n * sizeof **slice) : OK;
}

static Status return_slice(const Session *s, StateArray which, bool written, float *slice, Status status)
{
    const Backend *b = s->options.backend;
    size_t n = (size_t)s->plan.input.exchange->slices[ranks_rank(s->options.ranks)].size;
    if (!b->device) return status;
    if (status == OK && written && n) status = backend_upload(b, place_of(s, which), slice, n * sizeof *slice);
    free(slice);
    return status;
}

/* Pieces of a slice one after the other: a message is not longer than the least room. */
static Status pass_slice(const Session *s, float *space, int rank, bool to_first)
{
    Comm *comm = ranks_comm(s->options.ranks);
    const Intervals *of = &s->plan.input.exchange->slices[rank];
    enum { PIECE = 1 << 24 }; /* elements */
    for (int k = 0; k < of->count; k++)
        for (int64_t at = of->intervals[k].begin; at < of->intervals[k].end; at += PIECE) {
            int64_t left = of->intervals[k].end - at;
            size_t bytes = (size_t)(left < PIECE ? left : PIECE) * sizeof *space;
            TRY(to_first ? comm_receive(comm, rank, space + at, bytes) : comm_send(comm, rank, space + at, bytes));
        }
    return OK;
}

static Status pass_own(const Session *s, float *slice, bool to_first)
{
    Comm *comm = ranks_comm(s->options.ranks);
    const Intervals *of = &s->plan.input.exchange->slices[comm->rank];
    enum { PIECE = 1 << 24 };
    for (int k = 0; k < of->count; k++)
        for (int64_t at = of->intervals[k].begin; at < of->intervals[k].end; at += PIECE) {
            int64_t left = of->intervals[k].end - at, n = left < PIECE ? left : PIECE;
            size_t bytes = (size_t)n * sizeof *slice;
            TRY(to_first ? comm_send(comm, 0, slice, bytes) : comm_receive(comm, 0, slice, bytes));
            slice += n;
        }
    return OK;
}

static Status pass_moments(const Session *s, StateArray which, float *space, bool to_first)
{
    Ranks *ranks = s->options.ranks;
    float *slice;
    TRY(ranks_meet(ranks));
    Status status = borrow_slice(s, which, to_first, &slice);
    if (!ranks_first(ranks)) {
        if (status == OK) status = pass_own(s, slice, to_first);
    } else if (status == OK) {
        copy_slice(space, slice, &s->plan.input.exchange->slices[0], !to_first);
        for (int r = 1; r < ranks_size(ranks) && status == OK; r++) status = pass_slice(s, space, r, to_first);
    }
    return return_slice(s, which, !to_first, slice, status);
}

Status session_spread(Session *s, StateArray which)
{
    bool first = ranks_first(s->options.ranks);
    Status status = pass_moments(s, which, first ? session_fill(s, which) : NULL, false);
    s->filled[which] = NULL;
    return status;
}

Status session_collect(const Session *s)
{
    float *buffer = session_save_buffer(s);
    for (StateArray a = STATE_M; a < N_STATE_ARRAYS; a++)
        TRY(pass_moments(s, a, buffer ? buffer + a * s->model->params.size : NULL, true));
    return OK;
}

float *session_fill(Session *s, StateArray which)
{
    float *buffer = session_save_buffer(s), **filled = &s->filled[which];
    if (!s->options.backend->device && !(session_sharded(s) && which != STATE_WEIGHTS)) return place_of(s, which);
    if (!*filled) *filled = buffer ? buffer + which * s->model->params.size : mem_alloc(array_bytes(s));
    return *filled;
}

static Status upload_filled(Session *s, StateArray a)
{
    if (!s->filled[a]) return OK;
    TRY(backend_upload(s->options.backend, place_of(s, a), s->filled[a], array_bytes(s)));
    drop_filled(s, a);
    return OK;
}

static Status first_event(void *device, bool *done) { return ((Device *)device)->event_done(device, 0, done); }

/* From rank 0's GPU to the others', on the comm lane. */
static Status broadcast_array(Session *s, StateArray which)
{
    Device *d = s->options.backend->device;
    CommDevice *gpus = s->options.gpus;
    TRY(upload_filled(s, which));
    TRY(d->wait(d));
    TRY(ranks_meet(s->options.ranks));
    TRY(d->lane(d, LANE_COMM));
    Status status = comm_device_broadcast(gpus, place_of(s, which), (size_t)s->model->params.size, 0, d->stream(d));
    if (status == OK) status = d->event_record(d, 0);
    if (status == OK) status = comm_device_wait(gpus, first_event, d);
    if (status != OK) comm_device_abort(gpus);
    return status == OK ? d->lane(d, LANE_COMPUTE) : status;
}

Status session_broadcast(Session *s, StateArray which)
{
    if (!s->options.gpus) return ranks_broadcast(s->options.ranks, session_fill(s, which), array_bytes(s));
    return broadcast_array(s, which);
}

Status session_ready(Session *s)
{
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++) TRY(upload_filled(s, a));
    if (s->train) return exec_run(s->train, s->plan.train.pack, &s->plan.train.capacity);
    return exec_run(s->eval, s->plan.eval.pack, &s->plan.eval.capacity);
}

Status session_read(const Session *s, StateArray which, float *room, const float **values)
{
    const Backend *b = s->options.backend;
    CHECK(which == STATE_WEIGHTS || !session_sharded(s), "moments of a sharded optimizer are collected");
    *values = place_of(s, which);
    if (!b->device) return OK;
    float *copy = room ? room : mem_alloc(array_bytes(s));
    Status status = backend_download(b, copy, *values, array_bytes(s));
    *values = status == OK ? copy : NULL;
    if (status != OK && !room) free(copy);
    return status;
}

const float *session_part(const Session *s, StateArray which, bool *own)
{
    if (own) *own = which != STATE_WEIGHTS && session_sharded(s);
    return place_of(s, which);
}

/* Elements of the slice before this one. */
static int64_t place_in_slice(const Intervals *slice, int64_t element)
{
    int64_t before = 0;
    for (int i = 0; i < slice->count && slice->intervals[i].begin < element; i++) {
        int64_t end = slice->intervals[i].end < element ? slice->intervals[i].end : element;
        before += end - slice->intervals[i].begin;
    }
    return before;
}

Status session_read_range(const Session *s, StateArray which, int64_t begin, int64_t end, float *to)
{
    bool own;
    const float *from = session_part(s, which, &own);
    from += own ? place_in_slice(&s->plan.input.exchange->slices[ranks_rank(s->options.ranks)], begin) : begin;
    return backend_download(s->options.backend, to, from, (size_t)(end - begin) * sizeof *to);
}

void session_read_done(const Session *s, const float *values)
{
    if (s->options.backend->device) free((void *)(uintptr_t)values);
}

/* Position of the first NaN or infinity; −1: there is none. */
static int64_t first_not_finite(const float *x, int64_t n) // (n)
{
    enum { BLOCK = 1024 };
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = at + BLOCK < n ? at + BLOCK : n;
        uint32_t largest = 0, bits; /* of magnitudes, which are ordered as their bits are */
        for (int64_t i = at; i < end; i++) {
            memcpy(&bits, x + i, sizeof bits);
            bits &= 0x7fffffff;
            if (bits > largest) largest = bits;
        }
        if (largest < 0x7f800000) continue;
        for (int64_t i = at; i < end; i++)
            if (!isfinite(x[i])) return i;
    }
    return -1;
}

Status session_check_weights(const Session *s, const float *weights, int64_t step)
{
    const ParamTable *t = &s->model->params;
    if (first_not_finite(weights, t->size) < 0) return OK;
    for (int i = 0; i < t->count; i++) {
        const Param *p = &t->params[i];
        int64_t at = first_not_finite(weights + p->offset, param_exported(p));
        if (at >= 0)
            return fail(E_NUMERIC, "step %lld: the update made tensor %s %g at [%lld, %lld]. Lower --learning-rate",
                        (long long)step, p->name, (double)weights[p->offset + at], (long long)(at / p->cols),
                        (long long)(at % p->cols));
    }
    return OK;
}

/* Only activations can change in size, and not by much; the regions that hold state stay where they are. */
static Status change_plan(Session *s, RunPlan *to)
{
    unbind(s);
    run_plan_free(&s->plan);
    s->plan = *to;
    *to = (RunPlan){0};
    const Plan *plans[] = {&s->plan.train, &s->plan.eval};
    TRY(memory_grow(&s->memory, plans, 2));
    TRY(bind_plans(s));
    return session_ready(s);
}

/* What the weights ask for. From a device come the LayerNorms alone, into a space whose other pages are never touched.
 */
static Status find_forms(const Session *s, uint8_t *forms)
{
    const ParamTable *t = &s->model->params;
    const Backend *b = s->options.backend;
    const float *weights = place_of(s, STATE_WEIGHTS);
    float *norms = NULL;
    Status status = OK;
    if (b->device) norms = mem_array((size_t)t->size, sizeof *norms);
    for (int i = 0; norms && i < t->count; i++) {
        const Param *p = &t->params[i];
        if (!strstr(p->name, "LayerNorm")) continue;
        TRY_DONE(
            backend_download(b, norms + p->offset, weights + p->offset, (size_t)(p->rows * p->cols) * sizeof *norms));
    }
    model_norm_forms(s->model, norms ? norms : weights, forms);
done:
    free(norms);
    return status;
}

Status session_check_forms(Session *s, bool *changed)
{
    Status status = OK;
    RunPlan other = {0};
    size_t n = (size_t)(2 * s->model->config.layers + 1);
    uint8_t *forms = mem_alloc(n);
    TRY_DONE(find_forms(s, forms));
    bool differ = memcmp(forms, s->plan.norm_forms, n) != 0;
    if (changed) *changed = differ;
    if (differ) {
        TRY_DONE(run_plan_with_forms(&s->plan, forms, &other));
        TRY_DONE(change_plan(s, &other));
    }
done:
    run_plan_free(&other);
    free(forms);
    return status;
}

static bool has_scaling(const Session *s) { return s->train && s->plan.train_tensors.scaling != NONE; }

Status session_set_scaling(Session *s, LossScaling scaling)
{
    if (!has_scaling(s)) return OK;
    CHECK(scaling.scale >= LOSS_SCALE_LEAST && scaling.scale <= LOSS_SCALE_MOST, "a loss scale of %g",
          (double)scaling.scale);
    s->scaling = scaling;
    return exec_upload(s->train, s->plan.train_tensors.scaling, &scaling, sizeof scaling);
}

bool session_scale_is_dynamic(const Session *s) { return has_scaling(s) && s->plan.input.optimizer.scale_growth > 0; }

/* ---- a step ---- */

static Status upload_batch(Exec *e, const ModelTensors *t, const MicroBatch *b, bool regression)
{
    size_t tokens = (size_t)b->cap.tokens * sizeof(int32_t), seqs = (size_t)b->cap.seqs * sizeof(int32_t),
           masked = (size_t)b->cap.masked * sizeof(int32_t);
    TRY(exec_upload(e, t->ids, b->ids, tokens));
    TRY(exec_upload(e, t->types, b->types, tokens));
    TRY(exec_upload(e, t->pos, b->pos, tokens));
    TRY(exec_upload(e, t->seq, b->seq, tokens));
    TRY(exec_upload(e, t->spans, b->spans, 2 * seqs));
    TRY(exec_upload(e, t->seq_index, b->seq_index, seqs));
    TRY(exec_upload(e, t->first, b->first, seqs));
    if (t->labels != NONE) TRY(exec_upload(e, t->labels, regression ? (const void *)b->score : b->label, seqs));
    if (t->masked == NONE) return OK;
    TRY(exec_upload(e, t->masked, b->masked, masked));
    TRY(exec_upload(e, t->masked_labels, b->masked_label, masked));
    return OK;
}

static Status send_micro(Session *s, Exec *e, const ModelTensors *t, const MicroBatch *b, RowCounts *rows)
{
    s->ctl.n_tokens = b->n_tokens;
    s->ctl.n_seqs = b->n_seqs;
    s->ctl.n_masked = b->n_masked;
    TRY(upload_batch(e, t, b, s->model->head.kind == HEAD_REGRESSION));
    TRY(exec_upload(e, t->ctl, &s->ctl, sizeof s->ctl));
    *rows = exec_rows(e, b->n_tokens, b->n_seqs, b->n_masked);
    return OK;
}

static Status run_micro(Session *s, Exec *e, const Plan *p, const ModelTensors *t, const MicroBatch *b)
{
    RowCounts rows;
    TRY(send_micro(s, e, t, b, &rows));
    return exec_run(e, p->micro, &rows);
}

Status session_begin(Session *s, uint32_t batch, int64_t n_seqs, int64_t n_masked)
{
    s->ctl.batch = batch;
    s->ctl.scale_seqs = n_seqs ? 1.0f / (float)n_seqs : 0;
    s->ctl.scale_masked = n_masked ? 1.0f / (float)n_masked : 0;
    return exec_run(s->train, s->plan.train.begin, &s->plan.train.capacity);
}

Status session_micro(Session *s, const MicroBatch *b)
{
    return run_micro(s, s->train, &s->plan.train, &s->plan.train_tensors, b);
}

Status session_last(Session *s, const MicroBatch *b)
{
    RowCounts rows;
    if (b) TRY(send_micro(s, s->train, &s->plan.train_tensors, b, &rows));
    return exec_run_last(s->train, b ? &rows : NULL);
}

Status session_update(Session *s, const Optimizer *o, int64_t step, double learning_rate, Stats *stats)
{
    s->ctl.learning_rate = (float)learning_rate;
    optim_bias(o, step, &s->ctl.bias1, &s->ctl.bias2);
    TRY(exec_upload(s->train, s->plan.train_tensors.ctl, &s->ctl, sizeof s->ctl));
    TRY(exec_run(s->train, s->plan.train.update, &s->plan.train.capacity));
    TRY(exec_download(s->train, s->plan.train_tensors.stats, stats, sizeof *stats));
    if (has_scaling(s)) TRY(exec_download(s->train, s->plan.train_tensors.scaling, &s->scaling, sizeof s->scaling));
    return OK;
}

Status session_find_bad(Session *s, const MicroBatch *b)
{
    exec_set_check(s->train, true);
    Status status = session_micro(s, b);
    exec_set_check(s->train, false);
    return status;
}

static Status run_evaluation(Session *s, const MicroBatch *b)
{
    TRY(exec_run(s->eval, s->plan.eval.begin, &s->plan.eval.capacity));
    return run_micro(s, s->eval, &s->plan.eval, &s->plan.eval_tensors, b);
}

Status session_evaluate(Session *s, const MicroBatch *b, float *logits, float *loss)
{
    size_t labels = (size_t)s->model->head.labels;
    TRY(run_evaluation(s, b));
    TRY(exec_download(s->eval, s->plan.eval_tensors.logits, logits, (size_t)b->n_seqs * labels * sizeof(float)));
    TRY(exec_download(s->eval, s->plan.eval_tensors.loss, loss, (size_t)b->n_seqs * sizeof(float)));
    return OK;
}

Status session_evaluate_sums(Session *s, const MicroBatch *b, Stats *sums)
{
    TRY(run_evaluation(s, b));
    return exec_download(s->eval, s->plan.eval_tensors.stats, sums, sizeof *sums);
}
