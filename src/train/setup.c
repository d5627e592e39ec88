#include "train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"
#include "train/gpus.h"
#include "train/machine.h"
#include "train/planner.h"
#include "train/signals.h"

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

/* By its value: a printed configuration names every option. */
static bool is_default(const Config *c, int option)
{
    Buf text = {0};
    config_value_text(c, option, &text);
    bool same = strcmp(text.data, config_table[option].fallback) == 0;
    buf_free(&text);
    return same;
}

/* A number is a fixed scale; 0 is NVIDIA's word for dynamic. */
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

void setup_exchange(const Config *c, const ParamTable *params, int ranks, int rank, Exchange *x)
{
    exchange_init(x, params, ranks, c->bucket_size, strcmp(c->wire, "bf16") == 0 ? BF16 : F32);
    if (strcmp(c->shard, "optimizer") == 0) exchange_shard(x, params, rank);
}

static Status connect(const Config *c, const ParamTable *params, Setup *s)
{
    TRY(gpus_connect(c, s->ranks, s->backend, &s->comm_device)); /* takes memory of theirs */
    if (!s->ranks) return OK;
    if (strcmp(c->shard, "optimizer") == 0 && !s->backend->op[OP_BLOCK_SUMS].run)
        return fail(E_USAGE, "--shard optimizer: the backend '%s' keeps the whole optimizer on every rank",
                    s->backend->name);
    setup_exchange(c, params, ranks_size(s->ranks), ranks_rank(s->ranks), &s->exchange);
    s->exchange.by_comm_device = s->comm_device != NULL;
    return OK;
}

Status setup_plan(const Config *c, const PlanInput *need, Setup *s)
{
    PlanInput in = *need;
    Accounts accounts;
    if (in.training) TRY(connect(c, &in.model->params, s));
    in.backend = s->backend;
    in.compute = s->compute;
    in.optimizer = s->optimizer;
    in.exchange = in.training && s->ranks ? &s->exchange : NULL;
    in.saves = ranks_first(s->ranks);
    accounts_measure(&accounts, s->backend, (size_t)c->memory_budget, ranks_local_size(s->ranks), in.data_bytes,
                     (size_t)in.model->params.size * sizeof(float));
    if (in.training && in.saves) machine_rates(s->backend, s->compute, &in.rates);
    TRY(planner_choose(c, &in, &accounts, s->ranks, &s->plan));
    if (!s->plan.fits) return planner_refuse(c, &s->plan);
    planner_warn(&s->plan);
    return OK;
}

SessionOptions setup_session(const Setup *s, const Config *c)
{
    return (SessionOptions){.backend = s->backend,
                            .poison = c->poison,
                            .seed = (uint64_t)c->seed,
                            .stop = signals_stop(),
                            .ranks = s->ranks,
                            .comm_device = s->comm_device};
}

void setup_free(Setup *s)
{
    run_plan_free(&s->plan);
    comm_device_close(s->comm_device);
    backend_close(s->backend);
    exchange_free(&s->exchange);
    *s = (Setup){0};
}
