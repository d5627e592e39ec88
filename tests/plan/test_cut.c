/* Stages: layers shared out, every parameter held once, a stage's instrs cut into works, slots that the verifier
   believes, and memory that grows by exactly the slots. */
#include "mixture.h"

#include "model/model.h"
#include "train/planner/planning.h"

enum { LAYERS = 6 };

static void make_model(Model *m, HeadKind head)
{
    static const char sizes[] = "{\"vocab_size\": 1000, \"hidden_size\": 60, \"num_hidden_layers\": 6, "
                                "\"num_attention_heads\": 2, \"intermediate_size\": 256, "
                                "\"max_position_embeddings\": 128}"; /* 60: groups have members that are not aligned */
    ModelConfig config;
    assert_ok(model_config_parse("test", sizes, sizeof sizes - 1, &config));
    assert_ok(model_init(m, config, (Head){head, 2}));
}

static Status make_stage(const Model *part, const char *policy_name, const int *slots, bool split, uint8_t form,
                         Plan *p)
{
    Policy policy;
    ModelTensors t;
    LayerKeep keeps[LAYERS];
    uint8_t forms[2 * LAYERS + 1];
    assert_ok(policy_parse(policy_name, &policy));
    policy_keeps(&policy, LAYERS, keeps);
    memset(forms, form, sizeof forms);
    const LayerChoice layers = {.keeps = keeps, .norm_forms = forms};
    PlanRequest r = {.model = part,
                     .compute = F32,
                     .emit = {.training = true, .layers = &layers},
                     .slots = slots,
                     .split = split,
                     .capacity = plan_capacity((MicroCapacity){256, 16, 64})};
    return plan_make(&r, p, &t, NULL);
}

/* ---- layers to stages ---- */

static void check_split(const double *layer, int n_layers, double embeddings, double heads, int n, const int *want)
{
    Stage stages[LAYERS * 2];
    stages_split(layer, n_layers, embeddings, heads, n, stages);
    for (int s = 0, first = 0; s < n; s++) {
        assert_int_equal(stages[s].first, first);
        assert_int_equal(stages[s].layers, want[s]);
        first += stages[s].layers;
    }
}

static void test_split(void **state)
{
    (void)state;
    const double equal[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, uneven[4] = {3, 1, 1, 1};
    check_split(equal, 12, 0, 0, 1, (const int[]){12});
    check_split(equal, 12, 0, 0, 4, (const int[]){3, 3, 3, 3});
    check_split(equal, 12, 0, 0, 5, (const int[]){2, 3, 3, 3, 1}); /* fewer in the last, then in the first */
    check_split(equal, 12, 0.5, 2, 4, (const int[]){3, 4, 4, 1});
    check_split(equal, 12, 2, 0, 3, (const int[]){3, 5, 4});
    check_split(uneven, 4, 0, 0, 2, (const int[]){1, 3});
    check_split(equal, 4, 9, 9, 4, (const int[]){1, 1, 1, 1});
}

/* No other split is faster: all of them, with layers of unequal seconds. */
static void test_split_is_best(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed < 200; seed++) {
        double layer[7], most, best = 1e9;
        uint32_t x = seed * 2654435761u;
        for (int l = 0; l < 7; l++) layer[l] = 1 + (double)((x = x * 1664525u + 1013904223u) >> 29);
        Stage stages[3];
        stages_split(layer, 7, 2, 3, 3, stages);
        for (int a = 1; a < 6; a++)
            for (int b = a + 1; b < 7; b++) {
                double sums[3] = {2, 0, 3};
                for (int l = 0; l < 7; l++) sums[l < a ? 0 : l < b ? 1 : 2] += layer[l];
                most = sums[0] > sums[1] ? sums[0] : sums[1];
                if (sums[2] > most) most = sums[2];
                if (most < best) best = most;
            }
        double found = 0;
        for (int s = 0; s < 3; s++) {
            double sum = s == 0 ? 2 : s == 2 ? 3 : 0;
            for (int l = stages[s].first; l < stages[s].first + stages[s].layers; l++) sum += layer[l];
            if (sum > found) found = sum;
        }
        assert_true(found <= best * (1 + 1e-9));
    }
}

static void test_parse(void **state)
{
    Stage stages[8];
    (void)state;
    assert_ok(stages_parse("--stage-layers", "1,3,2", 6, 3, stages));
    assert_int_equal(stages[2].first, 4);
    static const char *const wrong[] = {"1,3,1", "1,3,2,1", "6", "0,3,3", "1,,5", "a,b,c", "7,-1,0", "1,3,2,"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong - 1; i++)
        assert_int_equal(stages_parse("--stage-layers", wrong[i], 6, 3, stages), E_USAGE);
}

/* ---- what a stage holds ---- */

static void test_held(void **state)
{
    (void)state;
    for (int head = HEAD_CLASSIFIER; head <= HEAD_PRETRAINING; head += HEAD_PRETRAINING - HEAD_CLASSIFIER) {
        Model whole, part[3], both;
        const Stage stages[] = {{0, 1}, {1, 3}, {4, 2}}, ends[] = {{0, 1}, {4, 2}};
        make_model(&whole, (HeadKind)head);
        for (int s = 0; s < 3; s++) model_part(&whole, &stages[s], 1, &part[s]);
        for (int i = 0; i < whole.params.count; i++) {
            const Param *p = &whole.params.params[i];
            bool tied = head == HEAD_PRETRAINING && strstr(p->name, "word_embeddings") != NULL;
            int holders = 0;
            for (int s = 0; s < 3; s++) holders += params_find(&part[s].params, p->name) >= 0;
            assert_int_equal(holders, tied ? 2 : 1);
        }
        for (int s = 0; s < 3; s++)
            for (int i = 0; i < part[s].params.count; i++) { /* members of a group keep their distance */
                const Param *p = &part[s].params.params[i];
                int of_whole = params_find(&whole.params, p->name);
                assert_int_equal(p->offset % PARAM_ALIGN, whole.params.params[of_whole].offset % PARAM_ALIGN);
                if (i > 0) assert_true(p->offset >= p[-1].offset + param_held(&p[-1]));
                assert_true(p->offset + param_held(p) <= part[s].params.size);
            }
        model_part(&whole, ends, 2, &both); /* the word embedding lies there once */
        assert_true(both.params.size <= part[0].params.size + part[2].params.size);
        assert_true((both.params.size < part[0].params.size + part[2].params.size) == (head == HEAD_PRETRAINING));
        for (int s = 0; s < 3; s++) model_free(&part[s]);
        model_free(&both);
        model_free(&whole);
    }
}

/* ---- the cut ---- */

static int count(const Plan *p, Op op)
{
    int n = 0;
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++) n += p->instrs[i].op == op;
    return n;
}

static void check_cut(const Plan *p, bool split)
{
    assert_int_equal(p->work[WORK_FORWARD].first, p->micro.first);
    InstrId at = p->micro.first;
    for (int kind = 0; kind < N_WORKS; kind++) {
        if (p->work[kind].count == 0) continue;
        assert_int_equal(p->work[kind].first, at);
        at += p->work[kind].count;
        for (InstrId i = p->work[kind].first; i < at; i++) {
            bool late = p->instrs[i].op == OP_LINEAR_WGRAD || p->instrs[i].op == OP_EMBED_BWD;
            assert_int_equal(p->instrs[i].phase == PHASE_FORWARD, kind == WORK_FORWARD);
            if (split) assert_int_equal(late, kind == WORK_WEIGHT);
        }
    }
    assert_int_equal(at, p->micro.first + p->micro.count);
    assert_int_equal(p->work[WORK_BACKWARD].count > 0, !split);
}

static void test_cuts(void **state)
{
    static const char *const policies[] = {
        "none",      "lean",           "ffn",
        "selective", "half-attention", "full",
        "every:2",   "offload",        "x/host+y1/host*1,qkv/host+g*2,x+o/host+pre/host*2,inner*1"};
    const Stage stages[] = {{0, 2}, {2, 3}, {5, 1}};
    (void)state;
    for (int head = HEAD_CLASSIFIER; head <= HEAD_PRETRAINING; head += HEAD_PRETRAINING - HEAD_CLASSIFIER)
        for (size_t w = 0; w < sizeof policies / sizeof *policies; w++)
            for (int k = 0; k < 3 * 4; k++) {
                int s = k % 3;
                bool split = k / 3 % 2, xhat = k / 6;
                Model whole, part;
                Plan p, more;
                make_model(&whole, (HeadKind)head);
                model_part(&whole, &stages[s], 1, &part);
                assert_ok(make_stage(&part, policies[w], (const int[]){1, split, split}, split, xhat, &p));
                check_cut(&p, split);
                assert_int_equal(count(&p, OP_RECEIVE), (s > 0) + (s < 2));
                assert_int_equal(count(&p, OP_SEND), (s > 0) + (s < 2));
                assert_int_equal(count(&p, OP_LINEAR_WGRAD) + (s == 2 && head == HEAD_PRETRAINING),
                                 4 * stages[s].layers + (s < 2                      ? 0
                                                         : head == HEAD_PRETRAINING ? 4
                                                                                    : 2));
                assert_ok(
                    make_stage(&part, policies[w], (const int[]){5, split ? 7 : 0, split ? 3 : 0}, split, xhat, &more));
                size_t stride[N_SLOTS] = {0}, want = p.region_bytes[REGION_ACT];
                for (TensorId t = 0; t < more.n_tensors; t++)
                    if (more.tensors[t].region == REGION_ACT && more.tensors[t].slot != NONE)
                        stride[more.tensors[t].slot] = more.tensors[t].stride;
                want += 4 * stride[0] + (split ? 6 * stride[1] + 2 * stride[2] : 0);
                assert_int_equal(more.region_bytes[REGION_ACT], want);
                assert_true(stride[0] > 0);
                plan_free(&p);
                plan_free(&more);
                model_free(&part);
                model_free(&whole);
            }
}

/* Any parts of any layer kept, recomputed or offloaded, also with K-FAC's works. plan_make verifies. */
static void test_mixtures(void **state)
{
    static const Stage stages[] = {{0, 2}, {2, 3}, {5, 1}, {0, 6}, {3, 3}};
    int copies = 0;
    (void)state;
    for (int i = 0; i < testing_rounds(300, 10000); i++) {
        Model whole, part;
        Plan p;
        ModelTensors t;
        Kfac kfac = {0};
        LayerKeep keeps[LAYERS];
        uint8_t forms[2 * LAYERS + 1];
        uint64_t seed = mixture_seed(i), r = testing_random(&seed) >> 16;
        const Stage *s = &stages[r % 5];
        const bool split = r >> 8 & 1;
        const int slots[N_SLOTS] = {3, split ? 4 : 0, split ? 2 : 0, 5, 3};
        const Grid grid = grid_of_ranks(1);
        make_model(&whole, r >> 9 & 1 ? HEAD_CLASSIFIER : HEAD_PRETRAINING);
        model_part(&whole, s, 1, &part);
        mixture_draw(&seed, true, LAYERS, keeps);
        memset(forms, r >> 10 & 1 ? NORM_FORM_XHAT : NORM_FORM_Y, sizeof forms);
        kfac_init(&kfac, &(KfacOptions){.interval = 1, .damping = 1e-3}, &part, &grid, s, 0);
        const LayerChoice layers = {.keeps = keeps, .norm_forms = forms};
        PlanRequest request = {.model = &part,
                               .compute = r >> 11 & 1 ? BF16 : F32,
                               .emit = {.training = true, .layers = &layers},
                               .audit = r >> 12 & 1,
                               .kfac = r >> 13 & 1 ? &kfac : NULL,
                               .slots = slots,
                               .split = split,
                               .capacity = plan_capacity((MicroCapacity){256, 16, 64})};
        char *name = mixture_name(keeps, LAYERS);
        if (plan_make(&request, &p, &t, NULL) != OK) fail_msg("mixture %d, '%s': %s", i, name, status_message());
        copies += count(&p, OP_FETCH);
        free(name);
        plan_free(&p);
        kfac_free(&kfac);
        model_free(&part);
        model_free(&whole);
    }
    print_message("%d tensors fetched\n", copies);
    assert_true(copies > 100);
}

/* Offloaded inputs of layers have slots in the host's memory and none in the device's; each copy waits for an instr of
   its work, which waits for it. The topmost layer's input stays. */
static void test_offload(void **state)
{
    (void)state;
    const Stage middle = {2, 3};
    Model whole, part;
    Plan p;
    make_model(&whole, HEAD_CLASSIFIER);
    model_part(&whole, &middle, 1, &part);
    for (int split = 0; split < 2; split++) {
        const int slots[N_SLOTS] = {3, split ? 4 : 0, split ? 2 : 0};
        size_t host = 0;
        assert_ok(make_stage(&part, "offload", slots, split, 0, &p));
        assert_int_equal(count(&p, OP_OFFLOAD), 2);
        assert_int_equal(count(&p, OP_FETCH), 2);
        for (InstrId i = p.micro.first; i < p.micro.first + p.micro.count; i++) {
            if (p.instrs[i].op != OP_OFFLOAD) continue;
            const Tensor *there = &p.tensors[p.instrs[i].out[OFFLOAD_OUT_host]];
            assert_int_equal(p.tensors[p.instrs[i].in[OFFLOAD_IN_x]].slot, NONE);
            assert_int_equal(there->slot, SLOT_ACTIVATION);
            host += there->bytes;
        }
        assert_int_equal(p.region_bytes[REGION_HOST], 3 * host);
        for (InstrId i = p.micro.first; i < p.micro.first + p.micro.count;
             i++) { /* of a copy, or for a work's copies */
            Instr *instr = &p.instrs[i], before = *instr;
            bool needed = instr->lane == LANE_COPY || (instr->phase == PHASE_FORWARD && instr->wait[0] != NONE);
            instr->wait[0] = instr->wait[1] = NONE;
            if (needed) assert_int_equal(plan_verify(&p), E_FAIL);
            *instr = before;
        }
        plan_free(&p);
    }
    model_free(&part);
    model_free(&whole);
}

/* Stages of one place: transients of all lie in the same bytes, slots of each in their own. */
static void test_shared_activations(void **state)
{
    (void)state;
    const Stage stages[] = {{0, 1}, {1, 3}, {4, 2}};
    size_t transients = 0, want = 0, end = 0, apart = 0;
    Model whole, part[3];
    Plan p[3], *all[] = {&p[0], &p[1], &p[2]};
    make_model(&whole, HEAD_CLASSIFIER);
    for (int s = 0; s < 3; s++) {
        model_part(&whole, &stages[s], 1, &part[s]);
        assert_ok(make_stage(&part[s], "selective", (const int[]){2 + s, 0, 0}, false, 0, &p[s]));
        size_t own = plan_transient_bytes(&p[s]);
        transients = own > transients ? own : transients;
        want += p[s].region_bytes[REGION_ACT] - own;
        apart += p[s].region_bytes[REGION_ACT];
    }
    plan_share_activations(all, 3);
    want += transients;
    assert_true(want < apart);
    for (int s = 0; s < 3; s++) {
        assert_ok(plan_verify(&p[s]));
        assert_int_equal(p[s].region_bytes[REGION_ACT], want);
        size_t first = plan_transient_bytes(&p[s]), stop = 0;
        assert_true(first >= (s ? end : transients));
        for (TensorId t = 0; t < p[s].n_tensors; t++) {
            const Tensor *x = &p[s].tensors[t];
            if (x->region != REGION_ACT || x->first == NONE) continue;
            if (x->slot == NONE) assert_true(x->offset + x->bytes <= transients);
            size_t last = x->slot == NONE ? 0 : x->offset + x->bytes + (size_t)(1 + s) * x->stride;
            stop = last > stop ? last : stop;
        }
        assert_true(stop <= want);
        end = stop;
        plan_free(&p[s]);
        model_free(&part[s]);
    }
    model_free(&whole);
}

/* The stages together do the work of the whole model, by the same costs. */
static void test_costs_add_up(void **state)
{
    (void)state;
    const Stage stages[] = {{0, 2}, {2, 3}, {5, 1}};
    const CostRates rates = {.product_flops = 1e10, .bytes = 1e9, .overhead = 1e-6, .link_out = 1, .link_in = 1};
    Model whole, part;
    Plan p;
    double parts = 0, all;
    make_model(&whole, HEAD_PRETRAINING);
    assert_ok(make_stage(&whole, "selective", NULL, false, 0, &p));
    all = plan_cost(&p, p.micro, &p.capacity, 64, &rates, NULL);
    plan_free(&p);
    for (int s = 0; s < 3; s++) {
        model_part(&whole, &stages[s], 1, &part);
        assert_ok(make_stage(&part, "selective", (const int[]){2, 0, 0}, false, 0, &p));
        parts += plan_cost(&p, p.work[WORK_FORWARD], &p.capacity, 64, &rates, NULL) +
                 plan_cost(&p, p.work[WORK_BACKWARD], &p.capacity, 64, &rates, NULL);
        plan_free(&p);
        model_free(&part);
    }
    assert_true(parts > all * (1 - 1e-9) && parts < all * (1 + 1e-9));
    model_free(&whole);
}

/* ---- the verifier ---- */

static TensorId kept(const Plan *p, int slot)
{
    for (TensorId t = 0; t < p->n_tensors; t++)
        if (p->tensors[t].region == REGION_ACT && p->tensors[t].slot == slot && p->tensors[t].shares == NONE) return t;
    fail_msg("no tensor of class %d", slot);
    return NONE;
}

static void test_verifier(void **state)
{
    (void)state;
    const Stage middle = {2, 3};
    Model whole, part;
    Plan p;
    make_model(&whole, HEAD_CLASSIFIER);
    model_part(&whole, &middle, 1, &part);
    for (int broken = 0; broken < 6; broken++) {
        assert_ok(make_stage(&part, "selective", (const int[]){3, 4, 2}, true, 0, &p));
        Tensor *operand = &p.tensors[kept(&p, SLOT_OPERAND)], *transient = &p.tensors[kept(&p, NONE)];
        if (broken == 0) operand->slot = NONE;            /* lives on and has no slot */
        if (broken == 1) operand->slot = SLOT_ACTIVATION; /* free before W */
        if (broken == 2) operand->stride /= 2;            /* not as far apart as its class */
        if (broken == 3) p.slots[SLOT_GRADIENT] = 0;      /* a class without slots */
        if (broken == 4) transient->offset = p.region_bytes[REGION_ACT] - transient->bytes; /* in the last slot */
        if (broken == 5) p.region_bytes[REGION_ACT] -= 64; /* reaches beyond the region */
        assert_int_equal(plan_verify_slots(&p), E_FAIL);
        assert_int_equal(plan_verify(&p), E_FAIL);
        plan_free(&p);
    }
    model_free(&part);
    model_free(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),        cmocka_unit_test(test_split_is_best),
        cmocka_unit_test(test_parse),        cmocka_unit_test(test_held),
        cmocka_unit_test(test_cuts),         cmocka_unit_test(test_shared_activations),
        cmocka_unit_test(test_offload),      cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_costs_add_up), cmocka_unit_test(test_verifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
