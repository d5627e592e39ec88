/* The predicted step of a schedule: layers to stages, times, and K-FAC's work in the bubbles. */

#include "train/pipelines/pipeline_internal.h"
#include "train/planner/planner.h"

#define BUBBLE_WARN  0.5  /* of a step */
#define EXPOSED_WARN 0.05 /* of a step */

/* ---- sizes ---- */

/* Micro-batches of one replica: of whole sequences where all are as long, else packed. A step of a run may have more,
   which come in a further pass. */
static int micros_of(const Maker *m, int64_t tokens)
{
    const PlanInput *in = input(m);
    bool alike = m->r->c->padded || (!in->packed && in->mean_length > 0.95 * (double)in->max_length);
    int64_t most = alike ? tokens / in->max_length : 0; /* sequences in each */
    double n = most > 0 ? ceil((double)m->p->share / (double)most)
                        : ceil((double)m->p->share * in->mean_length / (double)tokens);
    return n < 1 ? 1 : (int)n;
}

/* ---- layers to stages ---- */

/* Seconds of F and in training B of each layer, of the embeddings and of the heads, from the whole model's instrs,
   without K-FAC's; copies run beside them. */
static Status whole_costs(const Maker *m, double *layer, double *embeddings, double *heads)
{
    const PlanInput *in = input(m);
    Plan plan;
    ModelTensors t;
    Policy policy = policy_of_level(LEVEL_NONE);
    LayerChoice layers;
    Kfac kfac;
    if (in->training) TRY(planner_policy(m->r->c, in->backend, in->model->config.layers, &policy));
    layer_choice_init(&layers, in->model->config.layers, in->norm_forms);
    if (policy.kind != POLICY_AUTO) policy_keeps(&policy, in->model->config.layers, layers.keeps);
    PlanRequest q = plan_input_request(in, in->training);
    q.capacity = m->rows;
    q.emit.layers = &layers;
    kfac_init_whole(&kfac, &m->kfac, in->model, 1, 0);
    q.kfac = &kfac;
    Status status = plan_make(&q, &plan, &t, NULL);
    layer_choice_free(&layers);
    kfac_free(&kfac);
    if (status != OK) return status;
    double *each = mem_array((size_t)plan.micro.count, sizeof *each);
    plan_cost(&plan, plan.micro, &m->rows, plan_input_beside(in), &in->rates, each);
    *embeddings = *heads = 0;
    for (InstrId i = 0; i < plan.micro.count; i++) {
        const Instr *instr = &plan.instrs[plan.micro.first + i];
        if (instr->op == OP_CURVATURE || instr->lane != LANE_COMPUTE) continue;
        bool embeds = instr->op == OP_EMBED || instr->op == OP_EMBED_BWD;
        *(instr->layer >= 0 ? &layer[instr->layer] : embeds ? embeddings : heads) += each[i];
    }
    free(each);
    plan_free(&plan);
    return OK;
}

static Status split_layers(Maker *m)
{
    int layers = input(m)->model->config.layers, n = m->p->grid.stages;
    double embeddings = 0, heads = 0, *layer = mem_array((size_t)layers, sizeof *layer);
    Status status = OK;
    m->p->stages = mem_resize(m->p->stages, (size_t)n, sizeof *m->p->stages);
    if (strcmp(m->r->c->stage_layers, "auto") != 0) {
        TRY_DONE(stages_parse("--stage-layers", m->r->c->stage_layers, layers, n, m->p->stages));
    } else {
        if (m->r->given)
            for (int l = 0; l < layers; l++) layer[l] = m->r->given->forward + m->r->given->backward;
        else
            TRY_DONE(whole_costs(m, layer, &embeddings, &heads));
        stages_split(layer, layers, embeddings, heads, n, m->p->stages);
    }
done:
    free(layer);
    return status;
}

/* ---- K-FAC ---- */

/* The queue of every place, verified. */
static Status fill_bubbles(Maker *m)
{
    PipelinePlan *p = m->p;
    const KfacCosts *c = &p->costs.costs;
    int *first = mem_array((size_t)p->grid.stages + 1, sizeof *first);
    double most = 0, set = 0; /* bytes of a place's set */
    for (int s = 0; s < p->grid.stages; s++) first[s + 1] = first[s] + p->stages[s].layers;
    for (int place = 0; place < shape(m)->places; place++) {
        double layers = 0;
        for (int chunk = 0; chunk < shape(m)->chunks; chunk++)
            layers += p->stages[pipeline_stage(shape(m), place, chunk)].layers;
        most = fmax(most, layers * c->precondition);
        set = fmax(set, layers * c->set_bytes);
    }
    p->precondition = most;
    p->update += most;
    p->step = p->timeline.sums_s + p->update;
    FillProblem problem = {.schedule = &p->schedule,
                           .timeline = &p->timeline,
                           .first = first,
                           .late = m->r->given ? NULL : p->costs.late,
                           .statistics = {c->statistics[0], c->statistics[1]},
                           .inverse = c->inverse,
                           .factors = c->factors,
                           .replicas = p->grid.replicas,
                           .step = p->step,
                           .steps = p->lag > 0 ? p->lag : 1,
                           .whole = !m->r->given,
                           .least_piece = 20 * input(m)->rates.overhead};
    if (grid_holders(&p->grid) > 1 && m->network.bytes > 0)
        problem.sum = p->costs.sum = m->rates.exchange(m->rates.network, OP_REDUCE, set);
    fill_make(&problem, &p->fill);
    p->costs.gathered = p->fill.gathered;
    p->costs.behind = p->timeline.sums_s - p->timeline.works_s + p->update;
    Status status = fill_verify(&problem, &p->fill);
    if (status == OK) status = pipeline_take_slots(m, &problem);
    free(first);
    p->step += p->fill.exposed / (p->interval > 0 ? p->interval : 1); /* once in an interval */
    return status;
}

/* ---- the whole ---- */

/* In a run's order: the last stage's first, and behind the works those of a tied word embedding. */
static StageSum *all_sums(const PipelinePlan *p, int *n)
{
    int cap = 0;
    StageSum *all = NULL;
    *n = 0;
    for (int late = 0; late < 2; late++)
        for (int s = p->grid.stages - 1; s >= 0; s--)
            for (int i = 0; i < p->stage[s].n_sums; i++)
                if (late == (p->stage[s].sums[i].early < 0)) MEM_PUSH(all, *n, cap, p->stage[s].sums[i]);
    return all;
}

static void simulate(Maker *m)
{
    PipelinePlan *p = m->p;
    int n = p->grid.stages;
    double *seconds = p->costs.seconds;
    ScheduleCosts costs = {.latency = m->network.latency};
    StageSum *sums = all_sums(p, &costs.n_sums);
    costs.sums = sums;
    if (m->network.bytes > 0) costs.boundary = (double)p->boundary / m->network.bytes;
    for (int kind = 0; kind < N_WORKS; kind++) costs.seconds[kind] = seconds + kind * n;
    p->update = 0;
    p->costs.latency = costs.latency;
    p->costs.boundary = costs.boundary;
    for (int s = 0; s < n; s++)
        for (int kind = 0; kind < N_WORKS; kind++) seconds[kind * n + s] = p->stage[s].seconds[kind];
    for (int place = 0; place < shape(m)->places; place++) {
        double update = 0;
        for (int chunk = 0; chunk < shape(m)->chunks; chunk++)
            update += p->stage[pipeline_stage(shape(m), place, chunk)].update;
        if (update > p->update) p->update = update;
    }
    timeline_free(&p->timeline);
    schedule_simulate(&p->schedule, &costs, &p->timeline);
    free(sums);
    p->sums = p->timeline.sums_s - p->timeline.works_s;
    p->step = p->timeline.sums_s + p->update;
}

static void take_least_slots(PipelinePlan *p)
{
    const Pipeline *shape = &p->schedule.shape;
    bool split = pipeline_splits_backward(shape->kind);
    for (int place = 0; place < shape->places; place++)
        for (int chunk = 0; chunk < shape->chunks; chunk++) {
            int of[N_SLOTS] = {0}, *to = p->costs.slots[place * shape->chunks + chunk];
            for (int kind = 0; kind < N_ORDER_SLOTS; kind++)
                of[kind] = schedule_slots(&p->schedule, place, chunk, (SlotKind)kind);
            for (int k = 0; k < 2; k++) to[k] = fill_least_slots(of, (SlotKind)(SLOT_CURVE_A + k), split);
        }
}

/* For a number of tokens in a micro-batch. */
static Status make_for(Maker *m, int64_t tokens)
{
    PipelinePlan *p = m->p;
    const PlanInput *in = input(m);
    Pipeline pipeline = p->grid.shape;
    p->tokens = tokens;
    pipeline.micros = micros_of(m, tokens) * p->grid.directions;
    m->rows = plan_capacity(planner_capacity(in, tokens, p->share));
    p->boundary = m->rows.count[ROWS_TOKENS] * in->model->config.hidden * (int64_t)dtype_size(in->compute);
    schedule_free(&p->schedule);
    schedule_make(&pipeline, &p->schedule);
    if (p->kfac) take_least_slots(p);
    TRY(schedule_verify(&p->schedule));
    TRY(split_layers(m));
    TRY(pipeline_make_stages(m));
    simulate(m);
    return OK;
}

/* --micro-batch-tokens auto: by halves, the fastest step that fits; where none fits the smallest. */
static Status make_best(Maker *m)
{
    int64_t length = input(m)->max_length, best = 0, most = m->p->share * length, least = most;
    double step = INFINITY;
    for (int64_t tokens = most; tokens >= planner_least_tokens(m->r->c, m->p->share, length); tokens /= 2) {
        TRY(make_for(m, tokens));
        least = tokens;
        if (!m->p->fits || m->p->step >= step * (1 - 1e-9)) continue;
        step = m->p->step;
        best = tokens;
    }
    return make_for(m, best ? best : least);
}

static Status open_network(Maker *m)
{
    const char *name = m->r->c->network;
    if (m->r->given && !*name) return OK; /* measured layers alone */
    return network_find(*name ? name : "10GbE", &m->network);
}

/* Each replica is a virtual rank. */
static Status check_virtual(const PlanInput *in, const Grid *grid)
{
    int replicas = grid_holders(grid);
    if (!in->virtual.ranks || in->virtual.ranks == replicas) return OK;
    return fail(E_USAGE,
                "--virtual-ranks %lld with --pipeline %s: each replica is a virtual rank, and there %s %d. "
                "Give --virtual-ranks %d, or other --stages or ranks",
                (long long)in->virtual.ranks, pipeline_name(grid->shape.kind), replicas == 1 ? "is" : "are", replicas,
                replicas);
}

Status pipeline_plan(const PipelineRequest *r, PipelineKind kind, PipelinePlan *p)
{
    Maker m = {.r = r, .p = p};
    int64_t tokens;
    *p = (PipelinePlan){.interval = (int)r->c->kfac_interval, .kfac = r->c->kfac_interval > 0};
    TRY(pipeline_grid(r->c, kind, r->ranks, r->in->model->config.layers, &p->grid));
    TRY(check_virtual(r->in, &p->grid));
    TRY(kfac_options(r->c, &m.kfac));
    p->lag = m.kfac.lag;
    TRY(open_network(&m));
    p->share = planner_share(r->c, grid_holders(&p->grid));
    p->stage = mem_array((size_t)p->grid.stages, sizeof *p->stage);
    p->place = mem_array((size_t)p->grid.shape.places, sizeof *p->place);
    place_fill_init(&p->costs, &p->grid, r->in->model);
    TRY(pipeline_micro_tokens(r->c, &p->grid, r->in, p->share, &tokens));
    TRY(tokens ? make_for(&m, tokens) : make_best(&m));
    if (!p->kfac) return OK;
    kfac_costs(&r->in->model->config, &r->in->rates, &m.rows, plan_input_beside(r->in), r->in->compute, r->given,
               &p->costs.costs);
    return fill_bubbles(&m);
}

Status pipeline_split(const PipelineRequest *r, PipelineKind kind, const RowCounts *rows, PipelinePlan *p)
{
    Maker m = {.r = r, .p = p, .rows = *rows};
    *p = (PipelinePlan){0};
    TRY(pipeline_grid(r->c, kind, r->ranks, r->in->model->config.layers, &p->grid));
    p->stage = mem_array((size_t)p->grid.stages, sizeof *p->stage);
    p->schedule.shape.micros = p->grid.directions;
    return split_layers(&m);
}

void pipeline_plan_free(PipelinePlan *p)
{
    for (int s = 0; p->stage && s < p->grid.stages; s++) free(p->stage[s].sums);
    MEM_FREE(p->stages, p->stage, p->place, p->costs.seconds, p->costs.late, p->costs.slots);
    schedule_free(&p->schedule);
    timeline_free(&p->timeline);
    fill_free(&p->fill);
    *p = (PipelinePlan){0};
}

/* ---- its picture ---- */

BarKind pipeline_bar(WorkKind kind)
{
    static const BarKind bars[] = {BAR_FORWARD,   BAR_BACKWARD,  BAR_INPUT,  BAR_WEIGHT,
                                   BAR_CURVATURE, BAR_CURVATURE, BAR_INVERSE};
    return bars[kind];
}

void pipeline_draw(const Schedule *s, const Timeline *t, int first, double at, int replicas, TimelinePanel *panel)
{
    for (int row = 0; row < s->shape.places * replicas; row++)
        for (int i = s->first[row / replicas]; i < s->first[row / replicas + 1]; i++)
            timeline_add(panel, (TimelineBar){row, pipeline_bar(s->works[i].kind), at + t->spans[i].start,
                                              at + t->spans[i].end, first + s->works[i].micro});
}

void pipeline_draw_end(double at, const Timeline *t, double update, TimelinePanel *panel)
{
    double sums = at + t->sums_s;
    for (int row = 0; row < panel->rows; row++) {
        timeline_add(panel, (TimelineBar){row, BAR_SUM, at + t->works_s, sums, -1});
        timeline_add(panel, (TimelineBar){row, BAR_UPDATE, sums, sums + update, -1});
    }
}

/* ---- warnings, and what does not fit ---- */

void pipeline_warn(const PipelinePlan *p)
{
    const char *name = pipeline_name(p->grid.shape.kind);
    if (p->schedule.shape.micros < p->grid.shape.places)
        log_warn("%s: %d micro-batches a step for %d places leave a bubble of %.0f %%; lower --micro-batch-tokens or "
                 "raise --batch-size",
                 name, p->schedule.shape.micros, p->grid.shape.places, 100 * p->timeline.bubble);
    else if (p->timeline.bubble > BUBBLE_WARN)
        log_warn("%s: a bubble of %.0f %%; more micro-batches or fewer stages make it smaller", name,
                 100 * p->timeline.bubble);
    if (p->kfac && p->fill.exposed > EXPOSED_WARN * p->timeline.works_s)
        log_warn("%s: %.3g s of K-FAC's work do not fit into the bubbles of %d step%s; raise --kfac-interval or "
                 "--kfac-lag",
                 name, p->fill.exposed, p->lag > 0 ? p->lag : 1, p->lag > 1 ? "s" : "");
}

static Status least_split(const PipelineRequest *r, PipelinePlan *p)
{
    Maker m = {.r = r, .p = p};
    TRY(open_network(&m));
    TRY(kfac_options(r->c, &m.kfac));
    m.rows = plan_capacity(planner_capacity(r->in, p->tokens, p->share));
    return pipeline_lower_peak(&m);
}

Status pipeline_refuse(const PipelineRequest *r, PipelinePlan *p)
{
    char layers[256] = "";
    size_t peak = p->peak, used = 0;
    int worst = p->worst;
    TRY(least_split(r, p));
    for (int s = 0; s < p->grid.stages && used < sizeof layers; s++)
        used += (size_t)snprintf(layers + used, sizeof layers - used, "%s%d", s ? "," : "", p->stages[s].layers);
    return fail(E_MEMORY,
                "%s: place %d of the pipeline takes %.1f MiB, more than %s of %.1f MiB. The stages alone fit with "
                "--memory-budget %zuMiB%s, or with --stage-layers %s, which needs least: %.1f MiB. A run also holds "
                "evaluation and the state that it saves",
                pipeline_name(p->grid.shape.kind), worst, MIB(peak), r->accounts->row[0].limit, MIB(p->budget),
                MIB_UP(accounts_enough(r->accounts, peak)),
                strcmp(r->c->recompute, "auto") == 0 ? "" : ", --recompute auto", layers, MIB(p->peak));
}
