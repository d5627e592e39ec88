/* Sums over ranks in the plan: every gradient once, as early as it is complete; the verifier requires each wait; a
   slice's segments. */
#include "testing.h"

#include "base/sum_tree.h"
#include "holding_of.h"
#include "train/parts/network.h"
#include "train/planner/planning.h"

enum { RANKS = 3, BUCKET = 96 << 10 };

static void make_model(Model *m, HeadKind head)
{
    static const char sizes[] = "{\"vocab_size\": 1000, \"hidden_size\": 64, \"num_hidden_layers\": 4, "
                                "\"num_attention_heads\": 2, \"intermediate_size\": 256, "
                                "\"max_position_embeddings\": 128}";
    ModelConfig config;
    assert_ok(model_config_parse("test", sizes, sizeof sizes - 1, &config));
    assert_ok(model_init(m, config, (Head){head, 2}));
}

static PlanRequest request(const Model *m, const Holding *h, const char *policy_name)
{
    static LayerKeep keeps[16];
    static const LayerChoice layers = {.keeps = keeps};
    Policy policy;
    assert_ok(policy_parse(policy_name, &policy));
    policy_keeps(&policy, m->config.layers, keeps);
    return (PlanRequest){.model = m,
                         .compute = F32,
                         .emit = {.training = true, .layers = &layers},
                         .holding = h,
                         .room = h ? holding_room(h) : (PiecesRoom){0},
                         .slice = h ? holding_slice(h) : NULL,
                         .capacity = plan_capacity((MicroCapacity){256, 16, 64})};
}

static bool writes_into(const Plan *p, InstrId i, const Tensor *x)
{
    for (int k = 0; k < OP_MAX_OUT; k++) {
        TensorId t = p->instrs[i].out[k];
        const Tensor *y = t == NONE ? NULL : &p->tensors[t];
        if (y && y->region == x->region && y->offset < x->offset + x->bytes && x->offset < y->offset + y->bytes)
            return true;
    }
    return false;
}

/* A REDUCE comes after the last writer of its bucket, with nothing but other REDUCEs in between. */
static void check_place(const Plan *p, InstrId i)
{
    const Tensor *x = &p->tensors[p->instrs[i].out[0]];
    InstrId writer = i - 1;
    while (p->instrs[writer].op == OP_REDUCE) writer--;
    assert_int_equal(p->instrs[i].lane, LANE_COMM);
    assert_int_equal(p->instrs[i].wait[0], writer);
    assert_true(writes_into(p, writer, x));
    for (InstrId later = i + 1; later < p->micro.first + p->micro.count; later++)
        if (p->instrs[later].op != OP_REDUCE) assert_false(writes_into(p, later, x));
}

/* Gradients, sums of virtual ranks that wait, and the decoder's gradient of the word embedding. */
static void test_virtual_ranks(void **state)
{
    static const struct {
        int64_t terms, ranks;
        size_t waiting;
    } cases[] = {{0, 1, 0}, {4, 4, 0},  {2, 1, 1},  {6, 3, 1},  {3, 1, 1},  {6, 2, 2},  {4, 1, 2},  {16, 4, 2},
                 {8, 1, 3}, {12, 1, 3}, {12, 2, 3}, {12, 3, 2}, {12, 4, 2}, {18, 2, 4}, {15, 5, 2}, {17, 1, 4}};
    (void)state;
    for (int pretraining = 0; pretraining < 2; pretraining++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            Model m;
            Plan p;
            ModelTensors t;
            make_model(&m, pretraining ? HEAD_PRETRAINING : HEAD_CLASSIFIER);
            PlanRequest r = request(&m, NULL, "full");
            r.emit.waiting = cases[i].terms ? sum_tree_waiting(cases[i].terms, cases[i].ranks) : 0;
            r.emit.apart = cases[i].terms > 0;
            assert_ok(plan_make(&r, &p, &t, NULL));
            size_t word = pretraining && r.emit.apart ? (size_t)m.config.vocab_padded * (size_t)m.config.hidden : 0;
            size_t elements = (size_t)m.params.size * (1 + cases[i].waiting) + word;
            assert_int_equal(p.region_bytes[REGION_GRAD], elements * sizeof(float));
            plan_free(&p);
            model_free(&m);
        }
}

static void test_every_gradient_once(void **state)
{
    static const char *const policies[] = {"none", "selective", "full", "every:2", "offload"};
    (void)state;
    for (int head = HEAD_CLASSIFIER; head <= HEAD_PRETRAINING; head += HEAD_PRETRAINING - HEAD_CLASSIFIER)
        for (size_t w = 0; w < sizeof policies / sizeof *policies; w++) {
            Model m;
            Holding h;
            Plan p;
            ModelTensors t;
            int sums = 0, stats = 0;
            make_model(&m, (HeadKind)head);
            holding_of(&h, &m, RANKS, 0, BUCKET, F32, false);
            assert_true(h.mine.n > 5);
            PlanRequest r = request(&m, &h, policies[w]);
            assert_ok(plan_make(&r, &p, &t, NULL));
            size_t covered = 0;
            for (InstrId i = 0; i < p.n_instrs; i++) {
                if (p.instrs[i].op != OP_REDUCE) continue;
                assert_true(i < p.micro.count);
                check_place(&p, i);
                if (p.instrs[i].attr.reduce.bucket < 0) {
                    stats++;
                    assert_int_equal(p.instrs[i].out[0], t.stats);
                    continue;
                }
                assert_int_equal(p.instrs[i].attr.reduce.bucket, sums++);
                assert_int_equal(p.tensors[p.instrs[i].out[0]].offset, covered);
                covered += p.tensors[p.instrs[i].out[0]].bytes;
            }
            assert_int_equal(stats, 1);
            assert_int_equal(sums, h.mine.n);
            assert_int_equal(covered, (size_t)m.params.size * sizeof(float));
            plan_free(&p);
            holding_free(&h);
            model_free(&m);
        }
}

/* Without its wait, or waiting for an instr too early, a sum would read a gradient that is still being made. */
static void test_each_wait_is_needed(void **state)
{
    Model m;
    Holding h;
    Plan p;
    ModelTensors t;
    int tried = 0;
    (void)state;
    make_model(&m, HEAD_PRETRAINING);
    holding_of(&h, &m, RANKS, 0, BUCKET, F32, false);
    PlanRequest r = request(&m, &h, "selective");
    assert_ok(plan_make(&r, &p, &t, NULL));
    for (InstrId i = 0; i < p.micro.count; i++) {
        InstrId *wait = &p.instrs[i].wait[0], right = *wait;
        if (p.instrs[i].op != OP_REDUCE) continue;
        InstrId before = i - 1; /* of the same lane: its wait is equivalent */
        while (before >= 0 && p.instrs[before].op != OP_REDUCE) before--;
        if (before >= 0 && p.instrs[before].wait[0] == right) continue;
        *wait = NONE;
        assert_status(plan_verify(&p), E_FAIL);
        *wait = right - 1;
        if (p.instrs[right - 1].lane == LANE_COMPUTE) assert_status(plan_verify(&p), E_FAIL);
        *wait = right;
        assert_ok(plan_verify(&p));
        tried++;
    }
    print_message("%d waits taken away\n", tried);
    assert_true(tried > 4);
    /* no instr may read or write a bucket while it is summed */
    for (InstrId i = 0; i + 1 < p.micro.count; i++)
        if (p.instrs[i].op == OP_REDUCE && p.instrs[i].attr.reduce.bucket == 0) {
            Instr first = p.instrs[i], *other = &p.instrs[first.wait[0]];
            TensorId kept = p.instrs[i + 1].out[0];
            assert_int_not_equal(other->out[0], NONE);
            for (InstrId later = i + 1; later < p.micro.count; later++) {
                if (p.instrs[later].op != OP_LINEAR_WGRAD) continue;
                kept = p.instrs[later].out[0];
                p.instrs[later].out[0] = other->out[0];
                assert_status(plan_verify(&p), E_FAIL);
                p.instrs[later].out[0] = kept;
                break;
            }
        }
    assert_ok(plan_verify(&p));
    plan_free(&p);
    holding_free(&h);
    model_free(&m);
}

/* All ranks' segments are the parameters, each element once, and fill each rank's moments without a gap but padding. */
static void test_slices_are_the_space(void **state)
{
    Model m;
    (void)state;
    make_model(&m, HEAD_PRETRAINING);
    for (int ranks = 2; ranks <= 7; ranks++) {
        int64_t held = 0, sum = 0, blocks = 0;
        uint8_t *seen = mem_alloc((size_t)m.params.size);
        for (int i = 0; i < m.params.count; i++) held += param_held(&m.params.params[i]);
        for (int rank = 0; rank < ranks; rank++) {
            Optimizer o = {.kind = OPTIMIZER_LAMB, .weight_decay = 0.01f};
            Holding h;
            holding_of(&h, &m, ranks, rank, BUCKET, F32, true);
            const Intervals *slice = holding_slice(&h);
            Segment *own = mem_array((size_t)(m.params.count + slice->count), sizeof *own);
            int64_t n = optim_own_segments(&m, &m, &o, slice, own);
            for (int64_t s = 0; s < n; s++) {
                const Param *p = &m.params.params[own[s].tensor];
                assert_true(own[s].offset >= p->offset && own[s].offset + own[s].size <= p->offset + param_held(p));
                assert_int_equal((own[s].offset - p->offset) % NORM_BLOCK, 0);
                assert_int_equal(own[s].block, optim_norm_blocks(&m.params, own[s].offset));
                assert_true(own[s].offset + own[s].shift >= 0);
                assert_true(own[s].offset + own[s].shift + own[s].size <= h.has[HELD_MOMENTS][rank].size);
                for (int64_t e = own[s].offset; e < own[s].offset + own[s].size; e++) assert_int_equal(seen[e]++, 0);
                sum += own[s].size;
            }
            blocks += h.sums[rank].size / 2;
            free(own);
            holding_free(&h);
        }
        assert_int_equal(sum, held);
        assert_int_equal(blocks, optim_norm_blocks(&m.params, m.params.size));
        free(seen);
    }
    model_free(&m);
}

/* The moments shrink with the ranks; everything else stays. */
static void test_sharded_plan(void **state)
{
    Model m;
    ModelTensors t;
    Plan whole, p;
    Holding h;
    (void)state;
    make_model(&m, HEAD_CLASSIFIER);
    holding_of(&h, &m, 4, 2, BUCKET, BF16, false);
    PlanRequest r = request(&m, &h, "none");
    assert_ok(plan_make(&r, &whole, &t, NULL));
    holding_free(&h);
    holding_of(&h, &m, 4, 2, BUCKET, BF16, true);
    r.slice = holding_slice(&h);
    for (int kind = OPTIMIZER_ADAMW; kind <= OPTIMIZER_NVLAMB; kind++) {
        r.optimizer.kind = (OptimizerKind)kind;
        assert_ok(plan_make(&r, &p, &t, NULL));
        double share = (double)p.region_bytes[REGION_MOMENT] / (double)whole.region_bytes[REGION_MOMENT];
        print_message("%s: moments of rank 2 of 4: %.1f %%\n", kind ? "LAMB" : "AdamW", 100 * share);
        assert_true(share > 0.2 && share < 0.3);
        assert_int_equal(p.region_bytes[REGION_GRAD], whole.region_bytes[REGION_GRAD]);
        assert_int_equal(p.region_bytes[REGION_ACT], whole.region_bytes[REGION_ACT]);
        plan_free(&p);
    }
    plan_free(&whole);
    holding_free(&h);
    model_free(&m);
}

/* The network's time is hidden by backward, except the sums that are left when it ends. */
static void test_predicted_overlap(void **state)
{
    Model m;
    ModelTensors t;
    Plan p;
    Holding h;
    (void)state;
    make_model(&m, HEAD_CLASSIFIER);
    holding_of(&h, &m, 4, 0, BUCKET, F32, false);
    PlanRequest r = request(&m, &h, "none");
    assert_ok(plan_make(&r, &p, &t, NULL));
    CostRates alone = {.product_flops = 1e9, .bytes = 1e9, .overhead = 1e-6};
    double quiet = plan_cost(&p, p.micro, &p.capacity, 64, &alone, NULL);
    static const char *const networks[] = {"1000,0", "0.1,10", "0.001,10"};
    double before = quiet;
    for (int i = 0; i < 3; i++) {
        Network n;
        CostRates rates = alone;
        double *each = mem_array((size_t)p.micro.count, sizeof *each), network = 0;
        assert_ok(network_find(networks[i], &n));
        network_rates(&n, &h, &rates);
        double seconds = plan_cost(&p, p.micro, &p.capacity, 64, &rates, each);
        for (InstrId k = 0; k < p.micro.count; k++) network += p.instrs[k].op == OP_REDUCE ? each[k] : 0;
        assert_true(seconds >= before && seconds < quiet + network && seconds >= network);
        before = seconds;
        free(each);
    }
    assert_true(before > 2 * quiet);
    Network n;
    assert_ok(network_find("10gbe", &n));
    assert_status(network_find("10", &n), E_USAGE);
    assert_status(network_find("0,10", &n), E_USAGE);
    assert_status(network_find("1,-1", &n), E_USAGE);
    assert_status(network_find("fast", &n), E_USAGE);
    plan_free(&p);
    holding_free(&h);
    model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_gradient_once), cmocka_unit_test(test_virtual_ranks),
        cmocka_unit_test(test_each_wait_is_needed), cmocka_unit_test(test_slices_are_the_space),
        cmocka_unit_test(test_sharded_plan),        cmocka_unit_test(test_predicted_overlap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
