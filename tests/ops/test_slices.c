/* The optimizer of a slice: BLOCK_SUMS, LAMB_STEP, LAMB_DESCEND, ADAMW of a part, the norm of sums. Three ranks' slices
   of a small space, one after the other, must make what LAMB and AdamW make of the whole. */
#include <math.h>

#include "ops/harness.h"

/* Whole tensors: five norm blocks, a single element, zeros, no trust ratio. Gaps belong to no tensor. */
static const Segment all[] = {
    {0, 5000, 0.01f, 1, 0, 0, 0, 0},
    {5056, 1, 0, 1, 0, 0, 5, 1},
    {5120, 64, 0.1f, 1, 0, 0, 6, 2},
    {5184, 2048, 0, 0, 0, 0, 7, 3},
};
enum { N_ALL = sizeof all / sizeof *all, SIZE = 7296, BLOCKS = 9, RANKS = 3 };

/* Cut at norm blocks and at tensors' starts. A slice's moments begin where it does. */
static const struct {
    int64_t begin, end;
    Segment own[3];
    int n;
} slices[RANKS] = {
    {0, 2 * NORM_BLOCK, {{0, 2 * NORM_BLOCK, 0.01f, 1, 0, 0, 0, 0}}, 1},
    {2 * NORM_BLOCK,
     5120,
     {{2 * NORM_BLOCK, 5000 - 2 * NORM_BLOCK, 0.01f, 1, 0, -2 * NORM_BLOCK, 2, 0},
      {5056, 1, 0, 1, 0, -2 * NORM_BLOCK, 5, 1}},
     2},
    {5120, SIZE, {{5120, 64, 0.1f, 1, 0, -5120, 6, 2}, {5184, 2048, 0, 0, 0, -5120, 7, 3}}, 2},
};

static const OpAttr adam = {.optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f}};

/* The state of all: what every rank begins with. */
typedef struct {
    float weights[SIZE], grads[SIZE], m[SIZE], v[SIZE];
} State;

static float value(uint64_t *random, double scale)
{
    return (float)(((double)(testing_random(random) >> 11) * 0x1p-52 - 1) * scale);
}

static State *state_new(void)
{
    State *s = mem_alloc(sizeof *s);
    uint64_t random = 7;
    for (int i = 0; i < SIZE; i++) {
        s->weights[i] = i >= 5120 && i < 5184 ? 0 : value(&random, 0.5);
        s->grads[i] = value(&random, 1);
        s->m[i] = value(&random, 0.1);
        s->v[i] = fabsf(value(&random, 0.1));
    }
    return s;
}

static void add(OpCase *c, const char *name, const float *values, int64_t n)
{
    case_add(c, name, F32, fixed(1), n);
    case_set(c, name, 0, n, values);
}

static void add_segments(OpCase *c, const char *name, const Segment *segments, int n)
{
    case_add(c, name, U8, fixed(n), sizeof *segments);
    memcpy(case_initial(c, name), segments, (size_t)n * sizeof *segments);
}

static void add_sums(OpCase *c, const char *name, const double *sums)
{
    case_add(c, name, U8, fixed(BLOCKS), sizeof *sums);
    memcpy(case_initial(c, name), sums, BLOCKS * sizeof *sums);
}

static void add_step(OpCase *c, int finite)
{
    case_ctl(c)->learning_rate = 1e-2f;
    case_ctl(c)->bias1 = 1.7f;
    case_ctl(c)->bias2 = 1.3f;
    *(Stats *)case_initial(c, "stats") = (Stats){.grad_norm = 10, .grad_scale = 0.25f, .finite = finite};
}

static void sums_init(OpCase *c, int rank, const float *x, const double *sums)
{
    case_init(c, OP_BLOCK_SUMS, (OpAttr){0}, (RowCounts){0});
    add(c, "x", x, SIZE);
    add_segments(c, "segments", slices[rank].own, slices[rank].n);
    add_sums(c, "sums", sums);
}

static void step_init_op(OpCase *c, Op op, int rank, const State *s, int finite)
{
    int64_t begin = slices[rank].begin, n = slices[rank].end - begin;
    case_init(c, op, adam, (RowCounts){0});
    add(c, "weights", s->weights, SIZE);
    add_segments(c, "segments", slices[rank].own, slices[rank].n);
    add(c, "m", s->m + begin, n);
    add(c, "v", s->v + begin, n);
    add(c, "grads", s->grads, SIZE);
    add_step(c, finite);
}

static void step_init(OpCase *c, int rank, const State *s, int finite)
{
    step_init_op(c, OP_LAMB_STEP, rank, s, finite);
}

static void descend_init(OpCase *c, int rank, const float *u, const float *weights, const double *p_sums,
                         const double *u_sums, int finite)
{
    case_init(c, OP_LAMB_DESCEND, adam, (RowCounts){0});
    add(c, "u", u, SIZE);
    add_segments(c, "segments", slices[rank].own, slices[rank].n);
    add_segments(c, "all", all, N_ALL);
    add_sums(c, "p_sums", p_sums);
    add_sums(c, "u_sums", u_sums);
    add(c, "weights", weights, SIZE);
    add_step(c, finite);
}

static void take(float *to, const OpCase *c, const char *name, int64_t first, int64_t n)
{
    memcpy(to, (const float *)case_bytes(c, name) + first, (size_t)n * sizeof *to);
}

/* Sums of squares of the blocks of a rank's slice, into its places of the table. */
static void block_sums(Backend *b, int rank, const float *x, double *sums)
{
    OpCase c;
    sums_init(&c, rank, x, sums);
    case_run(&c, b, (RunOptions){0});
    memcpy(sums, case_bytes(&c, "sums"), BLOCKS * sizeof *sums);
    case_free(&c);
}

/* What every op must do, and cpu against ref; at any count of threads the same. */
static void test_shapes(void **state)
{
    (void)state;
    State *s = state_new();
    double p_sums[BLOCKS] = {0}, u_sums[BLOCKS] = {0};
    for (int r = 0; r < RANKS; r++) {
        block_sums(ops_ref(), r, s->weights, p_sums);
        block_sums(ops_ref(), r, s->grads, u_sums);
    }
    for (int r = 0; r < RANKS; r++)
        for (int finite = 0; finite < 2; finite++) {
            OpCase c;
            sums_init(&c, r, s->weights, u_sums);
            case_check(&c, (Tolerance){0});
            case_free(&c);
            step_init(&c, r, s, finite);
            case_check(&c, (Tolerance){0});
            case_free(&c);
            descend_init(&c, r, s->grads, s->weights, p_sums, u_sums, finite);
            case_check(&c, (Tolerance){0});
            case_free(&c);
        }
    free(s);
}

/* Each block's sum in its place, the others' places as they were. */
static void test_sums(void **state)
{
    (void)state;
    State *s = state_new();
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend))
        for (int r = 0; r < RANKS; r++) {
            double sums[BLOCKS], want[BLOCKS];
            for (int i = 0; i < BLOCKS; i++) sums[i] = want[i] = -1 - i;
            for (int t = 0; t < slices[r].n; t++) {
                const Segment *x = &slices[r].own[t];
                for (int64_t i = 0; i < x->size; i++) {
                    double *sum = &want[x->block + i / NORM_BLOCK], g = (double)s->grads[x->offset + i];
                    *sum = (i % NORM_BLOCK ? *sum : 0) + g * g;
                }
            }
            block_sums(backend, r, s->grads, sums);
            for (int i = 0; i < BLOCKS; i++)
                if (!(fabs(sums[i] - want[i]) <= 1e-13 * fabs(want[i])))
                    fail_msg("%s, slice %d: block %d sums to %.17g, expected %.17g", backend->name, r, i, sums[i],
                             want[i]);
        }
    free(s);
}

/* All slices of a backend. */
static void by_slices(Backend *b, State *s)
{
    double p_sums[BLOCKS] = {0}, u_sums[BLOCKS] = {0};
    float *u = mem_array(SIZE, sizeof *u), *weights = mem_array(SIZE, sizeof *weights);
    OpCase c;
    for (int r = 0; r < RANKS; r++) block_sums(b, r, s->weights, p_sums);
    for (int r = 0; r < RANKS; r++) {
        int64_t begin = slices[r].begin, n = slices[r].end - begin;
        step_init(&c, r, s, 1);
        case_run(&c, b, (RunOptions){0});
        take(u + begin, &c, "grads", begin, n);
        take(s->m + begin, &c, "m", 0, n);
        take(s->v + begin, &c, "v", 0, n);
        case_free(&c);
    }
    for (int r = 0; r < RANKS; r++) block_sums(b, r, u, u_sums);
    for (int r = 0; r < RANKS; r++) {
        int64_t begin = slices[r].begin, n = slices[r].end - begin;
        descend_init(&c, r, u, s->weights, p_sums, u_sums, 1);
        case_run(&c, b, (RunOptions){0});
        take(weights + begin, &c, "weights", begin, n);
        case_free(&c);
    }
    memcpy(s->weights, weights, sizeof s->weights);
    memcpy(s->grads, u, sizeof s->grads);
    free(u);
    free(weights);
}

static void run_whole(OpCase *c, Op op, Backend *b, const State *s)
{
    case_init(c, op, adam, (RowCounts){0});
    add_segments(c, "segments", all, N_ALL);
    add(c, "weights", s->weights, SIZE);
    add(c, "m", s->m, SIZE);
    add(c, "v", s->v, SIZE);
    add(c, "grads", s->grads, SIZE);
    add_step(c, 1);
    case_run(c, b, (RunOptions){0});
}

/* The whole's update changed the weights, and the slices' update is the same; frees c. */
static void expect_equal(OpCase *c, const State *cut)
{
    assert_memory_equal(case_bytes(c, "m"), cut->m, sizeof cut->m);
    assert_memory_equal(case_bytes(c, "v"), cut->v, sizeof cut->v);
    assert_memory_equal(case_bytes(c, "weights"), cut->weights, sizeof cut->weights);
    assert_memory_not_equal(case_initial(c, "weights"), cut->weights, sizeof cut->weights);
    case_free(c);
}

static void test_as_whole(void **state)
{
    (void)state;
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        State *whole = state_new(), *cut = state_new();
        OpCase c;
        run_whole(&c, OP_LAMB, backend, whole);
        by_slices(backend, cut);
        assert_memory_equal(case_bytes(&c, "grads"), cut->grads, sizeof cut->grads);
        expect_equal(&c, cut);
        free(whole);
        free(cut);
    }
}

static void test_adamw_as_whole(void **state)
{
    (void)state;
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        State *whole = state_new(), *cut = state_new();
        OpCase c, part;
        run_whole(&c, OP_ADAMW, backend, whole);
        for (int r = 0; r < RANKS; r++) {
            int64_t begin = slices[r].begin, held = slices[r].end - begin;
            step_init_op(&part, OP_ADAMW, r, cut, 1);
            case_run(&part, backend, (RunOptions){0});
            take(cut->weights + begin, &part, "weights", begin, held);
            take(cut->m + begin, &part, "m", 0, held);
            take(cut->v + begin, &part, "v", 0, held);
            case_free(&part);
        }
        expect_equal(&c, cut);
        free(whole);
        free(cut);
    }
}

static Stats norm(Backend *b, const State *s, const double *sums)
{
    OpCase c;
    case_init(&c, OP_GRAD_NORM, (OpAttr){.grad_norm = {.max_norm = 1}}, (RowCounts){0});
    add_segments(&c, "segments", all, N_ALL);
    add(&c, "grads", s->grads, SIZE);
    if (sums) add_sums(&c, "sums", sums);
    case_run(&c, b, (RunOptions){0});
    Stats stats = *(const Stats *)case_bytes(&c, "stats");
    case_free(&c);
    return stats;
}

/* The norm of all is that of the ranks' sums, bit by bit. */
static void test_norm(void **state)
{
    (void)state;
    State *s = state_new();
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        double sums[BLOCKS] = {0};
        for (int r = 0; r < RANKS; r++) block_sums(backend, r, s->grads, sums);
        Stats whole = norm(backend, s, NULL), of_sums = norm(backend, s, sums);
        assert_memory_equal(&whole.grad_norm, &of_sums.grad_norm, sizeof whole.grad_norm);
        assert_true(whole.grad_scale == of_sums.grad_scale && whole.finite && of_sums.finite && whole.grad_norm > 0);
    }
    free(s);
}

/* A norm that is not finite: nothing moves. */
static void test_skipped(void **state)
{
    (void)state;
    State *s = state_new();
    double sums[BLOCKS] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend))
        for (int r = 0; r < RANKS; r++) {
            OpCase c;
            size_t held = (size_t)(slices[r].end - slices[r].begin) * sizeof(float);
            step_init(&c, r, s, 0);
            case_run(&c, backend, (RunOptions){0});
            assert_memory_equal(case_bytes(&c, "m"), s->m + slices[r].begin, held);
            assert_memory_equal(case_bytes(&c, "v"), s->v + slices[r].begin, held);
            assert_memory_equal(case_bytes(&c, "grads"), s->grads, sizeof s->grads);
            case_free(&c);
            descend_init(&c, r, s->grads, s->weights, sums, sums, 0);
            case_run(&c, backend, (RunOptions){0});
            assert_memory_equal(case_bytes(&c, "weights"), s->weights, sizeof s->weights);
            case_free(&c);
        }
    free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),         cmocka_unit_test(test_sums), cmocka_unit_test(test_as_whole),
        cmocka_unit_test(test_adamw_as_whole), cmocka_unit_test(test_norm), cmocka_unit_test(test_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
