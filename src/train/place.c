#include "train/place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/pipeline.h"
#include "optim/optim.h"
#include "train/planner.h"
#include "train/snapshot_room.h"

#define MIB(bytes) ((double)(bytes) / (1 << 20))

static const Pipeline *shape(const PipelinePlace *p) { return &p->grid.shape; }

int place_chunks(const PipelinePlace *p) { return shape(p)->chunks; }
int place_direction(const PipelinePlace *p, int chunk) { return shape(p)->kind == PIPELINE_CHIMERA ? chunk : 0; }
int place_replica(const PipelinePlace *p, int direction) { return p->pipeline * p->grid.directions + direction; }
int place_replicas(const PipelinePlace *p) { return p->grid.replicas * p->grid.directions; }
const Stage *place_stage(const PipelinePlace *p, int chunk)
{
    return &p->stages[pipeline_stage(shape(p), p->number, chunk)];
}

/* ---- options ---- */

bool place_wanted(const Config *c) { return strcmp(c->pipeline, "none") != 0; }

static Status without_pipeline(const Config *c)
{
    static const int of_pipelines[] = {OPTION_stages, OPTION_stage_chunks, OPTION_stage_layers};
    for (size_t i = 0; i < sizeof of_pipelines / sizeof *of_pipelines; i++)
        if (!config_is_default(c, of_pipelines[i]))
            return fail(E_USAGE, "--%s needs --pipeline: give a schedule, as --pipeline 1f1b",
                        config_flag(of_pipelines[i]));
    return OK;
}

Status place_check(const Config *c, bool training)
{
    const struct {
        bool given;
        const char *option, *instead;
    } refused[] = {
        {!training, "without training", "evaluate and predict without --pipeline"},
        {strcmp(c->shard, "none") != 0 && strcmp(c->comm, "nccl") == 0, "and --shard optimizer over NCCL",
         "use --comm gloo"},
        {strcmp(c->audit, "off") != 0, "and --audit", "leave out --audit"},
        {c->poison, "and --poison", "leave out --poison"},
    };
    if (!place_wanted(c)) return without_pipeline(c);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].given)
            return fail(E_USAGE, "--pipeline %s %s: a run does not have this yet; %s", c->pipeline, refused[i].option,
                        refused[i].instead);
    return OK;
}

/* ---- what rank 0 chooses ---- */

typedef struct {
    PipelineGrid grid;
    int64_t tokens;
    double step_s;
} Choice;

static Status choose(PipelineKind kind, const PipelineRequest *r, PipelinePlan *plan, Choice *choice, Stage *stages,
                     Policy *policies)
{
    TRY(pipeline_plan(r, kind, plan));
    if (!plan->fits) return pipeline_refuse(r, plan);
    pipeline_warn(plan);
    *choice = (Choice){plan->grid, plan->tokens, plan->step};
    choice->grid.shape.micros = plan->schedule.shape.micros;
    for (int s = 0; s < plan->grid.stages; s++) {
        stages[s] = plan->stage[s].stage;
        policies[s] = plan->stage[s].policy;
    }
    return OK;
}

PipelineKind place_kind(const Config *c)
{
    for (int k = 0; k < N_PIPELINES; k++)
        if (strcmp(c->pipeline, pipeline_name((PipelineKind)k)) == 0) return (PipelineKind)k;
    CHECK(false, "--pipeline %s", c->pipeline);
    return N_PIPELINES;
}

/* ---- what follows from it ---- */

static void take_levels(PipelinePlace *p, const Policy *policies)
{
    int layers = p->whole->config.layers;
    p->levels = mem_alloc((size_t)layers);
    policy_format(policies[0], p->policy);
    for (int s = 0; s < p->grid.stages; s++) {
        pipeline_stage_levels(&p->stages[s], policies[s], layers, p->levels);
        if (memcmp(&policies[s], &policies[0], sizeof *policies) != 0)
            snprintf(p->policy, sizeof p->policy, "by stage");
    }
}

static int by_first(const void *a, const void *b)
{
    const Stage *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

void place_part(const PipelinePlace *p, int number, Model *part)
{
    int chunks = place_chunks(p);
    Stage *own = mem_array((size_t)chunks, sizeof *own);
    for (int k = 0; k < chunks; k++) own[k] = p->stages[pipeline_stage(shape(p), number, k)];
    qsort(own, (size_t)chunks, sizeof *own, by_first);
    model_part(p->whole, own, chunks, part);
    free(own);
}

static void take_models(PipelinePlace *p)
{
    int chunks = place_chunks(p);
    bool first = false, last = false;
    place_part(p, p->number, &p->held);
    p->chunks = mem_array((size_t)chunks, sizeof *p->chunks);
    for (int k = 0; k < chunks; k++) {
        const Stage *s = place_stage(p, k);
        p->chunks[k] = p->held;
        p->chunks[k].stages = (Stage *)(uintptr_t)s;
        p->chunks[k].n_stages = 1;
        first |= stage_is_first(s);
        last |= stage_is_last(p->whole, s);
    }
    p->both_uses = first && last && model_tied(p->whole) != NULL;
}

/* Holders of a stage are in the order of replicas. */
static void take_kfac(PipelinePlace *p, const KfacOptions *o)
{
    int chunks = place_chunks(p);
    KfacPart *parts = mem_array((size_t)chunks, sizeof *parts);
    for (int k = 0; k < chunks; k++)
        parts[k] = (KfacPart){place_stage(p, k)->first, place_stage(p, k)->layers, place_replicas(p),
                              place_replica(p, place_direction(p, k))};
    kfac_init(&p->kfac, o, &p->held, parts, chunks);
    p->kfac.save_size = p->whole_kfac->save_size;
    free(parts);
}

/* Slots for every number of micro-batches. */
static Status take_schedules(PipelinePlace *p)
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

static void take_number(PipelinePlace *p, const Ranks *ranks)
{
    p->number = ranks_rank(ranks) / p->grid.replicas;
    p->pipeline = ranks_rank(ranks) % p->grid.replicas;
}

Status place_choose(const Config *c, const PlanInput *in, const Accounts *accounts, Ranks *ranks, PipelinePlace **place)
{
    Status status = OK;
    PipelineKind kind = place_kind(c);
    Accounts least = *accounts;
    LayerCosts none = {0};
    PipelineRequest r = {.c = c, .ranks = ranks_size(ranks), .in = in, .accounts = &least, .given = &none};
    PipelinePlace *p = *place = mem_alloc(sizeof *p);
    Choice choice = {0};
    PipelinePlan plan = {0};
    KfacOptions kfac;
    int64_t room = (int64_t)least.row[0].budget - (int64_t)least.row[0].held;
    TRY(pipeline_grid(c, kind, r.ranks, in->model->config.layers, &p->grid));
    TRY(kfac_options(c, &kfac));
    TRY(ranks_least(ranks, &room));
    least.row[0].budget = (size_t)(room > 0 ? room : 0) + least.row[0].held;
    p->stages = mem_array((size_t)p->grid.stages, sizeof *p->stages);
    Policy *policies = mem_array((size_t)p->grid.stages, sizeof *policies);
    TRY_DONE(ranks_all(ranks, ranks_first(ranks) ? choose(kind, &r, &plan, &choice, p->stages, policies) : OK));
    TRY_DONE(ranks_broadcast(ranks, &choice, sizeof choice));
    TRY_DONE(ranks_broadcast(ranks, p->stages, (size_t)p->grid.stages * sizeof *p->stages));
    TRY_DONE(ranks_broadcast(ranks, policies, (size_t)p->grid.stages * sizeof *policies));
    p->whole = in->model;
    p->whole_kfac = in->kfac;
    p->grid = choice.grid;
    p->tokens = choice.tokens;
    p->step_s = choice.step_s;
    p->wire = strcmp(c->wire, "bf16") == 0 ? BF16 : F32;
    p->bucket = c->bucket_size / (int64_t)sizeof(float);
    if (p->bucket > p->whole->params.size) p->bucket = p->whole->params.size;
    p->bucket = p->bucket < NORM_BLOCK ? NORM_BLOCK : p->bucket / NORM_BLOCK * NORM_BLOCK;
    take_number(p, ranks);
    take_levels(p, policies);
    take_models(p);
    p->shard = strcmp(c->shard, "optimizer") == 0 && place_replicas(p) > 1;
    place_take_shares(p);
    take_kfac(p, &kfac);
    TRY_DONE(place_share_fill(p, &plan, ranks));
    status = take_schedules(p);
done:
    pipeline_plan_free(&plan);
    free(policies);
    return status;
}

void place_free(PipelinePlace *p)
{
    if (!p) return;
    for (int n = 0; p->schedules && n <= shape(p)->micros; n++) schedule_free(&p->schedules[n]);
    MEM_FREE(p->schedules, p->stages, p->pieces);
    intervals_free(&p->share);
    MEM_FREE(p->chunks, p->slots, p->levels);
    place_fill_free(p, &p->fill);
    kfac_free(&p->kfac);
    model_free(&p->held);
    free(p);
}

/* ---- its plans ---- */

size_t place_boundary(const PipelinePlace *p, const Plan *plan)
{
    return (size_t)plan->capacity.count[ROWS_TOKENS] * (size_t)p->whole->config.hidden * dtype_size(plan->compute);
}

Pipeline place_evaluation(const PipelinePlace *p)
{
    Pipeline one = *shape(p);
    one.micros = 1;
    if (one.kind == PIPELINE_CHIMERA) one = (Pipeline){PIPELINE_GPIPE, one.places, 1, 1};
    return one;
}

size_t place_staging(const PipelinePlace *p, const RunPlan *plan, bool device)
{
    const Pipeline evaluation = place_evaluation(p);
    size_t bytes =
        (size_t)exec_pipeline_staging(shape(p), p->number, p->by_devices, device) * place_boundary(p, &plan->train);
    if (plan->input.evaluation)
        bytes += (size_t)exec_pipeline_staging(&evaluation, p->number, p->by_devices, device) *
                 place_boundary(p, &plan->eval);
    return bytes;
}

static size_t norm_table_bytes(const PipelinePlace *p)
{
    return (size_t)optim_norm_blocks(&p->whole->params, p->whole->params.size) * sizeof(double);
}

static size_t piece_bytes(const PipelinePlace *p) { return (size_t)(p->bucket + PLACE_CUT) * sizeof(float); }

/* Of the elements of a sum all parts and the terms of the own part; the table of norm blocks; both uses' parts of the
   word embedding's gradient. One rank alone, on a host, exchanges nothing. */
size_t place_scratch_bytes(const PipelinePlace *p, const Backend *b)
{
    size_t holders = (size_t)place_replicas(p), table = norm_table_bytes(p);
    size_t sum = 2 * piece_bytes(p) + holders * PLACE_CUT * sizeof(float);
    if (shape(p)->places == 1 && holders == 1 && !b->device) return 0;
    size_t bytes = table > sum ? table : sum, factors = kfac_scratch_bytes(&p->kfac);
    if (factors > bytes) bytes = factors;
    return (bytes + 63) / 64 * 64;
}

int64_t place_even_part(int64_t n, int holders)
{
    int64_t each = (n + holders - 1) / holders;
    return (each + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

int64_t place_received(const PipelinePlace *p)
{
    return (place_replicas(p) - 1) * place_even_part(p->bucket, place_replicas(p));
}

size_t place_copy_bytes(const PipelinePlace *p)
{
    size_t piece = piece_bytes(p), table = norm_table_bytes(p);
    return piece > table ? piece : table;
}

size_t place_comm_bytes(const PipelinePlace *p, const Backend *b)
{
    return place_scratch_bytes(p, b) + (b->device ? place_copy_bytes(p) : 0);
}

Status place_plan(const Config *c, const PlanInput *in, const Accounts *accounts, const Ranks *ranks, RunPlan *plan)
{
    const PipelinePlace *p = in->place;
    uint64_t snapshots;
    run_plan_init(plan, in);
    plan->grain = planner_grain(c, in);
    plan->accounts = *accounts;
    memcpy(plan->levels, p->levels, (size_t)p->whole->config.layers);
    snprintf(plan->policy, sizeof plan->policy, "%s", p->policy);
    plan->micro = planner_capacity(in, p->tokens, planner_share(c, place_replicas(p)));
    plan->micros = (double)shape(p)->micros / p->grid.directions;
    plan->step_s = p->step_s;
    plan->save_buffer = in->saves;
    if (in->evaluation) plan->eval_micro = planner_evaluation_capacity(c, in, p->tokens);
    TRY(run_plan_make(plan));
    TRY(snapshots_need(c, ranks, in, &snapshots));
    accounts_update(&plan->accounts);
    planner_take_snapshots(c, ranks, (size_t)snapshots, &plan->accounts);
    plan->fits = accounts_set_peaks(&plan->accounts, plan->bytes) == NULL;
    if (plan->fits || !snapshots || strcmp(c->snapshot_steps, "auto") != 0) return OK;
    plan->snapshots_given_up = (size_t)snapshots;
    plan->accounts.row[plan->accounts.n - 1].snapshots = 0;
    plan->fits = accounts_set_peaks(&plan->accounts, plan->bytes) == NULL;
    return OK;
}

Status place_refuse(const PipelinePlace *p, const RunPlan *plan)
{
    const Accounts *all = &plan->accounts;
    const Account *of = &all->row[0];
    if (of->peak <= of->budget) of = &all->row[all->n - 1];
    if (of != &all->row[0])
        return fail(
            E_MEMORY,
            "place %d of the pipeline takes %.1f MiB beside its device, for boundaries, sums and the state that "
            "is being saved, more than %s of %.1f MiB. Start fewer ranks on a host",
            p->number, MIB(of->peak), of->limit, MIB(of->budget));
    return fail(E_MEMORY,
                "place %d of the pipeline takes %.1f MiB with evaluation and the state that is being saved, more than "
                "%s of %.1f MiB. Give --recompute auto, a larger --memory-budget, or fewer layers to this place by "
                "--stage-layers",
                p->number, MIB(of->peak), of->limit, MIB(of->budget));
}
