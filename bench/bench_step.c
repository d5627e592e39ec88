/* Full training steps (forward, backward, update) of a model from random weights on any backend, one recompute policy
   after the other in interleaved rounds, beside the rate of one large product measured in the same run.

   bench_step [flags] CONFIG.json [batch] [length] [rounds] [fp32|bf16] [policy]...

   --backend NAME       default cpu
   --predictions N      masked positions in a sequence of `length`: pretraining (MLM, NSP); 0: three labels
   --lengths FILE       packed sequences of such lengths; a micro-batch has batch × length rows, and as many as fit
   --optimizer NAME     adamw (default) or lamb
   --attention KIND     auto (default), own or cudnn
   --dropout P          all rates; default as the configuration says
   --steps N            timed in a round, after 3 others; default 1, after 1 other
   --product N          size of the large product, N × N × N; default 4096 on a device, 1024 × 768 × 3072 else
   --ops                times every distinct instr of the first policy's plan, back to back
   --kernels FILE       --ops also as a kernels.csv, for cairn plan --costs
   --json FILE          appends one line per policy, and per op
   --name TEXT          what the lines are called

   A policy with "+audit" behind its name is trained with --audit recompute, with "+check" with what a step that --audit
   P% computes twice has beside the second computation, with "+grains" with --virtual-ranks 1.

   `resident_bytes`: what the process holds at most in the timed steps of a round (VmHWM), less the copy of the weights
   that lies here for the next policy. `other_bytes`: of it what is not the plan's: libraries above all. `batch_bytes`:
   of it what a micro-batch takes: all but the regions that stay, and others. They say nothing of a device.

   A step is one micro-batch. Inputs go to the device before each; nothing comes back before the last step is done.

   `graphs`: ranges captured, launches of these, ranges that were refused and ran op by op. `device_bytes`: the plan in
   a device's memory; `context_bytes`: measured before it; `used_bytes`: of the process there after the steps.

   A line is written after each round of each policy, so that a later failure loses none. A policy that fails is
   reported
   ("kind": "failed") and left out of further rounds. `digest` is of the weights after all steps, `same_bits` false
   where it differs between rounds, or from the first policy's where both or neither have grains. Exit code 1: a policy
   failed, or weights differ. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/sort.h"
#include "bench/bench_step/rig.h"

enum { MOST_POLICIES = 16, MOST_ROUNDS = 32 };
#define MIB (1024.0 * 1024.0)

Want want = {.backend = "cpu",
             .optimizer = "adamw",
             .name = "",
             .batch = 16,
             .length = 128,
             .rounds = 3,
             .steps = 1,
             .dropout = -1};
Model model;
Backend *backend;
float *weights;
FILE *json;

void must(Status status)
{
    if (status == OK) return;
    fprintf(stderr, "bench_step: %s\n", status_message());
    exit(status_exit_code(status));
}

Status wait_for_all(void) { return backend_wait(backend); }

typedef struct {
    const char *name;
    double seconds[MOST_ROUNDS];         /* a step */
    double update[MOST_ROUNDS];          /* the update range of it, alone */
    double cpu, launch;                  /* processor time of a step, all threads; time until it was launched */
    double open;                         /* first bind of the plan: products are timed, unless they were before */
    double kept, act_bytes, total_bytes; /* kept: bytes per token and layer */
    size_t device_bytes, used_bytes;     /* of the plan in a device's memory; of the process there, after the steps */
    double resident, other,
        batch; /* bytes of the process at most in timed steps; of them not of the plan; of a micro-batch */
    Stats stats;
    Digest digest;
    ExecGraphs graphs;
    int rounds;      /* measured */
    bool other_bits; /* two rounds ended with different weights */
    Status status;   /* of its last round; after a failure it is not measured again */
} Row;

static double median(const double *values, int n)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    return sort_median(sorted, n);
}

/* Weights after the steps, equal in all rounds and to those of the first policy. */
static bool same_bits(const Row *row, const Row *first)
{
    bool comparable = first->rounds && !strstr(row->name, "+grains") == !strstr(first->name, "+grains");
    return !row->other_bits && (!comparable || digest_equal(row->digest, first->digest));
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Activation bytes per token that live from forward into backward, at capacity, without those of the heads. */
static double kept_bytes_per_token(const Plan *p)
{
    InstrId turn = p->micro.first; /* the last forward instr */
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++)
        if (p->instrs[i].phase == PHASE_FORWARD) turn = i;
    int64_t bytes = 0;
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *x = &p->tensors[t];
        bool of_layers = x->rows.kind == ROWS_TOKENS || x->rows.kind == ROWS_READ;
        if (x->region == REGION_ACT && of_layers && x->first <= turn && x->last > turn)
            bytes += rows_in(x->rows, &p->capacity) * x->cols * (int64_t)dtype_size(x->dtype);
    }
    return (double)bytes / (double)p->capacity.count[ROWS_TOKENS];
}

/* ---- measuring ---- */

/* A field of /proc/self/status in bytes, less the weights that lie here for the next policy. */
static double resident_bytes(const char *field)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (str_starts_with(line, field)) kib = strtod(line + strlen(field), NULL);
    if (f) fclose(f);
    return kib * 1024 - (double)model.params.size * sizeof *weights;
}

/* From here on VmHWM is what the process holds at most. */
static void forget_peak(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (f && (fputs("5", f) < 0 || fclose(f) != 0)) perror("bench_step: /proc/self/clear_refs");
}

static Status read_result(Rig *r, Row *row)
{
    size_t bytes = (size_t)model.params.size * sizeof(float);
    float *after = mem_alloc(bytes);
    Status status = exec_download(r->exec, r->t.stats, &row->stats, sizeof row->stats);
    if (status == OK) status = exec_download(r->exec, r->t.weights, after, bytes);
    if (status == OK) {
        Digest digest = digest_of(after, bytes);
        row->other_bits |= row->rounds > 0 && !digest_equal(digest, row->digest);
        row->digest = digest;
    }
    free(after);
    return status;
}

/* Steps before the timed ones load, capture and replay outside the time. */
static Status time_steps(Rig *r, Row *row)
{
    int before = want.steps > 1 ? 3 * BATCHES : 1, step = 0;
    while (step < before) TRY(rig_step(r, step++));
    TRY(wait_for_all());
    forget_peak();
    double start = clock_monotonic(), cpu = processor_seconds();
    for (int i = 0; i < want.steps; i++) TRY(rig_step(r, step++));
    row->launch = (clock_monotonic() - start) / want.steps;
    TRY(wait_for_all());
    row->seconds[row->rounds] = (clock_monotonic() - start) / want.steps;
    row->cpu = (processor_seconds() - cpu) / want.steps;
    row->resident = resident_bytes("VmHWM:");
    row->batch = row->resident - row->other - (double)memory_total(&r->memory);
    row->batch += (double)(r->memory.bytes[REGION_ACT] + r->memory.bytes[REGION_SCRATCH]);
    TRY(read_result(r, row));

    TRY(wait_for_all());
    start = clock_monotonic();
    for (int i = 0; i < want.steps; i++) TRY(exec_run(r->exec, r->plan.update, &r->plan.capacity));
    TRY(wait_for_all());
    row->update[row->rounds] = (clock_monotonic() - start) / want.steps;
    return OK;
}

static void measure(Row *row)
{
    Rig r;
    double start = clock_monotonic();
    row->status = rig_open(&r, row->name);
    if (row->rounds == 0) row->open = clock_monotonic() - start;
    if (row->status == OK) { /* every page of the regions is there before the first step */
        row->other = resident_bytes("VmRSS:") - (double)memory_total(&r.memory);
        row->status = time_steps(&r, row);
    }
    if (row->status == OK) {
        row->rounds++;
        row->graphs = exec_graphs(r.exec);
        row->act_bytes = (double)r.plan.region_bytes[REGION_ACT];
        row->kept = kept_bytes_per_token(&r.plan) / model.config.layers;
        row->total_bytes = (double)memory_total(&r.memory);
        row->device_bytes = memory_total(&r.memory) - r.memory.bytes[REGION_HOST];
        row->used_bytes = backend->device ? backend->device->used(backend->device) : 0;
    } else {
        fprintf(stderr, "bench_step: %s: %s\n", row->name, status_message());
        if (json) {
            Buf why = {0};
            buf_json(&why, status_message());
            fprintf(json, "{\"kind\": \"failed\", \"case\": \"%s\", \"policy\": \"%s\", \"why\": %s}\n", want.name,
                    row->name, why.data);
            fflush(json);
            buf_free(&why);
        }
    }
    rig_close(&r);
}

/* ---- output: a line of JSON after each round of each policy; of two lines of one policy the later one counts ---- */

static void write_json(const Row *row, const Row *first)
{
    char digest[33], loss[32];
    size_t total = 0, available = 0, context = 0;
    double seconds = median(row->seconds, row->rounds), flops = step_flops();
    if (!json || row->status != OK) return;
    if (backend->device) backend->device->memory(backend->device, &total, &available, &context);
    digest_format(row->digest, digest);
    snprintf(loss, sizeof loss, isfinite(row->stats.loss[0]) ? "%.9g" : "null", row->stats.loss[0]);
    fprintf(json, "{\"kind\": \"step\", \"case\": \"%s\", \"backend\": ", want.name);
    Buf text = {0};
    buf_json(&text, backend->describe);
    fprintf(json,
            "%s, \"type\": \"%s\", \"policy\": \"%s\", \"rows\": %lld, \"sequences\": %.9g, \"tokens\": %.9g, "
            "\"masked\": %.9g, \"optimizer\": \"%s\", \"step_s\": %.9g, \"seq_per_s\": %.9g, \"tokens_per_s\": %.9g, "
            "\"flops\": %.9g, \"tflops\": %.6g, \"update_s\": %.9g, \"cpu_s\": %.6g, \"launch_s\": %.6g, "
            "\"open_s\": %.6g, \"kept_per_token_layer\": %.9g, \"act_bytes\": %.15g, \"plan_bytes\": %.15g, "
            "\"context_bytes\": %zu, \"device_bytes\": %zu, \"used_bytes\": %zu, \"resident_bytes\": %.15g, "
            "\"other_bytes\": %.15g, \"batch_bytes\": %.15g, "
            "\"graphs\": [%lld, %lld, %lld], \"loss\": %s, \"finite\": %d, \"digest\": \"%s\", \"same_bits\": %s, "
            "\"rounds\": [",
            text.data, dtype_name(want.compute), row->name, (long long)capacity.count[ROWS_TOKENS], mean_seqs,
            mean_tokens, mean_masked, want.optimizer, seconds, mean_seqs / seconds, mean_tokens / seconds, flops,
            flops / seconds * 1e-12, median(row->update, row->rounds), row->cpu, row->launch, row->open, row->kept,
            row->act_bytes, row->total_bytes, context, row->device_bytes, row->used_bytes, row->resident, row->other,
            row->batch, (long long)row->graphs.captured, (long long)row->graphs.replayed,
            (long long)row->graphs.refused, loss, row->stats.finite, digest, same_bits(row, first) ? "true" : "false");
    for (int i = 0; i < row->rounds; i++) fprintf(json, "%s%.9g", i ? ", " : "", row->seconds[i]);
    fputs("]}\n", json);
    fflush(json);
    buf_free(&text);
}

static void write_machine(MachineRates machine)
{
    if (!json) return;
    fprintf(json,
            "{\"kind\": \"machine\", \"case\": \"%s\", \"product\": [%lld, %lld, %lld], \"flops\": %.6g, "
            "\"bytes\": %.6g}\n",
            want.name, (long long)machine.m, (long long)machine.k, (long long)machine.n, machine.flops, machine.bytes);
    fflush(json);
}

static void print_rows(const Row *rows, int n, MachineRates machine)
{
    double flops = step_flops(), none = rows[0].rounds ? median(rows[0].seconds, rows[0].rounds) : 0;
    printf("one product %lld × %lld × %lld: %.1f GFLOP/s; GELU in memory: %.1f GB/s; a step of %.6g sequences, %.6g "
           "tokens: %.1f GFLOP\n",
           (long long)machine.m, (long long)machine.k, (long long)machine.n, machine.flops / 1e9, machine.bytes / 1e9,
           mean_seqs, mean_tokens, flops / 1e9);
    printf("%-16s %10s %10s %10s %14s %13s %16s %10s %10s %10s\n", "recompute", "s/step", "seq/s", "GFLOP/s",
           "of the product", "against first", "activations MiB", "all MiB", "update ms", "CPU ms");
    for (int i = 0; i < n; i++) {
        if (!rows[i].rounds) continue;
        double seconds = median(rows[i].seconds, rows[i].rounds);
        printf("%-16s %10.4g %10.4g %10.1f %13.1f%% %12.1f%% %16.1f %10.1f %10.3f %10.3f\n", rows[i].name, seconds,
               mean_seqs / seconds, flops / seconds / 1e9, 100 * flops / seconds / machine.flops,
               100 * (seconds / none - 1), rows[i].act_bytes / MIB, rows[i].total_bytes / MIB,
               median(rows[i].update, rows[i].rounds) * 1e3, rows[i].cpu * 1e3);
    }
}

static int parse(int argc, char **argv, Row *rows)
{
    static const char *const usual[] = {"none", "lean", "ffn", "selective", "half-attention", "full"};
    static const struct option flags[] = {{"backend", required_argument, NULL, 'b'},
                                          {"predictions", required_argument, NULL, 'p'},
                                          {"lengths", required_argument, NULL, 'l'},
                                          {"optimizer", required_argument, NULL, 'o'},
                                          {"steps", required_argument, NULL, 's'},
                                          {"product", required_argument, NULL, 'P'},
                                          {"ops", no_argument, NULL, 'O'},
                                          {"json", required_argument, NULL, 'j'},
                                          {"name", required_argument, NULL, 'n'},
                                          {"attention", required_argument, NULL, 'a'},
                                          {"dropout", required_argument, NULL, 'd'},
                                          {"kernels", required_argument, NULL, 'k'},
                                          {NULL, 0, NULL, 0}};
    int n = 0;
    for (int flag; (flag = getopt_long(argc, argv, "+", flags, NULL)) != -1;) {
        if (flag == 'b') want.backend = optarg;
        if (flag == 'p') want.predictions = atoll(optarg);
        if (flag == 'l') want.lengths = optarg;
        if (flag == 'o') want.optimizer = optarg;
        if (flag == 's') want.steps = atoi(optarg);
        if (flag == 'P') want.product = atoll(optarg);
        if (flag == 'O') want.ops = true;
        if (flag == 'j') want.json = optarg;
        if (flag == 'k') want.kernels = optarg;
        if (flag == 'n') want.name = optarg;
        if (flag == 'a' && strcmp(optarg, "cudnn") == 0) want.attention = ATTENTION_CUDNN;
        if (flag == 'd') want.dropout = (float)atof(optarg);
        if (flag == '?') return 0;
    }
    char **rest = argv + optind;
    int left = argc - optind;
    if (left < 1) return 0;
    if (left > 1) want.batch = atoll(rest[1]);
    if (left > 2) want.length = atoll(rest[2]);
    if (left > 3) want.rounds = atoi(rest[3]);
    want.compute = left > 4 && strcmp(rest[4], "bf16") == 0 ? BF16 : F32;
    if (want.batch < 1 || want.length < 2 || want.rounds < 1 || want.rounds > MOST_ROUNDS || want.steps < 1) return 0;
    for (int i = 5; i < left && n < MOST_POLICIES; i++) rows[n++].name = rest[i];
    for (size_t i = 0; left <= 5 && i < sizeof usual / sizeof *usual; i++) rows[n++].name = usual[i];
    return n;
}

int main(int argc, char **argv)
{
    Row rows[MOST_POLICIES] = {{0}};
    ModelConfig config;
    char why[256];
    MachineRates machine = {0};
    double product[MOST_ROUNDS], memory[MOST_ROUNDS];
    int n = parse(argc, argv, rows);
    if (n == 0) {
        fputs("use: bench_step [--backend NAME] [--predictions N] [--lengths FILE] [--optimizer NAME] [--steps N] "
              "[--attention KIND] [--dropout P] [--product N] [--ops] [--kernels FILE] [--json FILE] [--name TEXT] "
              "CONFIG.json [batch] "
              "[length] [rounds] [fp32|bf16] "
              "[policy]...\n",
              stderr);
        return 2;
    }
    must(model_config_read(argv[optind], &config));
    model_config_set_dropout(&config, want.dropout);
    must(model_init(&model, config, want.predictions ? (Head){HEAD_PRETRAINING, 2} : (Head){HEAD_CLASSIFIER, 3}));
    if (!want.lengths && want.length < model.longest) model.longest = (int32_t)want.length;
    must(backend_open(want.backend, &(BackendOptions){.attention = want.attention}, &backend));
    if (!backend->supports(backend, want.compute, why, sizeof why)) {
        printf("skipped: %s\n", why);
        return 0;
    }
    if (backend->device && backend->device->measure_memory) backend->device->measure_memory(backend->device);
    if (want.json && !(json = fopen(want.json, "ae"))) {
        fprintf(stderr, "bench_step: cannot write %s\n", want.json);
        return 1;
    }
    batches_make();
    weights = mem_array((size_t)model.params.size, sizeof *weights);
    params_init(&model.params, 1, weights);
    printf("%s, %s, batch %lld × %lld tokens%s%s\n", backend->describe, dtype_name(want.compute), (long long)want.batch,
           (long long)want.length, want.lengths ? ", packed: " : "", want.lengths ? want.lengths : "");
    for (int r = 0; r < want.rounds; r++) {
        machine = measure_machine();
        product[r] = machine.flops;
        memory[r] = machine.bytes;
        machine.flops = median(product, r + 1);
        machine.bytes = median(memory, r + 1);
        write_machine(machine);
        for (int i = 0; i < n; i++) {
            if (rows[i].status == OK) measure(&rows[i]);
            write_json(&rows[i], &rows[0]);
        }
    }
    print_rows(rows, n, machine);
    if (want.ops && rows[0].rounds) measure_ops(rows[0].name, median(rows[0].seconds, rows[0].rounds));
    int bad = 0;
    for (int i = 0; i < n; i++) {
        bool same = same_bits(&rows[i], &rows[0]);
        bad |= rows[i].status != OK;
        if (!rows[i].rounds) continue;
        if (!same)
            fprintf(stderr, "bench_step: %s ends with other weights than another round or %s\n", rows[i].name,
                    rows[0].name);
        if (rows[i].graphs.refused)
            fprintf(stderr,
                    "bench_step: %s: %lld ranges were not captured and ran op by op (--verbose of a run says why)\n",
                    rows[i].name, (long long)rows[i].graphs.refused);
        if (!rows[i].stats.finite) fprintf(stderr, "bench_step: %s: the gradient is not finite\n", rows[i].name);
        bad |= !same || !rows[i].stats.finite;
    }
    if (json && fclose(json) != 0) bad = 1;
    batches_free();
    free(weights);
    model_free(&model);
    backend_close(backend);
    return bad;
}
