#include "train/setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pages.h"
#include "config/table.h"
#include "state/snapshot.h"
#include "train/device_comm.h"
#include "train/signals.h"
#include "train/snapshots.h"

#define MICRO_TOKENS_MOST 16384 /* contracts.md 3 */
#define SHORTEST_SEQUENCE 3     /* [CLS] x [SEP]: how many sequences a micro-batch can hold at most */
/* What a run still allocates beside its plans after planning: primitives, thread stacks, reports. Measured on
   BERT-Base: below this; the account's test holds it to that. */
#define PROCESS_RESERVE ((size_t)12 << 20)

Dtype setup_compute(const Config *c, Dtype best)
{
    static const struct {
        const char *name;
        Dtype dtype;
    } types[] = {{"fp32", F32}, {"tf32", F32}, {"bf16", BF16}, {"fp16", F16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(c->precision, types[i].name) == 0) return types[i].dtype;
    return best;
}

Status setup_backend(const Config *c, Setup *s)
{
    char why[256] = "";
    BackendOptions options = {.threads = ranks_threads(s->ranks, (int)c->threads),
                              .local_rank = ranks_local(s->ranks),
                              .tf32 = strcmp(c->precision, "tf32") == 0,
                              .attention = strcmp(c->attention, "cudnn") == 0 ? ATTENTION_CUDNN
                                           : strcmp(c->attention, "own") == 0 ? ATTENTION_OWN
                                                                              : ATTENTION_AUTO};
    TRY(backend_open(c->backend, &options, &s->backend));
    s->compute = setup_compute(c, s->backend->best_compute(s->backend));
    if (!s->backend->supports(s->backend, s->compute, why, sizeof why))
        return fail(E_USAGE, "--precision %s: the backend '%s' cannot run it here: %s", c->precision, s->backend->name,
                    why);
    return OK;
}

/* A number is a fixed scale; 0 is NVIDIA's word for dynamic. */
/* By its value: a printed configuration names every option. */
static bool is_default(const Config *c, int option)
{
    Buf text = {0};
    config_value_text(c, option, &text);
    bool same = strcmp(text.data, config_table[option].fallback) == 0;
    buf_free(&text);
    return same;
}

static Status find_loss_scale(const Config *c, Optimizer *o)
{
    char *end;
    double fixed = strtod(c->loss_scale, &end);
    o->loss_scale = (float)c->init_loss_scale;
    o->scale_growth = (int32_t)c->loss_scale_growth_interval;
    if (strcmp(c->precision, "fp16") != 0 &&
        (!is_default(c, OPTION_init_loss_scale) || !is_default(c, OPTION_loss_scale_growth_interval)))
        log_warn("--init-loss-scale and --loss-scale-growth-interval are without effect: only --precision fp16 has a "
                 "loss scale, and this is %s",
                 c->precision);
    if (strcmp(c->loss_scale, "dynamic") == 0) return OK;
    if (end == c->loss_scale || *end != '\0' ||
        !(fixed == 0 || (fixed >= (double)LOSS_SCALE_LEAST && fixed <= (double)LOSS_SCALE_MOST)))
        return fail(E_USAGE, "--loss-scale '%s': expected dynamic, or a fixed scale from 1 to 2^32", c->loss_scale);
    if (strcmp(c->precision, "fp16") != 0)
        return fail(E_USAGE, "--loss-scale %s: only --precision fp16 has a loss scale, and this is %s", c->loss_scale,
                    c->precision);
    if (fixed == 0) return OK;
    o->loss_scale = (float)fixed;
    o->scale_growth = 0;
    return OK;
}

Status setup_optimizer(const Config *c, Optimizer *o)
{
    static const struct {
        const char *name;
        OptimizerKind kind;
    } kinds[] = {{"adamw", OPTIMIZER_ADAMW}, {"lamb", OPTIMIZER_LAMB}, {"nvlamb", OPTIMIZER_NVLAMB}};
    *o = (Optimizer){.beta1 = (float)c->adam_beta1,
                     .beta2 = (float)c->adam_beta2,
                     .eps = (float)c->adam_eps,
                     .weight_decay = (float)c->weight_decay,
                     .max_grad_norm = (float)c->max_grad_norm,
                     .bias_correction = c->bias_correction};
    TRY(find_loss_scale(c, o));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(c->optimizer, kinds[i].name) != 0) continue;
        o->kind = kinds[i].kind;
        return OK;
    }
    return fail(E_USAGE, "--optimizer '%s' is unknown; expected adamw, lamb or nvlamb", c->optimizer);
}

Status setup_schedule(const Config *c, int64_t n_examples, Schedule *s)
{
    *s = (Schedule){.learning_rate = c->learning_rate};
    TRY(schedule_parse(c->schedule, s));
    int64_t per_epoch = batches_per_epoch(n_examples, c->batch_size);
    s->total_steps = c->max_steps > 0 ? c->max_steps : (int64_t)ceil(c->epochs * (double)per_epoch - 1e-9);
    if (s->total_steps < 1)
        return fail(E_USAGE, "--epochs %g of %lld steps each makes no step", c->epochs, (long long)per_epoch);
    s->warmup_start = c->warmup_start;
    if (s->warmup_start >= s->total_steps)
        return fail(E_USAGE,
                    "--warmup-start %lld is not before the end of training, step %lld: nothing would be learned",
                    (long long)s->warmup_start, (long long)s->total_steps);
    return warmup_parse(c->warmup, s->total_steps - c->warmup_start, &s->warmup_steps);
}

Status setup_policy(const Config *c, const Backend *b, Policy *policy)
{
    TRY(policy_parse(c->recompute, policy));
    if (policy->kind != POLICY_OFFLOAD || !b || backend_offloads(b)) return OK;
    return fail(E_USAGE,
                "--recompute offload needs a device that copies while it computes, and the backend '%s' is none. Use "
                "--backend cuda, or here full, or auto with --memory-budget",
                b->name);
}

static size_t device_memory(const Backend *b, size_t *context)
{
    size_t total, available;
    b->device->memory(b->device, &total, &available, context);
    return available;
}

size_t setup_budget(const Config *c, const Backend *b)
{
    size_t context, available;
    if (c->memory_budget > 0) return (size_t)c->memory_budget;
    if (!backend_own_memory(b)) return machine_free_bytes() + process_resident();
    available = device_memory(b, &context);
    return available + context;
}

size_t setup_process_bytes(const Backend *b)
{
    size_t context;
    if (!backend_own_memory(b)) return process_resident() + PROCESS_RESERVE;
    (void)device_memory(b, &context);
    return context;
}

/* ---- planning ---- */

static int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

static int64_t at_most(int64_t n, int64_t most) { return n < most ? n : most; }

static int64_t sequences_in(int64_t tokens, int64_t batch) { return at_most(batch, tokens / SHORTEST_SEQUENCE + 1); }

int64_t setup_share(const Config *c, int ranks) { return (c->batch_size + ranks - 1) / ranks; }

Status setup_micro_tokens(const Config *c, int64_t sequences, int64_t max_length, int64_t *tokens)
{
    int64_t share = sequences * max_length;
    const char *text = c->micro_batch_tokens;
    if (strcmp(text, "auto") == 0)
        *tokens = 0;
    else if (strcmp(text, "step") == 0)
        *tokens = share;
    else if (strcmp(text, "default") == 0)
        *tokens = at_most(share, max_length > MICRO_TOKENS_MOST ? max_length : MICRO_TOKENS_MOST);
    else {
        char *end;
        *tokens = strtoll(text, &end, 10);
        if (*end != '\0' || *tokens < 1)
            return fail(E_USAGE, "--micro-batch-tokens '%s': expected a number of tokens, step or auto", text);
        if (*tokens < max_length)
            return fail(E_USAGE, "--micro-batch-tokens %lld is less than one sequence (%lld tokens)",
                        (long long)*tokens, (long long)max_length);
        *tokens = at_most(*tokens, round_up(share, 64));
    }
    return OK;
}

/* What a micro-batch of so many tokens, out of `batch` sequences, has room for. Masked positions in the share that the
   longest sequences have; a sequence of more than its share finds room elsewhere. */
static MicroCapacity capacity_of(const SetupNeed *need, int64_t tokens, int64_t batch)
{
    int64_t share = (tokens * need->max_masked + need->max_length - 1) / need->max_length;
    return (MicroCapacity){.tokens = tokens,
                           .seqs = sequences_in(tokens, batch),
                           .masked = share > need->max_masked ? share : need->max_masked};
}

static void size_evaluation(const Config *c, const SetupNeed *need, Setup *s)
{
    if (!need->evaluation) return;
    int64_t tokens = at_most(c->eval_batch_size * need->max_length, MICRO_TOKENS_MOST);
    s->eval = capacity_of(need, tokens > need->max_length ? tokens : need->max_length, c->eval_batch_size);
}

static PlanRequest request(const SetupNeed *need, const Setup *s, bool training)
{
    return (PlanRequest){.model = need->model,
                         .backend = s->backend,
                         .compute = s->compute,
                         .training = training,
                         .beside_training = !training && need->training,
                         .capacity = plan_capacity(training ? s->micro : s->eval),
                         .levels = s->levels,
                         .norm_forms = need->norm_forms,
                         .optimizer = s->optimizer,
                         .save_buffer = s->save_buffer,
                         .exchange = training && s->ranks ? &s->exchange : NULL};
}

/* Micro-batches of a step, from the mean length where sequences are packed. */
static double micros_per_step(const Config *c, const SetupNeed *need, int ranks, int64_t tokens)
{
    double rows = (double)setup_share(c, ranks) * (c->padded ? (double)need->max_length : need->mean_length);
    double n = ceil(rows / (double)tokens);
    return n < 1 ? 1 : n;
}

typedef struct {
    const Config *c;
    const SetupNeed *need;
    Setup *s;
    const Plan *evaluation;
    size_t budget;
    size_t reserved; /* of it, for snapshots that were asked for by a number of steps */
    CostRates rates;
    int64_t share; /* sequences of a step, on one rank */
} Planning;

/* Beside a device with memory of its own the machine holds the process, and for a while a copy of the weights: while
   they are read, and when they are written out. */
static size_t host_bytes(const Planning *g)
{
    return process_resident() + PROCESS_RESERVE + g->need->data_bytes +
           (size_t)g->need->model->params.size * sizeof(float);
}

/* Ranks of one host share what is free there. */
static size_t host_limit(const Ranks *r)
{
    return machine_free_bytes() / (size_t)ranks_local_size(r) + process_resident();
}

/* What may be offloaded: where the device has memory of its own, what the machine has beside all else that it holds. */
static size_t host_room(const Planning *g)
{
    size_t save = 3 * (size_t)g->need->model->params.size * sizeof(float), limit = host_limit(g->s->ranks);
    if (!backend_own_memory(g->s->backend)) return SIZE_MAX;
    return limit > host_bytes(g) + save ? limit - host_bytes(g) - save : 0;
}

/* The best levels for s->micro.tokens. */
static Status search(const Planning *g, SearchResult *r)
{
    SearchProblem problem = {.training = request(g->need, g->s, true),
                             .evaluation = g->evaluation,
                             .budget = g->budget,
                             .fixed = g->s->process_bytes + g->reserved,
                             .rates = g->rates,
                             .seq_len = g->need->mean_length,
                             .micros = micros_per_step(g->c, g->need, ranks_size(g->s->ranks), g->s->micro.tokens),
                             .offload = backend_offloads(g->s->backend),
                             .host = host_room(g)};
    problem.training.levels = NULL;
    return search_levels(&problem, r);
}

static void take_levels(Planning *g, SearchResult *r)
{
    free(g->s->levels);
    g->s->levels = r->levels;
    g->s->step_s = r->step_s;
    snprintf(g->s->policy_name, sizeof g->s->policy_name, "auto (%s)", r->name);
}

static void set_micro(Planning *g, int64_t tokens) { g->s->micro = capacity_of(g->need, tokens, g->share); }

/* --micro-batch-tokens auto: from the whole step down by halves, the fastest wins, ties to the larger. */
static Status search_micro(Planning *g)
{
    Status last = OK;
    double best = INFINITY;
    int64_t best_tokens = 0;
    for (int64_t tokens = g->share * g->need->max_length; tokens >= g->need->max_length; tokens /= 2) {
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

static Status choose_levels(Planning *g)
{
    Setup *s = g->s;
    int layers = g->need->model->config.layers;
    if (s->policy.kind == POLICY_AUTO) {
        SearchResult r;
        if (s->micro.tokens == 0) return search_micro(g);
        TRY(search(g, &r));
        take_levels(g, &r);
        return OK;
    }
    s->levels = mem_alloc((size_t)layers);
    policy_levels(s->policy, layers, s->levels);
    policy_format(s->policy, s->policy_name);
    if (s->micro.tokens) return OK;
    for (int64_t tokens = g->share * g->need->max_length;;
         tokens /= 2) { /* auto, fixed policy: the largest that fits */
        Plan p;
        ModelTensors t;
        set_micro(g, tokens < g->need->max_length ? g->need->max_length : tokens);
        PlanRequest r = request(g->need, s, true);
        TRY(plan_make(&r, &p, &t, NULL));
        bool fits = plan_total(&p, g->evaluation, s->backend, NULL) + s->process_bytes + g->reserved <= g->budget;
        plan_free(&p);
        if (fits || tokens <= g->need->max_length) return OK;
    }
}

#define MIB(bytes) ((double)(bytes) / (1 << 20))

/* What was chosen does not fit: says what would. */
static Status refuse(const Planning *g)
{
    const Setup *s = g->s;
    const char *limit = g->c->memory_budget > 0          ? "the memory budget"
                        : backend_own_memory(s->backend) ? "the device's free memory"
                                                         : "the machine's free memory";
    SearchResult r;
    if (!g->need->training)
        return fail(E_MEMORY, "evaluation takes %.1f MiB, more than %s of %.1f MiB. Lower --eval-batch-size",
                    MIB(s->peak), limit, MIB(g->budget));
    Status status = search(g, &r);
    char of_it[96] = "";
    if (g->reserved)
        snprintf(of_it, sizeof of_it, " (%.1f MiB of it for snapshots; --snapshot-steps 0 takes none)",
                 MIB(g->reserved));
    if (status == OK) {
        free(r.levels);
        return fail(E_MEMORY, "--recompute %s takes %.1f MiB%s, more than %s of %.1f MiB; --recompute auto fits: %s",
                    s->policy_name, MIB(s->peak), of_it, limit, MIB(g->budget), r.name);
    }
    if (status != E_MEMORY) return status;
    return fail(E_MEMORY,
                "--recompute %s takes %.1f MiB%s, more than %s of %.1f MiB. No plan fits: the smallest for this batch "
                "takes %.1f MiB. Raise --memory-budget, or lower --micro-batch-tokens, --batch-size or "
                "--max-seq-length",
                s->policy_name, MIB(s->peak), of_it, limit, MIB(g->budget), MIB(r.peak));
}

static bool snapshots_are_automatic(const Config *c) { return strcmp(c->snapshot_steps, "auto") == 0; }

/* Memory of the machine that snapshots take, and what of that is held by those of earlier processes already. Those that
   were asked for come before the plan is chosen, which has what they leave; auto takes them where there is room beside
   it. */
static void count_present(Planning *g)
{
    const Config *c = g->c;
    Setup *s = g->s;
    int local = ranks_local_size(s->ranks);
    if (!s->snapshot_bytes) return;
    char *output = snapshot_canonical(c->output_dir);
    uint64_t present = snapshot_present(c->snapshot_dir, output) / (uint64_t)(local > 0 ? local : 1);
    free(output);
    if (!backend_own_memory(s->backend) && c->memory_budget == 0) g->budget += (size_t)present;
}

static Status reserve_snapshots(Planning *g)
{
    Setup *s = g->s;
    TRY(snapshots_need(g->c, s->ranks, &g->need->model->params, s->ranks ? &s->exchange : NULL, &s->snapshot_bytes));
    if (snapshots_are_automatic(g->c)) return OK;
    if (!backend_own_memory(s->backend)) g->reserved = (size_t)s->snapshot_bytes;
    count_present(g);
    return OK;
}

/* Where they were not asked for by a number, training goes on without them. */
static bool drop_snapshots(Planning *g, size_t taken, size_t limit)
{
    Setup *s = g->s;
    if (!s->snapshot_bytes || !snapshots_are_automatic(g->c)) return false;
    log_warn("no room for snapshots (%.1f MiB) beside the %.1f MiB that training takes of %.1f MiB: none are taken",
             MIB(s->snapshot_bytes), MIB(taken - s->snapshot_bytes), MIB(limit));
    s->snapshot_bytes = 0;
    s->no_snapshots = true;
    return true;
}

static Status settle_host(Planning *g)
{
    Setup *s = g->s;
    size_t limit = host_limit(s->ranks);
    if (!backend_own_memory(s->backend)) return OK;
    s->host_peak = host_bytes(g) + s->plan_bytes[REGION_SAVE] + s->plan_bytes[REGION_HOST] +
                   s->plan_bytes[REGION_COMM] + s->snapshot_bytes;
    if (s->host_peak <= limit) return OK;
    if (drop_snapshots(g, s->host_peak, limit)) return settle_host(g);
    char snapshots[96] = "";
    if (s->snapshot_bytes)
        snprintf(snapshots, sizeof snapshots, ", snapshots: %.1f MiB, and --snapshot-steps 0 takes none",
                 MIB(s->snapshot_bytes));
    return fail(
        E_MEMORY,
        "beside the device the machine's memory holds %.1f MiB (the state that is being saved: %.1f MiB, what is "
        "offloaded: %.1f MiB%s), and %.1f MiB are free. End what else runs here, offload less, or use a smaller "
        "model",
        MIB(s->host_peak), MIB(s->plan_bytes[REGION_SAVE]), MIB(s->plan_bytes[REGION_HOST]), snapshots, MIB(limit));
}

/* What rank 0 chose. */
typedef struct {
    int64_t tokens;
    double step_s;
    char policy_name[sizeof((Setup *)NULL)->policy_name];
} Choice;

static Status choose_alone(Planning *g)
{
    machine_rates(g->s->backend, g->s->compute, &g->rates);
    Status status = choose_levels(g);
    if (status != E_MEMORY || !g->reserved) return status;
    return status_context(status, "beside %.1f MiB for snapshots (--snapshot-steps 0 takes none)", MIB(g->reserved));
}

/* The same on all ranks, whatever each has: what fits where least is free. */
static Status choose(Planning *g)
{
    Setup *s = g->s;
    size_t layers = (size_t)g->need->model->config.layers;
    int64_t room = (int64_t)g->budget - (int64_t)s->process_bytes;
    if (!s->ranks) return choose_alone(g);
    TRY(ranks_least(s->ranks, &room));
    g->budget = (size_t)(room > 0 ? room : 0) + s->process_bytes;
    TRY(ranks_follow(s->ranks, ranks_first(s->ranks) ? choose_alone(g) : OK));
    Choice choice = {.tokens = s->micro.tokens, .step_s = s->step_s};
    memcpy(choice.policy_name, s->policy_name, sizeof choice.policy_name);
    if (!s->levels) s->levels = mem_alloc(layers);
    TRY(ranks_broadcast(s->ranks, &choice, sizeof choice));
    TRY(ranks_broadcast(s->ranks, s->levels, layers));
    memcpy(s->policy_name, choice.policy_name, sizeof choice.policy_name);
    s->step_s = choice.step_s;
    set_micro(g, choice.tokens);
    return OK;
}

/* Sizes of what was chosen, and whether it fits. */
static Status settle(Planning *g)
{
    Setup *s = g->s;
    Plan p = {0};
    ModelTensors t;
    if (g->need->training) {
        PlanRequest r = request(g->need, s, true);
        TRY(plan_make(&r, &p, &t, NULL));
        if (ranks_first(s->ranks))
            s->step_s = search_step_seconds(&p, &g->rates, g->need->mean_length,
                                            micros_per_step(g->c, g->need, ranks_size(s->ranks), s->micro.tokens));
    }
    s->peak = plan_total(g->need->training ? &p : NULL, g->evaluation, s->backend, s->plan_bytes) + s->process_bytes;
    if (!backend_own_memory(s->backend)) s->peak += s->snapshot_bytes;
    plan_free(&p);
    if (s->peak <= g->budget) return settle_host(g);
    if (drop_snapshots(g, s->peak, g->budget)) return settle(g);
    if (s->save_buffer && !s->backend->device &&
        !s->exchange.shard) { /* saving streams then, and training stands meanwhile */
        s->save_buffer = false;
        log_warn("no room for the save buffer within %.0f MiB: training will stand while the state is saved",
                 (double)g->budget / (1 << 20));
        return settle(g);
    }
    return refuse(g);
}

static Status shard_optimizer(const SetupNeed *need, Setup *s)
{
    if (!s->backend->op[OP_BLOCK_SUMS].run)
        return fail(E_USAGE, "--shard optimizer: the backend '%s' keeps the whole optimizer on every rank",
                    s->backend->name);
    exchange_shard(&s->exchange, &need->model->params, ranks_rank(s->ranks));
    return OK;
}

Status setup_plan(const Config *c, const SetupNeed *need, Setup *s)
{
    Status status = OK;
    Plan evaluation = {0};
    ModelTensors t;
    if (need->training) TRY(device_comm_connect(c, s->ranks, s->backend, &s->device_comm)); /* takes memory of theirs */
    Planning g = {.c = c,
                  .need = need,
                  .s = s,
                  .budget = setup_budget(c, s->backend),
                  .share = setup_share(c, ranks_size(s->ranks))};
    if (c->memory_budget == 0 && !backend_own_memory(s->backend)) g.budget = host_limit(s->ranks);
    s->process_bytes = setup_process_bytes(s->backend);
    if (!backend_own_memory(s->backend)) s->process_bytes += need->data_bytes;
    size_evaluation(c, need, s);
    if (need->evaluation) {
        PlanRequest r = request(need, s, false);
        TRY_DONE(plan_make(&r, &evaluation, &t, NULL));
        g.evaluation = &evaluation;
    }
    if (need->training) {
        int64_t tokens;
        Dtype wire = strcmp(c->wire, "bf16") == 0 ? BF16 : F32;
        if (s->ranks) exchange_init(&s->exchange, &need->model->params, ranks_size(s->ranks), c->bucket_size, wire);
        s->exchange.on_device = s->device_comm != NULL;
        if (s->ranks && strcmp(c->shard, "optimizer") == 0) TRY_DONE(shard_optimizer(need, s));
        TRY_DONE(setup_policy(c, s->backend, &s->policy));
        TRY_DONE(setup_micro_tokens(c, g.share, need->max_length, &tokens));
        set_micro(&g, tokens);
        TRY_DONE(reserve_snapshots(&g));
        TRY_DONE(choose(&g)); /* without the save buffer, so that a larger budget is never slower; it comes in */
        s->save_buffer = ranks_first(s->ranks); /* where it fits beside what was chosen, with the rank that saves */
    } else {
        s->levels = mem_alloc((size_t)need->model->config.layers);
        snprintf(s->policy_name, sizeof s->policy_name, "none");
    }
    if (snapshots_are_automatic(c)) count_present(&g);
    TRY_DONE(settle(&g));
done:
    plan_free(&evaluation);
    return status;
}

void setup_describe(const Setup *s, Buf *out)
{
    static const Region shown[] = {REGION_WEIGHT, REGION_COPY,    REGION_GRAD,  REGION_MOMENT,
                                   REGION_ACT,    REGION_SCRATCH, REGION_INPUT, REGION_OUTPUT,
                                   REGION_CONST,  REGION_SAVE,    REGION_HOST,  REGION_COMM};
    enum { n_own = 9 }; /* the others are the host's */
    bool own = backend_own_memory(s->backend);
    buf_printf(out, "plan: recompute %s, %s on %s", s->policy_name, backend_precision(s->backend, s->compute),
               s->backend->name);
    if (s->micro.tokens) buf_printf(out, ", micro-batches of up to %lld tokens", (long long)s->micro.tokens);
    if (s->step_s > 0) buf_printf(out, ", %.3g s per step predicted", s->step_s);
    buf_puts(out, "\n");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (s->plan_bytes[shown[i]] && !(own && i >= n_own))
            buf_printf(out, "  %-12s %10.1f MiB\n", region_name(shown[i]), (double)s->plan_bytes[shown[i]] / (1 << 20));
    if (s->snapshot_bytes)
        buf_printf(out, "  %-12s %10.1f MiB%s\n", "snapshots", (double)s->snapshot_bytes / (1 << 20),
                   own ? "   of the machine" : "");
    buf_printf(out, "  %-12s %10.1f MiB   (%s)\n", "process", (double)s->process_bytes / (1 << 20),
               own ? "what the driver and libraries take there" : "program, libraries, data");
    buf_printf(out, "  %-12s %10.1f MiB%s\n", "peak", (double)s->peak / (1 << 20), own ? "   of the device" : "");
    if (own)
        buf_printf(out, "  %-12s %10.1f MiB   of the machine (program, data, the state that is being saved%s)\n", "",
                   (double)s->host_peak / (1 << 20), s->plan_bytes[REGION_HOST] ? ", what is offloaded" : "");
}

SessionOptions setup_session(const Setup *s, const Config *c, bool training, bool evaluation)
{
    return (SessionOptions){.backend = s->backend,
                            .compute = s->compute,
                            .training = training,
                            .micro = s->micro,
                            .eval = evaluation ? s->eval : (MicroCapacity){0},
                            .levels = s->levels,
                            .optimizer = s->optimizer,
                            .save_buffer = s->save_buffer,
                            .no_snapshots = s->no_snapshots,
                            .poison = c->poison,
                            .seed = (uint64_t)c->seed,
                            .stop = signals_stop(),
                            .ranks = s->ranks,
                            .exchange = s->ranks ? &s->exchange : NULL,
                            .device_comm = s->device_comm};
}

void setup_free(Setup *s)
{
    comm_device_close(s->device_comm);
    backend_close(s->backend);
    exchange_free(&s->exchange);
    free(s->levels);
    *s = (Setup){0};
}
