#include "train/session/session_pipeline.h"

static const Pipeline *shape(const SessionPipeline *p) { return &p->place->grid.shape; }

/* Micro-batches of a direction in a pass, at most. */
static int most_micros(const SessionPipeline *p) { return shape(p)->micros / p->place->grid.directions; }

/* ---- life ---- */

Status pipeline_open(Session *s)
{
    const RankPlace *place = s->plan.input.place;
    Ranks *ranks = s->options.ranks;
    if (!place_has_works(place)) return OK;
    SessionPipeline *p = s->pipeline = mem_alloc(sizeof *p);
    *p = (SessionPipeline){.place = place, .session = s, .ranks = ranks_size(ranks)};
    p->grains = mem_array((size_t)shape(p)->micros, sizeof *p->grains);
    p->tokens = mem_array((size_t)shape(p)->micros, sizeof *p->tokens);
    p->sent = mem_array((size_t)place_chunks(place), sizeof *p->sent);
    p->kfac.grains = mem_array((size_t)shape(p)->micros, sizeof *p->kfac.grains);
    Pipeline one = place_evaluation(place);
    schedule_make(&one, &p->one);
    if (shape(p)->places == 1) return OK;
    return comm_split(ranks_comm(ranks), place->pipeline, place->number, &s->pipeline_comm);
}

void pipeline_close(SessionPipeline *p)
{
    if (!p) return;
    pipeline_unbind(p);
    pipeline_kfac_free(&p->kfac, shape(p)->micros);
    pipeline_measure_free(p);
    schedule_free(&p->one);
    pipeline_grains_free(p->grains, shape(p)->micros);
    MEM_FREE(p->tokens, p->sent);
    free(p);
}

static int grains_at(const SessionPipeline *p, int chunk, int micro)
{
    return pipeline_direction(shape(p), chunk) * most_micros(p) + micro;
}

const RowCounts *pipeline_divide(const SessionPipeline *p, const MicroGrains *grains, int chunk, int micro)
{
    const MicroGrains *g = &grains[grains_at(p, chunk, micro)];
    session_send_grains(p->session, p->session->train[chunk], g->ends, g->n);
    return &g->rows;
}

/* Works of other micro-batches come between those of one, so each gives the Exec its own again. */
static void divide(void *self, int chunk, int micro)
{
    const SessionPipeline *p = self;
    pipeline_divide(p, p->grains, chunk, micro);
}

void pipeline_grains_free(MicroGrains *grains, int n)
{
    for (int i = 0; i < n; i++) free(grains[i].ends);
    free(grains);
}

static void keep_grains(MicroGrains *g, const MicroBatch *b)
{
    g->n = 0;
    while (g->n < b->n_grains) {
        MEM_GROW(g->ends, g->n, g->cap);
        g->ends[g->n] = b->grains[g->n];
        g->n++;
    }
}

static Status fill_train(void *self, int chunk, int micro, const int slots[N_SLOTS])
{
    SessionPipeline *p = self;
    RowCounts rows;
    int at = grains_at(p, chunk, micro), direction = pipeline_direction(shape(p), chunk);
    const MicroBatch *b = p->step->fill(p->step->self, direction, p->first + micro);
    keep_grains(&p->grains[at], b);
    p->tokens[at] = b->n_tokens;
    if (p->kfac.refresh && p->kfac.refresh == p->kfac.step) { /* its statistics may come after the next step's */
        keep_grains(&p->kfac.grains[at], b);
        p->kfac.grains[at].rows = p->step->shares[direction].rows[p->first + micro];
    }
    return session_send_micro(p->session, p->session->train[chunk], &p->session->plan.chunk[chunk].train_tensors, b,
                              slots, &rows);
}

/* Sums in which a micro-batch counts by its number. Rows behind the real tokens may hold anything. */
static void digest_sent(void *self, int chunk, int micro, bool forward, const void *data, size_t bytes)
{
    SessionPipeline *p = self;
    const Plan *plan = &p->session->plan.chunk[chunk].train;
    size_t row = place_boundary(p->place, plan) / (size_t)plan->capacity.count[ROWS_TOKENS];
    size_t real = (size_t)p->tokens[grains_at(p, chunk, micro)] * row;
    CHECK(real <= bytes, "%zu bytes of tokens in a boundary of %zu", real, bytes);
    p->sent[chunk][forward] += digest_of(data, real).lo * (2 * (uint64_t)(p->first + micro) + 1);
}

static Status fill_eval(void *self, int chunk, int micro, const int slots[N_SLOTS])
{
    SessionPipeline *p = self;
    RowCounts rows;
    (void)micro;
    return session_send_micro(p->session, p->session->eval[chunk], &p->session->plan.chunk[chunk].eval_tensors,
                              p->eval_batch, slots, &rows);
}

Status pipeline_bind(Session *s)
{
    SessionPipeline *p = s->pipeline;
    const RunPlan *plan = &s->plan;
    const PlaceDevices *devices = s->options.devices;
    if (!p) return OK;
    ExecPipelineOptions o = {.comm = s->pipeline_comm,
                             .shape = *shape(p),
                             .chunks = s->train,
                             .place = p->place->number,
                             .wires = devices ? devices->wires : NULL,
                             .n_wires = devices ? devices->n_wires : 0,
                             .boundary = plan->input.training ? place_boundary(p->place, &plan->chunk->train) : 0,
                             .fill = fill_train,
                             .divide = divide,
                             .item = pipeline_kfac_item,
                             .ran = session_kfac(s) ? pipeline_note : NULL,
                             .sent = plan->input.watch ? digest_sent : NULL,
                             .self = p};
    if (plan->input.training) TRY(exec_pipeline_open(&o, &p->works));
    if (!plan->input.evaluation) return OK;
    o.shape = p->one.shape;
    o.chunks = s->eval;
    o.boundary = place_boundary(p->place, &plan->chunk->eval);
    o.fill = fill_eval;
    o.divide = NULL;
    o.ran = NULL;
    o.sent = NULL;
    return exec_pipeline_open(&o, &p->evaluation);
}

void pipeline_unbind(SessionPipeline *p)
{
    if (!p) return;
    exec_pipeline_close(p->works);
    exec_pipeline_close(p->evaluation);
    p->works = p->evaluation = NULL;
}

/* ---- a step ---- */

static int at_most(int64_t n, int most) { return n < 0 ? 0 : n < most ? (int)n : most; }

/* Micro-batches beyond those that the plan has slots for come in further passes. The ranks meet before the first
   boundary, because waits for boundaries have a deadline. */
static Status run_passes(SessionPipeline *p, const SessionStep *step, bool sums, int64_t *when)
{
    int most = most_micros(p);
    p->step = step;
    TRY(ranks_meet(p->session->options.ranks));
    for (p->first = 0;; p->first += most) {
        ExecPass pass = {.first = p->first};
        int longest = 0;
        bool last = true;
        for (int d = 0; d < step->n_shares; d++) {
            int64_t left = step->shares[d].micros - p->first;
            pass.micros[d] = at_most(left, most);
            if (left > 0) pass.rows[d] = step->shares[d].rows + p->first;
            if (pass.micros[d] > longest) longest = pass.micros[d];
            last &= left <= most;
        }
        if (longest == 0) return OK;
        pass.schedule = &p->place->schedules[longest * step->n_shares];
        pass.last = sums && last;
        if (session_kfac(p->session)) pipeline_kfac_order(p, last, &pass);
        TRY(exec_pipeline_run(p->works, &pass, when));
    }
}

/* Seconds of the works since `before`. */
static void take_times(SessionPipeline *p, PipelineTimes before)
{
    PipelineTimes now = {0};
    exec_pipeline_seconds(p->works, &now.works, &now.idle);
    p->session->times =
        (PipelineTimes){.works = now.works - before.works, .idle = now.idle - before.idle, .measured = p->measure.done};
}

Status pipeline_run(Session *s, const SessionStep *step)
{
    SessionPipeline *p = s->pipeline;
    PipelineTimes before = {0};
    exec_pipeline_seconds(p->works, &before.works, &before.idle);
    if (step->vote) step->vote(step->self);
    memset(p->sent, 0, (size_t)session_chunks(s) * sizeof *p->sent);
    Status status = run_passes(p, step, step->sums, NULL);
    take_times(p, before);
    return status == OK && step->sums ? pipeline_sum(s) : exec_end_sums(s->train[0], status);
}

static Status sum_step(SessionPipeline *p)
{
    Session *s = p->session;
    TRY(pipeline_sum_losses(p)); /* all ranks have ended their works */
    double start = clock_monotonic();
    TRY(exec_sum(s->train[0], false));
    TRY(pipeline_tie(p));
    TRY(exec_sum(s->train[0], true));
    TRY(pipeline_kfac_end(p));
    s->times.sums = (TimeSpan){start, clock_monotonic()};
    s->times.exposed = s->times.sums.end - start + p->kfac.seconds[0];
    return pipeline_longest(p, &s->times.exposed);
}

Status pipeline_sum(Session *s) { return exec_end_sums(s->train[0], sum_step(s->pipeline)); }

/* The first pass with such a value ends the search on a pipeline; others may have found one in an earlier work. */
Status pipeline_find_bad(Session *s, const SessionStep *step)
{
    SessionPipeline *p = s->pipeline;
    int64_t when = INT64_MAX;
    for (int k = 0; k < session_chunks(s); k++) exec_set_check(s->train[k], true);
    Status status = run_passes(p, step, false, &when);
    for (int k = 0; k < session_chunks(s); k++) exec_set_check(s->train[k], false);
    if (status != OK && status != E_NUMERIC) return status;
    char *why = status == OK ? NULL : mem_strdup(status_message());
    int64_t first = when;
    Status own = ranks_least(s->options.ranks, &first);
    if (own == OK && why && when == first) own = fail(E_NUMERIC, "%s", why);
    free(why);
    return own == E_PEER ? own : ranks_all(s->options.ranks, own);
}

const uint64_t *session_sent(const Session *s) { return s->pipeline ? s->pipeline->sent[0] : NULL; }

ExecPipeline *session_works(const Session *s) { return s->pipeline ? s->pipeline->works : NULL; }

Status pipeline_evaluate(Session *s, const MicroBatch *b)
{
    SessionPipeline *p = s->pipeline;
    const RowCounts rows = exec_rows(s->eval[0], b->n_tokens, b->n_seqs, b->n_masked);
    const ExecPass pass = {.schedule = &p->one, .micros = {1}, .rows = {&rows}, .forward = true};
    p->eval_batch = b;
    return exec_pipeline_run(p->evaluation, &pass, NULL);
}
