/* A step of a session: its micro-batches, whole or as works of a pipeline, the update, and evaluation. */
#include "train/session/session_pipeline.h"

/* ---- a micro-batch's inputs ---- */

/* A device's micro-batch is one grain (train/planner/planner.c). */
void session_send_grains(const Session *s, Exec *e, const GrainEnd *ends, int n)
{
    bool device = s->options.backend->device;
    CHECK(!device || n <= 1, "%d grains on a device", n);
    exec_clear_grains(e);
    for (int g = 0; g < n && !device; g++) exec_add_grain(e, ends[g].tokens, ends[g].seqs, ends[g].masked);
}

static Status upload(const Exec *e, TensorId t, const int *slots, const void *data, size_t bytes)
{
    return slots ? exec_upload_slot(e, t, slots, data, bytes) : exec_upload((Exec *)(uintptr_t)e, t, data, bytes);
}

Status session_send_micro(Session *s, const Exec *e, const ModelTensors *t, const MicroBatch *b, const int *slots,
                          RowCounts *rows)
{
    for (MicroInput i = 0; i < N_MICRO_INPUTS; i++)
        if (t->inputs[i] != NONE) TRY(upload(e, t->inputs[i], slots, b->inputs[i], micro_bytes(b, i, true)));
    s->ctl.n_tokens = b->n_tokens;
    s->ctl.n_seqs = b->n_seqs;
    s->ctl.n_masked = b->n_masked;
    s->ctl.n_read = b->n_read;
    TRY(upload(e, t->ctl, slots, &s->ctl, sizeof s->ctl));
    session_send_grains(s, (Exec *)(uintptr_t)e, b->grains, b->n_grains);
    *rows = exec_rows(e, b->n_tokens, b->n_seqs, b->n_masked);
    return OK;
}

Status session_begin(Session *s, uint32_t batch, double weight, int64_t n_masked)
{
    s->ctl.batch = batch;
    s->ctl.scale_seqs = weight > 0 ? 1.0f / (float)weight : 0;
    s->ctl.scale_masked = n_masked ? 1.0f / (float)n_masked : 0;
    s->found = (AuditFound){0};
    for (int k = 0; k < session_chunks(s); k++)
        TRY(exec_run(s->train[k], s->plan.chunk[k].train.begin, &s->plan.chunk[k].train.capacity));
    return OK;
}

/* ---- K-FAC ---- */

static Status run_alone(Session *s, Range range)
{
    return exec_run(s->train[0], range, &s->plan.chunk->train.capacity);
}

Status session_gather(Session *s, int64_t step, int64_t n_tokens)
{
    const Kfac *k = session_kfac(s);
    if (!k) return OK;
    bool again = s->gathered == step; /* after its update the next inverses are its own */
    if (!again && kfac_adopts_before(k, step)) TRY(run_alone(s, s->plan.chunk->train.adopt));
    s->ctl.kfac_tokens = kfac_refreshes(k, step) ? n_tokens : 0;
    if (s->ctl.kfac_tokens) {
        s->kfac_tokens = s->ctl.kfac_tokens;
        s->gathered = step;
    }
    if (s->pipeline)
        TRY(pipeline_kfac_begin(s->pipeline, step, s->ctl.kfac_tokens > 0));
    else
        exec_set_gathers(s->train[0], s->ctl.kfac_tokens > 0);
    return s->ctl.kfac_tokens ? run_alone(s, s->plan.chunk->train.gather) : OK;
}

/* Cleared inverses are not put in use: those in use stay. */
Status session_drop_gathered(Session *s, int64_t step)
{
    if (!session_kfac(s) || s->gathered != step) return OK;
    if (s->pipeline) s->pipeline->kfac.refresh = 0;
    return run_alone(s, s->plan.chunk->train.gather);
}

/* After the last micro-batch of a step that gathered. */
static Status invert(Session *s, const Kfac *k, int64_t step)
{
    s->kfac = (KfacDone){kfac_set(k, step), s->pipeline ? pipeline_kfac_failed(s->pipeline) : -1};
    if (!kfac_refreshes(k, step)) return OK;
    if (!s->pipeline) {
        TRY(run_alone(s, s->plan.chunk->train.invert));
        TRY(session_kfac_failed(s, false, &s->kfac.failed));
    }
    return kfac_adopts_after(k, step) ? run_alone(s, s->plan.chunk->train.adopt) : OK;
}

/* ---- micro-batches and the update ---- */

Status session_clear_sums(Session *s)
{
    if (s->ctl.kfac_tokens) TRY(run_alone(s, s->plan.chunk->train.gather));
    return run_alone(s, s->plan.chunk->train.begin);
}

Status session_next_share(Session *s)
{
    int whole;
    TRY(session_audit_found(s, &s->found, &whole));
    TRY(exec_virtual_end(s->train[0], false));
    return session_clear_sums(s);
}

/* `sums`: with the sums over ranks; for m −1 they alone. */
static Status run_micro(Session *s, const SessionStep *step, int share, int64_t m, bool sums)
{
    double begin = clock_monotonic();
    const MicroBatch *b = m < 0 ? NULL : step->fill(step->self, share, m);
    RowCounts rows;
    if (sums && step->vote) step->vote(step->self);
    if (b) TRY(session_send_micro(s, s->train[0], &s->plan.chunk->train_tensors, b, NULL, &rows));
    TRY(sums ? exec_run_last(s->train[0], s->plan.chunk->train.micro, b ? &rows : NULL)
             : exec_run(s->train[0], s->plan.chunk->train.micro, &rows));
    if (step->ran) step->ran(step->self, m, begin);
    return OK;
}

/* The sums over ranks travel while the last micro-batch runs. */
static Status run_shares(Session *s, const SessionStep *step)
{
    exec_virtual_begin(s->train[0], s->plan.input.virtual.ranks ? step->first : 0);
    for (int k = 0; k < step->n_shares; k++) {
        int64_t n = step->shares[k].micros;
        bool sums = step->sums && k + 1 == step->n_shares;
        if (k > 0) TRY(session_next_share(s));
        for (int64_t m = sums && n == 0 ? -1 : 0; m < n; m++) TRY(run_micro(s, step, k, m, sums && m + 1 == n));
    }
    return step->sums ? OK : exec_virtual_end(s->train[0], true);
}

static Status find_in_coupled(Session *s, const SessionStep *step)
{
    exec_set_check(s->train[0], true);
    Status status = session_run_coupled(s, step);
    exec_set_check(s->train[0], false);
    return status;
}

/* Each micro-batch starts from a zero gradient, which keeps its findings separate. */
static Status find_in_shares(Session *s, const SessionStep *step)
{
    if (s->plan.input.coupling) return find_in_coupled(s, step);
    for (int k = 0; k < step->n_shares; k++)
        for (int64_t m = 0; m < step->shares[k].micros; m++) {
            TRY(session_clear_sums(s));
            exec_set_check(s->train[0], true);
            Status status = run_micro(s, step, k, m, false);
            exec_set_check(s->train[0], false);
            TRY(status);
        }
    return OK;
}

Status session_run(Session *s, const SessionStep *step)
{
    if (s->plan.input.coupling) return session_run_coupled(s, step);
    return s->pipeline ? pipeline_run(s, step) : run_shares(s, step);
}

/* The message is that of the lowest rank that found something, or in a pipeline of the first work. */
Status session_find_bad(Session *s, const SessionStep *step)
{
    return s->pipeline ? pipeline_find_bad(s, step) : ranks_all(s->options.ranks, find_in_shares(s, step));
}

Status session_sum(Session *s)
{
    return s->pipeline ? pipeline_sum(s) : exec_run_last(s->train[0], s->plan.chunk->train.micro, NULL);
}

Status session_upload_ctl(Session *s)
{
    Ctl ctl = s->ctl;
    ctl.kfac_tokens = s->kfac_tokens; /* of a refresh that may be some steps back */
    return exec_upload(s->train[0], s->plan.chunk->train_tensors.step_ctl, &ctl, sizeof ctl);
}

static Status pack_chunks(Session *s, int first)
{
    bool training = s->plan.input.training;
    for (int k = first; k < session_chunks(s); k++) {
        const Plan *plan = training ? &s->plan.chunk[k].train : &s->plan.chunk[k].eval;
        TRY(exec_run(training ? s->train[k] : s->eval[k], plan->pack, &plan->capacity));
    }
    return OK;
}

Status session_pack(Session *s) { return pack_chunks(s, 0); }

/* A weight that is damaged before its sums then has the copies that follow from it, and its damage behind them is
   found. So the copies come last. A device's update has written them already. */
static Status update_noted(Session *s)
{
    const Plan *p = &s->plan.chunk->train;
    s->note_due = false;
    TRY(exec_run(s->train[0], (Range){p->update.first, p->pack.first - p->update.first}, &p->capacity));
    TRY(session_note(s));
    return session_pack(s);
}

static Status run_update(Session *s)
{
    const Plan *p = &s->plan.chunk->train;
    TRY(s->note_due ? update_noted(s) : exec_run(s->train[0], p->update, &p->capacity));
    return pack_chunks(s, 1); /* the update has packed the first */
}

Status session_update(Session *s, const Optimizer *o, int64_t step, double learning_rate, Stats *stats)
{
    double start = clock_monotonic();
    s->ctl.learning_rate = (float)learning_rate;
    optim_bias(o, step, &s->ctl.bias1, &s->ctl.bias2);
    TRY(session_upload_ctl(s));
    if (session_kfac(s)) TRY(invert(s, session_kfac(s), step));
    TRY(run_update(s));
    TRY(exec_download(s->train[0], s->plan.chunk->train_tensors.stats, stats, sizeof *stats));
    s->times.update = (TimeSpan){start, clock_monotonic()};
    TensorId scaling = s->plan.chunk->train_tensors.scaling;
    return scaling == NONE ? OK : exec_download(s->train[0], scaling, &s->scaling, sizeof s->scaling);
}

/* ---- evaluation ---- */

void session_group(const Session *s, int *group, int *groups)
{
    *group = s->plan.input.place->pipeline;
    *groups = s->plan.input.place->grid.replicas;
}

/* This rank's chunk with the last stage, which has the logits; −1: another rank has it. Chimera evaluates in its first
   direction alone. */
static int scoring_chunk(const Session *s) { return place_last_chunk(s->plan.input.place, 0); }

bool session_scores(const Session *s) { return scoring_chunk(s) >= 0; }

Status session_evaluation_stop(const Session *s, bool *stop)
{
    return s->pipeline_comm ? comm_broadcast(s->pipeline_comm, stop, sizeof *stop, 0) : OK;
}

static Status evaluate_whole(Session *s, const MicroBatch *b)
{
    RowCounts rows;
    TRY(session_send_micro(s, s->eval[0], &s->plan.chunk->eval_tensors, b, NULL, &rows));
    return exec_run(s->eval[0], s->plan.chunk->eval.micro, &rows);
}

/* `*e` NULL: another rank of the pipeline has the results. */
static Status run_evaluation(Session *s, const MicroBatch *b, Exec **e, const ModelTensors **t)
{
    int last = scoring_chunk(s);
    for (int k = 0; k < session_chunks(s); k++)
        TRY(exec_run(s->eval[k], s->plan.chunk[k].eval.begin, &s->plan.chunk[k].eval.capacity));
    TRY(s->pipeline ? pipeline_evaluate(s, b) : evaluate_whole(s, b));
    *e = last < 0 ? NULL : s->eval[last];
    *t = last < 0 ? NULL : &s->plan.chunk[last].eval_tensors;
    return OK;
}

Status session_evaluate(Session *s, const MicroBatch *b, float *logits, float *loss)
{
    size_t rows = (size_t)(s->model->head.kind == HEAD_SPAN ? b->n_tokens : b->n_seqs);
    const ModelTensors *t;
    Exec *e;
    TRY(run_evaluation(s, b, &e, &t));
    if (!e) return OK;
    TRY(exec_download(e, t->logits, logits, rows * (size_t)s->model->head.labels * sizeof(float)));
    if (t->loss == NONE) memset(loss, 0, (size_t)b->n_seqs * sizeof *loss);
    return t->loss == NONE ? OK : exec_download(e, t->loss, loss, (size_t)b->n_seqs * sizeof *loss);
}

Status session_evaluate_sums(Session *s, const MicroBatch *b, Stats *sums)
{
    const ModelTensors *t;
    Exec *e;
    *sums = (Stats){0};
    TRY(run_evaluation(s, b, &e, &t));
    return e ? exec_download(e, t->stats, sums, sizeof *sums) : OK;
}
