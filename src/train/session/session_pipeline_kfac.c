/* K-FAC in a pipeline: statistics and inverses as items between a place's works, and what its holders exchange. When an
   item runs changes no bit: sums go micro-batch after micro-batch and replica after replica, and a set is used from a
   step on that the options alone decide. */

#include "train/session/session_pipeline.h"

#define GAP_LEAST 1e-3 /* of a step's works: shorter gaps stay empty */

static const Kfac *kfac(const SessionPipeline *p) { return &p->place->kfac; }

void pipeline_kfac_free(PipelineKfac *k, int micros)
{
    free(k->items);
    pipeline_grains_free(k->grains, micros);
    free(k->order.works);
    fill_slots_free(&k->slots);
    *k = (PipelineKfac){0};
}

/* ---- the queue ---- */

static void add_item(PipelineKfac *k, FillItem item)
{
    item.start = item.end = -1;
    MEM_PUSH(k->items, k->n, k->cap, item);
}

static void queue_statistics(SessionPipeline *p, const ExecPass *pass)
{
    const RankPlace *at = p->place;
    int most = pass->micros[0] > pass->micros[1] ? pass->micros[0] : pass->micros[1];
    for (FillKind kind = FILL_INPUTS; kind <= FILL_GRADIENTS; kind++)
        for (int micro = 0; micro < most; micro++)
            for (int chunk = 0; chunk < place_chunks(at); chunk++) {
                const Stage *stage = place_stage(at, chunk);
                int direction = pipeline_direction(&at->grid.shape, chunk);
                FillItem item = {.kind = kind,
                                 .place = at->number,
                                 .chunk = chunk,
                                 .micro = micro,
                                 .seconds = pipeline_fill(p)->costs.statistics[kind]};
                if (micro >= pass->micros[direction]) continue;
                for (item.layer = stage->first; item.layer < stage->first + stage->layers; item.layer++)
                    add_item(&p->kfac, item);
            }
}

bool pipeline_inverse_is_wide(const SessionPipeline *p, int factor)
{
    const Plan *plan = &p->session->plan.chunk->train;
    OpAttr attr = plan->instrs[plan->invert.first + factor].attr;
    return (attr.kfac.of_output ? attr.kfac.n : attr.kfac.k) != p->place->whole->config.hidden;
}

static double inverse_seconds(const SessionPipeline *p, int factor)
{
    return pipeline_fill(p)->costs.inverse[pipeline_inverse_is_wide(p, factor) ? KFAC_WIDE : 0];
}

/* A linear's two inverses; those of linears of which the later take the sums of A from the last come one behind the
   other. */
typedef struct {
    int first, layer;
    int instr, count; /* in the plan's `invert` */
    double seconds;
} Unit;

static int longer_first(const void *a, const void *b)
{
    const Unit *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    return x->first - y->first;
}

static void queue_inverses(SessionPipeline *p)
{
    const KfacPlan *plan = &kfac(p)->plan;
    Unit *units = mem_array((size_t)plan->n + 1, sizeof *units);
    int n = 0;
    for (int i = 0, instr = 0; i < plan->n; i++) {
        const KfacLinear *l = &plan->linears[i];
        bool goes_on = i > 0 && plan->linears[i - 1].from != NONE;
        if (!l->own) continue; /* as all of its unit */
        if (!goes_on) units[n++] = (Unit){.first = i, .layer = l->layer, .instr = instr};
        for (int of_output = 0; of_output < 2; of_output++, instr++, units[n - 1].count++)
            units[n - 1].seconds += inverse_seconds(p, instr);
    }
    qsort(units, (size_t)n, sizeof *units, longer_first);
    for (int u = 0; u < n; u++)
        for (int i = 0; i < units[u].count; i++)
            add_item(&p->kfac, (FillItem){.kind = FILL_INVERSE,
                                          .place = p->place->number,
                                          .layer = units[u].layer,
                                          .factor = units[u].instr + i,
                                          .follows = i > 0,
                                          .seconds = inverse_seconds(p, units[u].instr + i)});
    free(units);
}

/* ---- a step ---- */

/* The first set is used at once. */
static int steps_allowed(const SessionPipeline *p)
{
    int lag = p->kfac.refresh == 1 ? 0 : kfac(p)->lag;
    return lag > 1 ? lag : 1;
}

static int steps_past(const SessionPipeline *p) { return (int)(p->kfac.step - p->kfac.refresh) + 1; }

/* The step of the last statistics; a step is left for inverses, where more than one is allowed. */
static bool gathers_until_now(const SessionPipeline *p)
{
    int most = steps_allowed(p) - 1, planned = pipeline_fill(p)->gathered;
    return p->kfac.refresh && !p->kfac.summed && steps_past(p) >= (planned < most ? planned : most > 1 ? most : 1);
}

Status pipeline_kfac_begin(SessionPipeline *p, int64_t step, bool gathers)
{
    PipelineKfac *k = &p->kfac;
    k->step = step;
    k->seconds[0] = k->seconds[1] = 0;
    pipeline_measure(p, step);
    if (!gathers) return OK;
    k->refresh = step;
    k->summed = false;
    k->n = k->slots.n = 0;
    queue_inverses(p);
    return session_upload_ctl(p->session);
}

/* A place in the gaps of this step for what is pending; where it is not the first pass of the step there are none. */
static void place_items(SessionPipeline *p, const FillStep *step)
{
    PipelineKfac *k = &p->kfac;
    for (int i = 0; i < k->n; i++)
        if (!k->items[i].taken) k->items[i].start = k->items[i].end = -1;
    if (k->refresh && p->first == 0) (void)fill_gaps(step, k->items, k->n);
}

void pipeline_kfac_order(SessionPipeline *p, bool last, ExecPass *pass)
{
    PipelineKfac *k = &p->kfac;
    const Timeline *timeline = &pipeline_fill(p)->timelines[pass->schedule->shape.micros];
    const FillStep step = {.schedule = pass->schedule,
                           .place = p->place->number,
                           .micros = {pass->micros[0], pass->micros[1]},
                           .timeline = timeline,
                           .end = INFINITY,
                           .refresh = k->refresh == k->step,
                           .least = GAP_LEAST * timeline->works_s,
                           .inverses = k->summed,
                           .late = pipeline_fill(p)->late,
                           .drain = gathers_until_now(p) || !last};
    k->slots.slots = p->place->slots;
    k->order.n = 0;
    if (step.refresh) queue_statistics(p, pass);
    place_items(p, &step);
    fill_order(&k->slots, &step, k->items, k->n, &k->order);
    pass->works = k->order.works;
    pass->n_works = k->order.n;
}

static Status run_inverse(const Session *s, int number)
{
    Range all = s->plan.chunk->train.invert;
    return exec_run(s->train[0], (Range){all.first + number, 1}, &s->plan.chunk->train.capacity);
}

Status pipeline_kfac_item(void *self, const Work *w)
{
    SessionPipeline *p = self;
    const FillItem *x = &p->kfac.items[w->item];
    double start = clock_monotonic();
    Status status = OK;
    if (x->kind == FILL_INVERSE) {
        status = run_inverse(p->session, x->factor);
    } else {
        const RowCounts *rows = pipeline_divide(p, p->kfac.grains, w->chunk, x->micro);
        status = exec_run_curvature(p->session->train[w->chunk], w->kind, x->layer, w->slot, rows);
    }
    p->kfac.seconds[x->start >= 0] += clock_monotonic() - start;
    return status;
}

/* ---- between holders ---- */

/* `sums`: statistics to who inverts them; else inverses to all. */
static Status exchange(const SessionPipeline *p, bool sums)
{
    const Pieces *pieces = &kfac(p)->pieces;
    const SumSpace next = {.x = session_kfac_set(p->session, true)};
    for (int i = 0; i < pieces->n; i++) {
        Holders h = exec_holders(p->session->train[0], pieces->pieces[i].stage);
        h.device = NULL; /* through the hosts' memory */
        TRY(sums ? holding_sum(&h, &next, pieces, i) : holding_share(&h, next.x, pieces, i));
    }
    return OK;
}

static Status count_failed(SessionPipeline *p)
{
    int64_t own;
    Ranks *ranks = p->session->options.ranks;
    TRY(session_kfac_failed(p->session, true, &own));
    double failed = (double)own;
    if (ranks) TRY(comm_sum(ranks_comm(ranks), &failed, 1));
    p->kfac.failed = (int64_t)failed + 1;
    return OK;
}

int64_t pipeline_kfac_failed(SessionPipeline *p)
{
    int64_t failed = p->kfac.failed - 1;
    p->kfac.failed = 0;
    return failed;
}

/* Inverses without a place in the steps so far. */
static Status run_rest(SessionPipeline *p)
{
    PipelineKfac *k = &p->kfac;
    for (int i = 0; i < k->n; i++) {
        if (k->items[i].taken) continue;
        k->items[i].taken = true;
        double start = clock_monotonic();
        TRY(run_inverse(p->session, k->items[i].factor));
        pipeline_note(p, &(Work){.kind = WORK_INVERSE, .item = i}, clock_monotonic() - start);
    }
    return OK;
}

static Status sum(SessionPipeline *p)
{
    TRY(exchange(p, true));
    p->kfac.summed = true;
    return OK;
}

static Status complete(SessionPipeline *p)
{
    TRY(run_rest(p));
    TRY(exchange(p, false));
    TRY(count_failed(p));
    p->kfac.refresh = 0;
    return pipeline_take_costs(p);
}

Status pipeline_kfac_end(SessionPipeline *p)
{
    if (!p->kfac.refresh) return OK;
    if (gathers_until_now(p)) TRY(sum(p));
    return p->kfac.summed && steps_past(p) >= steps_allowed(p) ? complete(p) : OK;
}

bool session_kfac_pending(const Session *s) { return s->pipeline && s->pipeline->kfac.refresh; }

Status session_settle_kfac(const Session *s)
{
    SessionPipeline *p = s->pipeline;
    if (!session_kfac_pending(s)) return OK;
    PipelineKfac *k = &p->kfac;
    TRY(ranks_meet(s->options.ranks));
    if (!k->summed) {
        k->order.n = 0;
        fill_drain(&k->slots, k->items, k->n, &k->order);
        for (int i = 0; i < k->order.n; i++) TRY(pipeline_kfac_item(p, &k->order.works[i]));
        TRY(sum(p));
    }
    return complete(p);
}
