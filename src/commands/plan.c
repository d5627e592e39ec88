/* `cairn plan`: for every policy the plan that a run would make, its predicted step and the largest batch, before
   anything is allocated; for models and devices of any size. */

#include "commands/plan.h"
#include "commands/commands.h"
#include "train/parts/place.h"
#include "train/planner/machine.h"
#include "train/planner/planner.h"
#include "train/planner/snapshot_room.h"
#include "train/run/start.h"

#define MOST_BATCH (INT64_C(1) << 20)

static const char *const policy_names[] = {"none", "lean",    "ffn",     "selective", "half-attention",
                                           "full", "every:2", "every:4", "offload"};
enum { N_POLICY_NAMES = sizeof policy_names / sizeof *policy_names };

/* ---- input ---- */

static Status open_model(PlanRun *r)
{
    const Config *c = r->c;
    Head head;
    ModelConfig *config = &r->model.config;
    r->given = c;
    TRY(commands_planned_task(c)->plan(c, &head, &r->input));
    if (head.kind == HEAD_EMBEDDING) {
        TRY(adopt_embedding(c, &r->c, &r->adopted));
        r->adopted.config.batch_size *= plan_texts(&r->input);
    }
    TRY(commands_model_config(r->c, config));
    if (r->layers) config->layers = r->layers;
    model_config_set_dropout(config, (float)c->dropout); /* without dropout a plan has fewer instrs */
    TRY(model_init(&r->model, *config, head));
    adopt_pooling(r->c, &r->model); /* rows that it leaves out are not computed behind the last attention */
    r->model.longest = (int32_t)c->max_seq_length; /* as start_model: cuDNN's workspace depends on it */
    return OK;
}

static size_t weights_bytes(const PlanRun *r) { return (size_t)r->model.params.size * sizeof(float); }

static Status open_device(PlanRun *r)
{
    const Config *c = r->c;
    PlanInput *in = &r->input;
    TRY(device_find(c->device, &r->device));
    TRY(device_switches(r->device));
    if (device_table(r->device, &r->device_backend))
        in->backend = &r->device_backend;
    else if (env_is_on("CAIRN_CUDA_FUSED_GELU"))
        return fail(E_USAGE, "CAIRN_CUDA_FUSED_GELU: only a build with the cuda backend plans with it: %s",
                    status_message());
    else
        log_debug("scratch is estimated: %s", status_message());
    if (strcmp(c->precision, "tf32") == 0)
        return fail(E_USAGE, "--precision tf32: --device has no rates of it. Plan with fp32: the memory is the same");
    if (strcmp(c->attention, "cudnn") == 0)
        return fail(E_USAGE, "--attention cudnn: cuDNN reports its workspace only on the device itself; plan without "
                             "--device, or with --attention own");
    in->imagined = true;
    in->compute = setup_compute(c, device_compute(r->device));
    if (in->compute == BF16 && device_compute(r->device) != BF16)
        return fail(E_USAGE, "--precision bf16: the %s has fp16 and fp32", r->device->name);
    device_rates(r->device, in->compute, &in->rates);
    accounts_imagine(&r->accounts, (size_t)c->memory_budget, (size_t)r->device->memory_bytes, device_context_bytes(),
                     weights_bytes(r));
    r->machine = r->device->name;
    return OK;
}

static Status open_machine(PlanRun *r)
{
    PlanInput *in = &r->input;
    TRY(setup_backend(r->c, &r->setup));
    in->backend = r->setup.backend;
    in->compute = r->setup.compute;
    accounts_measure(&r->accounts, in->backend, (size_t)r->c->memory_budget, 1, 0, weights_bytes(r));
    machine_rates(in->backend, &r->model.config, in->compute, &in->rates, NULL);
    r->machine = in->backend->describe;
    return OK;
}

static Status find_lengths(PlanRun *r)
{
    PlanInput *in = &r->input;
    in->mean_length = (double)r->c->max_seq_length;
    if (!*r->c->lengths) return OK;
    TRY(lengths_read(r->c->lengths, &r->lengths));
    if (r->lengths.longest > r->c->max_seq_length)
        return fail(E_USAGE, "%s has sequences of %lld tokens; give --max-seq-length %lld or more", r->c->lengths,
                    (long long)r->lengths.longest, (long long)r->lengths.longest);
    in->packed = true;
    in->mean_length = r->lengths.mean;
    in->beside = r->lengths.beside;
    return OK;
}

static Status find_input(PlanRun *r)
{
    const Config *c = r->c;
    PlanInput *in = &r->input;
    if (!r->layers && /* a plan can do without */
        start_norm_forms(c, &r->model, &(Resume){0}, NULL, &r->norm_forms) != OK)
        log_warn("%s; planned as if every LayerNorm kept its output", status_message());
    in->model = &r->model;
    in->training = in->first = true;
    in->max_length = c->max_seq_length;
    in->norm_forms = r->norm_forms;
    TRY(setup_optimizer(c, &in->optimizer));
    TRY(setup_audit(c, in));
    KfacOptions kfac;
    TRY(kfac_options(c, &kfac));
    TRY(*c->device ? open_device(r) : open_machine(r));
    TRY(setup_virtual(c, c->ranks > 1 ? (int)c->ranks : 1, in));
    if (!place_wanted(c)) {
        r->setup.place = place_whole(c, &kfac, &r->model, c->ranks > 1 ? (int)c->ranks : 1, 0, false);
        in->place = r->setup.place;
    }
    return find_lengths(r);
}

/* E_MEMORY: of auto, where nothing fits. */
static Status choose(PlanRun *r, const char *policy, RunPlan *plan)
{
    Config c = *r->c;
    c.recompute = (char *)(uintptr_t)policy;
    TRY(planner_choose(&c, &r->input, &r->accounts, NULL, plan));
    return strcmp(policy, "auto") == 0 ? planner_check(&c, plan, NULL) : OK;
}

/* ---- the largest batch ---- */

/* Bytes of a step made in one micro-batch of `rows` rows of data, without evaluation and save buffer. */
static Status bytes_of_batch(const RunPlan *of, int64_t rows, size_t *peak)
{
    Plan p;
    ModelTensors t;
    Coupling coupling;
    RunPlan plan = *of;
    int64_t batch = rows * plan_texts(&of->input);
    if (of->input.coupling) {
        coupling = *of->input.coupling;
        coupling.rows = rows;
        plan.input.coupling = &coupling;
    }
    plan.micro = planner_capacity(&of->input, (int64_t)ceil((double)batch * of->input.mean_length), batch);
    plan.save_buffer = false;
    PlanRequest q = run_plan_request(&plan, true);
    TRY(plan_make(&q, &p, &t, NULL));
    *peak = account_sum(&of->accounts.row[0], p.region_bytes);
    plan_free(&p);
    return OK;
}

/* The largest batch that fits in one micro-batch: bytes grow almost in proportion, so a straight line gives the first
   guess and exact plans the answer. */
static Status largest_batch(const RunPlan *of, int64_t *batch)
{
    size_t one, more, budget = of->accounts.row[0].budget;
    *batch = 0;
    TRY(bytes_of_batch(of, 1, &one));
    if (one > budget) return OK;
    TRY(bytes_of_batch(of, 65, &more));
    double slope = ((double)more - (double)one) / 64,
           guess = 1 + ((double)budget - (double)one) / (slope > 1 ? slope : 1);
    int64_t low = 1, high = guess > (double)MOST_BATCH ? MOST_BATCH : (int64_t)guess + 1;
    for (size_t bytes; high < MOST_BATCH; high += high / 16 + 1) {
        TRY(bytes_of_batch(of, high, &bytes));
        if (bytes > budget) break;
        low = high;
    }
    int64_t near = low > 1 ? low : high - high / 64 - 2; /* try close below the guess first */
    while (high - low > 1) {
        int64_t middle = near > low && near < high ? near : low + (high - low) / 2;
        size_t bytes;
        near = 0;
        TRY(bytes_of_batch(of, middle, &bytes));
        if (bytes <= budget)
            low = middle;
        else
            high = middle;
    }
    *batch = low;
    return OK;
}

/* ---- output ---- */

/* --explain, --explain-cost, --costs */
static Status explain(const PlanRun *r, const RunPlan *plan)
{
    Buf out = {0}, assumptions = {0};
    Status status = OK;
    if (!r->c->explain_cost && !*r->c->costs) {
        plan_explain(&plan->chunk->train, &out);
    } else {
        if (r->device) device_assumptions(r->device, &assumptions);
        CostTable table = {.plan = &plan->chunk->train,
                           .rows = &plan->usual,
                           .rates = &r->input.rates,
                           .peak_flops = r->device ? device_peak(r->device, r->input.compute) : 0,
                           .mean = r->input.mean_length,
                           .beside = plan_input_beside(&r->input),
                           .micros = plan->micros,
                           .sequences = (double)r->c->batch_size,
                           .policy = r->c->recompute,
                           .assumptions = assumptions.data,
                           .measured = r->c->costs};
        status = cost_table(&table, &out);
        buf_free(&assumptions);
    }
    buf_print(&out);
    return status;
}

/* --pipeline */
static Status show_pipeline(const PlanRun *r)
{
    const Config *c = r->c;
    if (c->explain || c->explain_cost || plan_job_kind(c))
        return fail(E_USAGE,
                    "--pipeline prints its own tables: leave out --explain, --explain-cost, --pbs, --slurm and "
                    "--sge");
    return plan_pipeline(r);
}

/* --pbs, --slurm, --sge */
static Status show_job(const PlanRun *r, const RunPlan *plan)
{
    const Config *c = r->c;
    Buf out = {0};
    int replicas;
    bool device = r->accounts.n > 1;
    JobNeeds needs = {.kind = plan_job_kind(c),
                      .ranks = c->ranks > 1 ? c->ranks : 1,
                      .per_host = c->ranks_per_host ? c->ranks_per_host
                                  : device          ? 4
                                                    : 1,
                      .gpus = device};
    if (needs.per_host > needs.ranks) needs.per_host = needs.ranks;
    needs.cores = c->threads * needs.per_host;
    TRY(snapshots_replicas(c, (int)((needs.ranks + needs.per_host - 1) / needs.per_host), &replicas));
    needs.run = plan->accounts.row[plan->accounts.n - 1].peak;
    needs.snapshots = snapshots_rank_bytes(&r->setup.place->holding, replicas, NULL);
    needs.seconds = (double)c->max_steps * plan->step_s;
    plan_job(&needs, &out);
    buf_print(&out);
    return OK;
}

/* What is shown of --recompute's plan. */
static Status show_chosen(PlanRun *r, Status (*show)(const PlanRun *r, const RunPlan *plan))
{
    RunPlan plan = {0};
    Status status = choose(r, r->c->recompute, &plan);
    if (status == OK) status = show(r, &plan);
    run_plan_free(&plan);
    return status;
}

/* The process after its first plan, with the backend's primitives. */
Status plan_count_process(PlanRun *r)
{
    RunPlan first = {0};
    Status status = choose(r, policy_names[0], &first);
    if (status == OK && r->accounts.resident)
        r->accounts.row[r->accounts.n - 1].held = first.accounts.row[first.accounts.n - 1].held;
    r->accounts.resident = 0; /* later rows add nothing */
    run_plan_free(&first);
    return status;
}

static bool is_named(const char *policy)
{
    for (int i = 0; i < N_POLICY_NAMES; i++)
        if (strcmp(policy, policy_names[i]) == 0) return true;
    return strcmp(policy, "auto") == 0;
}

/* The usual policies, --recompute's where it is another one, and auto. */
static Status show_policies(PlanRun *r)
{
    PlanRow rows[N_POLICY_NAMES + 2] = {0};
    const Backend *b = r->input.backend;
    int n = 0, n_policies = !b || backend_offloads(b) ? N_POLICY_NAMES : N_POLICY_NAMES - 1;
    Buf out = {0};
    Status status = OK;
    TRY_DONE(plan_count_process(r));
    for (; n < n_policies; n++) TRY_DONE(choose(r, policy_names[n], &rows[n].plan));
    if (!is_named(r->c->recompute)) n_policies++;
    for (; n < n_policies; n++) TRY_DONE(choose(r, r->c->recompute, &rows[n].plan));
    Status found = choose(r, "auto", &rows[n].plan);
    if (found != OK && found != E_MEMORY) TRY_DONE(found);
    if (found == OK) n++;
    /* Last, because a backend keeps primitives for every size that is tried, and rows count the process's memory. */
    for (int i = 0; i < n; i++) TRY_DONE(largest_batch(&rows[i].plan, &rows[i].max_batch));
    (r->c->json ? plan_table_json : plan_table_print)(r, rows, n, &out);
    buf_print(&out);
    if (*r->c->svg) {
        plan_table_draw(r, rows, n, &out);
        TRY_DONE(svg_write(NULL, r->c->svg, &out));
    }
    status = found; /* nothing fits */
done:
    buf_free(&out);
    for (int i = 0; i < N_POLICY_NAMES + 2; i++) run_plan_free(&rows[i].plan);
    return status;
}

static Status check_pipeline(const Config *c)
{
    TRY(place_check(c));
    if (c->kfac_interval && c->ranks > 1 && !place_wanted(c))
        return fail(E_USAGE, "--kfac-interval with --ranks %lld needs --pipeline: give a schedule, or all",
                    (long long)c->ranks);
    return kfac_check(c);
}

Status plan_open(PlanRun *r)
{
    Policy policy;
    TRY(open_model(r));
    TRY(find_input(r));
    return planner_policy(r->c, r->input.backend, r->model.config.layers, &policy);
}

void plan_close(PlanRun *r)
{
    adopt_free(&r->adopted);
    setup_free(&r->setup);
    model_free(&r->model);
    lengths_free(&r->lengths);
    free(r->norm_forms);
}

Status command_plan(const Config *c)
{
    PlanRun r = {.c = c};
    Status status = OK;
    bool job = plan_job_kind(c), explained = c->explain || c->explain_cost || *c->costs;
    if (c->pbs + c->slurm + c->sge + (job && c->json) > 1)
        return fail(E_USAGE, "give one of --pbs, --slurm, --sge and --json: each prints another form");
    TRY(ranks_check_batch(c, place_wanted(c) ? 1 : c->ranks));
    TRY(check_pipeline(c));
    if (*c->svg) TRY(file_try_place(c->svg));
    TRY_DONE(plan_open(&r));
    if (*c->largest)
        status = plan_largest(&r);
    else if (place_wanted(c))
        status = show_pipeline(&r);
    else if (job || explained || c->ranks > 1)
        status = show_chosen(&r, job ? show_job : explained ? explain : plan_ranks);
    else
        status = show_policies(&r);
done:
    plan_close(&r);
    return status;
}
