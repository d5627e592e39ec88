/* `auto`: exact peak, never above the budget, predicted time never rising with the budget, the fastest of all that fit.
 */
#include "testing.h"

#include <math.h>

#include "train/planner/search.h"

static void make_model(Model *m, int layers)
{
    Buf text = {0};
    ModelConfig config;
    buf_printf(&text,
               "{\"vocab_size\": 1000, \"hidden_size\": 256, \"num_hidden_layers\": %d, \"num_attention_heads\": 4, "
               "\"intermediate_size\": 1024, \"max_position_embeddings\": 512}",
               layers);
    assert_ok(model_config_parse("test", text.data, text.len, &config));
    assert_ok(model_init(m, config, (Head){HEAD_CLASSIFIER, 3}));
    buf_free(&text);
}

/* Of one memory, whose budget a test sets; of two, where layers are offloaded. */
static Accounts accounts;

static SearchProblem problem(const Model *m)
{
    static const LayerChoice forms_y;
    accounts =
        (Accounts){.n = 1, .row = {{.limit = "the memory budget", .regions = ~(1u << REGION_HOST), .held = 1000000}}};
    return (SearchProblem){.training = {.model = m,
                                        .compute = BF16,
                                        .emit = {.training = true, .layers = &forms_y},
                                        .capacity = plan_capacity((MicroCapacity){4096, 64, 0})},
                           .accounts = &accounts,
                           .rates = {.product_flops = 1e11, .bytes = 1e10, .overhead = 1e-6},
                           .rows = plan_capacity((MicroCapacity){4096, 64, 0}),
                           .seq_len = 128,
                           .micros = 1};
}

static size_t peak_of(SearchProblem *s, LayerKeep *keeps)
{
    Plan p;
    ModelTensors t;
    PlanRequest r = s->training;
    r.emit.layers = &(LayerChoice){.keeps = keeps};
    assert_ok(plan_make(&r, &p, &t, NULL));
    size_t peak = account_sum(&s->accounts->row[0], p.region_bytes);
    plan_free(&p);
    return peak;
}

static size_t uniform_peak(SearchProblem *s, Level level)
{
    LayerKeep keeps[24];
    for (int l = 0; l < 24; l++) keeps[l] = level_keep(level);
    return peak_of(s, keeps);
}

static bool offloads(const LayerChoice *c, int layers)
{
    for (int l = 0; l < layers; l++)
        if (c->keeps[l].offloaded) return true;
    return false;
}

/* The result fits the budget and is not slower than `before`, with less memory. */
static void expect_within(SearchProblem *s, const SearchResult *r, double before)
{
    assert_true(r->peak <= accounts.row[0].budget);
    assert_int_equal(r->peak, peak_of(s, r->layers.keeps));
    if (!(r->step_s <= before * (1 + 1e-12)))
        fail_msg("budget %zu: %g s, with less memory it was %g", accounts.row[0].budget, r->step_s, before);
}

static void test_monotone_and_within(void **state)
{
    Model m;
    (void)state;
    make_model(&m, 6);
    SearchProblem s = problem(&m);
    size_t most = uniform_peak(&s, LEVEL_NONE), least = uniform_peak(&s, LEVEL_FULL);
    assert_true(least < most);
    double before = INFINITY;
    int fitted = 0;
    for (int i = 0; i <= 40; i++) {
        SearchResult r;
        accounts.row[0].budget = (size_t)((double)least * 0.8 + ((double)most * 1.05 - (double)least * 0.8) * i / 40);
        assert_ok(search_layers(&s, &r));
        if (!r.fits) {
            assert_int_equal(fitted, 0); /* once something fitted, more memory fits too */
            assert_int_equal(r.peak, peak_of(&s, r.layers.keeps));
            assert_in_range(r.peak, accounts.row[0].budget + 1, least);
            layer_choice_free(&r.layers);
            continue;
        }
        fitted++;
        expect_within(&s, &r, before);
        before = r.step_s;
        layer_choice_free(&r.layers);
    }
    assert_true(fitted > 20);
    model_free(&m);
}

/* Against every assignment of levels in non-increasing order, laid out one by one. */
static void test_finds_the_fastest(void **state)
{
    Model m;
    (void)state;
    make_model(&m, 3);
    SearchProblem s = problem(&m);
    size_t most = uniform_peak(&s, LEVEL_NONE), least = uniform_peak(&s, LEVEL_FULL);
    for (int b = 0; b <= 10; b++) {
        SearchResult r;
        double best = INFINITY;
        accounts.row[0].budget = least + (most - least) * (size_t)b / 10;
        for (uint8_t x = 0; x <= LEVEL_FULL; x++)
            for (uint8_t y = 0; y <= x; y++)
                for (uint8_t z = 0; z <= y; z++) {
                    Plan p;
                    ModelTensors t;
                    LayerKeep l[3] = {level_keep((Level)x), level_keep((Level)y), level_keep((Level)z)};
                    PlanRequest q = s.training;
                    q.emit.layers = &(LayerChoice){.keeps = l};
                    assert_ok(plan_make(&q, &p, &t, NULL));
                    if (account_sum(&accounts.row[0], p.region_bytes) <= accounts.row[0].budget) {
                        double seconds = search_step_seconds(&p, &s.rows, &s.rates, s.seq_len, s.micros);
                        if (seconds < best) best = seconds;
                    }
                    plan_free(&p);
                }
        assert_ok(search_layers(&s, &r));
        if (!(r.step_s <= best * (1 + 1e-9))) fail_msg("found %g s, %g s is possible", r.step_s, best);
        layer_choice_free(&r.layers);
    }
    model_free(&m);
}

/* With a copy lane: still monotone and within the budget, below every plan without it; a fast link is used before
   anything is recomputed twice, a slow one only where nothing else fits. */
static void test_offload(void **state)
{
    Model m;
    (void)state;
    make_model(&m, 6);
    for (int slow = 0; slow < 2; slow++) {
        SearchProblem s = problem(&m);
        size_t most = uniform_peak(&s, LEVEL_NONE), least, without;
        bool offloaded = false;
        double before = INFINITY;
        s.offload = true;
        accounts.n = 2;
        accounts.row[1] = (Account){.regions = 1u << REGION_HOST, .budget = SIZE_MAX};
        s.rates.link_out = s.rates.link_in = slow ? 1e7 : 1e12;
        least = uniform_peak(&s, LEVEL_OFFLOAD);
        without = uniform_peak(&s, LEVEL_FULL);
        assert_true(least < without);
        for (int i = 0; i <= 40; i++) {
            SearchResult r;
            accounts.row[0].budget = least + (most - least) * (size_t)i / 40;
            assert_ok(search_layers(&s, &r));
            bool takes = offloads(&r.layers, 6);
            expect_within(&s, &r, before);
            if (slow && takes && accounts.row[0].budget >= without)
                fail_msg("budget %zu: %s over a slow link", accounts.row[0].budget, r.layers.policy);
            offloaded |= takes;
            before = r.step_s;
            layer_choice_free(&r.layers);
        }
        assert_true(offloaded);
        SearchResult r;
        accounts.row[0].budget = least;
        accounts.row[1].budget = 0; /* the machine has no memory for it */
        assert_ok(search_layers(&s, &r));
        assert_true(!r.fits || !offloads(&r.layers, 6));
        layer_choice_free(&r.layers);
    }
    model_free(&m);
}

static void test_large_is_quick(void **state)
{
    Model m;
    (void)state;
    make_model(&m, 24);
    SearchProblem s = problem(&m);
    accounts.row[0].budget = uniform_peak(&s, LEVEL_SELECTIVE);
    SearchResult r;
    assert_ok(search_layers(&s, &r));
    print_message("24 layers: %s, %d layouts\n", r.layers.policy, r.layouts);
    assert_true(r.layouts < 200);
    layer_choice_free(&r.layers);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_monotone_and_within),
                                       cmocka_unit_test(test_finds_the_fastest), cmocka_unit_test(test_offload),
                                       cmocka_unit_test(test_large_is_quick)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
