/* Attention by cuDNN through the whole CUDA backend: on the host executor with the library in cuDNN's place
   (fake_cudnn.cc), or, training only, on a GPU with the real one (cuda_host/which.h). The op by itself:
   tests/ops/test_attention_plain.c. */
#include <dlfcn.h>

#include "asan.h"
#include "cuda_host/fake_cudnn.h"
#include "cuda_host/which.h"

#define STEPS 4 /* the first runs plainly, the second is captured */

static struct {
    int64_t (*live)(void), (*calls)(void), (*executed)(void);
    void (*fail_at)(int64_t call);
    void (*engines)(FakeEngines e);
} fake;

static void find(void *library, const char *name, void *function)
{
    *(void **)function = dlsym(library, name);
    assert_non_null(*(void **)function);
}

static void find_fake(void)
{
    void *library = dlopen(getenv("CAIRN_CUDNN"), RTLD_NOW);
    assert_non_null(library);
    find(library, "fake_cudnn_live", &fake.live);
    find(library, "fake_cudnn_calls", &fake.calls);
    find(library, "fake_cudnn_executed", &fake.executed);
    find(library, "fake_cudnn_fail_at", &fake.fail_at);
    find(library, "fake_cudnn_engines", &fake.engines);
}

/* ---- opening ---- */

static Status open_by(AttentionKind attention, Backend **b)
{
    return backend_open(BACKEND, &(BackendOptions){.attention = attention}, b);
}

/* Before any other test: a loaded library stays loaded. */
static void test_library(void **state)
{
    (void)state;
    if (on_a_gpu()) skip();
    Backend *b = NULL;
    char *there = mem_strdup(getenv("CAIRN_CUDNN"));
    setenv("CAIRN_CUDNN", "/nowhere/libcudnn.so.9", 1);
    assert_status(open_by(ATTENTION_CUDNN, &b), E_USAGE);
    assert_message("--attention cudnn: cuDNN cannot be loaded: /nowhere/libcudnn.so.9: cannot open");
    assert_message("or use --attention own");
    setenv("CAIRN_CUDNN", there, 1);
    setenv("CAIRN_TEST_CUDNN_VERSION", "91002", 1);
    assert_status(open_by(ATTENTION_CUDNN, &b), E_USAGE);
    assert_message("is too old: 9.10.2, and 9.18.1 or newer is needed");
    unsetenv("CAIRN_TEST_CUDNN_VERSION");
    /* another library, without cuDNN's functions */
    char *other = mem_printf("%s/cairn_cuda_host.so", getenv("CAIRN_BACKEND_DIR"));
    setenv("CAIRN_CUDNN", other, 1);
    assert_status(open_by(ATTENTION_CUDNN, &b), E_USAGE);
    assert_message("is too old: 0.0.0 without cudnnBackendExecute");
    setenv("CAIRN_CUDNN", there, 1);
    assert_null(b);
    assert_ok(open_by(ATTENTION_AUTO, &b)); /* the other backends still open */
    assert_non_null(strstr(b->describe, "attention own"));
    assert_false(b->cudnn);
    backend_close(b);
    fake.fail_at(1);
    assert_status(open_by(ATTENTION_CUDNN, &b), E_FAIL);
    assert_message("cuDNN: opening it for the device: FAKE_ERROR: call 1 was told to fail");
    assert_int_equal(fake.live(), 0);
    fake.fail_at(0);
    free(there);
    free(other);
}

/* `auto` does not fall back to the cpu where cuDNN was asked for: the message has the reason. */
static void test_auto(void **state)
{
    (void)state;
    if (on_a_gpu()) skip();
    Backend *b = NULL;
    assert_status(backend_open("auto", &(BackendOptions){.attention = ATTENTION_CUDNN}, &b), E_USAGE);
    assert_message("backend 'cuda': ");
    assert_null(b);
}

static void test_open(void **state)
{
    (void)state;
    Backend *b = NULL, *other = NULL;
    char why[256] = "";
    assert_ok(open_by(ATTENTION_CUDNN, &b));
    assert_true(b->cudnn);
    assert_non_null(strstr(b->describe, "attention cuDNN 9."));
    assert_true(b->supports(b, BF16, why, sizeof why));
    assert_true(b->supports(b, F16, why, sizeof why));
    assert_false(b->supports(b, F32, why, sizeof why));
    assert_string_equal(why, "--attention cudnn computes in bf16 and fp16, not f32");
    assert_status(open_by(ATTENTION_OWN, &other), E_USAGE);
    assert_message("it is open with attention made in another way; close it first");
    assert_ok(open_by(ATTENTION_CUDNN, &other));
    backend_close(other);
    assert_true(b->supports(b, BF16, why, sizeof why));
    backend_close(b);
    assert_ok(open_by(ATTENTION_OWN, &b));
    assert_true(b->supports(b, F32, why, sizeof why));
    assert_status(open_by(ATTENTION_CUDNN, &other), E_USAGE);
    backend_close(b);
    if (!on_a_gpu()) assert_int_equal(fake.live(), 0);
}

/* ---- one op ---- */

enum { ROWS = 64, SEQS = 3, HEADS = 2 };

typedef struct {
    OpCall call;
    RowCounts rows;
    int32_t spans[SEQS][2], index[SEQS];
    Ctl ctl;
} Case;

/* Zeros, on 64 bytes. */
static void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_non_null(p);
    return memset(p, 0, bytes);
}

static void operand(Operand *o, Dtype dtype, RowKind kind, int64_t cols)
{
    *o = (Operand){NULL, dtype, {kind, 0}, cols};
    o->data = room(ROWS * (size_t)cols * sizeof(float));
}

/* All zeros: the results do not matter here. */
static void case_open(Case *c, Op op, Dtype dtype, int32_t head_dim)
{
    int64_t hidden = HEADS * head_dim;
    *c =
        (Case){.call = {.op = op}, .spans = {{0, 20}, {20, 50}}, .index = {0, 1}, .ctl = {.n_seqs = 2, .n_tokens = 50}};
    c->call.attr.attention.heads = HEADS;
    c->call.attr.attention.head_dim = head_dim;
    c->call.attr.attention.scale = 0.25f;
    c->call.attr.attention.longest = 32;
    c->rows.count[ROWS_TOKENS] = ROWS;
    c->rows.count[ROWS_SEQS] = SEQS;
    bool backward = op == OP_ATTENTION_BWD;
    operand(IN_EITHER(&c->call, ATTENTION, ATTENTION_BWD, qkv), dtype, ROWS_TOKENS, 3 * hidden);
    *IN_EITHER(&c->call, ATTENTION, ATTENTION_BWD, spans) = (Operand){c->spans, I32, {ROWS_SEQS, 0}, 2};
    *IN_EITHER(&c->call, ATTENTION, ATTENTION_BWD, seq_index) = (Operand){c->index, I32, {ROWS_SEQS, 0}, 1};
    *IN_EITHER(&c->call, ATTENTION, ATTENTION_BWD, ctl) = (Operand){&c->ctl, U8, {ROWS_FIXED, 1}, sizeof c->ctl};
    operand(backward ? IN(&c->call, ATTENTION_BWD, o) : OUT(&c->call, ATTENTION, o), dtype, ROWS_TOKENS, hidden);
    operand(backward ? IN(&c->call, ATTENTION_BWD, lse) : OUT(&c->call, ATTENTION, lse), F32, ROWS_TOKENS, HEADS);
    if (!backward) return;
    operand(IN(&c->call, ATTENTION_BWD, do), dtype, ROWS_TOKENS, hidden);
    operand(OUT(&c->call, ATTENTION_BWD, dqkv), dtype, ROWS_TOKENS, 3 * hidden);
}

static void case_close(Case *c)
{
    for (int i = 0; i < OP_MAX_IN; i++)
        if (c->call.in[i].rows.kind == ROWS_TOKENS) free(c->call.in[i].data);
    for (int i = 0; i < OP_MAX_OUT; i++) free(c->call.out[i].data);
    free(c->call.scratch);
}

static Status case_go(Case *c, const Backend *b)
{
    const OpImpl *impl = &b->op[c->call.op];
    c->call.scratch_bytes = impl->scratch(&c->call, &c->rows);
    c->call.scratch = room(c->call.scratch_bytes);
    TRY(impl->prepare(&c->call, &c->rows, 1));
    TRY(impl->run(&c->call, &c->rows));
    return backend_wait(b);
}

/* Opens, prepares and runs one op, and closes; all in host memory. */
static Status alone(Op op, Dtype dtype, int32_t head_dim)
{
    Backend *b = NULL;
    Case c;
    case_open(&c, op, dtype, head_dim);
    Status status = open_by(ATTENTION_CUDNN, &b);
    if (status == OK) status = case_go(&c, b);
    backend_close(b);
    case_close(&c);
    return status;
}

static void test_refusals(void **state)
{
    (void)state;
    if (on_a_gpu()) skip();
    assert_status(alone(OP_ATTENTION, BF16, 12), E_USAGE);
    assert_message(
        "attention of bf16, 2 heads of 12, 3 sequences of at most 64 tokens: heads have 12 columns; it takes "
        "multiples of 8 up to 128. Use --attention own");
    assert_status(alone(OP_ATTENTION, F32, 16), E_USAGE);
    assert_message("it computes in bf16 and fp16, not f32");
    setenv("CAIRN_TEST_CUDA_HOST_MAJOR", "8", 1);
    assert_ok(alone(OP_ATTENTION, BF16, 16));
    assert_status(alone(OP_ATTENTION_BWD, BF16, 16), E_USAGE);
    assert_message("on compute capability 8.0 its backward for packed sequences has no fixed order of sums");
    unsetenv("CAIRN_TEST_CUDA_HOST_MAJOR");
    static const FakeEngines none[] = {FAKE_ENGINES_NONE, FAKE_ENGINES_ANY_ORDER};
    for (int i = 0; i < 2; i++) {
        fake.engines(none[i]);
        assert_status(alone(OP_ATTENTION, F16, 16), E_USAGE);
        assert_message("cuDNN 9.19.0 has no engine for it that adds in a fixed order");
    }
    fake.engines(FAKE_ENGINES_BOTH);
    assert_ok(alone(OP_ATTENTION, F16, 16));
    assert_int_equal(fake.live(), 0);
}

/* Each call of the library fails once: the message has its text, nothing leaks, and the next attempt succeeds. */
static void test_each_call_fails(void **state)
{
    (void)state;
    if (on_a_gpu()) skip();
    static const Op ops[] = {OP_ATTENTION, OP_ATTENTION_BWD};
    for (int i = 0; i < 2; i++) {
        fake.fail_at(0);
        assert_ok(alone(ops[i], BF16, 16));
        int64_t calls = fake.calls();
        assert_true(calls > 100);
        for (int64_t n = 1; n <= calls; n++) {
            char *words = mem_printf("FAKE_ERROR: call %lld was told to fail", (long long)n);
            fake.fail_at(n);
            assert_status(alone(ops[i], BF16, 16), E_FAIL);
            assert_message("cuDNN: ");
            assert_message(words);
            assert_int_equal(fake.live(), 0);
            free(words);
        }
        fake.fail_at(0);
        assert_ok(alone(ops[i], BF16, 16));
    }
}

/* ---- training ---- */

static void run(Training *t, const TrainingOptions *o)
{
    training_open(t, o);
    training_begin(t);
    training_steps(t, 0, STEPS);
}

static void test_training(void **state)
{
    (void)state;
    static const Dtype types[] = {BF16, F16};
    for (int i = 0; i < 2; i++) {
        Training own, cudnn;
        TrainingOptions o = {.backend = BACKEND, .compute = types[i], .sizes = training_head_32, .no_dropout = true};
        run(&own, &o);
        training_close(&own);
        o.attention = ATTENTION_CUDNN;
        int64_t before = on_a_gpu() ? 0 : fake.executed();
        run(&cudnn, &o);
        double worst = 0;
        for (int step = 0; step < STEPS; step++) worst = fmax(worst, fabs(own.loss[step] - cudnn.loss[step]));
        print_message("%s: losses differ by %.2g\n", dtype_name(types[i]), worst);
        if (!(worst < (on_a_gpu() ? 1e-2 : 1e-3))) fail_msg("losses differ by %g", worst);
        /* of two layers forward and backward, and once each of the two plans when they were bound */
        int64_t executed = STEPS * TRAINING_MICROS * 2 * 2 + 2;
        if (!on_a_gpu()) assert_int_equal(fake.executed() - before, executed);
        training_shrink_gamma(&cudnn);
        training_check_forms(&cudnn, true);
        if (!on_a_gpu()) assert_int_equal(fake.executed() - before, executed);
        training_close(&cudnn);
    }
}

static void without_graphs(Backend *b) { b->device->capture_begin = NULL; }

/* Recomputed or kept, captured or not: the same bits. */
static void test_same_bits(void **state)
{
    (void)state;
    static const char *const policies[] = {"full", "offload", "every:1"};
    Training none, other;
    TrainingOptions o = {.backend = BACKEND, .compute = BF16, .no_dropout = true, .attention = ATTENTION_CUDNN};
    run(&none, &o);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        if (testing_brief() && i > 0) continue; /* slow, and tests/cuda_host/test_training.c runs them too */
        o.policy = policies[i];
        run(&other, &o);
        training_same_bits(&other, &none, 0, STEPS, policies[i]);
        training_close(&other);
    }
    o.policy = NULL;
    o.change = without_graphs;
    run(&other, &o);
    training_same_bits(&other, &none, 0, STEPS, "without graphs");
    training_close(&other);
    training_close(&none);
}

/* With dropout our own kernels compute it, to the last bit. */
static void test_dropout(void **state)
{
    (void)state;
    Training own, cudnn;
    TrainingOptions o = {.backend = BACKEND, .compute = BF16, .attention = ATTENTION_OWN};
    run(&own, &o);
    int64_t before = on_a_gpu() ? 0 : fake.executed();
    training_close(&own);
    run(&own, &o); /* the same again: the difference is not an accident */
    float *want = training_state(&own, STATE_WEIGHTS);
    double loss = own.loss[STEPS - 1];
    training_close(&own);
    o.attention = ATTENTION_CUDNN;
    run(&cudnn, &o);
    float *got = training_state(&cudnn, STATE_WEIGHTS);
    assert_memory_equal(got, want, (size_t)cudnn.model.params.size * sizeof *got);
    assert_true(cudnn.loss[STEPS - 1] == loss);
    /* but that of evaluation, once, when it was bound */
    if (!on_a_gpu()) assert_int_equal(fake.executed(), before + 1);
    free(want);
    free(got);
    training_close(&cudnn);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library),  cmocka_unit_test(test_auto),      cmocka_unit_test(test_open),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_training),  cmocka_unit_test(test_each_call_fails),
        cmocka_unit_test(test_dropout),  cmocka_unit_test(test_same_bits),
    };
    which_begin();
    if (!on_a_gpu()) find_fake();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
