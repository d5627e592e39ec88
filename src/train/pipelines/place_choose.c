/* The choice of stages, policies and micro-batches of a pipeline, and the plans of every rank that follow. */

#include "exec/pipeline.h"
#include "train/pipelines/pipeline.h"
#include "train/planner/planner.h"
#include "train/planner/snapshot_room.h"

static const Pipeline *shape(const RankPlace *p) { return &p->grid.shape; }

/* ---- what rank 0 chooses ---- */

typedef struct {
    Grid grid;
    int64_t tokens;
    double step_s;
} Choice;

static Status choose(PipelineKind kind, const PipelineRequest *r, PipelinePlan *plan, Choice *choice, Stage *stages,
                     Policy *policies)
{
    const RowCounts rows = plan_capacity(planner_evaluation_capacity(r->c, r->in, 0));
    TRY(r->in->training ? pipeline_plan(r, kind, plan) : pipeline_split(r, kind, &rows, plan));
    *choice = (Choice){plan->grid, plan->tokens, plan->step};
    choice->grid.shape.micros = plan->schedule.shape.micros;
    memcpy(stages, plan->stages, (size_t)plan->grid.stages * sizeof *stages);
    for (int s = 0; s < plan->grid.stages; s++)
        policies[s] = r->in->training ? plan->stage[s].policy : policy_of_level(LEVEL_NONE);
    return OK;
}

/* ---- what follows from it ---- */

/* The policy of all stages, or "by stage". */
static void take_keeps(const RankPlace *p, const Policy *policies, LayerChoice *layers)
{
    policy_format(&policies[0], layers->policy);
    for (int s = 0; s < p->grid.stages; s++) {
        pipeline_stage_keeps(&p->stages[s], &policies[s], p->whole->config.layers, layers->keeps);
        if (memcmp(&policies[s], &policies[0], sizeof *policies) != 0)
            snprintf(layers->policy, sizeof layers->policy, "by stage");
    }
}

static void take_uses(RankPlace *p)
{
    bool first = false, last = false;
    for (int k = 0; k < place_chunks(p); k++) {
        first |= stage_is_first(place_stage(p, k));
        last |= stage_is_last(p->whole, place_stage(p, k));
    }
    p->both_uses = first && last && model_tied(p->whole) != NULL;
}

/* Slots for every number of micro-batches. */
static Status take_schedules(RankPlace *p)
{
    int most = shape(p)->micros, chunks = place_chunks(p);
    bool split = pipeline_splits_backward(shape(p)->kind);
    p->schedules = mem_array((size_t)most + 1, sizeof *p->schedules);
    p->slots = mem_array((size_t)chunks, sizeof *p->slots);
    for (int k = 0; k < chunks; k++)
        for (int kind = 0; kind < N_ORDER_SLOTS; kind++) p->slots[k][kind] = kind == SLOT_ACTIVATION || split;
    for (int n = 1; n <= most; n++) {
        Pipeline with = *shape(p);
        with.micros = n;
        schedule_make(&with, &p->schedules[n]);
        if (n <= 2 * with.places + 1 || n == most) TRY(schedule_verify(&p->schedules[n]));
        for (int k = 0; k < chunks; k++)
            for (int kind = 0; kind < N_ORDER_SLOTS; kind++) {
                int slots = schedule_slots(&p->schedules[n], p->number, k, (SlotKind)kind);
                if (slots > p->slots[k][kind]) p->slots[k][kind] = slots;
            }
    }
    place_simulate(p);
    return OK;
}

/* ---- K-FAC in the bubbles ---- */

/* Collective: rank 0's plan becomes that of all. */
static Status share_fill(RankPlace *p, PipelinePlan *plan, Ranks *ranks)
{
    PlaceFill *f = &p->fill;
    size_t works = (size_t)N_WORKS * (size_t)p->grid.stages, layers = (size_t)p->whole->config.layers;
    size_t chunks = (size_t)(shape(p)->places * shape(p)->chunks);
    if (!kfac_sets(&p->kfac)) return OK;
    if (ranks_first(ranks)) {
        *f = plan->costs;
        plan->costs = (PlaceFill){0};
    } else {
        place_fill_init(f, &p->grid, p->whole);
    }
    TRY(ranks_broadcast(ranks, f, offsetof(PlaceFill, seconds)));
    TRY(ranks_broadcast(ranks, f->seconds, works * sizeof *f->seconds));
    TRY(ranks_broadcast(ranks, f->late, layers * sizeof *f->late));
    return ranks_broadcast(ranks, f->slots, chunks * sizeof *f->slots);
}

/* ---- the choice ---- */

/* What rounds of the choice pass on, on rank 0. */
typedef struct {
    PipelinePlan plan; /* the last one's */
    int64_t *beside;   // (places) bytes that a place's plans took beside what that plan counts
    bool smallest;     /* the choice is for no memory at all */
} Search;

static Status take_choice(RankPlace *p, const Config *c, const PlanInput *in, const Accounts *accounts, Ranks *ranks,
                          Search *search, Policy *policies)
{
    PipelineKind kind = place_kind(c);
    Accounts least = *accounts;
    PipelineRequest r = {.c = c, .ranks = ranks_size(ranks), .in = in, .accounts = &least, .beside = search->beside};
    Choice choice = {0};
    PipelinePlan *plan = &search->plan;
    KfacOptions kfac = {0};
    int64_t room = (int64_t)least.row[0].budget - (int64_t)least.row[0].held;
    pipeline_plan_free(plan);
    if (in->training) TRY(kfac_options(c, &kfac));
    TRY(ranks_least(ranks, &room));
    least.row[0].budget = search->smallest ? 0 : (size_t)(room > 0 ? room : 0) + least.row[0].held;
    p->stages = mem_array((size_t)p->grid.stages, sizeof *p->stages);
    TRY(ranks_all(ranks, ranks_first(ranks) ? choose(kind, &r, plan, &choice, p->stages, policies) : OK));
    TRY(ranks_broadcast(ranks, &choice, sizeof choice));
    TRY(ranks_broadcast(ranks, p->stages, (size_t)p->grid.stages * sizeof *p->stages));
    TRY(ranks_broadcast(ranks, policies, (size_t)p->grid.stages * sizeof *policies));
    p->grid = choice.grid;
    p->tokens = choice.tokens;
    p->step_s = choice.step_s;
    place_take(p, c, &kfac, in->sees, ranks_rank(ranks), true);
    take_uses(p);
    TRY(share_fill(p, plan, ranks));
    TRY(take_schedules(p));
    place_find_room(p, in->backend->device != NULL);
    return OK;
}

static Status make_plans(const RankPlace *p, const Config *c, const PlanInput *in, const Accounts *accounts,
                         const Ranks *ranks, const Policy *policies, RunPlan *plan)
{
    uint64_t snapshots = 0;
    run_plan_init(plan, in);
    take_keeps(p, policies, &plan->layers);
    plan->grain = planner_grain(c, in);
    plan->accounts = *accounts;
    if (in->training) plan->micro = planner_capacity(in, p->tokens, planner_share(c, grid_holders(&p->grid)));
    plan->micros = (double)shape(p)->micros / p->grid.directions;
    plan->step_s = p->step_s;
    plan->save_buffer = in->training;
    if (in->evaluation) plan->eval_micro = planner_evaluation_capacity(c, in, p->tokens);
    TRY(run_plan_make(plan));
    if (in->training) TRY(snapshots_need(c, ranks, in, &snapshots));
    accounts_update(&plan->accounts);
    planner_take_snapshots(c, ranks, (size_t)snapshots, &plan->accounts);
    return planner_fit(c, NULL, plan);
}

/* Rank 0 learns how much the places take. */
static Status learn(const RankPlace *p, const RunPlan *plan, const Accounts *accounts, Ranks *ranks, Search *search)
{
    int n = ranks_size(ranks);
    int64_t *all = mem_array((size_t)n, sizeof *all);
    int64_t own = (int64_t)plan->accounts.row[0].peak - (int64_t)accounts->row[0].held;
    all[0] = own;
    Status status = ranks ? comm_allgather(ranks_comm(ranks), &own, sizeof own, all) : OK;
    for (int place = 0; status == OK && ranks_first(ranks) && place < shape(p)->places; place++) {
        int64_t most = 0, *beside = &search->beside[place];
        for (int r = place * p->grid.replicas; r < (place + 1) * p->grid.replicas; r++)
            if (all[r] > most) most = all[r];
        *beside += most - ((int64_t)search->plan.place[place].peak - (int64_t)accounts->row[0].held);
    }
    free(all);
    return status;
}

/* One round: the choice, and what follows from it. */
static Status choose_once(const Config *c, const PlanInput *whole, PlanInput *in, const Accounts *accounts,
                          Ranks *ranks, bool by_devices, Search *search, RankPlace **place, RunPlan *plan)
{
    Status status = OK;
    RankPlace *p = mem_alloc(sizeof *p);
    run_plan_free(plan);
    place_free(*place);
    *place = p;
    *in = *whole;
    p->whole = whole->model;
    p->by_devices = by_devices;
    TRY(pipeline_grid(c, place_kind(c), ranks_size(ranks), p->whole->config.layers, &p->grid));
    Policy *policies = mem_array((size_t)p->grid.stages, sizeof *policies);
    TRY_DONE(take_choice(p, c, whole, accounts, ranks, search, policies));
    in->place = p;
    status = make_plans(p, c, in, accounts, ranks, policies, plan);
done:
    free(policies);
    return status;
}

/* Bytes beside `held` that the smallest choice of --recompute auto takes on this rank. */
static Status smallest_auto(const Config *c, const PlanInput *whole, const Accounts *accounts, Ranks *ranks,
                            bool by_devices, Search *search, int64_t *needs)
{
    Config automatic = *c;
    PlanInput in;
    RankPlace *place = NULL;
    RunPlan plan = {0};
    static char name[] = "auto";
    automatic.recompute = name;
    search->smallest = true;
    Status status = choose_once(&automatic, whole, &in, accounts, ranks, by_devices, search, &place, &plan);
    if (status == OK) *needs = (int64_t)plan.accounts.row[0].peak - (int64_t)plan.accounts.row[0].held;
    run_plan_free(&plan);
    place_free(place);
    return status;
}

/* The search counts stages, not all that lies beside them on a place: evaluation, the state that is saved, buffers.
   Where the plans then do not fit, the choice is made again with what they took, and at last the smallest is taken. */
Status place_choose(const Config *c, PlanInput *in, const Accounts *accounts, Ranks *ranks, bool by_devices,
                    RankPlace **place, RunPlan *plan)
{
    enum { SMALLEST = 3 };
    Status status = OK;
    const PlanInput whole = *in;
    int64_t fits = 0, least = -1, n = ranks_size(ranks);
    Search search = {.beside = mem_array((size_t)n, sizeof *search.beside)};
    bool fixed = !in->training || (strcmp(c->recompute, "auto") != 0 && strcmp(c->micro_batch_tokens, "auto") != 0 &&
                                   c->kfac_interval == 0); /* which takes more slots where they fit */
    for (int round = 0; round <= (fixed ? 0 : SMALLEST) && !fits; round++) {
        search.smallest = round == SMALLEST;
        TRY_DONE(choose_once(c, &whole, in, accounts, ranks, by_devices, &search, place, plan));
        if (in->training) TRY_DONE(learn(*place, plan, accounts, ranks, &search));
        fits = plan->fits;
        TRY_DONE(ranks_least(ranks, &fits));
    }
    if (fits && in->training && ranks_first(ranks)) pipeline_warn(&search.plan);
    if (!fits && in->training && strcmp(c->recompute, "auto") != 0)
        TRY_DONE(smallest_auto(c, &whole, accounts, ranks, by_devices, &search, &least));
    if (!fits) status = planner_refuse(plan, least, ranks);
done:
    pipeline_plan_free(&search.plan);
    free(search.beside);
    return status;
}
