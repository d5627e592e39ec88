#include "train/planner/planner.h"

#include "state/snapshot/snapshot.h"
#include "train/parts/place.h"
#include "train/planner/search.h"
#include "train/planner/snapshot_room.h"

/* ---- choosing ---- */

typedef struct {
    const Config *c;
    RunPlan *plan;
    Policy policy;
    int64_t share;  /* sequences of a step, on one rank */
    int64_t tokens; /* of a micro-batch, by --micro-batch-tokens; 0: auto */
    size_t budget;  /* of the rank with the least room */
    bool counted;   /* the primitives of a backend, and the snapshots that are there */
} Planner;

/* Sequences of a step, on one rank or virtual rank. */
static int64_t share_of(const Config *c, const PlanInput *in)
{
    return planner_share(c, in->virtual.ranks ? in->virtual.ranks : grid_holders(&in->place->grid));
}

static const PlanInput *input(const Planner *g) { return &g->plan->input; }

static void set_micro(Planner *g, int64_t tokens)
{
    const PlanInput *in = input(g);
    double rows = (double)g->share * (g->c->padded ? (double)in->max_length : in->mean_length), micros; /* of a step */
    if (in->packed && ceil(rows) < (double)tokens) tokens = (int64_t)ceil(rows);
    micros = in->packed ? ceil(rows) / (double)tokens : ceil(rows / (double)tokens);
    g->plan->micro = planner_capacity(in, tokens, g->share);
    micros = fmax(micros, 1);
    g->plan->micros = micros * fmax((double)in->virtual.each, 1);
    int64_t usual = (int64_t)ceil(rows / micros), most = plan_capacity(g->plan->micro).count[ROWS_TOKENS];
    if (in->backend) usual = in->backend->bucket(usual, most);
    g->plan->usual = plan_capacity(planner_capacity(in, usual, (int64_t)ceil((double)g->share / micros)));
}

static Status plan_evaluation(const Planner *g, int64_t training)
{
    RunPlan *p = g->plan;
    MicroCapacity capacity = planner_evaluation_capacity(g->c, input(g), training);
    if (!input(g)->evaluation || capacity.tokens == p->eval_micro.tokens) return OK;
    p->eval_micro = capacity;
    TRY(run_plan_make_one(p, false));
    accounts_update(&p->accounts);
    return OK;
}

/* Evaluation beside it shares its memory. */
static Status take_micro(Planner *g, int64_t tokens)
{
    set_micro(g, tokens);
    return plan_evaluation(g, g->plan->micro.tokens);
}

static SearchProblem problem_of(const Planner *g)
{
    const Backend *b = input(g)->backend;
    return (SearchProblem){.training = run_plan_request(g->plan, true),
                           .evaluation = input(g)->evaluation ? &g->plan->chunk->eval : NULL,
                           .accounts = &g->plan->accounts,
                           .rates = input(g)->rates,
                           .rows = g->plan->usual,
                           .seq_len = plan_input_beside(input(g)),
                           .micros = g->plan->micros,
                           .offload = !b || backend_offloads(b)};
}

/* The best choice of layers for this micro-batch. */
static Status search(const Planner *g, SearchResult *r)
{
    const SearchProblem problem = problem_of(g);
    return search_layers(&problem, r);
}

static void take_layers(Planner *g, SearchResult *r)
{
    RunPlan *p = g->plan;
    layer_choice_free(&p->layers);
    p->layers = r->layers;
    p->step_s = r->step_s;
}

static bool better(const SearchResult *r, const SearchResult *than)
{
    if (r->fits != than->fits) return r->fits;
    return r->fits ? r->step_s < than->step_s * (1 - 1e-9) : r->peak < than->peak;
}

/* The k-th size of a micro-batch that is tried: halves, and of a coupled step, whose first micro-batch saves more the
   larger it is, the sizes between halves too. */
static int64_t micro_size(const Planner *g, int k)
{
    int64_t whole = g->share * input(g)->max_length;
    if (!input(g)->coupling) return whole >> k;
    return k % 2 ? (whole >> k / 2) / 4 * 3 : whole >> k / 2;
}

/* --micro-batch-tokens auto: from the whole step down, the fastest that fits wins, ties to the larger; where none fits
   the smallest. */
static Status search_micro(Planner *g)
{
    SearchResult best = {.peak = SIZE_MAX};
    int64_t least = planner_least_tokens(g->c, g->share, input(g)->max_length), best_tokens = least, last = 0;
    for (int k = 0; last != least; k++) {
        SearchResult r;
        last = micro_size(g, k) > least ? micro_size(g, k) : least;
        TRY(take_micro(g, last));
        TRY(search(g, &r));
        if (!better(&r, &best)) {
            layer_choice_free(&r.layers);
            continue;
        }
        take_layers(g, &r);
        best = r;
        best_tokens = last;
    }
    return take_micro(g, best_tokens);
}

/* --micro-batch-tokens auto with a fixed policy: the largest that fits. */
static Status largest_micro(Planner *g)
{
    const int64_t least = planner_least_tokens(g->c, g->share, input(g)->max_length);
    for (int k = 0;; k++) {
        const int64_t tokens = micro_size(g, k);
        Plan p;
        ModelTensors t;
        size_t bytes[N_REGIONS];
        TRY(take_micro(g, tokens > least ? tokens : least));
        PlanRequest r = run_plan_request(g->plan, true);
        TRY(plan_make(&r, &p, &t, NULL));
        plan_bytes(&p, &g->plan->chunk->eval, bytes);
        plan_free(&p);
        const Account *first = &g->plan->accounts.row[0];
        if (account_sum(first, bytes) <= first->budget || tokens <= least) return OK;
    }
}

static Status choose_layers(Planner *g)
{
    RunPlan *p = g->plan;
    if (g->policy.kind == POLICY_AUTO) {
        SearchResult r;
        if (!g->tokens) return search_micro(g);
        TRY(search(g, &r));
        take_layers(g, &r);
        return OK;
    }
    policy_keeps(&g->policy, input(g)->model->config.layers, p->layers.keeps);
    policy_format(&g->policy, p->layers.policy);
    return g->tokens ? OK : largest_micro(g);
}

/* Rank 0 chooses for all ranks: what fits the one with the least memory, or the `smallest` plan there is. */
static Status choose_together(Planner *g, Ranks *ranks, bool smallest)
{
    RunPlan *p = g->plan;
    Account *first = &p->accounts.row[0];
    size_t budget = first->budget;
    int64_t room = (int64_t)first->budget - (int64_t)first->held;
    if (ranks) TRY(ranks_least(ranks, &room));
    g->budget = (size_t)(room > 0 ? room : 0) + first->held;
    first->budget = smallest ? 0 : g->budget;
    TRY(ranks_all(ranks, ranks_first(ranks) ? choose_layers(g) : OK));
    first->budget = budget;
    if (!ranks) return OK;
    if (!planner_for_device(input(g))) /* a host's have no pointers; each rank may need a plan for its saves */
        TRY(ranks_broadcast(ranks, &p->input.rates, sizeof p->input.rates));
    TRY(ranks_broadcast(ranks, &p->micro.tokens, sizeof p->micro.tokens));
    TRY(ranks_broadcast(ranks, &p->step_s, sizeof p->step_s));
    TRY(ranks_broadcast(ranks, p->layers.policy, sizeof p->layers.policy));
    TRY(ranks_broadcast(ranks, p->layers.keeps, (size_t)input(g)->model->config.layers * sizeof *p->layers.keeps));
    return take_micro(g, p->micro.tokens);
}

/* ---- snapshots ---- */

/* Snapshots of the run's earlier processes are in memory already and get replaced, so their bytes are free to take. */
void planner_take_snapshots(const Config *c, const Ranks *ranks, size_t bytes, Accounts *accounts)
{
    Account *machine_row = &accounts->row[accounts->n - 1];
    machine_row->snapshots = bytes;
    if (!bytes || !machine_row->automatic) return;
    char *output = snapshot_canonical(c->output_dir);
    machine_row->budget += (size_t)(snapshot_present(c->snapshot_dir, output) / (uint64_t)ranks_local_size(ranks));
    free(output);
}

/* ---- what does not fit ---- */

/* Bytes beside `held` of the smallest plan of --recompute auto. */
static Status smallest_auto(const Config *c, const RunPlan *p, int64_t *needs)
{
    RunPlan plan = *p;
    SearchResult r;
    Planner g = {.c = c, .plan = &plan, .share = share_of(c, &p->input)};
    plan.save_buffer = !planner_can_stream(&p->input);
    plan.accounts.row[0].budget = 0;
    if (strcmp(c->micro_batch_tokens, "auto") == 0)
        set_micro(&g, planner_least_tokens(c, g.share, p->input.max_length));
    TRY(search(&g, &r));
    layer_choice_free(&r.layers);
    *needs = (int64_t)r.peak - (int64_t)plan.accounts.row[0].held;
    return OK;
}

Status planner_check(const Config *c, const RunPlan *p, Ranks *ranks)
{
    int64_t fits = p->fits, least = -1;
    TRY(ranks_least(ranks, &fits));
    if (fits) return OK;
    bool fixed = p->input.training && !str_starts_with(p->layers.policy, "auto");
    TRY(ranks_all(ranks, fixed ? smallest_auto(c, p, &least) : OK));
    return planner_refuse(p, least, ranks);
}

/* ---- the whole plan ---- */

/* A backend makes its primitives (oneDNN: tens of MiB) when a plan of a capacity is first made. A choice by memory must
   count them, so one plan, of the largest micro-batch, is made ahead. */
static Status count_primitives(Planner *g)
{
    RunPlan *p = g->plan;
    MicroCapacity chosen = p->micro;
    Plan ahead;
    ModelTensors t;
    if (!p->accounts.resident || (g->tokens && g->policy.kind != POLICY_AUTO)) return OK;
    if (!g->tokens) set_micro(g, g->share * input(g)->max_length);
    PlanRequest r = run_plan_request(p, true);
    TRY(plan_make(&r, &ahead, &t, NULL));
    plan_free(&ahead);
    if (!g->tokens) p->micro = chosen;
    accounts_update(&p->accounts);
    return OK;
}

static Status choose_training(Planner *g, Ranks *ranks, bool smallest)
{
    RunPlan *p = g->plan;
    const PlanInput *in = &p->input;
    if (g->tokens) TRY(take_micro(g, g->tokens));
    if (!g->counted) TRY(count_primitives(g));
    /* In the memory that activations lie in a save buffer that the run can do without comes after the choice, so that a
       larger budget is never slower. */
    p->save_buffer = !(account_has(&p->accounts.row[0], REGION_SAVE) && planner_can_stream(in));
    TRY(choose_together(g, ranks, smallest));
    p->save_buffer = true;
    TRY(run_plan_make_one(p, true));
    accounts_update(&p->accounts);
    if (in->first)
        p->step_s = search_step_seconds(&p->chunk->train, &p->usual, &in->rates, plan_input_beside(in), p->micros);
    return OK;
}

/* A save buffer and snapshots that the run can do without are not counted, as in the choice. */
static Status certify(Planner *g)
{
    RunPlan *p = g->plan;
    Account *first = &p->accounts.row[0];
    const size_t budget = first->budget;
    size_t other = first->peak - p->bytes[REGION_ACT];
    if (account_has(first, REGION_SAVE) && planner_can_stream(&p->input)) other -= p->bytes[REGION_SAVE];
    if (!planner_own_snapshots(g->c)) other -= first->snapshots;
    const SearchProblem problem = problem_of(g);
    first->budget = g->budget;
    Status status = search_bound(&problem, &p->chunk->train, other, &p->bound);
    first->budget = budget;
    if (!p->fits) p->bound.step_s = 0;
    return status;
}

static void take_snapshots(Planner *g, const Ranks *ranks, size_t bytes)
{
    if (!g->counted) planner_take_snapshots(g->c, ranks, bytes, &g->plan->accounts);
    g->plan->accounts.row[g->plan->accounts.n - 1].snapshots = bytes;
}

static Status fit(const Planner *g)
{
    const SearchProblem problem = problem_of(g);
    return planner_fit(g->c, g->policy.kind == POLICY_AUTO ? &problem : NULL, g->plan);
}

/* A plan that is made may make the process hold more than was known at the choice. Where it then does not fit, the
   choice is made again with what is known now, and at last the smallest plan is taken. */
static Status choose_fitting(Planner *g, Ranks *ranks)
{
    enum { SMALLEST = 2 };
    RunPlan *p = g->plan;
    uint64_t snapshots;
    TRY(planner_policy(g->c, input(g)->backend, input(g)->model->config.layers, &g->policy));
    TRY(planner_micro_tokens(g->c, g->share, input(g)->max_length, &g->tokens));
    if (planner_one_grain(input(g))) g->tokens = planner_least_tokens(g->c, g->share, input(g)->max_length);
    TRY(snapshots_need(g->c, ranks, input(g), &snapshots));
    bool fixed = g->policy.kind != POLICY_AUTO && g->tokens;
    bool own = planner_own_snapshots(g->c); /* their memory is reserved before layers are chosen */
    for (int round = 0; round <= SMALLEST; round++) {
        if (own) take_snapshots(g, ranks, (size_t)snapshots);
        TRY(choose_training(g, ranks, round == SMALLEST));
        if (!own) take_snapshots(g, ranks, (size_t)snapshots);
        g->counted = true;
        TRY(ranks_all(ranks, fit(g)));
        int64_t fits = p->fits;
        TRY(ranks_least(ranks, &fits));
        if (fits || fixed) break;
    }
    return input(g)->first ? certify(g) : OK;
}

Status planner_choose(const Config *c, const PlanInput *in, const Accounts *accounts, Ranks *ranks, RunPlan *p)
{
    Planner g = {.c = c, .plan = p, .share = share_of(c, in)};
    run_plan_init(p, in);
    p->accounts = *accounts;
    p->grain = planner_grain(c, in);
    if (in->training) return choose_fitting(&g, ranks);
    TRY(plan_evaluation(&g, 0));
    return planner_fit(c, NULL, p);
}
