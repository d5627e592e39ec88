/* The plan of a run: made once per plan, and for random configurations what `cairn plan` says is the plan that a run
   makes, to the last byte. The machine's memory is made up, and calls of plan_make are counted (the linker's --wrap).
 */
#include "testing.h"

#include <math.h>

#include "commands/commands.h"
#include "commands/plan_table.h"
#include "train/planner.h"
#include "train/setup.h"

static int plans_made;
static size_t machine_free, process_holds = 50 << 20;

Status __real_plan_make(const PlanRequest *r, Plan *p, ModelTensors *t, Segment *segments);
Status __wrap_plan_make(const PlanRequest *r, Plan *p, ModelTensors *t, Segment *segments);
size_t __wrap_machine_free_bytes(void);
size_t __wrap_process_resident(void);

Status __wrap_plan_make(const PlanRequest *r, Plan *p, ModelTensors *t, Segment *segments)
{
    plans_made++;
    return __real_plan_make(r, p, t, segments);
}

size_t __wrap_machine_free_bytes(void) { return machine_free; }
size_t __wrap_process_resident(void) { return process_holds; }

/* ---- configurations ---- */

enum { MOST_WORDS = 32, POLICY_WORD = 4 };

typedef struct {
    char text[MOST_WORDS][80];
    int n;
    bool pretraining;
} Words;

__attribute__((format(printf, 2, 3))) static void add(Words *w, const char *format, ...)
{
    va_list args;
    assert_true(w->n < MOST_WORDS);
    va_start(args, format);
    vsnprintf(w->text[w->n++], sizeof w->text[0], format, args);
    va_end(args);
}

static void parse(const Words *w, const char *command, const char *more, Config *c)
{
    char *argv[MOST_WORDS + 4] = {(char *)"cairn", (char *)command};
    int argc = 2;
    for (int i = 0; i < w->n; i++) argv[argc++] = (char *)w->text[i];
    if (more) argv[argc++] = (char *)more;
    assert_ok(config_parse(c, argc, argv, NULL));
}

static int64_t pick(uint64_t *seed, int64_t low, int64_t high)
{
    return low + (int64_t)(testing_random(seed) % (uint64_t)(high - low + 1));
}

/* What both commands take. */
static void draw(Words *w, uint64_t *seed, const char *dir)
{
    static const char *const policies[] = {"none",           "lean", "ffn",     "selective",
                                           "half-attention", "full", "every:2", "auto"};
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    static const char *const optimizers[] = {"adamw", "lamb", "nvlamb"};
    static const char *const tasks[] = {"MNLI", "STS-B", "CoLA"};
    static const char *const micros[] = {"default", "step", "auto"};
    int64_t length = pick(seed, 3, 64), batch = pick(seed, 1, 40), layers = pick(seed, 1, 3);
    char *path = file_join(dir, "config.json");
    Buf sizes = {0};
    buf_printf(&sizes,
               "{\"vocab_size\": %lld, \"hidden_size\": 64, \"num_hidden_layers\": %lld, \"num_attention_heads\": 2, "
               "\"intermediate_size\": 128, \"max_position_embeddings\": 64}",
               (long long)pick(seed, 100, 900), (long long)layers);
    assert_ok(file_write_durable(path, sizes.data, sizes.len));
    buf_free(&sizes);
    *w = (Words){.pretraining = pick(seed, 0, 3) == 0};
    add(w, "--model-config=%s", path);
    free(path);
    add(w, "--backend=ref");
    add(w, "--max-seq-length=%lld", (long long)length);
    add(w, "--batch-size=%lld", (long long)batch);
    add(w, "--recompute=%s", policies[pick(seed, 0, 7)]);
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
    if (pick(seed, 0, 1)) add(w, "--memory-budget=%lldKiB", (long long)pick(seed, 63 << 10, 72 << 10));
    if (pick(seed, 0, 3) == 0) add(w, "--padded");
    if (pick(seed, 0, 2) == 0) add(w, "--shard=optimizer");
    add(w, "--bucket-size=%lldKiB", (long long)pick(seed, 8, 200));
    machine_free = (size_t)pick(seed, 13 << 20, 22 << 20);
}

/* ---- the two ways ---- */

static Head head_of(const Config *c)
{
    if (c->predictions) return (Head){HEAD_PRETRAINING, 2};
    if (strcmp(c->task, "STS-B") == 0) return (Head){HEAD_REGRESSION, 1};
    return (Head){HEAD_CLASSIFIER, strcmp(c->task, "CoLA") == 0 ? 2 : 3};
}

/* What `cairn plan` writes to the standard output. */
static Status say(const Words *w, const char *how, const char *dir, Buf *out)
{
    Config c;
    char *path = file_join(dir, "stdout");
    parse(w, "plan", how, &c);
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
    Model model;
    Setup setup;
} Planned;

/* As a run does, from sequences of full length. */
static Status plan_run(const Words *w, Planned *r)
{
    plans_made = 0;
    ModelConfig sizes;
    *r = (Planned){0};
    parse(w, w->pretraining ? "pretrain" : "glue", NULL, &r->c);
    assert_ok(model_config_read(r->c.model_config, &sizes));
    assert_ok(model_init(&r->model, sizes, head_of(&r->c)));
    PlanInput need = {.model = &r->model,
                      .training = true,
                      .evaluation = !w->pretraining,
                      .max_length = r->c.max_seq_length,
                      .max_masked = r->c.predictions,
                      .mean_length = (double)r->c.max_seq_length};
    assert_ok(setup_backend(&r->c, &r->setup));
    assert_ok(setup_optimizer(&r->c, &r->setup.optimizer));
    return setup_plan(&r->c, &need, &r->setup);
}

/* Of rank 0 of several, without the others: what it plans when it has the least memory. */
static Status plan_rank(const Words *w, int ranks, Planned *r)
{
    Accounts accounts;
    Exchange exchange;
    Status status = plan_run(w, r);
    PlanInput in = r->setup.plan.input;
    assert_true(status == OK || status == E_MEMORY);
    run_plan_free(&r->setup.plan);
    setup_exchange(&r->c, &r->model.params, ranks, 0, &exchange);
    in.exchange = &exchange;
    accounts_measure(&accounts, in.backend, (size_t)r->c.memory_budget, 1, 0, 0);
    status = planner_choose(&r->c, &in, &accounts, NULL, &r->setup.plan);
    exchange_free(&exchange);
    return status;
}

static void planned_free(Planned *r)
{
    setup_free(&r->setup);
    model_free(&r->model);
    config_free(&r->c);
}

static void same_text(const char *got, const char *expected, const Words *w, const char *what)
{
    if (strcmp(got, expected) == 0) return;
    for (int i = 0; i < w->n; i++) print_error("%s ", w->text[i]);
    fail_msg("\n%s: cairn plan says\n%s\nthe run has\n%s", what, got, expected);
}

/* The row of the table: of its own members, up to what the table adds. */
static void same_row(const Planned *r, const Words *w, const Buf *said)
{
    Buf expected = {0};
    char *name = mem_printf("{\"name\": \"%s\"", r->setup.plan.policy), *row = strstr(said->data, name);
    if (!row) fail_msg("no row of %s in %s", r->setup.plan.policy, said->data);
    char *end = strstr(row, ", \"max_batch\"");
    assert_non_null(end);
    *end = '\0';
    plan_row_json(&r->setup.plan, &expected);
    same_text(row + 1, expected.data, w, "the row");
    buf_free(&expected);
    free(name);
}

static void test_what_is_said_is_planned(void **state)
{
    enum { CASES = 200 };
    uint64_t seed = 42;
    int refused = 0, without_buffer = 0, chosen = 0;
    for (int i = 0; i < CASES; i++) {
        Words w;
        Planned r;
        Buf said = {0}, expected = {0};
        draw(&w, &seed, *state);
        bool automatic = strcmp(w.text[POLICY_WORD], "--recompute=auto") == 0;
        Status status = plan_run(&w, &r);
        const RunPlan *p = &r.setup.plan;
        assert_true(status == OK || status == E_MEMORY);
        refused += status == E_MEMORY;
        without_buffer += status == OK && !p->save_buffer;
        chosen += status == OK && automatic;
        assert_true(p->fits == (status == OK));
        if (status == OK || !automatic) { /* else there is no plan */
            assert_ok(say(&w, "--explain", *state, &said));
            plan_explain(&p->train, &expected);
            same_text(said.data, expected.data, &w, "--explain");
            buf_free(&said);
            status = say(&w, "--json", *state, &said);
            assert_true(status == OK || (status == E_MEMORY && !p->fits));
            same_row(&r, &w, &said);
        } else {
            assert_status(say(&w, "--json", *state, &said), E_MEMORY);
            assert_null(strstr(said.data, "\"fits\": true"));
        }
        buf_free(&said);
        buf_free(&expected);
        planned_free(&r);
    }
    print_message("%d do not fit, %d give up the save buffer, %d levels were chosen\n", refused, without_buffer,
                  chosen);
    assert_true(refused > 10 && without_buffer > 10 && chosen > 5);
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
        assert_string_equal(status_name(say(&asked, "--explain", *state, &said)), status_name(status));
        if (status == OK) {
            plan_explain(&r.setup.plan.train, &expected);
            same_text(said.data, expected.data, &asked, "--explain");
            assert_non_null(strstr(said.data, "reduce"));
        }
        buf_free(&said);
        buf_free(&expected);
        planned_free(&r);
    }
}

/* ---- how often ---- */

/* A fixed policy: one of training, one of evaluation; a session makes none, another look at the forms both. */
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
    w.n = POLICY_WORD; /* and no more of the flags */
    add(&w, "--recompute=selective");
    machine_free = (size_t)1 << 30;
    assert_ok(plan_run(&w, &r));
    assert_int_equal(plans_made, 2);
    assert_ok(say(&w, "--explain", *state, &said));
    assert_int_equal(plans_made, 4);
    SessionOptions options = setup_session(&r.setup, &r.c);
    assert_ok(session_open(&session, &r.setup.plan, &options));
    assert_null(r.setup.plan.levels); /* it moved */
    assert_int_equal(plans_made, 4);
    float *weights = session_fill(&session, STATE_WEIGHTS);
    params_init(&r.model.params, 1, weights);
    assert_ok(session_ready(&session));
    assert_ok(session_check_forms(&session, &changed));
    assert_false(changed);
    assert_int_equal(plans_made, 4);
    int g = params_find(&r.model.params, "bert.encoder.layer.0.output.LayerNorm.weight");
    weights[r.model.params.params[g].offset] = 0.001f;
    assert_ok(session_check_forms(&session, &changed));
    assert_true(changed);
    assert_int_equal(plans_made, 6);
    session_close(&session);
    planned_free(&r);
    buf_free(&said);
}

int main(void)
{
    char cache[] = "/tmp/cairn-rates-XXXXXX";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_said_is_planned, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_a_rank_of_several, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_each_plan_is_made_once, testing_set_up, testing_tear_down)};
    if (!mkdtemp(cache) || setenv("XDG_CACHE_HOME", cache, 1) != 0) return 1; /* rates are measured once */
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    return file_remove_tree(cache) == OK ? failures : 1;
}
