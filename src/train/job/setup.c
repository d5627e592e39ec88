#include "train/job/setup.h"

#include "base/machine_memory.h"
#include "base/parallel.h"
#include "base/sum_tree.h"
#include "train/parts/audit_choice.h"
#include "train/parts/place.h"
#include "train/pipelines/pipeline.h"
#include "train/planner/machine.h"
#include "train/planner/planner.h"
#include "train/ranks/signals.h"

/* Address space and memory that the libraries of a backend take, beside the stacks of its threads. With less they
   crash, end the process themselves, or the kernel kills it. */
#define LEAST_ADDRESSES ((size_t)112 << 20)
#define LEAST_MEMORY    ((size_t)24 << 20)

Dtype setup_compute(const Config *c, Dtype best)
{
    const char *name = c->precision;
    if (strcmp(name, "auto") == 0) return best;
    return strcmp(name, "bf16") == 0 ? BF16 : strcmp(name, "fp16") == 0 ? F16 : F32;
}

Status setup_check_addresses(const Config *c, int threads)
{
    size_t left = process_free_addresses(), least = LEAST_ADDRESSES + (size_t)threads * THREAD_ADDRESSES;
    if (strcmp(c->backend, "ref") == 0 || left >= least) return OK;
    return fail(E_MEMORY,
                "%.1f MiB are left below the limits of this process on its address space (ulimit -v, -d); the "
                "libraries and the stacks alone take %.0f MiB with --threads %d",
                (double)left / (1 << 20), (double)least / (1 << 20), threads);
}

/* Before any rank opens its libraries, since those of a host share its memory. */
static Status check_room(const Config *c, const Setup *s, int threads)
{
    int here = ranks_local_size(s->ranks);
    size_t left = machine_free_bytes(), least = LEAST_MEMORY * (size_t)here;
    TRY(setup_check_addresses(c, threads));
    if (strcmp(c->backend, "ref") == 0 || left >= least) return OK;
    return fail(E_MEMORY,
                "%.1f MiB of memory are free, on this machine or below the limit of the process's control groups; the "
                "libraries of %d rank%s here alone take %.0f MiB",
                (double)left / (1 << 20), here, here == 1 ? "" : "s", (double)least / (1 << 20));
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
    int threads = options.threads ? options.threads : parallel_cores();
    TRY(ranks_all(s->ranks, check_room(c, s, threads)));
    TRY(backend_open(c->backend, &options, &s->backend));
    s->compute = setup_compute(c, s->backend->best_compute(s->backend));
    if (!s->backend->supports(s->backend, s->compute, why, sizeof why))
        return fail(E_USAGE, "--precision %s: the backend '%s' cannot run it here: %s", c->precision, s->backend->name,
                    why);
    return OK;
}

/* A number is a fixed scale; 0 is NVIDIA's word for dynamic. */
static Status find_loss_scale(const Config *c, Optimizer *o)
{
    char *end;
    double fixed = strtod(c->loss_scale, &end);
    o->loss_scale = (float)c->init_loss_scale;
    o->scale_growth = (int32_t)c->loss_scale_growth_interval;
    if (strcmp(c->loss_scale, "dynamic") == 0 || (end != c->loss_scale && *end == '\0' && fixed == 0)) return OK;
    if (end == c->loss_scale || *end != '\0' ||
        !(fixed >= (double)LOSS_SCALE_LEAST && fixed <= (double)LOSS_SCALE_MOST))
        return fail(E_USAGE, "--loss-scale '%s': expected dynamic, or a fixed scale from 1 to 2^32", c->loss_scale);
    if (strcmp(c->precision, "fp16") != 0)
        return fail(E_USAGE, "--loss-scale %s: only --precision fp16 has a loss scale, and this is %s", c->loss_scale,
                    c->precision);
    o->loss_scale = (float)fixed;
    o->scale_growth = 0;
    return OK;
}

Status setup_optimizer(const Config *c, Optimizer *o)
{
    *o = (Optimizer){.kind = strcmp(c->optimizer, "lamb") == 0     ? OPTIMIZER_LAMB
                             : strcmp(c->optimizer, "nvlamb") == 0 ? OPTIMIZER_NVLAMB
                                                                   : OPTIMIZER_ADAMW,
                     .beta1 = (float)c->adam_beta1,
                     .beta2 = (float)c->adam_beta2,
                     .eps = (float)c->adam_eps,
                     .weight_decay = (float)c->weight_decay,
                     .max_grad_norm = (float)c->max_grad_norm,
                     .kfac = c->kfac_interval > 0,
                     .bias_correction = c->bias_correction};
    return find_loss_scale(c, o);
}

Status setup_schedule(const Config *c, int64_t n_examples, RateSchedule *s)
{
    *s = (RateSchedule){.learning_rate = c->learning_rate};
    TRY(rate_schedule_parse(c->schedule, s));
    int64_t per_epoch = batches_per_epoch(n_examples, c->batch_size);
    s->total_steps = c->max_steps > 0 ? c->max_steps : (int64_t)ceil(c->epochs * (double)per_epoch - 1e-9);
    if (s->total_steps < 1)
        return fail(E_USAGE, "--epochs %g of %lld steps each makes no step", c->epochs, (long long)per_epoch);
    s->warmup_start = c->warmup_start;
    if (s->warmup_start >= s->total_steps)
        return fail(E_USAGE,
                    "--warmup-start %lld is not before the end of training, step %lld: nothing would be learned",
                    (long long)s->warmup_start, (long long)s->total_steps);
    /* The steps of --epochs are known only after the data, when a refusal would cost the work on it. */
    return warmup_parse(c->warmup, s->total_steps - c->warmup_start, c->max_steps == 0, &s->warmup_steps);
}

/* "1, 2, 4 or 8" */
static void name_divisors(int64_t number, Buf *out)
{
    int left = 0;
    for (int64_t d = 1; d <= number; d++) left += number % d == 0;
    for (int64_t d = 1; d <= number; d++) {
        if (number % d != 0) continue;
        left--;
        buf_printf(out, "%lld%s", (long long)d, left == 0 ? "" : left == 1 ? " or " : ", ");
    }
}

Status setup_virtual(const Config *c, int ranks, PlanInput *in)
{
    if (!c->virtual_ranks || !in->training) return OK;
    in->virtual.ranks = c->virtual_ranks;
    in->virtual.grain_tokens = c->grain_tokens > in->max_length ? c->grain_tokens : in->max_length;
    if (strcmp(c->wire, "fp32") != 0)
        return fail(E_USAGE,
                    "--virtual-ranks with --wire %s: terms would be rounded between ranks alone, so bits would depend "
                    "on the number of ranks. Use --wire fp32",
                    c->wire);
    if (place_wanted(c)) return OK; /* pipeline_plan checks them, and each replica is one */
    if (c->virtual_ranks % ranks != 0) {
        Buf allowed = {0};
        name_divisors(c->virtual_ranks, &allowed);
        Status status =
            fail(E_USAGE, "--virtual-ranks %lld on %d ranks: each rank computes as many, so they run on %s rank%s",
                 (long long)c->virtual_ranks, ranks, allowed.data, c->virtual_ranks == 1 ? "" : "s");
        buf_free(&allowed);
        return status;
    }
    in->virtual.each = c->virtual_ranks / ranks;
    in->virtual.waiting = sum_tree_waiting(c->virtual_ranks, ranks);
    return OK;
}

/* All ranks get the same answer. */
static Status check_comm_device(const Config *c, Ranks *ranks, const Backend *b)
{
    if (!b->device || !b->device->stream)
        return fail(E_USAGE, "the backend '%s' has no GPU, and NCCL connects GPUs: use --comm gloo, or --backend cuda",
                    b->name);
    if (strcmp(c->wire, "fp32") != 0)
        return fail(
            E_USAGE,
            "--wire %s: NCCL would also add in %s, and lose more than the wire: use --wire fp32, or --comm gloo",
            c->wire, c->wire);
    return comm_device_ready(ranks_comm(ranks), b->device->unit);
}

/* Where NCCL adds, its version is among the libraries. */
static Status open_devices(const Config *c, const Grid *g, bool tied, Ranks *ranks, Backend *b, PlaceDevices **devices)
{
    size_t len = strlen(b->describe);
    TRY(place_devices_open(g, tied, c->virtual_ranks > 0, ranks, b, devices));
    if (!c->virtual_ranks)
        snprintf(b->describe + len, sizeof b->describe - len, ", %s", place_devices_describe(*devices));
    return OK;
}

/* Names the first two ranks on one GPU. They run, but slower and in less memory than planned. */
static Status warn_shared_device(Ranks *ranks, const Device *d)
{
    int n = ranks_size(ranks);
    char(*units)[sizeof d->unit] = mem_array((size_t)n, sizeof *units);
    Status status = comm_allgather(ranks_comm(ranks), d->unit, sizeof *units, units);
    for (int b = 1, found = 0; status == OK && ranks_first(ranks) && b < n && !found; b++)
        for (int a = 0; a < b && !found; a++) {
            found = *units[a] && strcmp(units[a], units[b]) == 0;
            if (found)
                log_warn("ranks %d and %d are on the same GPU (%s) and share its time and memory. Start one rank per "
                         "GPU: each takes the GPU of its local rank, of those in CUDA_VISIBLE_DEVICES",
                         a, b, units[a]);
        }
    free(units);
    return status;
}

/* All ranks have the same options by now; `auto` may have opened different backends. */
static Status check_backends(Ranks *ranks, const Backend *b)
{
    TRY(ranks_meet(ranks));
    return comm_agree(ranks_comm(ranks), &(CommFact){"the backend", b->name}, 1);
}

Status setup_devices(const Config *c, Ranks *ranks, Backend *backend, PlaceDevices **devices)
{
    *devices = NULL;
    if (!ranks) return OK;
    TRY(check_backends(ranks, backend));
    bool asked = strcmp(c->comm, "nccl") == 0;
    if (!asked && !backend->device) return OK;
    if (!asked && strcmp(c->comm, "auto") != 0) return warn_shared_device(ranks, backend->device);
    Status status = check_comm_device(c, ranks, backend);
    const Grid all = grid_of_ranks(ranks_size(ranks));
    if (status == OK) return open_devices(c, &all, false, ranks, backend, devices);
    if (asked) return status_context(status, "--comm nccl");
    if (status == E_USAGE && ranks_first(ranks))
        log_warn("gradients go through the host's memory and Gloo, not from GPU to GPU: %s", status_message());
    return status == E_USAGE ? OK : status;
}

/* Boundaries and gradients of a pipeline go through the hosts' memory, or as --comm nccl asks. */
static Status open_place_devices(const Config *c, const Model *model, Setup *s)
{
    Grid grid;
    if (!s->ranks) return OK;
    TRY(check_backends(s->ranks, s->backend));
    if (strcmp(c->comm, "nccl") != 0) return s->backend->device ? warn_shared_device(s->ranks, s->backend->device) : OK;
    Status status = check_comm_device(c, s->ranks, s->backend);
    if (status != OK) return status_context(status, "--comm nccl");
    TRY(pipeline_grid(c, place_kind(c), ranks_size(s->ranks), model->config.layers, &grid));
    return open_devices(c, &grid, model_tied(model) != NULL, s->ranks, s->backend, &s->devices);
}

static Status open_exchange(const Config *c, Setup *s)
{
    TRY(setup_devices(c, s->ranks, s->backend, &s->devices)); /* takes device memory */
    if (s->ranks && strcmp(c->shard, "optimizer") == 0 && !s->backend->op[OP_BLOCK_SUMS].run)
        return fail(E_USAGE, "--shard optimizer: the backend '%s' keeps the whole optimizer on every rank",
                    s->backend->name);
    return OK;
}

Status setup_audit(const Config *c, PlanInput *in)
{
    AuditChoice audit;
    TRY(audit_parse(c->audit, &audit));
    in->audit = audit.recompute;
    in->watch = audit.recompute || audit.share > 0;
    return OK;
}

/* Each rank has the whole model. */
static Status open_place(const Config *c, PlanInput *in, Setup *s)
{
    KfacOptions kfac = {0};
    if (in->training) TRY(kfac_options(c, &kfac));
    s->place = place_whole(c, &kfac, in->model, ranks_size(s->ranks), ranks_rank(s->ranks), s->devices != NULL);
    in->place = s->place;
    if (in->sees) holding_set_writers(&s->place->holding, in->sees);
    return OK;
}

/* In place of planner_choose. */
static Status plan_place(const Config *c, PlanInput *in, const Accounts *accounts, Setup *s)
{
    if (in->training && !s->backend->op[OP_BLOCK_SUMS].run)
        return fail(E_USAGE,
                    "--pipeline: the backend '%s' has no sums of norm blocks, so it cannot update a stage alone",
                    s->backend->name);
    TRY(place_choose(c, in, accounts, s->ranks, s->devices != NULL, &s->place, &s->plan));
    planner_warn(c, &s->plan);
    return OK;
}

/* What both plans below have. */
static Status fill_input(const Config *c, const Setup *s, PlanInput *in)
{
    in->backend = s->backend;
    in->compute = s->compute;
    if (in->coupling && s->backend->device)
        in->data_bytes += coupling_host_bytes(in->coupling, in->model->config.hidden);
    TRY(setup_audit(c, in));
    return setup_virtual(c, ranks_size(s->ranks), in);
}

Status setup_plan(const Config *c, const PlanInput *need, Setup *s)
{
    PlanInput in = *need;
    Accounts accounts;
    TRY(fill_input(c, s, &in));
    bool pipeline = place_wanted(c);
    if (pipeline || in.training) TRY(pipeline ? open_place_devices(c, in.model, s) : open_exchange(c, s));
    in.optimizer = s->optimizer;
    in.first = ranks_first(s->ranks);
    in.sees = s->sees;
    size_t weights = (size_t)in.model->params.size * sizeof(float);
    bool collects = pipeline && in.first && s->ranks && !s->backend->device; /* rank 0 imports into such a copy */
    accounts_measure(&accounts, s->backend, (size_t)c->memory_budget, ranks_local_size(s->ranks),
                     in.data_bytes + (collects ? weights : 0), weights);
    if ((pipeline || in.training) && in.first)
        machine_rates(s->backend, &in.model->config, s->compute, &in.rates, NULL);
    if (pipeline) return plan_place(c, &in, &accounts, s);
    TRY(open_place(c, &in, s));
    TRY(planner_choose(c, &in, &accounts, s->ranks, &s->plan));
    TRY(planner_check(c, &s->plan, s->ranks));
    planner_warn(c, &s->plan);
    return OK;
}

Status setup_foresee(const Config *c, const PlanInput *need, Setup *s)
{
    PlanInput in = *need;
    Accounts accounts;
    RunPlan plan = {0};
    if (place_wanted(c)) return OK; /* no rank needs room for the whole */
    TRY(fill_input(c, s, &in));
    in.first = true;
    TRY(setup_optimizer(c, &in.optimizer));
    TRY(open_place(c, &in, s));
    accounts_measure(&accounts, s->backend, (size_t)c->memory_budget, ranks_local_size(s->ranks), in.data_bytes,
                     (size_t)in.model->params.size * sizeof(float));
    machine_rates(s->backend, &in.model->config, s->compute, &in.rates, NULL);
    Status status = planner_choose(c, &in, &accounts, NULL, &plan);
    if (status == OK) status = planner_check(c, &plan, NULL);
    run_plan_free(&plan);
    place_free(s->place); /* the run plans again */
    s->place = NULL;
    return status;
}

SessionOptions setup_session(const Setup *s, const Config *c)
{
    return (SessionOptions){.backend = s->backend,
                            .poison = c->poison,
                            .seed = (uint64_t)c->seed,
                            .stop = signals_stop(),
                            .ranks = s->ranks,
                            .devices = s->devices};
}

void setup_free(Setup *s)
{
    run_plan_free(&s->plan);
    place_devices_close(s->devices);
    backend_close(s->backend);
    place_free(s->place);
    free(s->sees);
    *s = (Setup){0};
}
