/* Ranks whose GPUs are connected by NCCL: how fast sums of several sizes are, and what a training step of several ranks
   takes beside the same step of one rank alone. Started once per rank, with RANK, WORLD_SIZE and so on (bench/gpu.sh).

   bench_gpus [flags] CONFIG.json [sequences of each rank] [length]

   --backend NAME   default cuda
   --precision P    default the backend's best
   --shard WHAT     none (default) or optimizer
   --most MIB       the largest sum (default 256)
   --steps N        timed, after as many others (default 10)
   --json FILE      rank 0 appends a line per size, and one for the step
   --name TEXT      what the lines are called

   Bus bandwidth is what each GPU sends: of a sum, 2·(n − 1)/n of its bytes. Efficiency is the time of a step alone by
   that of a step together. Weights must be equal on all ranks at the end, or the exit code is 1. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/job/setup.h"

static struct {
    const char *backend, *precision, *shard, *json, *name;
    int64_t sequences, length, most;
    int steps;
} want = {"cuda", "auto", "none", NULL, "ranks", 32, 128, 256, 10};

static Config config;
static Setup setup;
static Model model;
static MicroBatch batch;
static FILE *json;

static void must(Status status)
{
    if (status == OK) return;
    fprintf(stderr, "bench_gpus: %s\n", status_message());
    ranks_end(setup.ranks, status);
    exit(status_exit_code(status));
}

static void make_batch(void)
{
    uint32_t seed = 1 + (uint32_t)ranks_rank(setup.ranks);
    MicroCapacity room = {want.sequences * want.length, want.sequences, 0};
    micro_batch_init(&batch, room);
    for (int64_t s = 0; s < want.sequences; s++) {
        int32_t first = batch.spans[2 * s] = batch.n_tokens;
        batch.seq_index[s] = (int32_t)(s + want.sequences * ranks_rank(setup.ranks));
        batch.labels[s] = (int32_t)(s % 3);
        for (int64_t i = 0; i < want.length; i++) {
            int row = batch.n_tokens++;
            seed = seed * 1664525u + 1013904223u;
            batch.ids[row] = (int32_t)((seed >> 8) % (uint32_t)model.config.vocab_size);
            batch.pos[row] = (int32_t)i;
            batch.seq[row] = batch.seq_index[s];
        }
        batch.first[s] = micro_read(&batch, first);
        batch.spans[2 * s + 1] = batch.n_tokens;
        batch.n_seqs++;
    }
}

/* ---- sums ---- */

static Status first_event(void *device, bool *done) { return ((Device *)device)->event_done(device, 0, done); }

static double time_sum(void *x, size_t count, int repeats)
{
    Device *d = setup.backend->device;
    must(ranks_meet(setup.ranks));
    double start = clock_monotonic();
    must(d->choose_lane(d, LANE_COMM));
    for (int i = 0; i < repeats; i++) must(comm_device_sum(setup.devices->holders, x, count, F32, d->stream(d)));
    must(d->event_record(d, 0));
    must(comm_device_wait(setup.devices->holders, first_event, d));
    must(d->choose_lane(d, LANE_COMPUTE));
    return (clock_monotonic() - start) / repeats;
}

static void measure_sums(void)
{
    Backend *b = setup.backend;
    int n = ranks_size(setup.ranks);
    size_t most = (size_t)want.most << 20;
    void *x;
    must(backend_alloc(b, most, &x));
    for (size_t bytes = most < 65536 ? most : 65536; bytes <= most; bytes *= 4) {
        (void)time_sum(x, bytes / sizeof(float), 2);
        double seconds = time_sum(x, bytes / sizeof(float), want.steps);
        double bus = (double)bytes / seconds * 2 * (n - 1) / n;
        if (!ranks_first(setup.ranks)) continue;
        printf("sum of %10zu bytes: %10.6f s, bus %8.2f GB/s\n", bytes, seconds, bus / 1e9);
        if (json)
            fprintf(
                json,
                "{\"kind\": \"all_reduce\", \"case\": \"%s-%zu\", \"ranks\": %d, \"bytes\": %zu, \"seconds\": %.9g, "
                "\"bus_bytes_per_s\": %.6g}\n",
                want.name, bytes, n, bytes, seconds, bus);
    }
    backend_release(b, x, most);
}

/* ---- a step ---- */

static const MicroBatch *fill(void *own, int share, int64_t m)
{
    (void)share;
    (void)m;
    return own;
}

static double time_steps(Ranks *ranks)
{
    const SessionStep micros = {
        .shares = &(SessionShare){.micros = 1}, .n_shares = 1, .sums = true, .fill = fill, .self = &batch};
    Session s;
    SessionOptions o = setup_session(&setup, &config);
    RankPlace *alone = ranks ? NULL : place_whole(&config, &(const KfacOptions){0}, &model, 1, 0, false);
    PlanInput input = {.model = &model,
                       .backend = setup.backend,
                       .compute = setup.compute,
                       .training = true,
                       .optimizer = setup.optimizer,
                       .place = ranks ? setup.place : alone};
    RunPlan plan;
    Stats stats;
    int64_t n_seqs = want.sequences * ranks_size(ranks);
    double start = 0;
    run_plan_init(&plan, &input);
    plan.micro = (MicroCapacity){want.sequences * want.length, want.sequences, 0};
    plan.save_buffer = ranks_first(setup.ranks);
    must(run_plan_make(&plan));
    if (!ranks) {
        o.ranks = NULL;
        o.devices = NULL;
    }
    must(session_open(&s, &plan, &o));
    params_init(&model.params, 1, session_fill(&s));
    must(session_ready(&s));
    must(ranks_meet(setup.ranks));
    for (int step = 1; step <= 2 * want.steps; step++) {
        if (step == want.steps + 1) start = clock_monotonic();
        must(session_begin(&s, (uint32_t)step, n_seqs, 0));
        must(session_run(&s, &micros));
        must(session_update(&s, &setup.optimizer, step, 1e-5, &stats));
    }
    double seconds = (clock_monotonic() - start) / want.steps;
    if (ranks) {
        char hex[33];
        float *got = mem_array((size_t)model.params.size, sizeof *got);
        must(session_read_range(&s, STATE_WEIGHTS, 0, model.params.size, got));
        digest_format(digest_of(got, (size_t)model.params.size * sizeof *got), hex);
        free(got);
        must(ranks_same(ranks, "the weights", hex));
    }
    session_close(&s);
    place_free(alone);
    return seconds;
}

static void measure_step(void)
{
    double alone = time_steps(NULL), together = time_steps(setup.ranks);
    int n = ranks_size(setup.ranks);
    if (!ranks_first(setup.ranks)) return;
    printf(
        "%d ranks, %lld sequences of %lld tokens each: a step alone %.6f s, together %.6f s, %.1f %% of linear, %.4g "
        "seq/s\n",
        n, (long long)want.sequences, (long long)want.length, alone, together, 100 * alone / together,
        (double)(n * want.sequences) / together);
    if (!json) return;
    fprintf(
        json,
        "{\"kind\": \"ranks\", \"case\": \"%s\", \"ranks\": %d, \"shard\": \"%s\", \"sequences\": %lld, \"length\": "
        "%lld, \"alone_s\": %.9g, \"step_s\": %.9g, \"efficiency\": %.6g, \"seq_per_s\": %.9g, \"shared_gpu\": %d}\n",
        want.name, n, want.shard, (long long)want.sequences, (long long)want.length, alone, together, alone / together,
        (double)(n * want.sequences) / together, env_is_on("CAIRN_SHARED_GPU"));
}

/* ---- the whole ---- */

static int parse(int argc, char **argv)
{
    static const struct option flags[] = {
        {"backend", required_argument, NULL, 'b'}, {"precision", required_argument, NULL, 'p'},
        {"shard", required_argument, NULL, 'h'},   {"most", required_argument, NULL, 'm'},
        {"steps", required_argument, NULL, 's'},   {"json", required_argument, NULL, 'j'},
        {"name", required_argument, NULL, 'n'},    {NULL, 0, NULL, 0}};
    for (int flag; (flag = getopt_long(argc, argv, "+", flags, NULL)) != -1;) {
        if (flag == 'b') want.backend = optarg;
        if (flag == 'p') want.precision = optarg;
        if (flag == 'h') want.shard = optarg;
        if (flag == 'm') want.most = atoll(optarg);
        if (flag == 's') want.steps = atoi(optarg);
        if (flag == 'j') want.json = optarg;
        if (flag == 'n') want.name = optarg;
        if (flag == '?') return 0;
    }
    if (argc - optind < 1 || argc - optind > 3) return 0;
    if (argc - optind > 1) want.sequences = atoll(argv[optind + 1]);
    if (argc - optind > 2) want.length = atoll(argv[optind + 2]);
    return want.sequences > 0 && want.length > 1 && want.steps > 0 && want.most > 0;
}

static void open_all(const char *path)
{
    ModelConfig sizes;
    const char *words[] = {"cairn",       "glue",         "--backend", want.backend, "--comm",         "nccl",
                           "--precision", want.precision, "--shard",   want.shard,   "--peer-timeout", "20"};
    must(config_parse(&config, sizeof words / sizeof *words, (char **)words, NULL));
    must(model_config_read(path, &sizes));
    must(model_init(&model, sizes, (Head){HEAD_CLASSIFIER, 3}));
    must(ranks_open(&config, OK, &setup.ranks));
    if (!setup.ranks) must(fail(E_USAGE, "there is one rank alone: set RANK, WORLD_SIZE and so on"));
    must(setup_backend(&config, &setup));
    must(setup_optimizer(&config, &setup.optimizer));
    must(setup_devices(&config, setup.ranks, setup.backend, &setup.devices));
    setup.place =
        place_whole(&config, &(const KfacOptions){0}, &model, ranks_size(setup.ranks), ranks_rank(setup.ranks), true);
}

int main(int argc, char **argv)
{
    if (!parse(argc, argv)) {
        fputs("use: bench_gpus [--backend NAME] [--precision P] [--shard WHAT] [--most MIB] [--steps N] [--json FILE] "
              "[--name TEXT] CONFIG.json [sequences] [length]\n",
              stderr);
        return 2;
    }
    open_all(argv[optind]);
    if (want.json && ranks_first(setup.ranks) && !(json = fopen(want.json, "ae")))
        must(fail(E_IO, "cannot write %s: %m", want.json));
    make_batch();
    measure_sums();
    measure_step();
    if (json && fclose(json) != 0) must(fail(E_IO, "%s: %m", want.json));
    micro_batch_free(&batch);
    model_free(&model);
    ranks_end(setup.ranks, OK);
    Ranks *ranks = setup.ranks;
    setup_free(&setup);
    ranks_close(ranks);
    config_free(&config);
    return 0;
}
