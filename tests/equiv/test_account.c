/* The memory account (docs/contracts.md 7), on every backend: the arena's high-water mark at full capacity is the
   plan's, those of `auto` too, STEPS steps allocate nothing above 4 KiB on the step's thread, and resident memory does
   not grow. */
#include "testing.h"

#include "base/machine_memory.h"
#include "place_of.h"
#include "train/planner/search.h"
#include "train/session/session.h"

/* ---- counting allocations: these functions replace libc's ---- */
#if defined(__SANITIZE_ADDRESS__)
#    define COUNTING false
static _Thread_local bool counting;
static size_t largest, over_4k;
#else
#    define COUNTING true
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
static _Thread_local bool counting; /* on the step's thread only */
static size_t largest, over_4k;

static void count(size_t size)
{
    if (!counting) return;
    if (size > largest) largest = size;
    over_4k += size > 4096;
}

void *malloc(size_t size)
{
    count(size);
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    count(n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    count(size);
    return __libc_realloc(p, size);
}
#endif

#define STEPS testing_rounds(20, 100)

enum { TOKENS = 256, SEQS = 8, LENGTH = 32 };

typedef struct {
    Model model;
    Session session;
    MicroBatch batch;
    Optimizer optimizer;
    RankPlace *place;
} Fixture;

/* Eight sequences of 32 tokens: exactly the capacity. */
static void fill_batch(MicroBatch *b, int shift)
{
    micro_batch_init(b, (MicroCapacity){TOKENS, SEQS, 0});
    b->n_tokens = TOKENS;
    b->n_seqs = SEQS;
    for (int s = 0; s < SEQS; s++) {
        b->spans[2 * s] = s * LENGTH;
        b->spans[2 * s + 1] = (s + 1) * LENGTH;
        b->seq_index[s] = s;
        b->labels[s] = s % 3;
        for (int i = 0; i < LENGTH; i++) {
            b->ids[s * LENGTH + i] = (s * 31 + i * 7 + shift) % 1000;
            b->pos[s * LENGTH + i] = i;
            b->seq[s * LENGTH + i] = s;
        }
        b->first[s] = micro_read(b, s * LENGTH);
    }
}

static void open_fixture(Fixture *f, const char *backend, Dtype compute, const char *policy)
{
    static const char text[] =
        "{\"vocab_size\": 1000, \"hidden_size\": 64, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, "
        "\"intermediate_size\": 192, \"max_position_embeddings\": 64}";
    ModelConfig config;
    Policy p;
    BackendOptions options = {.threads = 2};
    *f = (Fixture){.optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f, .max_grad_norm = 1}};
    assert_ok(model_config_parse("test", text, sizeof text - 1, &config));
    assert_ok(model_init(&f->model, config, (Head){HEAD_CLASSIFIER, 3}));
    assert_ok(policy_parse(policy, &p));
    SessionOptions o = {.seed = 1};
    assert_ok(backend_open(backend, &options, &o.backend));
    f->place = place_of(&f->model, NULL, 1, 0, 1 << 20);
    PlanInput input = {.model = &f->model,
                       .backend = o.backend,
                       .compute = compute,
                       .training = true,
                       .evaluation = true,
                       .optimizer = f->optimizer,
                       .place = f->place};
    RunPlan plan;
    run_plan_init(&plan, &input);
    policy_keeps(&p, 3, plan.layers.keeps);
    plan.micro = plan.eval_micro = (MicroCapacity){TOKENS, SEQS, 0};
    plan.save_buffer = true;
    assert_ok(run_plan_make(&plan));
    assert_ok(session_open(&f->session, &plan, &o));
    params_init(&f->model.params, 1, session_fill(&f->session));
    assert_ok(session_ready(&f->session));
    fill_batch(&f->batch, 0);
}

static void close_fixture(Fixture *f)
{
    Backend *b = f->session.options.backend;
    session_close(&f->session);
    place_free(f->place);
    model_free(&f->model);
    micro_batch_free(&f->batch);
    backend_close(b);
}

static const MicroBatch *fill(void *batch, int share, int64_t m)
{
    (void)share;
    (void)m;
    return batch;
}

static void step(Fixture *f, int64_t number)
{
    const SessionStep micros = {
        .shares = &(SessionShare){.micros = 1}, .n_shares = 1, .sums = true, .fill = fill, .self = &f->batch};
    Stats stats;
    assert_ok(session_begin(&f->session, (uint32_t)number, SEQS, 0));
    assert_ok(session_run(&f->session, &micros));
    assert_ok(session_update(&f->session, &f->optimizer, number + 1, 1e-4, &stats));
    assert_int_equal(stats.finite, 1);
}

static bool possible(const char *backend, Dtype compute)
{
    Backend *b = NULL;
    char why[256] = "";
    if (backend_open(backend, NULL, &b) != OK) {
        print_message("skipped: %s\n", status_message());
        return false;
    }
    bool can = b->supports(b, compute, why, sizeof why);
    if (!can) print_message("skipped: %s in %s: %s\n", backend, dtype_name(compute), why);
    backend_close(b);
    return can;
}

static const struct {
    const char *backend;
    Dtype compute;
} kinds[] = {{"ref", F32}, {"ref", BF16}, {"cpu", F32}, {"cpu", BF16}};
static const char *const policies[] = {"none", "selective", "full"};

static void check_mark(const char *backend, Dtype compute, const char *policy)
{
    Fixture f;
    open_fixture(&f, backend, compute, policy);
    size_t size = f.session.plan.chunk->train.region_bytes[REGION_ACT];
    unsigned char *act = f.session.memory[0].base[REGION_ACT];
    memset(act, 0xA5, f.session.memory[0].bytes[REGION_ACT]);
    step(&f, 0);
    size_t top = f.session.memory[0].bytes[REGION_ACT];
    while (top > 0 && act[top - 1] == 0xA5) top--;
    if (top > size || size - top >= 64) /* tensors begin at multiples of 64 bytes */
        fail_msg("%s %s: the arena was used up to byte %zu, the plan says %zu", backend, policy, top, size);
    close_fixture(&f);
}

static void test_high_water_mark(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t p = 0; p < 3 && possible(kinds[k].backend, kinds[k].compute); p++)
            check_mark(kinds[k].backend, kinds[k].compute, policies[p]);
}

enum { BUDGETS = 5 };

/* What `auto` chooses in budgets evenly between its smallest plan and that of none, as --recompute takes it. */
static void choose(const Fixture *none, char texts[BUDGETS][POLICY_TEXT])
{
    const RunPlan *plan = &none->session.plan;
    Accounts accounts = {.n = 1, .row = {{.regions = ~(1u << REGION_HOST)}}};
    SearchProblem problem = {.training = run_plan_request(plan, true),
                             .evaluation = &plan->chunk->eval,
                             .accounts = &accounts,
                             .rates = {.product_flops = 1e11, .bytes = 1e10, .overhead = 1e-6},
                             .rows = plan_capacity(plan->micro),
                             .seq_len = LENGTH,
                             .micros = 1};
    SearchResult least, r;
    assert_ok(search_layers(&problem, &least));
    const size_t most = account_sum(&accounts.row[0], plan->bytes);
    assert_true(least.peak < most);
    for (int b = 0; b < BUDGETS; b++) {
        accounts.row[0].budget = least.peak + (most - least.peak) * (size_t)(b + 1) / (BUDGETS + 1);
        assert_ok(search_layers(&problem, &r));
        assert_true(r.fits && r.peak <= accounts.row[0].budget);
        assert_int_equal(sscanf(r.layers.policy, "auto (%[^)]", texts[b]), 1);
        layer_choice_free(&r.layers);
    }
    layer_choice_free(&least.layers);
}

static void test_high_water_mark_of_auto(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        Fixture none;
        char texts[BUDGETS][POLICY_TEXT];
        if (!possible(kinds[k].backend, kinds[k].compute)) continue;
        open_fixture(&none, kinds[k].backend, kinds[k].compute, "none");
        choose(&none, texts);
        close_fixture(&none);
        for (int b = 0; b < BUDGETS; b++) {
            print_message("%s: %s\n", kinds[k].backend, texts[b]);
            check_mark(kinds[k].backend, kinds[k].compute, texts[b]);
        }
    }
}

static void test_steps_allocate_nothing(void **state)
{
    (void)state;
    if (!COUNTING) skip();
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        if (!possible(kinds[k].backend, kinds[k].compute)) continue;
        Fixture f;
        open_fixture(&f, kinds[k].backend, kinds[k].compute, "selective");
        float logits[SEQS * 3], loss[SEQS];
        step(&f, 0);
        assert_ok(session_evaluate(&f.session, &f.batch, logits, loss));
        size_t before = process_resident(), most = 0;
        largest = over_4k = 0;
        counting = true;
        for (int64_t i = 1; i <= STEPS; i++) {
            step(&f, i);
            if (i % 5 == 0) assert_ok(session_evaluate(&f.session, &f.batch, logits, loss));
        }
        counting = false;
        most = process_resident();
        if (over_4k)
            fail_msg("%s in %s: %zu allocations above 4 KiB within %d steps, the largest of %zu bytes",
                     kinds[k].backend, dtype_name(kinds[k].compute), over_4k, STEPS, largest);
        if (most > before + (256 << 10))
            fail_msg("%s: resident memory grew by %zu bytes", kinds[k].backend, most - before);
        close_fixture(&f);
    }
}

int main(void)
{
    unsetenv("CAIRN_TEST_SAMPLES"); /* a user's process makes them */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_high_water_mark),
                                       cmocka_unit_test(test_high_water_mark_of_auto),
                                       cmocka_unit_test(test_steps_allocate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
