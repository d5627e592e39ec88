/* Plans by themselves: bytes kept per token and layer as contracts.md 6 says, layout at its lower bound, the verifier's
   eyes, a golden text per policy. */
#include "testing.h"

#include "model/model.h"
#include "train/planning.h"

static const char *const policies[] = {"none", "lean", "ffn", "selective", "half-attention", "full", "every:2"};

static void make_model(Model *m, int layers, int hidden, int heads, HeadKind head)
{
    Buf text = {0};
    ModelConfig config;
    buf_printf(&text,
               "{\"vocab_size\": 1000, \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": %d, "
               "\"intermediate_size\": %d, \"max_position_embeddings\": 512}",
               hidden, layers, heads, 4 * hidden);
    assert_ok(model_config_parse("test", text.data, text.len, &config));
    assert_ok(model_init(m, config, (Head){head, 2}));
    buf_free(&text);
}

static void make_plan(const Model *m, const char *name, Dtype compute, int64_t tokens, Plan *p)
{
    Policy policy;
    uint8_t levels[64];
    ModelTensors t;
    assert_ok(policy_parse(name, &policy));
    policy_levels(policy, m->config.layers, levels);
    PlanRequest r = {.model = m,
                     .compute = compute,
                     .training = true,
                     .levels = levels,
                     .capacity = plan_capacity(
                         (MicroCapacity){tokens, tokens / 32, m->head.kind == HEAD_PRETRAINING ? tokens / 8 : 0})};
    assert_ok(plan_make(&r, p, &t, NULL));
}

/* The slope between L and L + 2 layers, in bytes per token and layer over hidden. */
static double kept_per_layer(const char *policy, Dtype compute)
{
    double bytes[2];
    for (int i = 0; i < 2; i++) {
        Model m;
        Plan p;
        make_model(&m, 6 + 2 * i, 768, 12, HEAD_CLASSIFIER);
        make_plan(&m, policy, compute, 4096, &p);
        bytes[i] = (double)p.region_bytes[REGION_ACT];
        plan_free(&p);
        model_free(&m);
    }
    return (bytes[1] - bytes[0]) / 2 / 4096 / 768;
}

static void test_bytes_per_layer(void **state)
{
    static const struct {
        const char *policy;
        double units; /* bf16 bytes ÷ hidden */
    } want[] = {{"none", 28}, {"lean", 20}, {"ffn", 12}, {"selective", 6}, {"half-attention", 9}, {"full", 2}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        double extra = (12 * 4 + 8) / 768.0; /* lse and rstd */
        double bf16 = kept_per_layer(want[i].policy, BF16), f32 = kept_per_layer(want[i].policy, F32);
        print_message("%-15s %.3f (bf16) %.3f (fp32) bytes per token, layer and hidden\n", want[i].policy, bf16, f32);
        if (!(bf16 <= want[i].units + extra + 1e-9 && bf16 >= want[i].units))
            fail_msg("%s keeps %.3f bytes, expected %.0f", want[i].policy, bf16, want[i].units);
        assert_true(f32 <= 2 * want[i].units + extra + 1e-9 && f32 >= 2 * want[i].units);
    }
}

/* From two layers on; a single layer can be 4 % above. */
static void test_layout_meets_the_lower_bound(void **state)
{
    (void)state;
    for (int layers = 2; layers <= 12; layers += 5)
        for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
            for (int head = HEAD_CLASSIFIER; head <= HEAD_PRETRAINING; head += HEAD_PRETRAINING - HEAD_CLASSIFIER) {
                Model m;
                Plan p;
                size_t live = 0;
                make_model(&m, layers, 256, 4, (HeadKind)head);
                make_plan(&m, policies[i], BF16, 2048, &p);
                for (InstrId k = p.micro.first; k < p.micro.first + p.micro.count; k++)
                    if (plan_live_bytes(&p, k) > live) live = plan_live_bytes(&p, k);
                double over = (double)p.region_bytes[REGION_ACT] / (double)live - 1;
                if (over > 0.01)
                    fail_msg("%s, %d layers: layout takes %.2f %% more than what is alive", policies[i], layers,
                             100 * over);
                plan_free(&p);
                model_free(&m);
            }
}

/* The verifier finds a plan that is wrong: every way of giving two tensors the same place, and a read too early. */
static void test_verifier_sees(void **state)
{
    (void)state;
    Model m;
    Plan p;
    make_model(&m, 2, 64, 2, HEAD_CLASSIFIER);
    make_plan(&m, "selective", F32, 128, &p);
    int found = 0, tried = 0;
    for (TensorId t = 0; t < p.n_tensors; t++) {
        if (p.tensors[t].region != REGION_ACT || p.tensors[t].first == p.tensors[t].last) continue;
        for (TensorId u = 0; u < p.n_tensors; u++) { /* lay t over u, which is alive when t is written */
            const Tensor *a = &p.tensors[t], *b = &p.tensors[u];
            if (u == t || b->region != REGION_ACT || b->first >= a->first || b->last <= a->first) continue;
            size_t kept = a->offset;
            tried++;
            p.tensors[t].offset = b->offset;
            found += plan_verify(&p) != OK;
            p.tensors[t].offset = kept;
        }
    }
    print_message("%d of %d overlaps found\n", found, tried);
    assert_true(tried > 100);
    assert_int_equal(found, tried);
    assert_ok(plan_verify(&p));
    for (InstrId i = p.micro.first; i + 1 < p.micro.first + p.micro.count;
         i++) { /* swap neighbours that depend on each other */
        Instr a = p.instrs[i], b = p.instrs[i + 1];
        bool depends = false;
        for (int k = 0; k < OP_MAX_IN; k++)
            for (int j = 0; j < OP_MAX_OUT; j++)
                depends |= b.in[k] != NONE && b.in[k] == a.out[j] && p.tensors[a.out[j]].region == REGION_ACT;
        if (!depends) continue;
        p.instrs[i] = b;
        p.instrs[i + 1] = a;
        assert_int_not_equal(plan_verify(&p), OK);
        p.instrs[i] = a;
        p.instrs[i + 1] = b;
    }
    size_t bytes = p.region_bytes[REGION_SCRATCH];
    p.region_bytes[REGION_SCRATCH] = 0;
    assert_int_not_equal(plan_verify(&p), OK);
    p.region_bytes[REGION_SCRATCH] = bytes;
    p.begin.count = 0;
    assert_int_not_equal(plan_verify(&p), OK);
    assert_message("does not clear");
    plan_free(&p);
    model_free(&m);
}

/* The text of a tiny model's plan per policy. CAIRN_TEST_UPDATE=1 writes the files anew. */
static void test_explain_is_golden(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        Model m;
        Plan p;
        Buf text = {0}, golden = {0};
        char path[128], name[32];
        snprintf(name, sizeof name, "%s", policies[i]);
        if (strchr(name, ':')) *strchr(name, ':') = '-';
        snprintf(path, sizeof path, "tests/plan/golden/%s.txt", name);
        make_model(&m, 2, 64, 2, HEAD_CLASSIFIER);
        make_plan(&m, policies[i], BF16, 128, &p);
        plan_explain(&p, &text);
        if (getenv("CAIRN_TEST_UPDATE")) assert_ok(file_write_durable(path, text.data, text.len));
        assert_ok(file_read(path, 1 << 20, &golden));
        if (text.len != golden.len || memcmp(text.data, golden.data, text.len) != 0)
            fail_msg("the plan of '%s' changed; look at it, and if it is meant run this test with CAIRN_TEST_UPDATE=1",
                     policies[i]);
        buf_free(&text);
        buf_free(&golden);
        plan_free(&p);
        model_free(&m);
    }
}

/* none: no recompute; full: never the feed-forward's second product. */
static void test_what_runs_again(void **state)
{
    static const struct {
        const char *policy;
        const char *again; /* per layer, in order */
    } want[] = {{"none", ""},
                {"lean", ""},
                {"ffn", "linear"},
                {"selective", "linear linear"},
                {"full", "linear attention linear addnorm linear"}};
    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        Model m;
        Plan p;
        make_model(&m, 3, 64, 2, HEAD_CLASSIFIER);
        make_plan(&m, want[i].policy, BF16, 128, &p);
        for (int layer = 0; layer < 3; layer++) {
            Buf again = {0};
            buf_puts(&again, "");
            for (InstrId k = 0; k < p.n_instrs; k++)
                if (p.instrs[k].phase == PHASE_RECOMPUTE && p.instrs[k].layer == layer)
                    buf_printf(&again, "%s%s", again.len ? " " : "", op_info(p.instrs[k].op)->name);
            /* the order is that of need; only the set is fixed */
            int words = 0, wanted = 0;
            for (const char *c = again.data; *c; c++) words += *c == ' ';
            for (const char *c = want[i].again; *c; c++) wanted += *c == ' ';
            words += again.len > 0;
            wanted += *want[i].again != 0;
            if (words != wanted)
                fail_msg("%s runs again in layer %d: '%s', expected '%s'", want[i].policy, layer, again.data,
                         want[i].again);
            for (InstrId k = 0; k < p.n_instrs; k++)
                if (p.instrs[k].phase == PHASE_RECOMPUTE && p.instrs[k].op == OP_LINEAR)
                    assert_int_not_equal(p.instrs[k].attr.linear.k, 256); /* FFN-down has k = 4·hidden */
            buf_free(&again);
        }
        plan_free(&p);
        model_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_per_layer), cmocka_unit_test(test_layout_meets_the_lower_bound),
        cmocka_unit_test(test_verifier_sees),   cmocka_unit_test(test_explain_is_golden),
        cmocka_unit_test(test_what_runs_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
