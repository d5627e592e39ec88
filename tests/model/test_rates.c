/* The dropout rates of a training plan's ops are those of config.json; BERT and DistilBERT drop at different places. */
#include "model/harness.h"

enum { HIDDEN = 1, ATTENTION, CLASSIFIER, SPAN }; /* rates in tenths */

/* The rate that the op at a site must have, in tenths. */
static int rate_at(const Golden *g, uint32_t site)
{
    bool distil = g->model.config.kind == MODEL_DISTILBERT;
    if (site == 1023) return g->model.head.kind == HEAD_SPAN ? SPAN : CLASSIFIER;
    if (site == 0 || site % 3 == 0) return HIDDEN;
    return site % 3 == 1 ? ATTENTION : distil ? 0 : HIDDEN;
}

/* Site and rate of an op that drops in the forward pass; false: it does not. */
static bool find_rate(const Instr *i, uint32_t *site, float *rate)
{
    switch (i->op) {
    case OP_EMBED:
        *site = i->attr.embed.site, *rate = i->attr.embed.dropout;
        return true;
    case OP_ATTENTION:
        *site = i->attr.attention.site, *rate = i->attr.attention.dropout;
        return true;
    case OP_ADDNORM:
        *site = i->attr.norm.site, *rate = i->attr.norm.dropout;
        return i->layer >= 0; /* the MLM head's has none */
    case OP_DROPOUT:
        *site = i->attr.dropout.site, *rate = i->attr.dropout.dropout;
        return true;
    default:
        return false;
    }
}

static void check_rates(const char *name, bool evaluate, int drops)
{
    Golden g;
    GoldenRun r;
    int found = 0;
    golden_open(&g, name);
    ModelConfig *c = &g.model.config;
    c->hidden_dropout = 0.1f * HIDDEN;
    c->attention_dropout = 0.1f * ATTENTION;
    c->classifier_dropout = 0.1f * CLASSIFIER;
    if (c->kind == MODEL_DISTILBERT) c->span_dropout = 0.1f * SPAN;
    run_open(&r, &g, &(RunOptions){.backend = "ref", .compute = F32, .evaluate = evaluate});
    for (InstrId i = 0; i < r.plan.n_instrs; i++) {
        const Instr *instr = &r.plan.instrs[i];
        uint32_t site = 0;
        float rate = 0;
        if (instr->phase != PHASE_FORWARD || !find_rate(instr, &site, &rate)) continue;
        float want = evaluate ? 0 : 0.1f * (float)rate_at(&g, site);
        if (fabsf(rate - want) > 1e-6f)
            fail_msg("%s: site %u of %s has the rate %g, expected %g", name, site, op_info(instr->op)->name,
                     (double)rate, (double)want);
        found += rate > 0;
    }
    assert_int_equal(found, drops);
    assert_int_equal(plan_find(&r.plan, "type") == NONE, c->kind == MODEL_DISTILBERT);
    run_close(&r);
    golden_close(&g);
}

static void test_rates_of_training(void **state)
{
    (void)state;
    check_rates("tiny_cls", false, 1 + 3 * 2 + 1);
    check_rates("tiny_pre", false, 1 + 3 * 2);
    check_rates("distil_cls", false, 1 + 2 * 2 + 1);
    check_rates("distil_span", false, 1 + 2 * 2 + 1);
    check_rates("distil_mlm", false, 1 + 2 * 2);
}

static void test_none_in_evaluations(void **state)
{
    (void)state;
    check_rates("distil_cls", true, 0);
    check_rates("distil_span", true, 0);
}

/* --dropout sets all rates, of a BERT not that of a span head, which drops nothing. */
static void test_one_rate_for_all(void **state)
{
    static const char *const names[N_MODEL_KINDS] = {"tiny_cls", "distil_span"};
    (void)state;
    for (int i = 0; i < N_MODEL_KINDS; i++) {
        ModelConfig c;
        assert_ok(model_config_read(SHORT_TEXT("tests/golden/bert/%s", names[i]), &c));
        model_config_set_dropout(&c, 0.3f);
        assert_true(c.hidden_dropout == 0.3f && c.attention_dropout == 0.3f && c.classifier_dropout == 0.3f);
        assert_true(c.span_dropout == (c.kind == MODEL_DISTILBERT ? 0.3f : 0));
        model_config_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rates_of_training),
                                       cmocka_unit_test(test_none_in_evaluations),
                                       cmocka_unit_test(test_one_rate_for_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
