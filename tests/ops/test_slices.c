/* A sharded optimizer's ops: norms and updates of two slices are, bit by bit, those of the whole. */
#include "ops/harness.h"

/* The second tensor is cut at a norm block, the third within its first chunk's length; the last is of one element. */
static const Segment whole[] = {{0, 1000, 0.01f, 1, 0, 0, 0},
                                {1024, 40001, 0.1f, 1, 0, 1, 1},
                                {41088, 5000, 0, 0, 0, 41, 2},
                                {46144, 1, 0, 1, 0, 46, 3}};
static const Segment slices[2][3] = {
    {{0, 1000, 0.01f, 1, 0, 0, 0}, {1024, 17408, 0.1f, 1, 0, 1, 1}, {46144, 1, 0, 1, -27712, 46, 3}},
    {{18432, 22593, 0.1f, 1, -18432, 18, 1}, {41088, 2048, 0, 0, -18432, 41, 2}, {43136, 2952, 0, 0, -18432, 43, 2}}};
enum { TENSORS = 4, PIECES = 3, SIZE = 46208, BLOCKS = 47, HELD = 28096 };

static const OpAttr adam = {.optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f}};
static const char *const state_names[] = {"weights", "m", "v"};

static void add_segments(OpCase *c, const char *name, const Segment *segments, int n)
{
    case_add(c, name, U8, fixed(n), sizeof(Segment));
    memcpy(case_initial(c, name), segments, (size_t)n * sizeof *segments);
}

static void add_space(OpCase *c, const char *name, const float *values, int64_t n)
{
    case_add(c, name, F32, fixed(1), n);
    case_set(c, name, 0, n, values);
}

static void add_table(OpCase *c, const char *name, const double *sums)
{
    case_add(c, name, U8, fixed(BLOCKS), sizeof *sums);
    memcpy(case_initial(c, name), sums, BLOCKS * sizeof *sums);
}

static void begin(OpCase *c, Op op)
{
    case_init(c, op, adam, (RowCounts){0});
    case_ctl(c)->learning_rate = 1e-2f;
    case_ctl(c)->bias1 = 1.7f;
    case_ctl(c)->bias2 = 1.3f;
    *(Stats *)case_initial(c, "stats") = (Stats){.grad_scale = 0.25f, .finite = 1};
}

static void take(OpCase *c, const char *name, float *to, int64_t n)
{
    memcpy(to, case_bytes(c, name), (size_t)n * sizeof *to);
}

/* What each slice knows goes into one table, as if it had come from two ranks. */
static void block_sums(Backend *b, const float *x, double *sums)
{
    for (int s = 0; s < 2; s++) {
        OpCase c;
        case_init(&c, OP_BLOCK_SUMS, (OpAttr){0}, (RowCounts){0});
        add_space(&c, "x", x, SIZE);
        add_segments(&c, "segments", slices[s], PIECES);
        add_table(&c, "sums", sums);
        case_run(&c, b, (RunOptions){0});
        memcpy(sums, case_bytes(&c, "sums"), BLOCKS * sizeof *sums);
        case_free(&c);
    }
}

typedef struct {
    float weights[SIZE], grads[SIZE], m[SIZE], v[SIZE];
} Space;

static void fill(Space *x)
{
    OpCase c;
    float *const arrays[] = {x->grads, x->weights, x->m, x->v};
    begin(&c, OP_ADAMW);
    for (int i = 0; i < 4; i++) {
        const char *name = i ? state_names[i - 1] : "grads";
        case_add(&c, name, F32, fixed(1), SIZE);
        case_random(&c, name, i == 3 ? 0.1 : 0, 0.1);
        memcpy(arrays[i], case_initial(&c, name), sizeof x->m);
    }
    case_free(&c);
}

/* The moments of a slice, or back. */
static void pass(float *space, float *held, const Segment *pieces, bool back)
{
    for (int i = 0; i < PIECES; i++)
        for (int64_t k = pieces[i].offset; k < pieces[i].offset + pieces[i].size; k++)
            *(back ? &space[k] : &held[k + pieces[i].shift]) = back ? held[k + pieces[i].shift] : space[k];
}

/* One op on a slice. `grads` is written by LAMB_STEP, weights by ADAMW and LAMB_DESCEND. */
static void run_slice(Backend *b, Op op, int slice, Space *x, const double *p_sums, const double *u_sums)
{
    static float m[HELD], v[HELD];
    const Segment *pieces = slices[slice];
    OpCase c;
    begin(&c, op);
    add_segments(&c, "segments", pieces, PIECES);
    add_space(&c, op == OP_LAMB_DESCEND ? "u" : "grads", x->grads, SIZE);
    add_space(&c, "weights", x->weights, SIZE);
    if (op == OP_LAMB_DESCEND) {
        add_segments(&c, "all", whole, TENSORS);
        add_table(&c, "p_sums", p_sums);
        add_table(&c, "u_sums", u_sums);
    } else {
        pass(x->m, m, pieces, false);
        pass(x->v, v, pieces, false);
        add_space(&c, "m", m, HELD);
        add_space(&c, "v", v, HELD);
    }
    case_run(&c, b, (RunOptions){0});
    if (op != OP_LAMB_STEP) take(&c, "weights", x->weights, SIZE);
    if (op == OP_LAMB_STEP) take(&c, "grads", x->grads, SIZE);
    if (op != OP_LAMB_DESCEND) {
        take(&c, "m", m, HELD);
        take(&c, "v", v, HELD);
        pass(x->m, m, pieces, true);
        pass(x->v, v, pieces, true);
    }
    case_free(&c);
}

static void run_whole(Backend *b, Op op, Space *x)
{
    OpCase c;
    begin(&c, op);
    add_segments(&c, "segments", whole, TENSORS);
    add_space(&c, "grads", x->grads, SIZE);
    add_space(&c, "weights", x->weights, SIZE);
    add_space(&c, "m", x->m, SIZE);
    add_space(&c, "v", x->v, SIZE);
    case_run(&c, b, (RunOptions){0});
    take(&c, "weights", x->weights, SIZE);
    take(&c, "m", x->m, SIZE);
    take(&c, "v", x->v, SIZE);
    case_free(&c);
}

static void same(const Space *a, const Space *b)
{
    assert_memory_equal(a->weights, b->weights, sizeof a->weights);
    assert_memory_equal(a->m, b->m, sizeof a->m);
    assert_memory_equal(a->v, b->v, sizeof a->v);
}

static void test_updates(void **state)
{
    (void)state;
    static Space once, cut;
    Backend *backends[4];
    int n = ops_backends(backends);
    for (int k = 0; k < n; k++) {
        double p_sums[BLOCKS] = {0}, u_sums[BLOCKS] = {0};
        fill(&once);
        cut = once;
        run_whole(backends[k], OP_ADAMW, &once);
        for (int s = 0; s < 2; s++) run_slice(backends[k], OP_ADAMW, s, &cut, NULL, NULL);
        same(&once, &cut);
        fill(&once);
        cut = once;
        run_whole(backends[k], OP_LAMB, &once);
        block_sums(backends[k], cut.weights, p_sums);
        for (int s = 0; s < 2; s++) run_slice(backends[k], OP_LAMB_STEP, s, &cut, NULL, NULL);
        block_sums(backends[k], cut.grads, u_sums);
        for (int s = 0; s < 2; s++) run_slice(backends[k], OP_LAMB_DESCEND, s, &cut, p_sums, u_sums);
        same(&once, &cut);
    }
}

static Stats norm(Backend *b, const float *grads, const double *sums)
{
    OpCase c;
    case_init(&c, OP_GRAD_NORM, (OpAttr){.grad_norm = {.max_norm = 1}}, (RowCounts){0});
    add_segments(&c, "segments", whole, TENSORS);
    add_space(&c, "grads", grads, SIZE);
    if (sums) add_table(&c, "sums", sums);
    case_run(&c, b, (RunOptions){0});
    Stats stats = *(const Stats *)case_bytes(&c, "stats");
    case_free(&c);
    return stats;
}

static void test_norm(void **state)
{
    (void)state;
    static Space x;
    Backend *backends[4];
    int n = ops_backends(backends);
    for (int k = 0; k < n; k++) {
        double sums[BLOCKS] = {0};
        fill(&x);
        block_sums(backends[k], x.grads, sums);
        Stats a = norm(backends[k], x.grads, NULL), b = norm(backends[k], x.grads, sums);
        assert_memory_equal(&a.grad_norm, &b.grad_norm, sizeof a.grad_norm);
        assert_true(a.grad_scale == b.grad_scale && a.finite && b.finite && a.grad_norm > 0);
    }
}

/* An update that is skipped changes nothing. */
static void test_skipped(void **state)
{
    (void)state;
    static Space x;
    Backend *backends[4];
    int n = ops_backends(backends);
    const double ones[BLOCKS] = {1};
    fill(&x);
    for (int k = 0; k < n; k++)
        for (int step = 0; step < 2; step++) {
            OpCase c;
            begin(&c, step ? OP_LAMB_STEP : OP_LAMB_DESCEND);
            ((Stats *)case_initial(&c, "stats"))->finite = 0;
            add_segments(&c, "segments", slices[0], PIECES);
            add_space(&c, step ? "grads" : "u", x.grads, SIZE);
            add_space(&c, "weights", x.weights, SIZE);
            if (step) {
                add_space(&c, "m", x.m, HELD);
                add_space(&c, "v", x.v, HELD);
            } else {
                add_segments(&c, "all", whole, TENSORS);
                add_table(&c, "p_sums", ones);
                add_table(&c, "u_sums", ones);
            }
            case_run(&c, backends[k], (RunOptions){0});
            const char *name = step ? "grads" : "weights";
            assert_memory_equal(case_bytes(&c, name), case_initial(&c, name), sizeof x.grads);
            case_free(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_updates),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
