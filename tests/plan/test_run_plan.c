/* The plan of a run is made once, and for random configurations the plan that `cairn plan` prints equals the run's, to
   the last byte. The run's is made from data of full length, by its task and run_make_plan. The memory and the rates
   of the machine and the memory of the shards are set here, and calls of plan_make for whole plans are counted (the
   linker's --wrap). */
#include "testing.h"

#include "commands/commands.h"
#include "commands/plan.h"
#include "data/hdf5_file.h"
#include "data/shards.h"
#include "train/planner/machine.h"
#include "train/planner/planner.h"
#include "train/run/run.h"

static int plans_made;
static size_t machine_free, process_holds = 50 << 20;

Status __real_plan_make(const PlanRequest *r, Plan *p, ModelTensors *t, Segment *segments);
Status __wrap_plan_make(const PlanRequest *r, Plan *p, ModelTensors *t, Segment *segments);
bool __wrap_machine_rates(const Backend *b, const ModelConfig *model, Dtype compute, CostRates *rates,
                          MachineLimits *limits);
size_t __wrap_machine_free_bytes(void);
size_t __wrap_process_resident(void);
size_t __wrap_shards_memory(const Shards *s, double mean_length, bool steps);

Status __wrap_plan_make(const PlanRequest *r, Plan *p, ModelTensors *t, Segment *segments)
{
    plans_made += !r->sketch;
    return __real_plan_make(r, p, t, segments);
}

/* Those of a busy machine are measured again when it is quiet, in the midst of a comparison. */
bool __wrap_machine_rates(const Backend *b, const ModelConfig *model, Dtype compute, CostRates *rates,
                          MachineLimits *limits)
{
    (void)b, (void)model, (void)limits;
    *rates = (CostRates){.product_flops = compute == F32 ? 1e11 : 2e11, .bytes = 1e10, .stream = 8e9, .overhead = 1e-6};
    return true;
}

size_t __wrap_machine_free_bytes(void) { return machine_free; }
size_t __wrap_process_resident(void) { return process_holds; }

/* `cairn plan` knows no shards. */
size_t __wrap_shards_memory(const Shards *s, double mean_length, bool steps)
{
    (void)s, (void)mean_length, (void)steps;
    return 0;
}

/* ---- configurations ---- */

enum { MOST_WORDS = 32, POLICY_WORD = 4 };

typedef struct {
    char text[MOST_WORDS][80];
    int n;
    bool pretraining;
    int64_t length, pieces; /* --max-seq-length; of the vocabulary */
} Words;

__attribute__((format(printf, 2, 3))) static void add(Words *w, const char *format, ...)
{
    va_list args;
    assert_true(w->n < MOST_WORDS);
    va_start(args, format);
    vsnprintf(w->text[w->n++], sizeof w->text[0], format, args);
    va_end(args);
}

static void parse(const Words *w, const char *command, const char *const *more, Config *c)
{
    char *argv[2 * MOST_WORDS] = {(char *)"cairn", (char *)command};
    int argc = 2;
    for (int i = 0; i < w->n; i++) argv[argc++] = (char *)w->text[i];
    while (*more) argv[argc++] = (char *)(uintptr_t)*more++;
    assert_ok(config_parse(c, argc, argv, NULL));
}

static int64_t pick(uint64_t *seed, int64_t low, int64_t high)
{
    return low + (int64_t)(testing_random(seed) % (uint64_t)(high - low + 1));
}

/* Options of both commands. */
static void draw(Words *w, uint64_t *seed, const char *dir)
{
    static const char *const policies[] = {"none", "lean",    "ffn",  "selective", "half-attention",
                                           "full", "every:2", "auto", "x+qkv+y1",  "inner"};
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    static const char *const optimizers[] = {"adamw", "lamb", "nvlamb"};
    static const char *const tasks[] = {"MNLI", "STS-B", "CoLA"};
    static const char *const micros[] = {"default", "step", "auto"};
    int64_t length = pick(seed, 5, 64), pieces = pick(seed, 100, 900), batch = pick(seed, 1, 40),
            layers = pick(seed, 1, 3);
    char *path = file_join(dir, "config.json");
    Buf sizes = {0};
    buf_printf(&sizes,
               "{\"vocab_size\": %lld, \"hidden_size\": 64, \"num_hidden_layers\": %lld, \"num_attention_heads\": 2, "
               "\"intermediate_size\": 128, \"max_position_embeddings\": 64}",
               (long long)pieces, (long long)layers);
    assert_ok(file_write_durable(path, sizes.data, sizes.len));
    buf_free(&sizes);
    *w = (Words){.pretraining = pick(seed, 0, 3) == 0 && hdf5_available(), .length = length, .pieces = pieces};
    add(w, "--model-config=%s", path);
    free(path);
    add(w, "--backend=ref");
    add(w, "--max-seq-length=%lld", (long long)length);
    add(w, "--batch-size=%lld", (long long)batch);
    add(w, "--recompute=%s", policies[pick(seed, 0, 9)]);
    add(w, "--precision=%s", precisions[pick(seed, 0, 2)]);
    add(w, "--optimizer=%s", optimizers[pick(seed, 0, 2)]);
    if (w->pretraining) {
        add(w, "--predictions=%lld", (long long)pick(seed, 1, length));
    } else {
        add(w, "--task=%s", tasks[pick(seed, 0, 2)]);
        add(w, "--eval-batch-size=%lld", (long long)pick(seed, 1, 200));
    }
    if (pick(seed, 0, 1))
        add(w, "--micro-batch-tokens=%s", micros[pick(seed, 0, 2)]);
    else
        add(w, "--micro-batch-tokens=%lld", (long long)pick(seed, length, 4 * length));
    if (pick(seed, 0, 1)) add(w, "--memory-budget=%lldKiB", (long long)pick(seed, 59 << 10, 68 << 10));
    if (pick(seed, 0, 3) == 0) add(w, "--padded");
    if (pick(seed, 0, 2) == 0) add(w, "--dropout=0");
    if (pick(seed, 0, 2) == 0) add(w, "--shard=optimizer");
    add(w, "--bucket-size=%lldKiB", (long long)pick(seed, 8, 200));
    machine_free = (size_t)pick(seed, 9 << 20, 18 << 20);
}

/* ---- data: one sequence of full length ---- */

static void write_file(const char *name, Buf *text)
{
    assert_ok(file_write_durable(name, text->data, text->len));
    buf_free(text);
}

/* Rows of MNLI, STS-B and CoLA, whose sentences are cut to the length. */
static void write_examples(const char *task)
{
    static const char *const splits[] = {"train.tsv", "dev.tsv", "dev_matched.tsv", "dev_mismatched.tsv"};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        Buf text = {0}, words = {0};
        for (int k = 0; k < 64; k++) buf_puts(&words, k ? " a" : "a");
        if (strcmp(task, "CoLA") == 0)
            buf_printf(&text, "source\t1\t\t%s\n", words.data);
        else
            buf_printf(&text, "sentence1\tsentence2\tgold_label\tscore\n%s\t%s\tneutral\t1.5\n", words.data,
                       words.data);
        write_file(splits[i], &text);
        buf_free(&words);
    }
}

static void write_shard(const Words *w)
{
    static const char *const names[] = {"input_ids", "segment_ids", "masked_lm_positions", "masked_lm_ids",
                                        "next_sentence_labels"};
    Hdf5Spec specs[5];
    Hdf5Writer *h;
    int32_t values[5][64] = {{0}};
    int64_t lengths[5] = {w->length, w->length, 1, 1, 1};
    for (int64_t i = 0; i < w->length; i++) values[0][i] = 5;
    values[0][0] = 2; /* [CLS] a … [SEP] a [SEP] */
    values[0][w->length - 3] = values[0][w->length - 1] = 3;
    values[1][w->length - 2] = values[1][w->length - 1] = 1;
    values[2][0] = 1;
    values[3][0] = 5;
    for (int i = 0; i < 5; i++) specs[i] = (Hdf5Spec){.name = names[i], .bytes = 4, .width = i == 4};
    assert_ok(file_make_directories("shards"));
    assert_ok(hdf5_create("shards/shard.hdf5", specs, 5, 1, 0, 1, &h));
    for (int i = 0; i < 4; i++) assert_ok(hdf5_write_lists(h, i, 0, 1, values[i], (int64_t[]){0, lengths[i]}));
    assert_ok(hdf5_write(h, 4, 0, 1, values[4]));
    assert_ok(hdf5_finish(h));
}

static void write_vocabulary(const Words *w)
{
    Buf text = {0};
    buf_puts(&text, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n");
    for (int64_t i = 6; i < w->pieces; i++) buf_printf(&text, "a%lld\n", (long long)i);
    write_file("vocab.txt", &text);
}

/* ---- the two ways ---- */

/* The standard output of `cairn plan`. */
static Status run_plan_command(const Words *w, const char *how, const char *dir, Buf *out)
{
    Config c;
    char *path = file_join(dir, "stdout");
    parse(w, "plan", (const char *[]){how, NULL}, &c);
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    assert_non_null(freopen(path, "w", stdout));
    Status status = command_plan(&c);
    fflush(stdout);
    assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
    close(kept);
    assert_ok(file_read(path, 1 << 26, out));
    free(path);
    config_free(&c);
    return status;
}

typedef struct {
    Config c;
    Run run;
} Planned;

static Status plan_run(const Words *w, Planned *r)
{
    static const char *const glue[] = {"--do-train",        "--do-eval",        "--data-dir=.",
                                       "--vocab=vocab.txt", "--output-dir=out", NULL},
                             *const pretrain[] = {"--do-train", "--data-dir=shards", "--vocab=vocab.txt",
                                                  "--output-dir=out", NULL};
    *r = (Planned){0};
    parse(w, w->pretraining ? "pretrain" : "glue", w->pretraining ? pretrain : glue, &r->c);
    const Task *task = commands_planned_task(&r->c);
    r->run = (Run){.task = task, .own = mem_alloc(task->size), .c = &r->c, .given = &r->c};
    write_vocabulary(w);
    if (w->pretraining)
        write_shard(w);
    else
        write_examples(r->c.task);
    assert_ok(task->check(&r->run));
    assert_ok(task->open(&r->run));
    plans_made = 0;
    return run_make_plan(&r->run);
}

/* The plan of rank 0 of several, which has the least memory. */
static Status plan_rank(const Words *w, int ranks, Planned *r)
{
    Accounts accounts;
    Status status = plan_run(w, r);
    PlanInput in = r->run.setup.plan.input;
    assert_true(status == OK || status == E_MEMORY);
    run_plan_free(&r->run.setup.plan);
    place_free(r->run.setup.place);
    r->run.setup.place = place_whole(&r->c, &(const KfacOptions){0}, &r->run.model, ranks, 0, false);
    in.place = r->run.setup.place;
    accounts_measure(&accounts, in.backend, (size_t)r->c.memory_budget, 1, 0, 0);
    status = planner_choose(&r->c, &in, &accounts, NULL, &r->run.setup.plan);
    if (status == OK && strcmp(r->c.recompute, "auto") == 0) status = planner_check(&r->c, &r->run.setup.plan, NULL);
    return status;
}

static void planned_free(Planned *r)
{
    setup_free(&r->run.setup);
    buf_free(&r->run.data);
    r->run.task->close(&r->run);
    free(r->run.own);
    model_free(&r->run.model);
    tokenizer_files_free(&r->run.text);
    config_free(&r->c);
}

static void same_text(const char *got, const char *expected, const Words *w, const char *what)
{
    if (strcmp(got, expected) == 0) return;
    for (int i = 0; i < w->n; i++) print_error("%s ", w->text[i]);
    fail_msg("\n%s: cairn plan prints\n%s\nthe run has\n%s", what, got, expected);
}

/* The row of the table, up to the members that the table adds. */
static void same_row(const Planned *r, const Words *w, const Buf *said)
{
    Buf expected = {0};
    char *name = mem_printf("{\"name\": \"%s\"", r->run.setup.plan.layers.policy), *row = strstr(said->data, name);
    if (!row) fail_msg("no row of %s in %s", r->run.setup.plan.layers.policy, said->data);
    char *end = strstr(row, ", \"max_batch\"");
    assert_non_null(end);
    *end = '\0';
    plan_row_json(&r->run.setup.plan, &expected);
    same_text(row + 1, expected.data, w, "the row");
    buf_free(&expected);
    free(name);
}

static void test_plan_prints_the_plan_of_the_run(void **state)
{
    const int cases = testing_rounds(110, 200);
    uint64_t seed = 42;
    int refused = 0, without_buffer = 0, chosen = 0;
    for (int i = 0; i < cases; i++) {
        Words w;
        Planned r;
        Buf said = {0}, expected = {0};
        draw(&w, &seed, *state);
        bool automatic = strcmp(w.text[POLICY_WORD], "--recompute=auto") == 0;
        Status status = plan_run(&w, &r);
        const RunPlan *p = &r.run.setup.plan;
        assert_true(status == OK || status == E_MEMORY);
        refused += status == E_MEMORY;
        without_buffer += status == OK && run_plan_waits(p);
        chosen += status == OK && automatic;
        assert_true(p->fits == (status == OK));
        if (status == OK || !automatic) { /* else no plan exists */
            assert_ok(run_plan_command(&w, "--explain", *state, &said));
            plan_explain(&p->chunk->train, &expected);
            same_text(said.data, expected.data, &w, "--explain");
            buf_free(&said);
            status = run_plan_command(&w, "--json", *state, &said);
            assert_true(status == OK || (status == E_MEMORY && !p->fits));
            same_row(&r, &w, &said);
        } else {
            assert_status(run_plan_command(&w, "--json", *state, &said), E_MEMORY);
            assert_null(strstr(said.data, "\"fits\": true"));
        }
        buf_free(&said);
        buf_free(&expected);
        planned_free(&r);
    }
    print_message("%d do not fit, %d give up the save buffer, %d levels were chosen\n", refused, without_buffer,
                  chosen);
    assert_true(refused > cases / 20 && without_buffer > cases / 20 && chosen > cases / 40);
}

static void test_a_rank_of_several(void **state)
{
    enum { CASES = 40 };
    uint64_t seed = 3;
    for (int i = 0; i < CASES; i++) {
        Words w, asked;
        Planned r;
        Buf said = {0}, expected = {0};
        int ranks = (int)pick(&seed, 2, 9);
        draw(&w, &seed, *state);
        asked = w;
        add(&asked, "--ranks=%d", ranks);
        Status status = plan_rank(&w, ranks, &r);
        assert_string_equal(status_name(run_plan_command(&asked, "--explain", *state, &said)), status_name(status));
        if (status == OK) {
            plan_explain(&r.run.setup.plan.chunk->train, &expected);
            same_text(said.data, expected.data, &asked, "--explain");
            assert_non_null(strstr(said.data, "reduce"));
            buf_free(&said);
            assert_ok(run_plan_command(&asked, "--json", *state, &said));
            const char *alone = NULL;
            for (const char *at = said.data; (at = strstr(at, "\"alone_s\": ")); at++)
                alone = at + strlen("\"alone_s\": ");
            assert_non_null(alone); /* of the last row, without the exchange */
            assert_true(strtod(alone, NULL) == r.run.setup.plan.step_s);
        }
        buf_free(&said);
        buf_free(&expected);
        planned_free(&r);
    }
}

/* Short sequences leave a micro-batch as large as it was, and take the time of the rows that they have. */
static void test_rows_of_short_sequences(void **state)
{
    (void)state;
    const Words w = {.text = {"--model-config=bert-tiny", "--backend=ref", "--max-seq-length=64", "--batch-size=96",
                              "--micro-batch-tokens=4096", "--task=CoLA", "--recompute=none"},
                     .n = 7,
                     .length = 64,
                     .pieces = 100};
    static const struct {
        double mean, micros;
        int64_t tokens, seqs;
    } cases[] = {{64, 2, 3072, 48}, {40, 1, 3840, 96}, {13.2, 1, 1280, 96}, {3, 1, 320, 96}};
    Planned r;
    double before = INFINITY;
    machine_free = (size_t)1 << 30;
    assert_ok(plan_run(&w, &r));
    PlanInput in = r.run.setup.plan.input;
    in.rates = (CostRates){.product_flops = 1e10, .bytes = 1e9, .stream = 1e10};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RunPlan p;
        Accounts accounts;
        accounts_measure(&accounts, in.backend, 0, 1, 0, 0);
        in.mean_length = cases[i].mean;
        assert_ok(planner_choose(&r.c, &in, &accounts, NULL, &p));
        assert_int_equal(p.micro.tokens, 4096);
        assert_true(p.micros == cases[i].micros);
        assert_int_equal(p.usual.count[ROWS_TOKENS], cases[i].tokens);
        assert_int_equal(p.usual.count[ROWS_SEQS], cases[i].seqs);
        assert_true(p.step_s < before);
        before = p.step_s;
        run_plan_free(&p);
    }
    planned_free(&r);
}

/* ---- a plan for the time of a save ---- */

static void within(const Plan *p, size_t end)
{
    for (TensorId t = 0; t < p->n_tensors; t++)
        if (p->tensors[t].region == REGION_ACT && p->tensors[t].first != NONE)
            assert_true(p->tensors[t].offset + p->tensors[t].bytes <= end);
}

typedef enum { WAITS, BY_OTHER, BESIDE, N_SAVES } Saves;

/* What is done where the buffer has no room beside the plan, and with nothing else. */
static Saves check_saves(const RunPlan *p)
{
    const Account *first = &p->accounts.row[0];
    const RunPlan *other = p->other;
    const size_t saved = run_plan_saved_bytes(p);
    assert_true(first->peak <= first->budget && first->peak == account_sum(first, p->bytes));
    assert_int_equal(p->bytes[REGION_SAVE], p->save_buffer ? saved : 0);
    if (!p->save_buffer) assert_true(first->peak + saved > first->budget);
    if (!other) return p->save_buffer ? BESIDE : WAITS;
    assert_true(saved > 0 && !p->save_buffer && !other->other && p->buffer_at == 0);
    assert_int_equal(other->micro.tokens, p->micro.tokens);
    assert_true(other->step_s >= p->step_s);
    assert_true(other->buffer_at + saved <= p->bytes[REGION_ACT] && other->buffer_at % 64 == 0);
    within(&other->chunk->train, other->buffer_at);
    within(&p->chunk->eval, other->buffer_at);
    within(&p->chunk->train, p->bytes[REGION_ACT]);
    return BY_OTHER;
}

/* A larger budget is never slower, neither between saves nor while one is written. */
static void test_a_plan_for_saves(void **state)
{
    enum { BUDGETS = 24 };
    (void)state;
    const Words w = {.text = {"--model-config=bert-tiny", "--backend=ref", "--max-seq-length=64", "--batch-size=32",
                              "--micro-batch-tokens=step", "--task=CoLA", "--recompute=auto"},
                     .n = 7,
                     .length = 64,
                     .pieces = 100};
    Planned r;
    RunPlan p;
    Accounts accounts;
    Saves last = WAITS;
    int count[N_SAVES] = {0};
    double before = INFINITY, saves_before = INFINITY;
    bool fits = false;
    machine_free = (size_t)1 << 30;
    assert_ok(plan_run(&w, &r));
    const size_t most = run_plan_peak(&r.run.setup.plan);
    PlanInput in = r.run.setup.plan.input;
    accounts_measure(&accounts, in.backend, 1, 1, 0, 0);
    assert_ok(planner_choose(&r.c, &in, &accounts, NULL, &p));
    const size_t least = run_plan_peak(&p) - ((size_t)1 << 20);
    run_plan_free(&p);
    for (int i = 0; i <= BUDGETS; i++) { /* the last few have more than the run takes */
        accounts.row[0].budget = least + (most - least) * (size_t)i / (BUDGETS - 2);
        assert_ok(planner_choose(&r.c, &in, &accounts, NULL, &p));
        assert_true(p.fits || !fits);
        fits = p.fits;
        if (fits) {
            const Saves now = check_saves(&p);
            assert_true(now >= last && p.step_s <= before * (1 + 1e-9));
            if (now == BY_OTHER) assert_true(p.other->step_s <= saves_before * (1 + 1e-9));
            if (now == BY_OTHER) saves_before = p.other->step_s;
            before = p.step_s;
            last = now;
            count[now]++;
        }
        run_plan_free(&p);
    }
    print_message("%d budgets make training wait for saves, %d have another plan for them, %d have room for both\n",
                  count[WAITS], count[BY_OTHER], count[BESIDE]);
    for (int k = 0; k < N_SAVES; k++) assert_true(count[k] > 0);
    planned_free(&r);
}

/* ---- how often plans are made ---- */

/* A fixed policy: one plan of training, one of evaluation. A session makes none; a change of the forms makes both
 * again.
 */
static void test_each_plan_is_made_once(void **state)
{
    uint64_t seed = 7;
    Words w;
    Planned r;
    Session session;
    bool changed;
    Buf said = {0};
    do draw(&w, &seed, *state);
    while (w.pretraining);
    w.n = POLICY_WORD; /* without the other flags */
    add(&w, "--recompute=selective");
    machine_free = (size_t)1 << 30;
    assert_ok(plan_run(&w, &r));
    assert_int_equal(plans_made, 2);
    assert_ok(run_plan_command(&w, "--explain", *state, &said));
    assert_int_equal(plans_made, 4);
    SessionOptions options = setup_session(&r.run.setup, &r.c);
    assert_ok(session_open(&session, &r.run.setup.plan, &options));
    assert_null(r.run.setup.plan.layers.keeps); /* the session has it */
    assert_int_equal(plans_made, 4);
    float *weights = session_fill(&session);
    params_init(&r.run.model.params, 1, weights);
    assert_ok(session_ready(&session));
    assert_ok(session_check_forms(&session, &changed));
    assert_false(changed);
    assert_int_equal(plans_made, 4);
    int g = params_find(&r.run.model.params, "bert.encoder.layer.0.output.LayerNorm.weight");
    weights[r.run.model.params.params[g].offset] = 0.001f;
    assert_ok(session_check_forms(&session, &changed));
    assert_true(changed);
    assert_int_equal(plans_made, 6);
    session_close(&session);
    planned_free(&r);
    buf_free(&said);
}

static int set_up(void **state) { return testing_set_up(state) || chdir(*state); }

static int tear_down(void **state) { return chdir("/") || testing_tear_down(state); }

int main(void)
{
    char cache[] = "/tmp/cairn-rates-XXXXXX";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plan_prints_the_plan_of_the_run, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_rank_of_several, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rows_of_short_sequences, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_plan_for_saves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_each_plan_is_made_once, set_up, tear_down)};
    if (!mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1) != 0) return 1; /* rates are measured once */
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    return file_remove_tree(cache) == OK ? failures : 1;
}
