/* Plans for an imagined GPU: the arithmetic of a step against BERT's own formula, the memory of the cuda backend, and
   sequences of many lengths. */
#include "testing.h"

#include <math.h>
#include <unistd.h>

#include "commands/plan.h"
#include "data/lengths.h"
#include "train/planner/search.h"

enum { LAYERS = 24, HIDDEN = 1024, FFN = 4096, VOCAB = 30528 };

static void make_large(Model *m)
{
    static const char text[] = "{\"vocab_size\": 30522, \"hidden_size\": 1024, \"num_hidden_layers\": 24, "
                               "\"num_attention_heads\": 16, \"intermediate_size\": 4096}";
    ModelConfig config;
    assert_ok(model_config_parse("large", text, sizeof text - 1, &config));
    assert_ok(model_init(m, config, (Head){HEAD_PRETRAINING, 2}));
}

static PlanRequest request(const Model *m, int64_t seqs, int64_t length, int64_t predictions)
{
    static LayerKeep keeps[LAYERS];
    static const LayerChoice none = {.keeps = keeps};
    return (PlanRequest){.model = m,
                         .one_copy = true,
                         .compute = BF16,
                         .emit = {.training = true, .layers = &none},
                         .capacity = plan_capacity((MicroCapacity){seqs * length, seqs, seqs * predictions}),
                         .optimizer = {.kind = OPTIMIZER_LAMB, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f}};
}

static size_t total(const Plan *p)
{
    size_t sum = 0;
    for (int r = 0; r < N_REGIONS; r++) sum += r == REGION_HOST ? 0 : p->region_bytes[r];
    return sum;
}

/* Flops of the products of forward and backward, without attention's second scores. */
static double useful_flops(const Plan *p, double length)
{
    double flops = 0;
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++) {
        OpCall call;
        plan_call(p, &p->instrs[i], &call);
        double own = op_cost(&call, &p->capacity, length).product_flops;
        flops += call.op == OP_ATTENTION_BWD ? 0.8 * own : own;
    }
    return flops;
}

static void test_flops_of_a_step(void **state)
{
    Model m;
    Plan p;
    ModelTensors t;
    (void)state;
    make_large(&m);
    PlanRequest r = request(&m, 64, 128, 20);
    assert_ok(plan_make(&r, &p, &t, NULL));
    double n = 128, h = HIDDEN, masked = 20; /* per sequence, three times the forward pass */
    double all = 3 * (LAYERS * (n * (8 * h * h + 4 * h * FFN) + 4 * n * n * h) + masked * (2 * h * h + 2 * h * VOCAB) +
                      2 * h * h + 4 * h);
    double expected = all - 3 * (n - masked - 1) * (2 * h * h + 4 * h * FFN); /* rows that no head reads */
    double found = useful_flops(&p, n) / 64;
    if (fabs(found / expected - 1) > 1e-9) fail_msg("%g flops a sequence, expected %g", found, expected);
    assert_true(fabs(all / 240.6e9 - 1) < 1e-3); /* the known figure */
    plan_free(&p);
    model_free(&m);
}

static void test_memory_of_a_device(void **state)
{
    Model m;
    Plan p;
    ModelTensors t;
    Backend table;
    (void)state;
    make_large(&m);
    PlanRequest r = request(&m, 16, 128, 20);
    assert_ok(plan_make(&r, &p, &t, NULL));
    size_t estimated = total(&p), copies = p.region_bytes[REGION_COPY];
    assert_false(p.exact);
    size_t weights = 0; /* of products: all but embeddings, biases, LayerNorms */
    for (InstrId i = p.pack.first; i < p.pack.first + p.pack.count; i++)
        weights += (size_t)(p.instrs[i].attr.pack.n * p.instrs[i].attr.pack.k);
    assert_int_equal(copies, weights * 2); /* once, in bf16 */
    plan_free(&p);
    if (backend_table("cuda", &table) != OK && backend_table("cuda_host", &table) != OK) {
        print_message("skipped: neither cairn_cuda.so nor cairn_cuda_host.so was built\n");
        model_free(&m);
        skip();
    }
    assert_non_null(table.imagine);
    table.imagine(9);
    r.backend = &table;
    assert_ok(plan_make(&r, &p, &t, NULL));
    assert_true(p.exact);
    assert_int_equal(p.region_bytes[REGION_COPY], copies);
    /* the MLM head's chunk of logits is the largest scratch */
    size_t chunk = (size_t)16 * 20 * VOCAB * sizeof(float);
    assert_in_range(p.region_bytes[REGION_SCRATCH], chunk, chunk + ((size_t)136 << 20)); /* and products' workspace */
    assert_in_range(total(&p), estimated, estimated + chunk + ((size_t)136 << 20));
    plan_free(&p);
    model_free(&m);
}

/* Instrs of `micro` that add to this gradient; `by` is the op of the last. */
static int writers(const Plan *p, TensorId gradient, Op *by)
{
    int n = 0;
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++)
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (p->instrs[i].out[k] == gradient) {
                *by = p->instrs[i].op;
                n++;
            }
    return n;
}

/* On a device the op that makes dy adds up the bias gradient, where it can; on a host LINEAR_WGRAD does, always. */
static void test_bias_gradients(void **state)
{
    static const Level levels[] = {LEVEL_NONE, LEVEL_LEAN, LEVEL_SELECTIVE, LEVEL_FULL};
    (void)state;
    for (int k = 0; k < 8; k++) {
        Model m;
        Plan p;
        ModelTensors t;
        LayerKeep of_layers[LAYERS];
        bool device = k % 2;
        int found[N_OPS] = {0};
        make_large(&m);
        PlanRequest r = request(&m, 16, 128, 20);
        r.one_copy = device;
        r.emit.layers = &(LayerChoice){.keeps = of_layers};
        for (int l = 0; l < LAYERS; l++) of_layers[l] = level_keep(levels[k / 2]);
        assert_ok(plan_make(&r, &p, &t, NULL));
        for (InstrId i = p.micro.first; i < p.micro.first + p.micro.count; i++) {
            const Instr *instr = &p.instrs[i];
            if (instr->op != OP_LINEAR || instr->phase != PHASE_FORWARD) continue;
            Op by = N_OPS;
            assert_int_not_equal(instr->in[LINEAR_IN_bias], NONE);
            assert_int_equal(writers(&p, p.tensors[instr->in[LINEAR_IN_bias]].grad, &by), 1);
            found[by]++;
        }
        assert_int_equal(found[OP_ADDNORM_BWD], device ? 2 * LAYERS : 0);
        assert_int_equal(found[OP_GELU_BWD], device ? LAYERS + 1 : 0); /* the MLM head's */
        assert_int_equal(found[OP_ATTENTION_BWD], device ? LAYERS : 0);
        assert_int_equal(found[OP_LINEAR_WGRAD], device ? 2 : 4 * LAYERS + 3); /* of the pooler and NSP */
        plan_free(&p);
        model_free(&m);
    }
}

/* Of `range`: elements of gradients that it clears. */
static int64_t cleared(const Plan *p, Range range)
{
    int64_t n = 0;
    for (InstrId i = range.first; i < range.first + range.count; i++) {
        const Tensor *z = &p->tensors[p->instrs[i].out[ZERO_OUT_x]];
        if (z->region == REGION_GRAD) n += z->rows.extra;
    }
    return n;
}

static InstrId find_op(const Plan *p, Op op)
{
    InstrId i = p->micro.first;
    while (p->instrs[i].op != op) i++;
    return i;
}

/* On a device a step's first micro-batch begins all gradients but those that EMBED_BWD alone makes. The verifier sees
   what is missing. */
static void test_begun_gradients(void **state)
{
    Model m;
    Plan p;
    ModelTensors t;
    (void)state;
    make_large(&m);
    PlanRequest r = request(&m, 16, 128, 20);
    assert_ok(plan_make(&r, &p, &t, NULL));
    assert_int_equal(cleared(&p, p.clear), m.params.size);
    const ModelConfig *c = &m.config;
    int64_t embeddings = (c->positions + c->types + 2) * HIDDEN;         /* the decoder begins that of the words */
    assert_in_range(cleared(&p, p.begin), embeddings, embeddings + 128); /* and gaps behind NSP's two columns */
    Instr *wgrad = &p.instrs[find_op(&p, OP_LINEAR_WGRAD)], *embed = &p.instrs[find_op(&p, OP_EMBED_BWD)];
    assert_int_equal(p.instrs[find_op(&p, OP_MLM_XENT)].begins, 1 << MLM_XENT_OUT_dw | 1 << MLM_XENT_OUT_db);
    assert_int_equal(embed->begins, 0);
    uint8_t old = wgrad->begins;
    assert_true(old & 1 << LINEAR_WGRAD_OUT_dw);
    wgrad->begins = 0;
    assert_status(plan_verify(&p), E_FAIL);
    assert_message("nothing clears or begins it");
    wgrad->begins = old;
    embed->begins = 1 << EMBED_BWD_OUT_dword;
    assert_status(plan_verify(&p), E_FAIL);
    assert_message("by an op that cannot");
    embed->begins = 0;
    Range clear = p.clear;
    p.clear.count = 0;
    assert_status(plan_verify(&p), E_FAIL);
    assert_message("`clear` lacks it");
    p.clear = clear;
    InstrId zero = p.begin.first + p.begin.count - 1; /* of the last part of `begin` */
    TensorId rest = p.instrs[zero].out[ZERO_OUT_x];
    p.instrs[zero].out[ZERO_OUT_x] = t.grads;
    assert_status(plan_verify(&p), E_FAIL);
    assert_message("though it holds a sum");
    p.instrs[zero].out[ZERO_OUT_x] = rest;
    assert_ok(plan_verify(&p));
    plan_free(&p);
    r.one_copy = false; /* a host */
    assert_ok(plan_make(&r, &p, &t, NULL));
    assert_int_equal(p.clear.count, 0);
    assert_int_equal(cleared(&p, p.begin), m.params.size);
    plan_free(&p);
    model_free(&m);
}

/* On a device the optimizer writes the compute copies, biases' too, and a PACK makes all of them after weights were
   loaded. */
static void test_written_copies(void **state)
{
    Model m;
    Plan p;
    ModelTensors t;
    (void)state;
    make_large(&m);
    PlanRequest r = request(&m, 16, 128, 20);
    assert_ok(plan_make(&r, &p, &t, NULL));
    assert_int_equal(p.pack.count, 1);
    assert_int_equal(p.pack.first, p.update.first + p.update.count);
    const Instr *last = &p.instrs[p.pack.first - 1];
    assert_int_equal(last->op, OP_LAMB);
    assert_int_equal(last->out[LAMB_OUT_copies], p.copies);
    int biases = 0;
    int64_t products = (int64_t)VOCAB * HIDDEN + 2 * HIDDEN * HIDDEN + 2 * HIDDEN +
                       LAYERS * (int64_t)(4 * HIDDEN * HIDDEN + 2 * HIDDEN * FFN);
    for (InstrId i = p.micro.first; i < p.micro.first + p.micro.count; i++) {
        const Instr *instr = &p.instrs[i];
        if (instr->op != OP_LINEAR) continue;
        const Tensor *w = &p.tensors[instr->in[LINEAR_IN_w]], *b = &p.tensors[instr->in[LINEAR_IN_bias]];
        assert_int_equal(w->offset, p.tensors[w->original].offset / 2); /* the same element */
        assert_int_equal(b->dtype, p.tensors[instr->out[LINEAR_OUT_y]].dtype);
        biases += b->region == REGION_COPY;
    }
    assert_int_equal(biases, 4 * LAYERS + 2); /* all but NSP's, whose logits are fp32 */
    assert_in_range(p.region_bytes[REGION_COPY], products * 2, products * 2 * 1.005);
    plan_free(&p);
    model_free(&m);
}

static void test_rates(void **state)
{
    const DeviceSpec *h200, *a100, *none;
    CostRates bf16, f32, old;
    (void)state;
    assert_ok(device_find("h200", &h200));
    assert_ok(device_find("a100", &a100));
    assert_int_equal(device_find("h201", &none), E_USAGE);
    assert_message("h200, h100, a100, b200, v100 or t4");
    device_rates(h200, BF16, &bf16);
    device_rates(h200, F32, &f32);
    device_rates(a100, BF16, &old);
    assert_true(bf16.product_flops > 10 * f32.product_flops);
    assert_true(bf16.product_flops > 2 * old.product_flops && bf16.bytes > 2 * old.bytes);
    assert_true(fabs(bf16.product_flops / 790e12 - 1) < 0.01);
    assert_true(fabs(bf16.attention_flops[0] * 512 / (512 + bf16.half_length) / 282e12 - 1) < 0.01);
    assert_true(fabs(bf16.attention_flops[1] * 512 / (512 + bf16.half_length) / (198e12 * 5 / 7) - 1) < 0.01);
}

/* Seconds of a call by the device's rates. */
static double seconds_of(const OpCall *call, int64_t tokens, double seq_len, const CostRates *rates)
{
    OpCost cost;
    CostBound bound;
    RowCounts rows = {.count = {[ROWS_TOKENS] = tokens}};
    return plan_call_cost(call, &rows, seq_len, rates, &cost, &bound);
}

static OpCall product_call(Op op, int64_t n, int64_t k, bool bias_gradient)
{
    Rows tokens = rows_of(ROWS_TOKENS);
    OpCall call = {.op = op};
    call.attr.linear.n = n;
    call.attr.linear.k = k;
    call.in[0] = (Operand){.dtype = BF16, .rows = tokens, .cols = op == OP_LINEAR_DGRAD ? n : k};
    if (op == OP_LINEAR_WGRAD) {
        call.in[1] = (Operand){.dtype = BF16, .rows = tokens, .cols = n};
        call.out[0] = (Operand){.dtype = F32, .rows = rows_fixed(n), .cols = k};
        if (bias_gradient) call.out[1] = (Operand){.dtype = F32, .rows = rows_fixed(1), .cols = n};
    } else {
        call.out[0] = (Operand){.dtype = BF16, .rows = tokens, .cols = op == OP_LINEAR_DGRAD ? k : n};
    }
    return call;
}

/* The rates of a GPU beyond a roofline: dropout slows attention, few tiles leave multiprocessors idle, each kernel has
   a cost. */
static void test_gpu_rates(void **state)
{
    const DeviceSpec *h200;
    CostRates rates, roofline;
    (void)state;
    assert_ok(device_find("h200", &h200));
    device_rates(h200, BF16, &rates);
    roofline = rates;
    roofline.gpu = NULL;

    OpCall attention = {.op = OP_ATTENTION};
    attention.attr.attention.heads = 16;
    attention.attr.attention.head_dim = 64;
    attention.in[0] = (Operand){.dtype = BF16, .rows = rows_of(ROWS_TOKENS), .cols = 3072};
    double plain = seconds_of(&attention, 32768, 4096, &rates), flops = 4.0 * 32768 * 4096 * 1024;
    attention.attr.attention.dropout = 0.1f;
    double dropped = seconds_of(&attention, 32768, 4096, &rates);
    assert_true(dropped > 1.2 * plain);
    assert_true(flops / dropped <= 310e12); /* instruction issue at 1.755 GHz allows no more */

    /* 4 of 132 tiles: more than the roofline's share of the time, less than if they were not cut along the rows */
    OpCall small = product_call(OP_LINEAR_WGRAD, 256, 512, false);
    double ideal = seconds_of(&small, 32768, 128, &roofline), real = seconds_of(&small, 32768, 128, &rates);
    assert_true(real > 2 * ideal && real < 132 / 4.0 * ideal);
    OpCall large = product_call(OP_LINEAR, 4096, 1024, false);
    ideal = seconds_of(&large, 32768, 128, &roofline);
    real = seconds_of(&large, 32768, 128, &rates);
    assert_true(real > ideal && real < 1.1 * ideal);

    /* qkv's weight gradient: 96 tiles of 128 × 256 on 132 multiprocessors, but 128 of 128 × 192 */
    OpCall qkv = product_call(OP_LINEAR_WGRAD, 3072, 1024, false);
    GpuRates wide = *rates.gpu;
    CostRates without_narrow = rates;
    wide.tile_columns[1] = wide.tile_columns[0];
    without_narrow.gpu = &wide;
    ideal = seconds_of(&qkv, 32768, 128, &roofline);
    assert_true(seconds_of(&qkv, 32768, 128, &rates) < 1.06 * ideal);
    assert_true(seconds_of(&qkv, 32768, 128, &without_narrow) > 1.1 * ideal);
    /* a side that no tile divides is computed to the end of its last tile */
    OpCall odd = product_call(OP_LINEAR, 1025, 1024, false), even = product_call(OP_LINEAR, 1024, 1024, false);
    assert_true(seconds_of(&odd, 32768, 128, &rates) > 1.05 * seconds_of(&even, 32768, 128, &rates));

    OpCall with = product_call(OP_LINEAR_WGRAD, 1024, 1024, true),
           without = product_call(OP_LINEAR_WGRAD, 1024, 1024, false);
    RowCounts one = {.count = {[ROWS_TOKENS] = 64}};
    assert_int_equal(rates.gpu->kernels(rates.gpu, &without, &one), 1);
    assert_int_equal(rates.gpu->kernels(rates.gpu, &with, &one), 3);
    OpCall gelu = {.op = OP_GELU_BWD};
    assert_int_equal(rates.gpu->kernels(rates.gpu, &gelu, &one), 1);
    *OUT(&gelu, GELU_BWD, db) = (Operand){.dtype = F32, .rows = rows_fixed(1), .cols = 1024};
    assert_int_equal(rates.gpu->kernels(rates.gpu, &gelu, &one), 2);

    /* attention's db: of one kernel a launch more, and no pass over dqkv; of two the pass, and two launches more */
    static const struct {
        const char *device, *native;
        int longest;
        bool pass;
    } ways[] = {{"h200", "0", 512, false}, {"h200", "0", 0, true},    {"h200", "1", 512, false},
                {"b200", "0", 512, false}, {"b200", "1", 512, false}, {"b200", "1", 0, true}};
    attention.op = OP_ATTENTION_BWD;
    *OUT(&attention, ATTENTION_BWD, dqkv) = *IN(&attention, ATTENTION_BWD, qkv);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const DeviceSpec *device;
        setenv("CAIRN_CUDA_NATIVE_ATTENTION", ways[i].native, 1);
        assert_ok(device_find(ways[i].device, &device));
        device_rates(device, BF16, &rates);
        attention.attr.attention.longest = ways[i].longest;
        OpCall summed = attention, alone = attention;
        *OUT(&summed, ATTENTION_BWD, db) = (Operand){.dtype = F32, .rows = rows_fixed(1), .cols = 3072};
        double dqkv = 32768.0 * 3072 * 2 / rates.bytes;
        double added = seconds_of(&summed, 32768, 128, &rates) - seconds_of(&alone, 32768, 128, &rates);
        double expected = ways[i].pass ? 2 * rates.overhead + dqkv : rates.overhead;
        assert_true(fabs(added - expected) < 1e-9);
    }
    unsetenv("CAIRN_CUDA_NATIVE_ATTENTION");
}

/* With GELU in its kernel a product's traffic of g is hidden; what its epilogue takes is hidden only where the products
   of another tile take as long. */
static void test_fused_products(void **state)
{
    const DeviceSpec *h100;
    CostRates rates;
    (void)state;
    assert_ok(device_find("h100", &h100));
    device_rates(h100, BF16, &rates);
    OpCall gelu = {.op = OP_GELU}, up = product_call(OP_LINEAR, 4096, 1024, false),
           down = product_call(OP_LINEAR_DGRAD, 1024, 4096, false);
    *IN(&gelu, GELU, pre) = *OUT(&gelu, GELU, g) = up.out[0];
    double apart = seconds_of(&up, 32768, 128, &rates), back = seconds_of(&down, 32768, 128, &rates),
           alone = seconds_of(&gelu, 32768, 128, &rates), fixed = rates.gpu->product_ramp + rates.overhead;
    up.attr.linear.fused = down.attr.linear.fused = true;
    *OUT(&up, LINEAR, g) = up.out[0];
    *IN(&down, LINEAR_DGRAD, pre) = down.out[0];
    double both = seconds_of(&up, 32768, 128, &rates);
    assert_true(both < apart + alone / 2);
    assert_true(fabs((both - fixed) * rates.gpu->fused_share / (apart - fixed) - 1) < 1e-9);
    double slower = (seconds_of(&down, 32768, 128, &rates) - fixed) * rates.gpu->fused_share / (back - fixed);
    double cycles = 8.0 * 1024;
    assert_true(fabs(slower - rates.gpu->gelu_cycles[1] / cycles) < 1e-9);
    assert_true(rates.gpu->gelu_cycles[0] < cycles && rates.gpu->gelu_cycles[1] > cycles);
    assert_int_equal(rates.gpu->kernels(rates.gpu, &down, &(RowCounts){.count = {[ROWS_TOKENS] = 64}}), 1);
    *OUT(&down, LINEAR_DGRAD, db) = (Operand){.dtype = F32, .rows = rows_fixed(1), .cols = 4096};
    assert_int_equal(rates.gpu->kernels(rates.gpu, &down, &(RowCounts){.count = {[ROWS_TOKENS] = 64}}), 2);
}

static void write_text(const char *path, const char *text) { assert_ok(file_write_durable(path, text, strlen(text))); }

static void test_cost_table(void **state)
{
    Model m;
    Plan p;
    ModelTensors t;
    const DeviceSpec *d;
    CostRates rates;
    Buf out = {0};
    LayerKeep keeps[LAYERS];
    (void)state;
    make_large(&m);
    assert_ok(device_find("h200", &d));
    device_rates(d, BF16, &rates);
    for (int l = 0; l < LAYERS; l++) keeps[l] = level_keep(LEVEL_FULL);
    PlanRequest r = request(&m, 64, 128, 20);
    r.emit.layers = &(LayerChoice){.keeps = keeps};
    assert_ok(plan_make(&r, &p, &t, NULL));
    double seconds = search_step_seconds(&p, &p.capacity, &rates, 128, 2);
    CostTable table = {.plan = &p,
                       .rows = &p.capacity,
                       .rates = &rates,
                       .peak_flops = device_peak(d, BF16),
                       .mean = 128,
                       .beside = 128,
                       .micros = 2,
                       .sequences = 128,
                       .policy = "full",
                       .measured = ""};
    assert_ok(cost_table(&table, &out));
    char expected[64];
    snprintf(expected, sizeof expected, "\n%.6g s per step: %.6g sequences/s", seconds, 128 / seconds);
    if (!strstr(out.data, expected)) fail_msg("expected '%s' in:\n%s", expected, out.data);
    assert_non_null(strstr(out.data, "recompute  linear"));
    assert_non_null(strstr(out.data, "update     lamb"));
    assert_non_null(strstr(out.data, "234.58"));
    assert_non_null(strstr(out.data, "of the 989 TFLOP/s peak"));
    assert_null(strstr(out.data, "ratio"));
    buf_free(&out);

    /* Measured costs are a call's, of all shapes; ops that were not measured are left out of the sums' ratios. */
    char path[] = "/tmp/cairn-costs-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    table.measured = path;
    write_text(path, "op,phase,shape,calls,seconds,share\nlamb,update,,2,0.5,1\nlinear,forward,4x4,3,6,1\n"
                     "linear,forward,8x4,1,2,1\ngelu,evaluation,,1,1,1\n");
    assert_ok(cost_table(&table, &out));
    const char *row = strstr(out.data, "\nupdate     lamb");
    double calls, predicted, measured, ratio;
    assert_int_equal(
        sscanf(row, " update lamb %lf %*f %*f %lf %*s %*s %*s %*s %lf %lf", &calls, &predicted, &measured, &ratio), 4);
    assert_true(calls == 1 && measured == 250 && fabs(ratio - 250 / predicted) < 1e-3 * ratio);
    row = strstr(out.data, "\nforward    linear");
    assert_int_equal(
        sscanf(row, " forward linear %lf %*f %*f %lf %*s %*s %*s %*s %lf %lf", &calls, &predicted, &measured, &ratio),
        4);
    assert_true(measured == calls * 2000 && fabs(ratio - measured / predicted) < 1e-3 * ratio);
    row = strstr(out.data, "\nforward    in all");
    assert_int_equal(
        sscanf(row, " forward in all %lf %*f %*f %*f %*s %*s %*s %*s %lf %lf", &calls, &measured, &predicted), 3);
    assert_true(fabs(predicted - ratio) < 2e-3 * ratio);
    buf_free(&out);
    write_text(path, "op,phase,shape,calls,seconds\ngelu,nowhere,,1,1\n");
    assert_int_equal(cost_table(&table, &out), E_FORMAT);
    assert_message("no op of this plan");
    unlink(path);
    plan_free(&p);
    model_free(&m);
}

static void test_lengths(void **state)
{
    Lengths l;
    char path[] = "/tmp/cairn-lengths-XXXXXX";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    write_text(path, "# a comment\nlength\tcount\n3\t1\n10 0\n5\t2\n9\t1\n11\t0\n");
    assert_ok(lengths_read(path, &l));
    assert_int_equal(l.longest, 9);
    assert_true(fabs(l.mean - 5.5) < 1e-12);
    assert_true(fabs(l.beside - (9 + 2 * 25 + 81) / 22.0) < 1e-12);
    int counts[10] = {0};
    for (int i = 0; i < 40; i++) {
        int64_t n = lengths_at(&l, i, 40);
        assert_in_range(n, 3, 9);
        counts[n]++;
    }
    assert_int_equal(counts[3], 10);
    assert_int_equal(counts[5], 20);
    assert_int_equal(counts[9], 10);
    lengths_free(&l);
    static const struct {
        const char *text, *message;
    } bad[] = {{"5 1\n5 x\n", ":2: expected a length"}, {"0 1\n", ":1: expected a length"}, {"5 1 7\n", ":1:"},
               {"5 0\n", "found no sequence"},          {"", "found no sequence"},          {"5 -1\n", ":1:"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(path, bad[i].text);
        assert_int_equal(lengths_read(path, &l), E_FORMAT);
        assert_message(bad[i].message);
    }
    unlink(path);
    assert_int_equal(lengths_read(path, &l), E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flops_of_a_step), cmocka_unit_test(test_memory_of_a_device),
        cmocka_unit_test(test_bias_gradients),  cmocka_unit_test(test_begun_gradients),
        cmocka_unit_test(test_written_copies),  cmocka_unit_test(test_rates),
        cmocka_unit_test(test_gpu_rates),       cmocka_unit_test(test_fused_products),
        cmocka_unit_test(test_cost_table),      cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
