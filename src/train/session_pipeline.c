#include "train/session_pipeline.h"

#include <stdlib.h>
#include <string.h>

#define TIE_TAG 0xffff0000u /* of the word embedding's two gradients; those of boundaries are small numbers */

struct SessionPipeline {
    const PipelinePlace *place;
    Comm *link;           /* the places of this pipeline; NULL: one */
    Comm *groups[2];      /* holders in the order of replicas; of chimera one for each of the place's stages, the lower
                             first;      NULL: one holder */
    Memory *more;         // (chunks − 1)
    Exec **train, **eval; // (chunks) the first are the session's
    ExecPipeline *works, *evaluation;
    Schedule one;          /* of an evaluation's micro-batch */
    Intervals *norm_parts; // (ranks)
    int ranks;
    Session *session;
    const SessionStep *step;
    int64_t first; /* micro-batch of each direction that the pass begins with */
    const MicroBatch *eval_batch;
    Stats sums; /* of the last step */
    double sums_s;
};

static int chunks_of(const SessionPipeline *p) { return place_chunks(p->place); }

static const Pipeline *shape(const SessionPipeline *p) { return &p->place->grid.shape; }

/* ---- life ---- */

/* Chimera's two stages of a place have the same holders in two orders. */
static Status connect_holders(SessionPipeline *p, Ranks *ranks)
{
    const PipelinePlace *at = p->place;
    Comm *all = ranks_comm(ranks);
    if (place_replicas(at) == 1) return OK;
    if (at->grid.directions == 1) return comm_split(all, at->number, at->pipeline, &p->groups[0]);
    int other = at->grid.stages - 1 - at->number, low = at->number < other ? at->number : other;
    for (int k = 0; k < 2; k++) {
        int stage = k ? at->grid.stages - 1 - low : low;
        TRY(comm_split(all, low, 2 * at->pipeline + (at->number != stage), &p->groups[k]));
    }
    return OK;
}

static Comm *group_of(const SessionPipeline *p, int stage)
{
    return p->groups[p->place->grid.directions == 2 && stage >= p->place->grid.stages / 2];
}

Status pipeline_open(Session *s)
{
    const PipelinePlace *place = s->plan.input.place;
    Ranks *ranks = s->options.ranks;
    SessionPipeline *p = s->pipeline = mem_alloc(sizeof *p);
    *p = (SessionPipeline){.place = place, .session = s, .ranks = ranks_size(ranks)};
    p->more = mem_array((size_t)chunks_of(p), sizeof *p->more);
    p->train = mem_array((size_t)chunks_of(p), sizeof *p->train);
    p->eval = mem_array((size_t)chunks_of(p), sizeof *p->eval);
    p->norm_parts = place_norm_parts(place);
    Pipeline one = place_evaluation(place);
    schedule_make(&one, &p->one);
    for (int k = 1; k < chunks_of(p); k++) {
        const Plan *plans[] = {run_plan_of(&s->plan, k, true), run_plan_of(&s->plan, k, false)};
        TRY(memory_init_beside(&p->more[k - 1], &s->memory, plans, 2));
    }
    if (!ranks) return OK;
    TRY(ranks_meet(ranks));
    if (shape(p)->places > 1) TRY(comm_split(ranks_comm(ranks), place->pipeline, place->number, &p->link));
    return connect_holders(p, ranks);
}

void pipeline_close(SessionPipeline *p)
{
    if (!p) return;
    pipeline_unbind(p);
    for (int k = 1; k < chunks_of(p); k++) memory_free(&p->more[k - 1]);
    for (int r = 0; r < p->ranks; r++) intervals_free(&p->norm_parts[r]);
    comm_close(p->link);
    comm_close(p->groups[0]);
    comm_close(p->groups[1]);
    schedule_free(&p->one);
    free(p->norm_parts);
    free(p->more);
    free(p->train);
    free(p->eval);
    free(p);
}

static Status fill_train(void *self, int chunk, int micro, const int slots[N_SLOTS])
{
    SessionPipeline *p = self;
    const MicroBatch *b;
    RowCounts rows;
    TRY(p->step->fill(p->step->self, place_direction(p->place, chunk), p->first + micro, &b));
    return session_send_micro(p->session, p->train[chunk], run_plan_tensors(&p->session->plan, chunk, true), b, slots,
                              &rows);
}

static Status fill_eval(void *self, int chunk, int micro, const int slots[N_SLOTS])
{
    SessionPipeline *p = self;
    RowCounts rows;
    (void)micro;
    return session_send_micro(p->session, p->eval[chunk], run_plan_tensors(&p->session->plan, chunk, false),
                              p->eval_batch, slots, &rows);
}

static void open_links(SessionPipeline *p)
{
    const RunPlan *plan = &p->session->plan;
    ExecPipelineOptions o = {.comm = p->link,
                             .shape = *shape(p),
                             .chunks = p->train,
                             .place = p->place->number,
                             .boundary = plan->input.training ? place_boundary(p->place, &plan->train) : 0,
                             .fill = fill_train,
                             .self = p};
    if (plan->input.training) exec_pipeline_open(&o, &p->works);
    if (!plan->input.evaluation) return;
    o.shape = p->one.shape;
    o.chunks = p->eval;
    o.boundary = place_boundary(p->place, &plan->eval);
    o.fill = fill_eval;
    exec_pipeline_open(&o, &p->evaluation);
}

static Status upload_segments(const Session *s)
{
    const PipelinePlace *place = s->plan.input.place;
    size_t own_bytes = (size_t)place->held.params.count * sizeof(Segment),
           all_bytes = (size_t)place->whole->params.count * sizeof(Segment);
    Segment *own = mem_alloc(own_bytes), *all = mem_alloc(all_bytes);
    optim_part_segments(&place->held, place->whole, &s->plan.input.optimizer, own, all);
    Status status = exec_upload(s->train, s->plan.train_tensors.own_segments, own, own_bytes);
    if (status == OK) status = exec_upload(s->train, s->plan.train_tensors.whole_segments, all, all_bytes);
    free(own);
    free(all);
    return status;
}

Status pipeline_bind(Session *s, const ExecOptions *options)
{
    SessionPipeline *p = s->pipeline;
    const RunPlan *plan = &s->plan;
    p->train[0] = s->train;
    p->eval[0] = s->eval;
    for (int k = 1; k < chunks_of(p); k++) {
        if (plan->input.training) TRY(exec_init(&p->train[k], run_plan_of(plan, k, true), &p->more[k - 1], *options));
        if (plan->input.evaluation) TRY(exec_init(&p->eval[k], run_plan_of(plan, k, false), &p->more[k - 1], *options));
    }
    if (plan->input.training) TRY(upload_segments(s));
    open_links(p);
    return OK;
}

void pipeline_unbind(SessionPipeline *p)
{
    exec_pipeline_close(p->works);
    exec_pipeline_close(p->evaluation);
    p->works = p->evaluation = NULL;
    for (int k = 0; k < chunks_of(p); k++) {
        if (k > 0) exec_free(p->train[k]);
        if (k > 0) exec_free(p->eval[k]);
        p->train[k] = p->eval[k] = NULL;
    }
}

Status pipeline_grow(Session *s)
{
    SessionPipeline *p = s->pipeline;
    for (int k = 1; k < chunks_of(p); k++) {
        const Plan *plans[] = {run_plan_of(&s->plan, k, true), run_plan_of(&s->plan, k, false)};
        TRY(memory_grow(&p->more[k - 1], plans, 2));
    }
    return OK;
}

/* ---- sums between holders ---- */

/* Each rank of the group adds an even part. The sum's bits do not depend on the parts. */
static Status sum_elements(const SessionPipeline *p, Comm *group, float *x, int64_t count)
{
    Status status = OK;
    int n = group->size;
    Interval *intervals = mem_array((size_t)n, sizeof *intervals);
    Intervals *parts = mem_array((size_t)n, sizeof *parts);
    for (int64_t at = 0; at < count && status == OK; at += p->place->bucket) {
        int64_t size = count - at < p->place->bucket ? count - at : p->place->bucket;
        for (int r = 0; r < n; r++) {
            intervals[r] = (Interval){size * r / n, size * (r + 1) / n};
            int64_t own = intervals[r].end - intervals[r].begin;
            parts[r] = (Intervals){.intervals = &intervals[r], .count = own > 0, .size = own};
        }
        status = comm_allreduce(group, x + at, parts, p->place->wire, p->session->memory.base[REGION_COMM]);
    }
    free(intervals);
    free(parts);
    return status;
}

/* The elements of the space that a stage's gradients take, with the gaps behind tensors. Of a place with both uses of
   the word embedding the last stage's gradient lies apart. */
static void stage_elements(const SessionPipeline *p, const Stage *stage, Intervals *list)
{
    const PipelinePlace *at = p->place;
    const ParamTable *t = &at->held.params;
    const Param *tied = model_tied(at->whole);
    bool apart = at->both_uses && !stage_is_first(stage);
    for (int i = 0; i < t->count; i++) {
        const Param *own = &t->params[i];
        if (!stage_holds(at->whole, stage, own) || (apart && strcmp(own->name, tied->name) == 0)) continue;
        intervals_add(list, own->offset, i + 1 < t->count ? t->params[i + 1].offset : t->size);
    }
}

static float *gradients(const SessionPipeline *p)
{
    return exec_data(p->train[0], p->session->plan.train_tensors.grads);
}

static Status sum_stage(const SessionPipeline *p, int number)
{
    const PipelinePlace *at = p->place;
    const Stage *stage = &at->stages[number];
    Comm *group = group_of(p, number);
    Intervals list = {0};
    Status status = OK;
    stage_elements(p, stage, &list);
    for (int i = 0; i < list.count && status == OK; i++)
        status = sum_elements(p, group, gradients(p) + list.intervals[i].begin,
                              list.intervals[i].end - list.intervals[i].begin);
    if (status == OK && at->both_uses && stage_is_last(at->whole, stage))
        status = sum_elements(p, group, gradients(p) + at->held.params.size, param_held(model_tied(at->whole)));
    intervals_free(&list);
    return status;
}

/* In ascending order of stages, so that both places of chimera that hold two stages do the same. */
static Status sum_stages(const SessionPipeline *p)
{
    if (place_replicas(p->place) == 1) return OK;
    for (int stage = 0; stage < p->place->grid.stages; stage++)
        for (int k = 0; k < chunks_of(p); k++)
            if (pipeline_stage(shape(p), p->place->number, k) == stage) TRY(sum_stage(p, stage));
    return OK;
}

/* Two terms: their order does not matter. */
static void add(float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

static Status add_other_use(const SessionPipeline *p, int peer, float *x, int64_t count)
{
    float *other = p->session->memory.base[REGION_COMM];
    for (int64_t at = 0; at < count; at += p->place->bucket) {
        int64_t n = count - at < p->place->bucket ? count - at : p->place->bucket;
        CommTicket *in = NULL, *out = NULL;
        Status status = comm_post(p->link, peer, TIE_TAG, false, other, (size_t)n * sizeof *x, &in);
        if (status == OK) status = comm_post(p->link, peer, TIE_TAG, true, x + at, (size_t)n * sizeof *x, &out);
        Status received = comm_wait(p->link, in, "the other gradient of the word embedding"),
               sent = comm_wait(p->link, out, "the gradient of the word embedding");
        TRY(status);
        TRY(received);
        TRY(sent);
        add(x + at, other, n);
    }
    return OK;
}

/* The two gradients of a tied word embedding become their sum, on all that hold it. */
static Status tie(const SessionPipeline *p)
{
    const PipelinePlace *at = p->place;
    const Param *tied = model_tied(at->whole);
    int peer, chunk, i = tied ? params_find(&at->held.params, tied->name) : -1;
    if (i < 0 || at->grid.stages == 1) {
        if (at->both_uses)
            add(gradients(p) + at->held.params.params[i].offset, gradients(p) + at->held.params.size, param_held(tied));
        return OK;
    }
    float *x = gradients(p) + at->held.params.params[i].offset;
    if (at->both_uses) {
        add(x, gradients(p) + at->held.params.size, param_held(tied));
        return OK;
    }
    bool first = false;
    for (int k = 0; k < chunks_of(p); k++) first |= stage_is_first(place_stage(at, k));
    pipeline_home(shape(p), first ? at->grid.stages - 1 : 0, 0, &peer, &chunk);
    return add_other_use(p, peer, x, param_held(tied));
}

/* ---- losses ---- */

/* The chunk of a place with the last stage, for a direction; −1: none. */
static int last_chunk(const PipelinePlace *at, int direction)
{
    for (int k = 0; k < place_chunks(at); k++)
        if (stage_is_last(at->whole, place_stage(at, k)) && place_direction(at, k) == direction) return k;
    return -1;
}

/* Rows of all ranks, added in the order of replicas. */
static Status sum_losses(SessionPipeline *p)
{
    typedef struct {
        double loss[2], correct[2];
    } Row;
    const PipelinePlace *at = p->place;
    Ranks *ranks = p->session->options.ranks;
    Row mine = {{0}, {0}}, *all = mem_array((size_t)p->ranks, sizeof *all);
    Status status = OK;
    for (int d = 0; d < at->grid.directions; d++) {
        Stats stats;
        int k = last_chunk(at, d);
        if (k < 0) continue;
        TRY_DONE(exec_download(p->train[k], run_plan_tensors(&p->session->plan, k, true)->stats, &stats, sizeof stats));
        mine = (Row){{stats.loss[0], stats.loss[1]}, {(double)stats.correct[0], (double)stats.correct[1]}};
    }
    all[0] = mine;
    if (ranks) TRY_DONE(comm_allgather(ranks_comm(ranks), &mine, sizeof mine, all));
    p->sums = (Stats){0};
    for (int q = 0; q < place_replicas(at); q++) {
        int number, chunk;
        pipeline_home(shape(p), at->grid.stages - 1, q % at->grid.directions, &number, &chunk);
        const Row *row = &all[number * at->grid.replicas + q / at->grid.directions];
        for (int slot = 0; slot < 2; slot++) {
            p->sums.loss[slot] = q ? p->sums.loss[slot] + row->loss[slot] : row->loss[slot];
            p->sums.correct[slot] += (int64_t)row->correct[slot];
        }
    }
done:
    free(all);
    return status;
}

void pipeline_take_sums(const Session *s, Stats *stats)
{
    memcpy(stats->loss, s->pipeline->sums.loss, sizeof stats->loss);
    memcpy(stats->correct, s->pipeline->sums.correct, sizeof stats->correct);
}

/* ---- a step ---- */

Status pipeline_begin(const Session *s)
{
    const SessionPipeline *p = s->pipeline;
    for (int k = 1; k < chunks_of(p); k++) {
        const Plan *plan = run_plan_of(&s->plan, k, true);
        TRY(exec_run(p->train[k], plan->begin, &plan->capacity));
    }
    return OK;
}

Status pipeline_pack(const Session *s, int first)
{
    const SessionPipeline *p = s->pipeline;
    bool training = s->plan.input.training;
    for (int k = first; k < chunks_of(p); k++) {
        const Plan *plan = run_plan_of(&s->plan, k, training);
        TRY(exec_run(training ? p->train[k] : p->eval[k], plan->pack, &plan->capacity));
    }
    return OK;
}

static int at_most(int64_t n, int most) { return n < 0 ? 0 : n < most ? (int)n : most; }

/* Micro-batches beyond those that the plan has slots for come in further passes. */
static Status run_passes(SessionPipeline *p, const SessionStep *step, int64_t *when)
{
    int directions = p->place->grid.directions, most = shape(p)->micros / directions;
    p->step = step;
    for (p->first = 0;; p->first += most) {
        int n[2] = {at_most(step->micros[0] - p->first, most), at_most(step->micros[1] - p->first, most)};
        int longest = n[0] > n[1] ? n[0] : n[1];
        if (longest == 0) return OK;
        ExecPass pass = {.schedule = &p->place->schedules[longest * directions],
                         .micros = {n[0], n[1]},
                         .rows = {step->rows[0] + p->first, step->rows[1] ? step->rows[1] + p->first : NULL}};
        TRY(exec_pipeline_run(p->works, &pass, when));
    }
}

RowCounts session_rows(const Session *s, int64_t n_tokens, int64_t n_seqs, int64_t n_masked)
{
    return exec_rows(s->train, n_tokens, n_seqs, n_masked);
}

Status session_run_pipeline(Session *s, const SessionStep *step)
{
    SessionPipeline *p = s->pipeline;
    TRY(run_passes(p, step, NULL));
    double start = clock_monotonic();
    TRY(sum_stages(p));
    TRY(tie(p));
    TRY(sum_losses(p));
    p->sums_s += clock_monotonic() - start;
    return OK;
}

/* The first pass with such a value ends the search on a pipeline; others may have found one in an earlier work. */
Status session_find_bad_pipeline(Session *s, const SessionStep *step)
{
    SessionPipeline *p = s->pipeline;
    int64_t when = INT64_MAX;
    for (int k = 0; k < chunks_of(p); k++) exec_set_check(p->train[k], true);
    Status status = run_passes(p, step, &when);
    for (int k = 0; k < chunks_of(p); k++) exec_set_check(p->train[k], false);
    if (status != OK && status != E_NUMERIC) return status;
    char *why = status == OK ? NULL : mem_strdup(status_message());
    int64_t first = when;
    Status own = ranks_least(s->options.ranks, &first);
    if (own == OK && why && when == first) own = fail(E_NUMERIC, "%s", why);
    free(why);
    return own == E_PEER ? own : ranks_all(s->options.ranks, own);
}

SessionSeconds session_pipeline_seconds(const Session *s)
{
    SessionSeconds x = {0};
    if (!s->pipeline || !s->pipeline->works) return x;
    exec_pipeline_seconds(s->pipeline->works, &x.works, &x.idle);
    x.sums = s->pipeline->sums_s;
    return x;
}

Status pipeline_share_norms(const Session *s)
{
    const SessionPipeline *p = s->pipeline;
    if (!s->options.ranks) return OK;
    float *table = exec_data(s->train, s->plan.train_tensors.norm_sums);
    return comm_gather_parts(ranks_comm(s->options.ranks), table, p->norm_parts, F32, s->memory.base[REGION_COMM]);
}

/* ---- evaluation ---- */

Exec *pipeline_heads(const Session *s, const ModelTensors **t)
{
    int k = last_chunk(s->pipeline->place, 0);
    if (k < 0) return NULL;
    *t = run_plan_tensors(&s->plan, k, false);
    return s->pipeline->eval[k];
}

Status pipeline_evaluate(Session *s, const MicroBatch *b)
{
    SessionPipeline *p = s->pipeline;
    const RowCounts rows = exec_rows(s->eval, b->n_tokens, b->n_seqs, b->n_masked);
    const ExecPass pass = {.schedule = &p->one, .micros = {1}, .rows = {&rows}, .forward = true};
    for (int k = 0; k < chunks_of(p); k++) {
        const Plan *plan = run_plan_of(&s->plan, k, false);
        TRY(exec_run(p->eval[k], plan->begin, &plan->capacity));
    }
    p->eval_batch = b;
    return exec_pipeline_run(p->evaluation, &pass, NULL);
}

void session_evaluation_share(const Session *s, int *share, int *shares)
{
    *share = s->pipeline ? s->pipeline->place->pipeline : ranks_rank(s->options.ranks);
    *shares = s->pipeline ? s->pipeline->place->grid.replicas : ranks_size(s->options.ranks);
}

bool session_scores(const Session *s) { return !s->pipeline || last_chunk(s->pipeline->place, 0) >= 0; }

Status session_evaluation_stop(const Session *s, bool *stop)
{
    return s->pipeline && s->pipeline->link ? comm_broadcast(s->pipeline->link, stop, sizeof *stop, 0) : OK;
}
