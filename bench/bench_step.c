/* Full training steps (forward, backward, AdamW) of a model from random weights, one recompute policy after the other
   in interleaved rounds, beside the rate of one large product measured in the same run.

   bench_step CONFIG.json [batch] [length] [rounds] [fp32|bf16] [policy]... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/machine.h"
#include "train/session.h"

enum { MOST_POLICIES = 16, MOST_ROUNDS = 32 };
#define MIB (1024.0 * 1024.0)

static void must(Status status)
{
    if (status == OK) return;
    fprintf(stderr, "bench_step: %s\n", status_message());
    exit(status_exit_code(status));
}

typedef struct {
    const char *name;
    double seconds[MOST_ROUNDS], act_bytes, total_bytes;
} Row;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void fill(MicroBatch *b, int64_t batch, int64_t length, int32_t vocabulary)
{
    micro_batch_init(b, (MicroCapacity){(batch * length + 63) / 64 * 64, batch, 0});
    b->n_tokens = (int32_t)(batch * length);
    b->n_seqs = (int32_t)batch;
    for (int32_t s = 0; s < batch; s++) {
        b->spans[2 * s] = b->first[s] = s * (int32_t)length;
        b->spans[2 * s + 1] = (s + 1) * (int32_t)length;
        b->seq_index[s] = s;
        b->label[s] = s % 3;
        for (int32_t i = 0; i < length; i++) {
            int32_t row = s * (int32_t)length + i;
            b->ids[row] = (int32_t)((uint32_t)row * 2654435761u % (uint32_t)vocabulary);
            b->types[row] = i > length / 2;
            b->pos[row] = i;
            b->seq[row] = s;
        }
    }
}

/* One warm step, one timed. */
static void measure(Model *m, Backend *backend, Dtype compute, int64_t batch, int64_t length, Row *row, int round)
{
    Session s;
    Policy policy;
    MicroBatch b;
    Stats stats;
    uint8_t *levels = mem_alloc((size_t)m->config.layers);
    Optimizer o = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f, .weight_decay = 0.01f, .max_grad_norm = 1};
    must(policy_parse(row->name, &policy));
    policy_levels(policy, m->config.layers, levels);
    SessionOptions options = {.backend = backend,
                              .compute = compute,
                              .training = true,
                              .micro = {batch * length, batch, 0},
                              .levels = levels,
                              .optimizer = o,
                              .seed = 1};
    must(session_open(&s, m, &options, NULL));
    params_init(&m->params, 1, session_weights(&s));
    must(session_ready(&s));
    fill(&b, batch, length, m->config.vocab_size);
    for (int step = 1; step <= 2; step++) {
        double start = clock_monotonic();
        must(session_begin(&s, (uint32_t)step, batch, 0));
        must(session_micro(&s, &b));
        must(session_update(&s, &o, step, 1e-5, &stats));
        row->seconds[round] = clock_monotonic() - start;
    }
    row->act_bytes = (double)s.train_plan.region_bytes[REGION_ACT];
    row->total_bytes = (double)memory_total(&s.memory);
    session_close(&s);
    micro_batch_free(&b);
    free(levels);
}

/* Products and attention of a training step without recompute: 6 flops per weight and token, 12·length·hidden per token
   and layer. */
static double step_flops(const ModelConfig *c, int64_t batch, int64_t length)
{
    double h = c->hidden, weights = c->layers * (4 * h * h + 2 * h * c->ffn);
    double attention = 2 * c->layers * 2.0 * (double)length * h * 3;
    return (double)(batch * length) * (6 * weights + attention);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"none", "lean", "ffn", "selective", "half-attention", "full"};
    Row rows[MOST_POLICIES] = {{0}};
    ModelConfig config;
    Model m;
    Backend *backend;
    CostRates rates;
    char why[256];
    if (argc < 2) {
        fputs("use: bench_step CONFIG.json [batch] [length] [rounds] [fp32|bf16] [policy]...\n", stderr);
        return 2;
    }
    int64_t batch = argc > 2 ? atoll(argv[2]) : 16, length = argc > 3 ? atoll(argv[3]) : 128;
    int rounds = argc > 4 ? atoi(argv[4]) : 3, n = 0;
    if (batch < 1 || length < 2 || rounds < 1 || rounds > MOST_ROUNDS) return 2;
    Dtype compute = argc > 5 && strcmp(argv[5], "bf16") == 0 ? BF16 : F32;
    for (int i = 6; i < argc && n < MOST_POLICIES; i++) rows[n++].name = argv[i];
    for (size_t i = 0; argc <= 6 && i < sizeof usual / sizeof *usual; i++) rows[n++].name = usual[i];
    must(model_config_read(argv[1], &config));
    must(model_init(&m, config, (Head){HEAD_CLASSIFIER, 3}));
    must(backend_open("cpu", NULL, &backend));
    if (!backend->supports(backend, compute, why, sizeof why)) {
        printf("skipped: %s\n", why);
        return 0;
    }
    setenv("XDG_CACHE_HOME", "/dev/null", 1); /* the product's rate is measured now, not read from the cache */
    printf("%s, %s, batch %lld × %lld tokens\n", backend->describe, dtype_name(compute), (long long)batch,
           (long long)length);
    double product[MOST_ROUNDS];
    for (int r = 0; r < rounds; r++) {
        machine_rates(backend, compute, &rates);
        product[r] = rates.product_flops;
        for (int i = 0; i < n; i++) measure(&m, backend, compute, batch, length, &rows[i], r);
    }
    double rate = median(product, rounds), flops = step_flops(&m.config, batch, length), none = 0;
    printf("one product 1024 × 768 × 3072: %.1f GFLOP/s; a step: %.1f GFLOP\n", rate / 1e9, flops / 1e9);
    printf("%-16s %10s %10s %14s %12s %16s %14s\n", "recompute", "s/step", "seq/s", "of the product", "against none",
           "activations MiB", "all MiB");
    for (int i = 0; i < n; i++) {
        double seconds = median(rows[i].seconds, rounds);
        if (i == 0) none = seconds;
        printf("%-16s %10.3f %10.3f %13.1f%% %11.1f%% %16.1f %14.1f\n", rows[i].name, seconds, (double)batch / seconds,
               100 * flops / seconds / rate, 100 * (seconds / none - 1), rows[i].act_bytes / MIB,
               rows[i].total_bytes / MIB);
    }
    model_free(&m);
    backend_close(backend);
    return 0;
}
