/* `cairn plan`: for every policy the bytes per class, the peak, the predicted step and the largest batch, before
   anything is allocated; for models and devices of any size. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/lengths.h"
#include "state/import.h"
#include "train/commands.h"
#include "train/cost_table.h"
#include "train/devices.h"
#include "train/observe.h"
#include "train/plan_ranks.h"
#include "train/setup.h"
#include "train/snapshots.h"

#define MOST_BATCH (INT64_C(1) << 20)

static const char *const policy_names[] = {"none", "lean",    "ffn",     "selective", "half-attention",
                                           "full", "every:2", "every:4", "offload"};

typedef struct {
    const Config *c;
    Model model;
    Setup setup;              /* backend (NULL with --device), precision, optimizer */
    const DeviceSpec *device; /* NULL: this machine */
    Backend device_backend;   /* its table, not opened */
    const Backend *backend;   /* to plan with; NULL: estimates */
    Lengths lengths;          /* of packed sequences; zeroed: all have --max-seq-length */
    double mean, beside;      /* tokens of a sequence; of a token's sequence */
    CostRates rates;
    size_t budget;
    int64_t micro_tokens;
    uint8_t *norm_forms; /* (2·layers + 1), of --model's weights; NULL: all Y */
    Exchange exchange;   /* --ranks with --explain: as rank 0 has it */
    bool save_buffer;    /* plan room to save in the background; given up for a policy that fits without only */
} PlanRun;

typedef struct {
    char name[88];
    bool exact, fits;
    size_t bytes[N_REGIONS], host, peak;
    double step_s;
    int64_t max_batch;
    double *series; /* (n_series) bytes per instr of micro */
    int n_series;
} Row;

/* The head that fine-tuning the task has; its labels matter little to a plan, but a wrong name should not pass. */
static Status find_head(const Config *c, Head *head)
{
    static const struct {
        const char *name;
        int labels; /* 1: regression */
    } tasks[] = {{"CoLA", 2}, {"SST-2", 2}, {"SST2", 2}, {"MRPC", 2}, {"STS-B", 1}, {"STSB", 1},
                 {"QQP", 2},  {"MNLI", 3},  {"QNLI", 2}, {"RTE", 2},  {"WNLI", 2},  {"AX", 3}};
    int labels = 0;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (strcasecmp(c->task, tasks[i].name) == 0) labels = tasks[i].labels;
    if (strcasecmp(c->task, "custom") == 0) {
        labels = *c->labels ? 1 : 2; /* not told: as of most */
        for (const char *p = c->labels; *p; p++) labels += *p == ',';
    }
    if (!labels)
        return fail(
            E_USAGE,
            "--task '%s' is unknown; expected CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE, WNLI, AX or custom; "
            "for pretraining give --predictions",
            c->task);
    *head = labels == 1 ? (Head){HEAD_REGRESSION, 1} : (Head){HEAD_CLASSIFIER, labels};
    return OK;
}

static Status open_model(PlanRun *r)
{
    const Config *c = r->c;
    ModelConfig config;
    char *path = *c->model_config ? mem_strdup(c->model_config) : *c->model ? import_find_config(c->model) : NULL;
    if (!path) return fail(E_USAGE, "give --model-config FILE or --model DIR with a config.json");
    Status status = model_config_read(path, &config);
    free(path);
    TRY(status);
    if (c->predictions > 0) return model_init(&r->model, config, (Head){HEAD_PRETRAINING, 2});
    Head head;
    TRY(find_head(c, &head));
    return model_init(&r->model, config, head);
}

/* What the LayerNorms of --model's weights keep; weights that cannot be read are no hindrance to a plan. */
static void find_norm_forms(PlanRun *r)
{
    float *norms = NULL;
    if (!*r->c->model) return;
    if (import_check(r->c->model, &r->model, NULL) == OK && import_check(r->c->model, &r->model, &norms) == OK) {
        r->norm_forms = mem_alloc((size_t)(2 * r->model.config.layers + 1));
        model_norm_forms(&r->model, norms, r->norm_forms);
    } else {
        log_warn("%s; planned as if every LayerNorm kept its output", status_message());
    }
    free(norms);
}

/* A device's save buffer lies on the host: it is no matter of the device's memory. */
static bool saves_here(const PlanRun *r) { return !r->device && !backend_own_memory(r->setup.backend); }

static Status open_machine(PlanRun *r)
{
    const Config *c = r->c;
    if (!*c->device) {
        TRY(setup_backend(c, &r->setup));
        r->backend = r->setup.backend;
        machine_rates(r->setup.backend, r->setup.compute, &r->rates);
        r->setup.process_bytes = setup_process_bytes(r->setup.backend);
        r->budget = setup_budget(c, r->setup.backend);
        return OK;
    }
    TRY(device_find(c->device, &r->device));
    if (device_table(r->device, &r->device_backend))
        r->backend = &r->device_backend;
    else
        log_debug("scratch is estimated: %s", status_message());
    if (strcmp(c->precision, "tf32") == 0)
        return fail(E_USAGE, "--precision tf32: --device has no rates of it. Plan with fp32: the memory is the same");
    if (strcmp(c->attention, "cudnn") == 0)
        return fail(E_USAGE, "--attention cudnn: only where the device is can cuDNN be asked for its workspace; plan "
                             "without --device, or with --attention own");
    r->setup.compute = setup_compute(c, BF16);
    device_rates(r->device, r->setup.compute, &r->rates);
    r->setup.process_bytes = device_context_bytes();
    r->budget = c->memory_budget > 0 ? (size_t)c->memory_budget : (size_t)r->device->memory_bytes;
    return OK;
}

/* A device that is not here can. */
static bool offloads(const PlanRun *r) { return !r->backend || backend_offloads(r->backend); }

static Status find_lengths(PlanRun *r)
{
    r->mean = r->beside = (double)r->c->max_seq_length;
    if (!*r->c->lengths) return OK;
    TRY(lengths_read(r->c->lengths, &r->lengths));
    if (r->lengths.longest > r->c->max_seq_length)
        return fail(E_USAGE, "%s has sequences of %lld tokens; give --max-seq-length %lld or more", r->c->lengths,
                    (long long)r->lengths.longest, (long long)r->lengths.longest);
    r->mean = r->lengths.mean;
    r->beside = r->lengths.beside;
    return OK;
}

/* ---- one policy ---- */

static PlanRequest request(const PlanRun *r, int64_t tokens, int64_t seqs, bool training, const uint8_t *levels)
{
    double masked = (double)(tokens * r->c->predictions) / (double)r->c->max_seq_length;
    return (PlanRequest){.model = &r->model,
                         .backend = r->backend,
                         .one_copy = r->device != NULL,
                         .compute = r->setup.compute,
                         .training = training,
                         .beside_training = !training,
                         .capacity = plan_capacity((MicroCapacity){tokens, seqs, (int64_t)ceil(masked)}),
                         .levels = levels,
                         .norm_forms = r->norm_forms,
                         .optimizer = r->setup.optimizer,
                         .save_buffer = training && r->save_buffer,
                         .exchange = training && r->exchange.buckets.n ? &r->exchange : NULL};
}

static int64_t seqs_in(int64_t batch, int64_t tokens)
{
    int64_t most = tokens / 3 + 1;
    return batch < most ? batch : most;
}

static int64_t tokens_in(const PlanRun *r, int64_t batch) { return (int64_t)ceil((double)batch * r->mean); }

static Status evaluation_plan(const PlanRun *r, Plan *p)
{
    ModelTensors t;
    int64_t tokens = r->c->eval_batch_size * r->c->max_seq_length;
    if (tokens > 16384) tokens = 16384;
    if (tokens < r->c->max_seq_length) tokens = r->c->max_seq_length;
    PlanRequest q = request(r, tokens, seqs_in(r->c->eval_batch_size, tokens), false, NULL);
    return plan_make(&q, p, &t, NULL);
}

/* Of a step, on one rank. */
static int64_t sequences(const PlanRun *r) { return setup_share(r->c, r->c->ranks > 1 ? (int)r->c->ranks : 1); }

/* Of a step. Packed micro-batches are full on the whole, so the last one need not be counted as one. */
static double micros(const PlanRun *r)
{
    double n = (double)tokens_in(r, sequences(r)) / (double)r->micro_tokens;
    return *r->c->lengths ? n : ceil(n);
}

/* Bytes of a step made in one micro-batch of `batch` sequences. */
static Status bytes_of_batch(const PlanRun *r, const uint8_t *levels, int64_t batch, size_t *peak)
{
    Plan p;
    ModelTensors t;
    PlanRequest q = request(r, tokens_in(r, batch), batch, true, levels);
    TRY(plan_make(&q, &p, &t, NULL));
    *peak = plan_total(&p, NULL, r->setup.backend, NULL) + r->setup.process_bytes;
    plan_free(&p);
    return OK;
}

/* The largest batch that fits in one micro-batch: bytes grow almost in proportion, so a straight line gives the first
   guess and exact plans the answer. */
static Status largest_batch(const PlanRun *r, const uint8_t *levels, int64_t *batch)
{
    size_t one, more;
    *batch = 0;
    TRY(bytes_of_batch(r, levels, 1, &one));
    if (one > r->budget) return OK;
    TRY(bytes_of_batch(r, levels, 65, &more));
    double slope = ((double)more - (double)one) / 64,
           guess = 1 + ((double)r->budget - (double)one) / (slope > 1 ? slope : 1);
    int64_t low = 1, high = guess > (double)MOST_BATCH ? MOST_BATCH : (int64_t)guess + 1;
    for (size_t bytes; high < MOST_BATCH; high += high / 16 + 1) {
        TRY(bytes_of_batch(r, levels, high, &bytes));
        if (bytes > r->budget) break;
        low = high;
    }
    int64_t near = low > 1 ? low : high - high / 64 - 2; /* try close below the guess first */
    while (high - low > 1) {
        int64_t middle = near > low && near < high ? near : low + (high - low) / 2;
        size_t bytes;
        near = 0;
        TRY(bytes_of_batch(r, levels, middle, &bytes));
        if (bytes <= r->budget)
            low = middle;
        else
            high = middle;
    }
    *batch = low;
    return OK;
}

/* With the save buffer if that fits; else, as a run does, without. */
static Status fill_row(PlanRun *r, const uint8_t *levels, const char *name, const Plan *evaluation, Row *row)
{
    Plan p;
    ModelTensors t;
    r->save_buffer = saves_here(r);
    PlanRequest q = request(r, r->micro_tokens, seqs_in(r->c->batch_size, r->micro_tokens), true, levels);
    TRY(plan_make(&q, &p, &t, NULL));
    snprintf(row->name, sizeof row->name, "%s", name);
    row->exact = p.exact;
    row->host = r->setup.process_bytes;
    row->peak = plan_total(&p, evaluation, r->setup.backend, row->bytes) + row->host;
    if (row->peak > r->budget) {
        r->save_buffer = false;
        row->peak -= row->bytes[REGION_SAVE];
        row->bytes[REGION_SAVE] = 0;
    }
    row->fits = row->peak <= r->budget;
    r->save_buffer = false; /* the largest batch is found without it: a run gives it up where it has to */
    row->step_s = search_step_seconds(&p, &r->rates, r->beside, micros(r));
    plan_memory_series(&p, &row->series, &row->n_series);
    plan_free(&p);
    return largest_batch(r, levels, &row->max_batch);
}

/* ---- all of them ---- */

static Status add_policy(PlanRun *r, const char *name, const Plan *evaluation, Row *row)
{
    Policy policy;
    Status status = OK;
    uint8_t *levels = mem_alloc((size_t)r->model.config.layers);
    TRY_DONE(policy_parse(name, &policy));
    policy_levels(policy, r->model.config.layers, levels);
    TRY_DONE(fill_row(r, levels, name, evaluation, row));
done:
    free(levels);
    return status;
}

static Status add_auto(PlanRun *r, const Plan *evaluation, Row *row)
{
    SearchResult found;
    r->save_buffer = false; /* fill_row adds it where it fits beside the fastest plan */
    SearchProblem problem = {.training =
                                 request(r, r->micro_tokens, seqs_in(r->c->batch_size, r->micro_tokens), true, NULL),
                             .evaluation = evaluation,
                             .budget = r->budget,
                             .fixed = r->setup.process_bytes,
                             .rates = r->rates,
                             .seq_len = r->beside,
                             .micros = micros(r),
                             .offload = offloads(r),
                             .host = SIZE_MAX};
    TRY(search_levels(&problem, &found));
    char name[88];
    snprintf(name, sizeof name, "auto (%s)", found.name);
    Status status = fill_row(r, found.levels, name, evaluation, row);
    free(found.levels);
    return status;
}

static double mib(size_t bytes) { return (double)bytes / (1 << 20); }

static void print_table(const PlanRun *r, const Row *rows, int n)
{
    const ModelConfig *m = &r->model.config;
    printf("BERT of %d layers, hidden %d, %.1f M parameters; %s, %s; batch %lld × %lld tokens, micro-batches of %lld "
           "tokens%s\n",
           m->layers, m->hidden, (double)r->model.params.size / 1e6,
           r->device ? r->device->name : r->setup.backend->describe, dtype_name(r->setup.compute),
           (long long)r->c->batch_size, (long long)r->c->max_seq_length, (long long)r->micro_tokens,
           r->c->predictions ? ", pretraining" : "");
    if (*r->c->lengths) printf("packed: %.2f tokens in a sequence, %.2f beside a token\n", r->mean, r->beside);
    printf("budget %.0f MiB; rates: %.1f GFLOP/s, %.1f GB/s (%s)\n\n", mib(r->budget), r->rates.product_flops / 1e9,
           r->rates.bytes / 1e9, r->rates.source);
    printf("%-26s %9s %9s %9s %9s %9s %8s %8s %10s %9s %9s %9s\n", "MiB", "weights", "gradients", "optimizer",
           "activat.", "scratch", "input", "save", "peak", "step (s)", "seq/s", "max batch");
    for (int i = 0; i < n; i++) {
        const Row *w = &rows[i];
        printf("%-26s %9.1f %9.1f %9.1f %9.1f %9.1f %8.2f %8.1f %9.1f%s %9.4g %9.4g %9lld%s\n", w->name,
               mib(w->bytes[REGION_WEIGHT] + w->bytes[REGION_COPY]), mib(w->bytes[REGION_GRAD]),
               mib(w->bytes[REGION_MOMENT]), mib(w->bytes[REGION_ACT]), mib(w->bytes[REGION_SCRATCH]),
               mib(w->bytes[REGION_INPUT] + w->bytes[REGION_OUTPUT]), mib(w->bytes[REGION_SAVE]), mib(w->peak),
               w->exact ? " " : "~", w->step_s, (double)r->c->batch_size / w->step_s, (long long)w->max_batch,
               w->fits ? "" : "  does not fit");
    }
    printf("\npeak includes %.1f MiB %s; max batch: sequences in one micro-batch within the budget%s\n",
           mib(r->setup.process_bytes), r->device ? "of the device's context and libraries" : "of the process itself",
           rows[0].exact ? "" : "; ~ scratch is estimated");
    for (int i = 0; i < n; i++)
        if (rows[i].bytes[REGION_HOST])
            printf("%s: %.1f MiB of pinned memory of the host beside that, by a link of %.1f and %.1f GB/s\n",
                   rows[i].name, mib(rows[i].bytes[REGION_HOST]), r->rates.link_out / 1e9, r->rates.link_in / 1e9);
}

static void print_json(const PlanRun *r, const Row *rows, int n)
{
    Buf out = {0};
    buf_puts(&out, "{\"backend\": ");
    buf_json(&out, r->device ? r->device->name : r->setup.backend->name);
    buf_printf(&out, ", \"micro_batch_tokens\": %lld, \"budget\": %zu, \"policies\": [", (long long)r->micro_tokens,
               r->budget);
    for (int i = 0; i < n; i++) {
        const Row *w = &rows[i];
        buf_printf(&out, "%s\n {\"name\": ", i ? "," : "");
        buf_json(&out, w->name);
        buf_printf(
            &out,
            ", \"bytes\": {\"weights\": %zu, \"gradients\": %zu, \"optimizer\": %zu, \"activations\": %zu, "
            "\"scratch\": %zu, \"input\": %zu, \"save\": %zu, \"host\": %zu}, \"peak\": %zu, \"offloaded\": %zu, "
            "\"max_batch\": %lld, "
            "\"step_s\": ",
            w->bytes[REGION_WEIGHT] + w->bytes[REGION_COPY], w->bytes[REGION_GRAD], w->bytes[REGION_MOMENT],
            w->bytes[REGION_ACT], w->bytes[REGION_SCRATCH],
            w->bytes[REGION_INPUT] + w->bytes[REGION_OUTPUT] + w->bytes[REGION_CONST], w->bytes[REGION_SAVE], w->host,
            w->peak, w->bytes[REGION_HOST], (long long)w->max_batch);
        buf_double(&out, w->step_s);
        buf_puts(&out, ", \"seq_per_s\": ");
        buf_double(&out, (double)r->c->batch_size / w->step_s);
        buf_printf(&out, ", \"exact\": %s}", w->exact ? "true" : "false");
    }
    buf_puts(&out, "\n]}\n");
    fputs(out.data, stdout);
    buf_free(&out);
}

/* ---- --explain, --explain-cost ---- */

static void find_exchange(PlanRun *r)
{
    const Config *c = r->c;
    if (c->ranks < 2) return;
    exchange_init(&r->exchange, &r->model.params, (int)c->ranks, c->bucket_size,
                  strcmp(c->wire, "bf16") == 0 ? BF16 : F32);
    if (strcmp(c->shard, "optimizer") == 0) exchange_shard(&r->exchange, &r->model.params, 0);
}

static Status explain(PlanRun *r, bool cost)
{
    Plan p = {0};
    ModelTensors t;
    Policy policy;
    Buf out = {0};
    Status status = OK;
    uint8_t *levels = mem_alloc((size_t)r->model.config.layers);
    TRY_DONE(setup_policy(r->c, r->backend, &policy));
    if (policy.kind == POLICY_AUTO) {
        status = fail(E_USAGE, "--explain shows the plan of one policy; give --recompute another name than auto");
        goto done;
    }
    policy_levels(policy, r->model.config.layers, levels);
    find_exchange(r);
    PlanRequest q = request(r, r->micro_tokens, seqs_in(r->c->batch_size, r->micro_tokens), true, levels);
    TRY_DONE(plan_make(&q, &p, &t, NULL));
    if (!cost) {
        plan_explain(&p, &out);
    } else {
        CostTable table = {.plan = &p,
                           .rates = &r->rates,
                           .peak_flops = r->device ? device_peak(r->device, r->setup.compute) : 0,
                           .mean = r->mean,
                           .beside = r->beside,
                           .micros = micros(r),
                           .sequences = (double)r->c->batch_size,
                           .policy = r->c->recompute};
        cost_table(&table, &out);
    }
    fputs(out.data, stdout);
done:
    plan_free(&p);
    buf_free(&out);
    free(levels);
    return status;
}

/* ---- --ranks ---- */

static Status show_ranks(PlanRun *r)
{
    Policy policy;
    Status status = OK;
    uint8_t *levels = mem_alloc((size_t)r->model.config.layers);
    TRY_DONE(setup_policy(r->c, r->backend, &policy));
    if (policy.kind == POLICY_AUTO)
        TRY_DONE(fail(E_USAGE, "--ranks predicts for one policy; give --recompute another name than auto"));
    policy_levels(policy, r->model.config.layers, levels);
    int64_t share = setup_share(r->c, (int)r->c->ranks);
    int replicas;
    TRY_DONE(snapshots_replicas(r->c, (int)r->c->ranks, &replicas));
    TRY_DONE(
        plan_ranks(&(PlanRanks){.config = r->c,
                                .request = request(r, r->micro_tokens, seqs_in(share, r->micro_tokens), true, levels),
                                .rates = r->rates,
                                .seq_len = r->beside,
                                .micros = micros(r),
                                .share = share,
                                .replicas = replicas,
                                .machine = r->device ? r->device->name : r->setup.backend->describe}));
done:
    free(levels);
    return status;
}

static Status write_svg(const PlanRun *r, const Row *rows, int n)
{
    Buf out = {0};
    ChartSeries series[16];
    Chart chart = {.title = "Memory over one micro-batch",
                   .x_label = "instr",
                   .y_label = "MiB of activations and scratch",
                   .series = series,
                   .n_series = n};
    for (int i = 0; i < n; i++)
        series[i] =
            (ChartSeries){.name = rows[i].name, .y = rows[i].series, .n = rows[i].n_series, .scale = 1.0 / (1 << 20)};
    chart_svg(&chart, &out);
    Status status = file_write_durable(r->c->svg, out.data, out.len);
    buf_free(&out);
    return status;
}

static Status plan_all(PlanRun *r)
{
    enum { N = sizeof policy_names / sizeof *policy_names };
    Row rows[N + 1];
    int n = 0, n_policies = offloads(r) ? N : N - 1;
    Plan evaluation = {0}, *beside = r->c->predictions ? NULL : &evaluation;
    Status status = OK;
    memset(rows, 0, sizeof rows);
    if (!r->c->predictions) TRY_DONE(evaluation_plan(r, &evaluation)); /* none beside pretraining */
    for (int i = 0; i < n_policies; i++) TRY_DONE(add_policy(r, policy_names[i], beside, &rows[n++]));
    status = add_auto(r, beside, &rows[n]);
    if (status == E_MEMORY)
        log_warn("%s", status_message());
    else if (status != OK)
        goto done;
    else
        n++;
    status = OK;
    if (r->c->json)
        print_json(r, rows, n);
    else
        print_table(r, rows, n);
    if (*r->c->svg) TRY_DONE(write_svg(r, rows, n_policies)); /* auto is one of the others, or close to it */
done:
    for (int i = 0; i <= N; i++) free(rows[i].series);
    plan_free(&evaluation);
    return status;
}

Status command_plan(const Config *c)
{
    PlanRun r = {.c = c};
    Status status = OK;
    TRY_DONE(open_model(&r));
    find_norm_forms(&r);
    TRY_DONE(setup_optimizer(c, &r.setup.optimizer));
    TRY_DONE(open_machine(&r));
    TRY_DONE(find_lengths(&r));
    int64_t share = sequences(&r);
    TRY_DONE(setup_micro_tokens(c, share, c->max_seq_length, &r.micro_tokens));
    r.save_buffer = saves_here(&r);
    if (r.micro_tokens == 0) r.micro_tokens = share * c->max_seq_length; /* auto: the planner starts from the step */
    if (r.micro_tokens > tokens_in(&r, share) && *c->lengths) r.micro_tokens = tokens_in(&r, share);
    if (c->explain || c->explain_cost)
        status = explain(&r, c->explain_cost);
    else
        status = c->ranks > 1 ? show_ranks(&r) : plan_all(&r);
done:
    exchange_free(&r.exchange);
    setup_free(&r.setup);
    model_free(&r.model);
    lengths_free(&r.lengths);
    free(r.norm_forms);
    return status;
}
