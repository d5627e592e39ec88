#include "train/planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/snapshot.h"
#include "train/search.h"
#include "train/snapshot_room.h"

#define MIB(bytes) ((double)(bytes) / (1 << 20))

/* ---- choosing ---- */

typedef struct {
    const Config *c;
    RunPlan *plan;
    Policy policy;
    int64_t share;      /* sequences of a step, on one rank */
    bool own_snapshots; /* --snapshot-steps is a number: their memory is reserved before levels are chosen */
} Planner;

static const PlanInput *input(const Planner *g) { return &g->plan->input; }

/* The machine's. */
static Account *machine(const Planner *g) { return &g->plan->accounts.row[g->plan->accounts.n - 1]; }

/* Rows of a step on this rank, from the mean length where sequences are packed. */
static double tokens_of_step(const Planner *g)
{
    const PlanInput *in = input(g);
    return (double)g->share * (g->c->padded ? (double)in->max_length : in->mean_length);
}

static void set_micro(Planner *g, int64_t tokens)
{
    double rows = tokens_of_step(g), micros;
    if (input(g)->packed && ceil(rows) < (double)tokens) tokens = (int64_t)ceil(rows);
    micros = input(g)->packed ? ceil(rows) / (double)tokens : ceil(rows / (double)tokens);
    g->plan->micro = planner_capacity(input(g), tokens, g->share);
    g->plan->micros = fmax(micros, 1) * fmax((double)input(g)->virtual_each, 1);
}

static double step_seconds(const Planner *g)
{
    return search_step_seconds(&g->plan->train, &input(g)->rates, plan_input_beside(input(g)), g->plan->micros);
}

/* The best levels for this micro-batch. */
static Status search(const Planner *g, SearchResult *r)
{
    const Backend *b = input(g)->backend;
    SearchProblem problem = {.training = run_plan_request(g->plan, true),
                             .evaluation = input(g)->evaluation ? &g->plan->eval : NULL,
                             .accounts = &g->plan->accounts,
                             .rates = input(g)->rates,
                             .seq_len = plan_input_beside(input(g)),
                             .micros = g->plan->micros,
                             .offload = !b || backend_offloads(b)};
    problem.training.levels = NULL;
    return search_levels(&problem, r);
}

static void take_levels(Planner *g, SearchResult *r)
{
    RunPlan *p = g->plan;
    free(p->levels);
    p->levels = r->levels;
    p->step_s = r->step_s;
    snprintf(p->policy, sizeof p->policy, "auto (%s)", r->name);
}

/* --micro-batch-tokens auto: from the whole step down by halves, the fastest wins, ties to the larger. */
static Status search_micro(Planner *g)
{
    Status last = OK;
    double best = INFINITY;
    int64_t best_tokens = 0, length = input(g)->max_length, least = planner_least_tokens(g->c, g->share, length);
    for (int64_t tokens = g->share * length; tokens >= least; tokens /= 2) {
        SearchResult r;
        set_micro(g, tokens);
        last = search(g, &r);
        if (last == OK && r.step_s < best * (1 - 1e-9)) {
            best = r.step_s;
            best_tokens = tokens;
            take_levels(g, &r);
        } else if (last == OK) {
            free(r.levels);
        } else if (last != E_MEMORY) {
            return last;
        }
    }
    if (!best_tokens) return last;
    set_micro(g, best_tokens);
    return OK;
}

/* --micro-batch-tokens auto with a fixed policy: the largest that fits. */
static Status largest_micro(Planner *g)
{
    int64_t length = input(g)->max_length, least = planner_least_tokens(g->c, g->share, length);
    for (int64_t tokens = g->share * length;; tokens /= 2) {
        Plan p;
        ModelTensors t;
        size_t bytes[N_REGIONS];
        set_micro(g, tokens > least ? tokens : least);
        PlanRequest r = run_plan_request(g->plan, true);
        TRY(plan_make(&r, &p, &t, NULL));
        plan_bytes(&p, &g->plan->eval, bytes);
        plan_free(&p);
        const Account *first = &g->plan->accounts.row[0];
        if (account_sum(first, bytes) <= first->budget || tokens <= least) return OK;
    }
}

static Status choose_levels(Planner *g)
{
    RunPlan *p = g->plan;
    if (g->policy.kind == POLICY_AUTO) {
        SearchResult r;
        if (p->micro.tokens == 0) return search_micro(g);
        TRY(search(g, &r));
        take_levels(g, &r);
        return OK;
    }
    policy_levels(g->policy, input(g)->model->config.layers, p->levels);
    policy_format(g->policy, p->policy);
    return p->micro.tokens ? OK : largest_micro(g);
}

static Status choose_alone(Planner *g)
{
    size_t reserved = machine(g)->snapshots;
    Status status = choose_levels(g);
    if (status != E_MEMORY || !reserved || machine(g) != &g->plan->accounts.row[0]) return status;
    return status_context(status, "beside %.1f MiB for snapshots (--snapshot-steps 0 takes none)", MIB(reserved));
}

/* The same choice on all ranks: what fits the one with the least memory. */
static Status choose_together(Planner *g, Ranks *ranks)
{
    RunPlan *p = g->plan;
    Account *first = &p->accounts.row[0];
    int64_t room = (int64_t)first->budget - (int64_t)first->held;
    if (!ranks) return choose_alone(g);
    TRY(ranks_least(ranks, &room));
    first->budget = (size_t)(room > 0 ? room : 0) + first->held;
    TRY(ranks_all(ranks, ranks_first(ranks) ? choose_alone(g) : OK));
    TRY(ranks_broadcast(ranks, &p->micro.tokens, sizeof p->micro.tokens));
    TRY(ranks_broadcast(ranks, &p->step_s, sizeof p->step_s));
    TRY(ranks_broadcast(ranks, p->policy, sizeof p->policy));
    TRY(ranks_broadcast(ranks, p->levels, (size_t)input(g)->model->config.layers));
    set_micro(g, p->micro.tokens);
    return OK;
}

/* ---- snapshots ---- */

/* Snapshots of the run's earlier processes are in memory already and get replaced, so their bytes are free to take. */
void planner_take_snapshots(const Config *c, const Ranks *ranks, size_t bytes, Accounts *accounts)
{
    Account *machine_row = &accounts->row[accounts->n - 1];
    machine_row->snapshots = bytes;
    if (!bytes) return;
    char *output = snapshot_canonical(c->output_dir);
    if (machine_row->automatic)
        machine_row->budget += (size_t)(snapshot_present(c->snapshot_dir, output) / (uint64_t)ranks_local_size(ranks));
    free(output);
}

static void take_snapshots(Planner *g, const Ranks *ranks, uint64_t bytes)
{
    planner_take_snapshots(g->c, ranks, (size_t)bytes, &g->plan->accounts);
}

/* ---- fitting the accounts ---- */

/* Without a save buffer the state streams to disk while training waits: from host memory alone, and not where the
   moments of other ranks are collected in it. */
static bool can_stream(const PlanInput *in)
{
    return !planner_for_device(in) && !(in->exchange && in->exchange->shard);
}

/* Computes the peaks. Where a plan does not fit, gives up snapshots that --snapshot-steps auto would take, then the
   save buffer. */
static void make_fit(Planner *g)
{
    RunPlan *p = g->plan;
    Account *over;
    while ((over = accounts_set_peaks(&p->accounts, p->bytes))) {
        if (over->snapshots && !g->own_snapshots) {
            p->snapshots_given_up = over->snapshots;
            over->snapshots = 0;
        } else if (p->save_buffer && account_has(over, REGION_SAVE) && can_stream(&p->input)) {
            p->save_buffer = false;
            p->train.region_bytes[REGION_SAVE] = p->bytes[REGION_SAVE] = 0;
        } else {
            return;
        }
    }
    p->fits = true;
}

void planner_warn(const Config *c, const RunPlan *p)
{
    const Account *first = &p->accounts.row[0], *of = &p->accounts.row[p->accounts.n - 1];
    if (planner_one_grain(&p->input) && strcmp(c->micro_batch_tokens, "default") != 0)
        log_warn("--micro-batch-tokens is without effect: on a GPU with --virtual-ranks a micro-batch is one grain of "
                 "at most %lld tokens; --grain-tokens is its size",
                 (long long)p->micro.tokens);
    if (p->snapshots_given_up)
        log_warn("no room for snapshots (%.1f MiB) beside the %.1f MiB that training takes of %.1f MiB: none are taken",
                 MIB(p->snapshots_given_up), MIB(of->peak), MIB(of->budget));
    if (p->input.training && p->input.saves && !p->save_buffer)
        log_warn("no room for the save buffer within %.0f MiB: training will wait while the state is saved",
                 MIB(first->budget));
}

static Status refuse_machine(const RunPlan *p, const Account *a)
{
    char snapshots[96] = "";
    if (a->snapshots)
        snprintf(snapshots, sizeof snapshots, ", snapshots: %.1f MiB, and --snapshot-steps 0 takes none",
                 MIB(a->snapshots));
    return fail(
        E_MEMORY,
        "beside the device the machine's memory holds %.1f MiB (the state that is being saved: %.1f MiB, what is "
        "offloaded: %.1f MiB%s), and %.1f MiB are free. End what else runs here, offload less, or use a smaller "
        "model",
        MIB(a->peak), MIB(p->bytes[REGION_SAVE]), MIB(p->bytes[REGION_HOST]), snapshots, MIB(a->budget));
}

Status planner_refuse(const Config *c, const RunPlan *p)
{
    const Account *first = &p->accounts.row[0];
    RunPlan plan = *p;
    Planner g = {.c = c, .plan = &plan};
    SearchResult r;
    char of_it[96] = "";
    if (first->peak <= first->budget) return refuse_machine(p, &p->accounts.row[p->accounts.n - 1]);
    if (!p->input.training)
        return fail(E_MEMORY, "evaluation takes %.1f MiB, more than %s of %.1f MiB. Lower --eval-batch-size",
                    MIB(first->peak), first->limit, MIB(first->budget));
    if (first->snapshots)
        snprintf(of_it, sizeof of_it, " (%.1f MiB of it for snapshots; --snapshot-steps 0 takes none)",
                 MIB(first->snapshots));
    Status status = search(&g, &r);
    if (status == OK) {
        free(r.levels);
        return fail(E_MEMORY, "--recompute %s takes %.1f MiB%s, more than %s of %.1f MiB; --recompute auto fits: %s",
                    p->policy, MIB(first->peak), of_it, first->limit, MIB(first->budget), r.name);
    }
    if (status != E_MEMORY) return status;
    return status_context(status, "--recompute %s takes %.1f MiB%s, more than %s of %.1f MiB", p->policy,
                          MIB(first->peak), of_it, first->limit, MIB(first->budget));
}

/* ---- the whole plan ---- */

/* A backend makes its primitives (oneDNN: tens of MiB) when a plan of a capacity is first made. A choice by memory must
   count them, so one plan, of the largest micro-batch, is made ahead. */
static Status count_primitives(Planner *g, int64_t tokens)
{
    RunPlan *p = g->plan;
    MicroCapacity chosen = p->micro;
    Plan ahead;
    ModelTensors t;
    if (!p->accounts.resident || (tokens && g->policy.kind != POLICY_AUTO)) return OK;
    if (!tokens) set_micro(g, g->share * input(g)->max_length);
    PlanRequest r = run_plan_request(p, true);
    TRY(plan_make(&r, &ahead, &t, NULL));
    plan_free(&ahead);
    if (!tokens) p->micro = chosen;
    accounts_update(&p->accounts);
    return OK;
}

static Status plan_evaluation(const Planner *g, int64_t training)
{
    RunPlan *p = g->plan;
    MicroCapacity capacity = planner_evaluation_capacity(g->c, input(g), training);
    if (capacity.tokens == p->eval_micro.tokens) return OK;
    plan_free(&p->eval);
    p->eval_micro = capacity;
    TRY(run_plan_make_one(p, false));
    accounts_update(&p->accounts);
    return OK;
}

static Status choose_training(Planner *g, Ranks *ranks, uint64_t snapshots)
{
    RunPlan *p = g->plan;
    const PlanInput *in = &p->input;
    int64_t tokens;
    TRY(planner_policy(g->c, in->backend, &g->policy));
    TRY(planner_micro_tokens(g->c, g->share, in->max_length, &tokens));
    if (planner_one_grain(in)) tokens = planner_least_tokens(g->c, g->share, in->max_length);
    if (in->evaluation) TRY(plan_evaluation(g, tokens ? tokens : in->max_length));
    if (tokens) set_micro(g, tokens);
    TRY(count_primitives(g, tokens));
    if (g->own_snapshots) take_snapshots(g, ranks, snapshots);
    /* In the memory that activations lie in the save buffer comes after the choice, so that a larger budget is never
       slower. */
    p->save_buffer = in->saves && !account_has(&p->accounts.row[0], REGION_SAVE);
    TRY(choose_together(g, ranks));
    p->save_buffer = in->saves;
    TRY(run_plan_make_one(p, true));
    if (in->evaluation) TRY(plan_evaluation(g, p->micro.tokens));
    accounts_update(&p->accounts);
    if (in->saves) p->step_s = step_seconds(g);
    return OK;
}

Status planner_choose(const Config *c, const PlanInput *in, const Accounts *accounts, Ranks *ranks, RunPlan *p)
{
    uint64_t snapshots = 0;
    Planner g = {.c = c,
                 .plan = p,
                 .share = planner_share(c, in->virtual_ranks ? in->virtual_ranks
                                           : in->exchange    ? in->exchange->buckets.ranks
                                                             : 1),
                 .own_snapshots = strcmp(c->snapshot_steps, "auto") != 0};
    run_plan_init(p, in);
    p->accounts = *accounts;
    p->grain = planner_grain(c, in);
    if (in->evaluation && !in->training) TRY(plan_evaluation(&g, 0));
    if (in->training) {
        TRY(snapshots_need(c, ranks, in, &snapshots));
        TRY(choose_training(&g, ranks, snapshots));
    }
    if (!g.own_snapshots) take_snapshots(&g, ranks, snapshots);
    make_fit(&g);
    return OK;
}
