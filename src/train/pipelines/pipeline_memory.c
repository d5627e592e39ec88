/* Memory and time of a pipeline's stages: a plan for each, and what lies beside each other on a place. */

#include "exec/pipeline.h"
#include "train/pipelines/pipeline_internal.h"
#include "train/planner/planner.h"

static bool splits(const Maker *m) { return pipeline_splits_backward(m->p->grid.shape.kind); }
static int holders(const Maker *m) { return grid_holders(&m->p->grid); }

static int slots_of(const Maker *m, int place, int chunk, SlotKind kind)
{
    if (kind < N_ORDER_SLOTS) return schedule_slots(&m->p->schedule, place, chunk, kind);
    return m->p->kfac ? m->p->costs.slots[place * shape(m)->chunks + chunk][kind - SLOT_CURVE_A] : 0;
}

/* The larger of the slots of a stage's chunks. */
static void stage_slots(const Maker *m, int stage, int slots[N_SLOTS])
{
    for (int kind = 0; kind < N_SLOTS; kind++) {
        slots[kind] = 0;
        for (int direction = 0; direction < m->p->grid.directions; direction++) {
            int place, chunk;
            pipeline_home(shape(m), stage, direction, &place, &chunk);
            int n = slots_of(m, place, chunk, (SlotKind)kind);
            if (n > slots[kind]) slots[kind] = n;
        }
        if (slots[kind] == 0 && (kind == SLOT_ACTIVATION || (splits(m) && kind < N_ORDER_SLOTS))) slots[kind] = 1;
    }
}

/* ---- a stage ---- */

void pipeline_stage_keeps(const Stage *s, const Policy *policy, int layers, LayerKeep *keeps)
{
    if (policy->kind != POLICY_HALF_ATTENTION && policy->kind != POLICY_MIXED) {
        policy_keeps(policy, s->layers, keeps + s->first);
        return;
    }
    LayerKeep *all = mem_array((size_t)layers, sizeof *all); /* by the layer's number in the model */
    policy_keeps(policy, layers, all);
    memcpy(keeps + s->first, all + s->first, (size_t)s->layers * sizeof *all);
    free(all);
}

static size_t stride_of(const Plan *p, Region region, int kind)
{
    for (TensorId t = 0; t < p->n_tensors; t++)
        if (p->tensors[t].region == region && p->tensors[t].slot == kind) return p->tensors[t].stride;
    return 0;
}

/* Marks the layers of a stage's plan in which a statistic of inputs waits for B. */
static void mark_late_layers(const Plan *p, bool *late)
{
    for (InstrId i = p->work[WORK_CURVE_A].first; i < p->work[WORK_CURVE_A].first + p->work[WORK_CURVE_A].count; i++) {
        const Instr *instr = &p->instrs[i];
        if (plan_work_of(p, p->tensors[instr->in[CURVATURE_IN_x]].first) != WORK_FORWARD) late[instr->layer] = true;
    }
}

static const Region slotted[] = {REGION_ACT, REGION_INPUT, REGION_HOST}; /* as StagePlan.stride */

static Status make_stage(Maker *m, int number)
{
    StagePlan *s = &m->p->stage[number];
    const Stage *stage = &m->p->stages[number];
    Status status = OK;
    Model part;
    Plan plan = {0};
    ModelTensors t;
    Holding h = {0};
    Kfac kfac;
    const Grid grid = grid_of_ranks(holders(m)); /* of the part, as a model of one stage */
    int slots[N_SLOTS];
    const PlanInput *in = input(m);
    bool network = m->network.bytes > 0;
    LayerChoice layers;
    layer_choice_init(&layers, in->model->config.layers, in->norm_forms);
    pipeline_stage_keeps(stage, &s->policy, in->model->config.layers, layers.keeps);
    stage_slots(m, number, slots);
    model_part(in->model, stage, 1, &part);
    PlanRequest q = plan_input_request(in, true);
    kfac_init(&kfac, &m->kfac, &part, &grid, stage, 0);
    q.model = &part;
    q.kfac = &kfac;
    q.capacity = m->rows;
    q.emit.layers = &layers;
    q.slots = slots;
    q.split = splits(m);
    m->rates = in->rates;
    if (holders(m) > 1) {
        holding_init(&h, m->r->c, &part, &grid, NULL, 0);
        q.holding = &h;
        q.room = exchanges_room(&kfac, &h, false);
        q.slice = holding_slice(&h);
        if (network) network_rates(&m->network, &h, &m->rates);
    }
    TRY_DONE(plan_make(&q, &plan, &t, NULL));
    pipeline_take_times(m, &plan, kfac.plan.n, number);
    if (m->p->kfac) {
        memset(m->p->costs.late + stage->first, 0, (size_t)stage->layers * sizeof *m->p->costs.late);
        mark_late_layers(&plan, m->p->costs.late);
    }
    pipeline_take_sums(m, &plan, &part, q.holding && network ? &h.mine : NULL, number);
    s->parameters = part.params.size;
    memcpy(s->bytes, plan.region_bytes, sizeof s->bytes);
    for (int kind = 0; kind < N_SLOTS; kind++)
        for (int k = 0; k < 3; k++) {
            Region region = slotted[k];
            s->stride[kind][k] = stride_of(&plan, region, kind);
            if (plan.slots[kind] > 0) s->bytes[region] -= s->stride[kind][k] * (size_t)(plan.slots[kind] - 1);
        }
    m->p->exact = plan.exact;
done:
    plan_free(&plan);
    holding_free(&h);
    kfac_free(&kfac);
    model_free(&part);
    layer_choice_free(&layers);
    return status;
}

/* ---- a place: its chunks beside each other ---- */

/* Works run one after another, so that chunks share the memory of transients, of which `transients` is the largest so
   far. */
static void add_chunk(const Maker *m, int place, int chunk, size_t bytes[N_REGIONS], size_t *transients)
{
    const StagePlan *s = &m->p->stage[pipeline_stage(shape(m), place, chunk)];
    PlacePlan *of = &m->p->place[place];
    size_t kept[3] = {0}, in_slots[3] = {0};
    for (int kind = 0; kind < N_SLOTS; kind++) {
        int n = slots_of(m, place, chunk, (SlotKind)kind);
        of->slots[kind] += n;
        for (int k = 0; k < 3; k++) {
            in_slots[k] += s->stride[kind][k];
            kept[k] += s->stride[kind][k] * (size_t)n;
        }
    }
    bytes[REGION_ACT] += kept[0];
    if (s->bytes[REGION_ACT] - in_slots[0] > *transients) *transients = s->bytes[REGION_ACT] - in_slots[0];
    for (int k = 1; k < 3; k++) bytes[slotted[k]] += s->bytes[slotted[k]] - in_slots[k] + kept[k];
    if (s->bytes[REGION_SCRATCH] > bytes[REGION_SCRATCH]) bytes[REGION_SCRATCH] = s->bytes[REGION_SCRATCH];
    static const Region sums[] = {REGION_OUTPUT, REGION_CONST, REGION_COPY,   REGION_COMM,
                                  REGION_WEIGHT, REGION_GRAD,  REGION_MOMENT, REGION_KFAC};
    for (size_t k = 0; k < sizeof sums / sizeof *sums; k++) bytes[sums[k]] += s->bytes[sums[k]];
}

/* A tensor that two chunks of a place use lies there once. */
static void held_once(const Maker *m, int place, size_t bytes[N_REGIONS])
{
    int64_t apart = 0;
    Model part;
    for (int chunk = 0; chunk < shape(m)->chunks; chunk++)
        apart += m->p->stage[pipeline_stage(shape(m), place, chunk)].parameters;
    place_part(input(m)->model, shape(m), place, m->p->stages, &part);
    m->p->place[place].parameters = part.params.size;
    for (int k = 0; k < 3; k++) {
        Region region = k == 0 ? REGION_WEIGHT : k == 1 ? REGION_GRAD : REGION_MOMENT;
        bytes[region] = (size_t)((double)bytes[region] * (double)part.params.size / (double)apart);
    }
    model_free(&part);
}

/* Bytes of boundaries between GPUs, and with virtual ranks of other replicas' terms of a sum. */
static size_t device_staging(const Maker *m, int place)
{
    const PlanInput *in = input(m);
    const Config *c = m->r->c;
    int64_t space = in->model->params.size * (int64_t)sizeof(float);
    int64_t piece = c->bucket_size < space ? c->bucket_size : space;
    if (strcmp(c->comm, "nccl") != 0 || m->r->accounts->n == 1) return 0;
    return (size_t)exec_pipeline_buffers(shape(m), place, false) * (size_t)m->rows.count[ROWS_TOKENS] *
               (size_t)in->model->config.hidden * dtype_size(in->compute) +
           (c->virtual_ranks ? (size_t)(piece / holders(m) * (holders(m) - 1)) : 0);
}

static void make_place(Maker *m, int place)
{
    size_t bytes[N_REGIONS] = {0}, transients = 0;
    Accounts accounts = *m->r->accounts;
    PlacePlan *of = &m->p->place[place];
    *of = (PlacePlan){0};
    for (int chunk = 0; chunk < shape(m)->chunks; chunk++) add_chunk(m, place, chunk, bytes, &transients);
    bytes[REGION_ACT] += transients;
    held_once(m, place, bytes);
    bytes[REGION_ACT] += device_staging(m, place);
    (void)accounts_set_peaks(&accounts, bytes);
    of->activations = bytes[REGION_ACT];
    of->peak = accounts.row[0].peak + (size_t)(m->r->beside ? m->r->beside[place] : 0);
}

static void find_peak(Maker *m)
{
    PipelinePlan *p = m->p;
    p->peak = 0;
    p->budget = m->r->accounts->row[0].budget;
    for (int place = 0; place < shape(m)->places; place++) {
        make_place(m, place);
        if (p->place[place].peak <= p->peak) continue;
        p->peak = p->place[place].peak;
        p->worst = place;
    }
    p->fits = p->peak <= p->budget;
}

static Status verify_orders(const Maker *m, const FillProblem *problem)
{
    int chunks = shape(m)->chunks;
    Status status = OK;
    int(*of)[N_SLOTS] = mem_array((size_t)chunks, sizeof *of);
    for (int place = 0; place < shape(m)->places && status == OK; place++) {
        FillOrders orders;
        for (int k = 0; k < chunks * N_SLOTS; k++)
            of[k / N_SLOTS][k % N_SLOTS] = slots_of(m, place, k / N_SLOTS, (SlotKind)(k % N_SLOTS));
        fill_make_orders(problem, &m->p->fill, place, of, &orders);
        status = fill_verify_orders(problem, place, of, &orders);
        fill_orders_free(&orders);
    }
    free(of);
    return status;
}

Status pipeline_take_slots(Maker *m, const FillProblem *problem)
{
    enum { PARTS = 4 };
    int chunks = shape(m)->chunks, n = shape(m)->places * chunks;
    int(*wanted)[2] = mem_array((size_t)n, sizeof *wanted), (*least)[2] = mem_array((size_t)n, sizeof *least);
    memcpy(least, m->p->costs.slots, (size_t)n * sizeof *least);
    for (int place = 0; place < shape(m)->places; place++)
        fill_wanted_slots(problem, &m->p->fill, place, wanted + place * chunks);
    for (int part = m->p->fits ? PARTS : 0; part >= 0; part--) {
        for (int i = 0; i < n; i++)
            for (int k = 0; k < 2; k++) {
                int more = wanted[i][k] > least[i][k] ? wanted[i][k] - least[i][k] : 0;
                m->p->costs.slots[i][k] = least[i][k] + more * part / PARTS;
            }
        find_peak(m);
        if (m->p->fits) break;
    }
    MEM_FREE(wanted, least);
    return verify_orders(m, problem);
}

/* ---- what stages keep ---- */

/* The next heavier policy of a stage: none … full, then blocks of layers. False: there is none. */
static bool heavier(Policy *p, int layers)
{
    const int every = p->kind == POLICY_EVERY ? p->every + 1 : 2;
    int level = LEVEL_NONE;
    while (p->kind == POLICY_MIXED && level < LEVEL_FULL &&
           level_keep((Level)level).recomputed != p->runs[0].keep.recomputed)
        level++;
    if (p->kind == POLICY_MIXED && level < LEVEL_FULL)
        *p = policy_of_level((Level)(level + 1));
    else if (every <= layers)
        *p = (Policy){.kind = POLICY_EVERY, .every = every};
    else
        return false;
    return true;
}

static Status make_all(Maker *m)
{
    for (int s = 0; s < m->p->grid.stages; s++) TRY(make_stage(m, s));
    find_peak(m);
    return OK;
}

/* --recompute auto: as long as a place does not fit, its stages give up more. Where that is never enough, the smallest
   of what was tried. */
static Status relieve(Maker *m)
{
    Status status = OK;
    size_t smallest = SIZE_MAX;
    Policy *best = mem_array((size_t)m->p->grid.stages, sizeof *best);
    for (bool changed = true; changed && !m->p->fits;) {
        if (m->p->peak < smallest) {
            smallest = m->p->peak;
            for (int s = 0; s < m->p->grid.stages; s++) best[s] = m->p->stage[s].policy;
        }
        changed = false;
        for (int place = 0; place < shape(m)->places; place++) {
            if (m->p->place[place].peak <= m->p->budget) continue;
            for (int chunk = 0; chunk < shape(m)->chunks; chunk++) {
                int stage = pipeline_stage(shape(m), place, chunk);
                if (!heavier(&m->p->stage[stage].policy, m->p->stages[stage].layers)) continue;
                TRY_DONE(make_stage(m, stage));
                changed = true;
            }
        }
        find_peak(m);
    }
    if (m->p->fits || m->p->peak <= smallest) goto done;
    for (int s = 0; s < m->p->grid.stages; s++) m->p->stage[s].policy = best[s];
    status = make_all(m);
done:
    free(best);
    return status;
}

Status pipeline_make_stages(Maker *m)
{
    Policy policy;
    TRY(planner_policy(m->r->c, input(m)->backend, input(m)->model->config.layers, &policy));
    for (int s = 0; s < m->p->grid.stages; s++)
        m->p->stage[s].policy = policy.kind == POLICY_AUTO ? policy_of_level(LEVEL_NONE) : policy;
    TRY(make_all(m));
    return policy.kind == POLICY_AUTO ? relieve(m) : OK;
}

/* ---- the split that needs least ---- */

static int lightest_place(const Maker *m)
{
    int best = 0;
    for (int place = 1; place < shape(m)->places; place++)
        if (m->p->place[place].peak < m->p->place[best].peak) best = place;
    return best;
}

/* The stage of a place with the most layers, or the fewest. */
static int stage_on(const Maker *m, int place, bool most)
{
    int best = pipeline_stage(shape(m), place, 0);
    for (int chunk = 1; chunk < shape(m)->chunks; chunk++) {
        int stage = pipeline_stage(shape(m), place, chunk);
        int a = m->p->stages[stage].layers, b = m->p->stages[best].layers;
        if (most ? a > b : a < b) best = stage;
    }
    return best;
}

static Status move_layer(Maker *m, int from, int to)
{
    int first = 0;
    m->p->stages[from].layers--;
    m->p->stages[to].layers++;
    for (int s = 0; s < m->p->grid.stages; s++) {
        m->p->stages[s].first = first;
        first += m->p->stages[s].layers;
    }
    return make_all(m);
}

Status pipeline_lower_peak(Maker *m)
{
    for (;;) {
        size_t before = m->p->peak;
        int from = stage_on(m, m->p->worst, true), to = stage_on(m, lightest_place(m), false);
        if (from == to || m->p->stages[from].layers == 1) return OK;
        TRY(move_layer(m, from, to));
        if (m->p->peak >= before) return move_layer(m, to, from);
    }
}
