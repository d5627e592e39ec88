/* Plans by themselves: bytes kept per token and layer as in contracts.md 6, layout at its lower bound, mistakes that
   the verifier must find, a golden text per policy. */
#include "mixture.h"

#include "model/model.h"
#include "train/planner/planning.h"

static const char *const policies[] = {"none",           "lean", "ffn",     "selective",
                                       "half-attention", "full", "offload", "every:2"};

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
    LayerKeep keeps[64];
    ModelTensors t;
    assert_ok(policy_parse(name, &policy));
    policy_keeps(&policy, m->config.layers, keeps);
    const LayerChoice layers = {.keeps = keeps};
    PlanRequest r = {.model = m,
                     .compute = compute,
                     .emit = {.training = true, .layers = &layers},
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
    } want[] = {{"none", 28},          {"lean", 20}, {"ffn", 12},   {"selective", 6},
                {"half-attention", 9}, {"full", 2},  {"offload", 0}};
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
                int64_t *all, live = 0;
                make_model(&m, layers, 256, 4, (HeadKind)head);
                make_plan(&m, policies[i], BF16, 2048, &p);
                all = mem_array((size_t)p.micro.count + 1, sizeof *all);
                plan_live_series(&p, all);
                for (int k = 0; k < p.micro.count; k++)
                    if (all[k] > live) live = all[k];
                free(all);
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

/* ---- mixtures ---- */

static bool has_value_of(const Plan *p, TensorId t, TensorId u)
{
    while (p->tensors[t].original != NONE) t = p->tensors[t].original;
    while (p->tensors[u].original != NONE) u = p->tensors[u].original;
    return t == u;
}

/* A random activation of the same shape as `t` with another value; NONE. */
static TensorId another(const Plan *p, TensorId t, uint64_t *seed)
{
    const Tensor *x = &p->tensors[t];
    TensorId from = (TensorId)(testing_random(seed) % (uint64_t)p->n_tensors);
    for (int i = 0; i < p->n_tensors; i++) {
        TensorId u = (from + i) % p->n_tensors;
        const Tensor *y = &p->tensors[u];
        if (y->region == REGION_ACT && y->dtype == x->dtype && y->cols == x->cols && y->rows.kind == x->rows.kind &&
            !has_value_of(p, t, u))
            return u;
    }
    return NONE;
}

/* A recompute that reads another tensor is refused. Returns how many were tried. */
static int spoil_recomputes(Plan *p, const char *name, uint64_t *seed)
{
    int tried = 0;
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++) {
        Instr *instr = &p->instrs[i];
        if (instr->phase != PHASE_RECOMPUTE || instr->op == OP_DIGEST || instr->op == OP_COMPARE) continue;
        for (int k = 0; k < OP_MAX_IN; k++) {
            TensorId t = instr->in[k];
            if (t == NONE || p->tensors[t].region != REGION_ACT) continue;
            instr->in[k] = another(p, t, seed);
            if (instr->in[k] != NONE && plan_verify(p) == OK)
                fail_msg("'%s': instr %d reads %s for %s, and the verifier does not mind", name, i,
                         p->tensors[instr->in[k]].name, p->tensors[t].name);
            tried += instr->in[k] != NONE;
            instr->in[k] = t;
        }
    }
    return tried;
}

/* Any parts of any layer, with audits, K-FAC, virtual ranks, and as devices read weights. plan_make verifies. */
static void test_mixtures(void **state)
{
    int spoilt = 0, digests = 0;
    (void)state;
    for (int i = 0; i < testing_rounds(1000, 20000); i++) {
        Model m;
        Plan p;
        ModelTensors t;
        Kfac kfac = {0};
        LayerKeep keeps[6];
        uint8_t forms[13];
        uint64_t seed = mixture_seed(i), r = testing_random(&seed) >> 16;
        int n = 1 + (int)(r % 6);
        make_model(&m, n, 64, 2, r >> 8 & 1 ? HEAD_CLASSIFIER : HEAD_PRETRAINING);
        mixture_draw(&seed, true, n, keeps);
        for (int f = 0; f <= 2 * n; f++) forms[f] = testing_random(&seed) >> 63 ? NORM_FORM_XHAT : NORM_FORM_Y;
        const LayerChoice layers = {.keeps = keeps, .norm_forms = forms};
        kfac_init_whole(&kfac, &(KfacOptions){.interval = 1, .damping = 1e-3}, &m, 1, 0);
        PlanRequest request = {
            .model = &m,
            .compute = r >> 9 & 1 ? BF16 : F32,
            .one_copy = r >> 10 & 1,
            .audit = r >> 11 & 1,
            .watch = r >> 11 & 1,
            .kfac = r >> 12 & 1 ? &kfac : NULL,
            .emit = {.training = true, .layers = &layers, .waiting = (int)(r >> 13 & 3), .apart = (r >> 13 & 3) > 0},
            .capacity = plan_capacity((MicroCapacity){256, 8, 32})};
        char *name = mixture_name(keeps, n);
        if (plan_make(&request, &p, &t, NULL) != OK) fail_msg("mixture %d, '%s': %s", i, name, status_message());
        digests += t.audit != NONE;
        if (i % 50 == 0) spoilt += spoil_recomputes(&p, name, &seed);
        free(name);
        plan_free(&p);
        kfac_free(&kfac);
        model_free(&m);
    }
    print_message("%d plans audited; %d wrong reads refused\n", digests, spoilt);
    assert_true(digests > 100 && spoilt > 100);
}

/* ---- offload ---- */

static bool other_lane(const Plan *p, InstrId i) { return p->instrs[i].lane != LANE_COMPUTE; }

/* On the device the first and the last layer's worth of inputs at most, whatever the number of layers; the rest, a row
   of width hidden per token and layer, on the host. The top layer's input stays. */
static void test_offload_keeps_nothing(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 12; layers++) {
        Model m;
        Plan full, offload;
        int transfers[2] = {0};
        make_model(&m, layers, 256, 4, HEAD_CLASSIFIER);
        make_plan(&m, "full", BF16, 2048, &full);
        make_plan(&m, "offload", BF16, 2048, &offload);
        size_t input = (size_t)2048 * 256 * 2;
        assert_int_equal(offload.region_bytes[REGION_HOST], (size_t)(layers - 1) * input);
        assert_int_equal(full.region_bytes[REGION_HOST], 0);
        size_t before = full.region_bytes[REGION_ACT], now = offload.region_bytes[REGION_ACT];
        if (layers > 4) /* the peak is in the layer before the last; its backward needs its input and the next one */
            assert_int_equal(before - now, (size_t)(layers - 3) * input);
        else
            assert_true(now <= before);
        for (InstrId i = 0; i < offload.n_instrs; i++) {
            assert_true(other_lane(&offload, i) ==
                        (offload.instrs[i].op == OP_OFFLOAD || offload.instrs[i].op == OP_FETCH));
            transfers[0] += offload.instrs[i].op == OP_OFFLOAD;
            transfers[1] += offload.instrs[i].op == OP_FETCH;
        }
        assert_int_equal(transfers[0], layers - 1);
        assert_int_equal(transfers[1], layers - 1);
        plan_free(&full);
        plan_free(&offload);
        model_free(&m);
    }
}

/* Every FETCH has the backward of a whole layer before an instr waits for it, every OFFLOAD the forward of one. */
static void test_offload_has_time(void **state)
{
    (void)state;
    Model m;
    Plan p;
    make_model(&m, 6, 256, 4, HEAD_PRETRAINING);
    make_plan(&m, "offload", BF16, 2048, &p);
    for (InstrId i = p.micro.first; i < p.micro.first + p.micro.count; i++) {
        if (!other_lane(&p, i)) continue;
        int products = 0;
        InstrId j = i + 1;
        for (; p.instrs[j].wait[0] < i && p.instrs[j].wait[1] < i; j++)
            if (p.instrs[j].op == OP_LINEAR || p.instrs[j].op == OP_LINEAR_DGRAD || p.instrs[j].op == OP_LINEAR_WGRAD)
                products++;
        int least =
            p.instrs[i].op == OP_OFFLOAD ? 4 : 3 + 8 - 2; /* forward; again and backward, without the instrs before */
        if (products < least)
            fail_msg("instr %d (%s, layer %d): %d products until instr %d waits for it, expected %d", i,
                     op_info(p.instrs[i].op)->name, p.instrs[i].layer, products, j, least);
    }
    plan_free(&p);
    model_free(&m);
}

/* Bytes of the copies to the host before instr i that have not surely ended when it begins, or of what was fetched
   and no instr so far has read. */
static int64_t under_way(const Plan *p, InstrId i, Op op)
{
    int64_t bytes = 0;
    InstrId waited = NONE;
    for (InstrId k = p->micro.first; k <= i; k++)
        for (int w = 0; w < 2 && !other_lane(p, k); w++)
            if (p->instrs[k].wait[w] > waited) waited = p->instrs[k].wait[w];
    for (InstrId k = p->micro.first; k < i; k++) {
        if (p->instrs[k].op != op) continue;
        const TensorId t = op == OP_OFFLOAD ? p->instrs[k].in[0] : p->instrs[k].out[0];
        bool done = op == OP_OFFLOAD && k <= waited;
        for (InstrId reader = k + 1; reader <= i && op == OP_FETCH; reader++)
            for (int j = 0; j < OP_MAX_IN; j++) done |= p->instrs[reader].in[j] == t;
        if (!done) bytes += (int64_t)p->tensors[t].bytes;
    }
    return bytes;
}

/* Any set of parts in all layers but the topmost lies on the host. The device's peak falls by it, less what the layer
   at the peak and one more hold; a layer's worth is under way at most. */
static void test_offload_of_any_parts(void **state)
{
    (void)state;
    for (int i = 0; i < testing_rounds(100, 1000); i++) {
        Model m;
        Plan without, with;
        LayerKeep keep;
        uint64_t seed = mixture_seed(i);
        const int layers = 4 + (int)(testing_random(&seed) >> 33) % 5;
        mixture_draw(&seed, true, 1, &keep);
        keep.recomputed &= (uint8_t)~PART_BIT(INPUT); /* else the topmost layer begins with layers below */
        char *there = mixture_name(&keep, 1), *here = mixture_name(&(LayerKeep){.recomputed = keep.recomputed}, 1);
        *strstr(there, "×") = *strstr(here, "×") = '\0'; /* all layers */
        make_model(&m, layers, 256, 4, i % 2 ? HEAD_CLASSIFIER : HEAD_PRETRAINING);
        make_plan(&m, here, i % 3 ? BF16 : F32, 1024, &without);
        make_plan(&m, there, i % 3 ? BF16 : F32, 1024, &with);
        const size_t layer = with.region_bytes[REGION_HOST] / (size_t)(layers - 1);
        const double fell = (double)without.region_bytes[REGION_ACT] - (double)with.region_bytes[REGION_ACT];
        assert_int_equal(with.region_bytes[REGION_HOST], layer * (size_t)(layers - 1));
        assert_int_equal(layer > 0, keep.offloaded != 0);
        if (fell < (double)(layer * (size_t)(layers - 3)) - 0.01 * (double)without.region_bytes[REGION_ACT])
            fail_msg("%d layers, %s: %.0f bytes less on the device, %zu of a layer on the host", layers, there, fell,
                     layer);
        for (InstrId k = with.micro.first; k < with.micro.first + with.micro.count; k++)
            if (!other_lane(&with, k) &&
                (under_way(&with, k, OP_OFFLOAD) > (int64_t)layer || under_way(&with, k, OP_FETCH) > (int64_t)layer))
                fail_msg("%d layers, %s: instr %d runs beside copies of more than %zu bytes", layers, there, k, layer);
        MEM_FREE(there, here);
        plan_free(&without);
        plan_free(&with);
        model_free(&m);
    }
}

static bool same_memory(const Tensor *a, const Tensor *b)
{
    return a->region == b->region && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static bool touches(const Plan *p, InstrId i, TensorId t, bool reads)
{
    bool any = false;
    for (int k = 0; k < OP_MAX_IN && reads; k++)
        any |= p->instrs[i].in[k] != NONE && same_memory(&p->tensors[p->instrs[i].in[k]], &p->tensors[t]);
    for (int k = 0; k < OP_MAX_OUT; k++)
        any |= p->instrs[i].out[k] != NONE && same_memory(&p->tensors[p->instrs[i].out[k]], &p->tensors[t]);
    return any;
}

/* All waits matter except two kinds: for an OFFLOAD, where the memory of no tensor that was on its way until then is
   written before the lane waits again; and of a FETCH into memory that was not used since its lane waited last. */
static bool wait_matters(const Plan *p, InstrId i, InstrId waited)
{
    if (p->instrs[waited].op == OP_OFFLOAD) {
        InstrId ended = NONE;
        for (InstrId k = 0; k < i; k++)
            for (int w = 0; w < 2 && !other_lane(p, k); w++)
                if (p->instrs[k].wait[w] > ended) ended = p->instrs[k].wait[w];
        for (; other_lane(p, i) || (p->instrs[i].wait[0] < waited && p->instrs[i].wait[1] < waited); i++)
            for (InstrId k = ended + 1; k <= waited && !other_lane(p, i); k++)
                if (p->instrs[k].op == OP_OFFLOAD && touches(p, i, p->instrs[k].in[0], false)) return true;
        return false;
    }
    if (p->instrs[i].op != OP_FETCH) return true;
    InstrId before = i - 1;
    while (before >= 0 && !other_lane(p, before)) before--;
    for (InstrId k = before < 0 ? 0 : p->instrs[before].wait[0] + 1; k < i; k++)
        if (!other_lane(p, k) && touches(p, k, p->instrs[i].out[0], true)) return true;
    return false;
}

/* A plan without one of its waits is refused where the wait matters, and only there; layers that keep something else
   between them change nothing. */
static void test_verifier_sees_lanes(void **state)
{
    static const char *const mixed[] = {"offload",
                                        "offload*3,selective*1,lean*1,none*1",
                                        "offload*1,full*1,offload*1,none*1,offload*1,full*1",
                                        "full*1,inner*1,offload*2,full*1,inner*1",
                                        "x/host+y1*3,x/host+qkv+pre*2,none*1",
                                        "x+qkv/host+g/host*2,x/host+o/host+y1/host+pre/host*3,x+qkv+o*1"};
    uint8_t forms[64];
    (void)state;
    for (size_t way = 0; way < 2 * sizeof mixed / sizeof *mixed; way++) {
        Model m;
        Plan p;
        ModelTensors t;
        int waits = 0, refused = 0;
        memset(forms, way % 2 ? NORM_FORM_XHAT : NORM_FORM_Y, sizeof forms);
        make_model(&m, 6, 64, 2, HEAD_CLASSIFIER);
        LayerKeep keeps[6];
        Policy policy;
        assert_ok(policy_parse(mixed[way / 2], &policy));
        policy_keeps(&policy, 6, keeps);
        const LayerChoice layers = {.keeps = keeps, .norm_forms = forms};
        PlanRequest r = {.model = &m,
                         .compute = BF16,
                         .emit = {.training = true, .layers = &layers},
                         .capacity = plan_capacity((MicroCapacity){256, 8, 0})};
        assert_ok(plan_make(&r, &p, &t, NULL));
        for (InstrId i = 0; i < p.n_instrs; i++)
            for (int w = 0; w < 2; w++) {
                InstrId kept = p.instrs[i].wait[w];
                if (kept == NONE) continue;
                waits++;
                p.instrs[i].wait[w] = NONE;
                const bool needed = plan_verify(&p) != OK;
                refused += needed;
                if (needed != wait_matters(&p, i, kept))
                    fail_msg("instr %d no longer waits for %d, and the verifier %s", i, kept,
                             needed ? "minds without need" : "does not mind");
                p.instrs[i].wait[w] = kept;
            }
        print_message("%s, form %s: without one of %d waits %d plans are refused\n", mixed[way / 2],
                      way % 2 ? "xhat" : "y", waits, refused);
        assert_ok(plan_verify(&p));
        plan_free(&p);
        model_free(&m);
    }
}

/* The text of a tiny model's plan per policy. CAIRN_TEST_UPDATE=1 writes the files. */
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
        const char *again; /* per layer, in order; the last one also gathers the rows that the heads read */
    } want[] = {{"none", ""},
                {"lean", ""},
                {"ffn", "linear"},
                {"selective", "linear linear"},
                {"full", "linear attention linear addnorm linear"},
                {"offload", "linear attention linear addnorm linear"}};
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
            if (layer == 2 && strstr(want[i].again, "attention")) wanted += 2;
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
        cmocka_unit_test(test_bytes_per_layer),  cmocka_unit_test(test_layout_meets_the_lower_bound),
        cmocka_unit_test(test_verifier_sees),    cmocka_unit_test(test_explain_is_golden),
        cmocka_unit_test(test_what_runs_again),  cmocka_unit_test(test_offload_keeps_nothing),
        cmocka_unit_test(test_offload_has_time), cmocka_unit_test(test_verifier_sees_lanes),
        cmocka_unit_test(test_mixtures),         cmocka_unit_test(test_offload_of_any_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
