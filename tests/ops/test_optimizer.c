/* GRAD_NORM, ADAMW, LAMB on the flat parameter space. */
#include <math.h>

#include "ops/harness.h"

/* Offsets are multiples of 64; the gaps between belong to no segment. The second is longer than a norm block, the third
   is a tensor of zeros, the last has one element. */
static const Segment segments[] = {
    {0, 100, 0.01f, 1, 0, 0, 0, 0}, {128, 3000, 0.01f, 1, 0, 0, 0, 0}, {3136, 64, 0.1f, 1, 0, 0, 0, 0},
    {3200, 1024, 0, 0, 0, 0, 0, 0}, {4288, 1, 0, 1, 0, 0, 0, 0},
};
enum { N_SEGMENTS = sizeof segments / sizeof *segments, SIZE = 4352 };

/* The segments of the cases below; test_long_segments has its own. */
typedef struct {
    const Segment *segments;
    int n;
    int64_t size;
} Space;
static Space space = {segments, N_SEGMENTS, SIZE};

static const OpAttr adam = {.optimizer = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-6f}};

static bool owned(int64_t i)
{
    for (int s = 0; s < N_SEGMENTS; s++)
        if (i >= segments[s].offset && i < segments[s].offset + segments[s].size) return true;
    return false;
}

static void add_space(OpCase *c, const char *name, double centre, double scale)
{
    case_add(c, name, F32, fixed(1), space.size);
    case_random(c, name, centre, scale);
}

static void add_segments(OpCase *c)
{
    case_add(c, "segments", U8, fixed(space.n), sizeof(Segment));
    Segment *all = case_initial(c, "segments");
    for (int64_t i = 0, block = 0; i < space.n; i++) {
        all[i] = space.segments[i];
        all[i].block = block;
        all[i].tensor = i;
        block += norm_blocks(all[i].size);
    }
}

static void norm_init(OpCase *c, float max_norm)
{
    case_init(c, OP_GRAD_NORM, (OpAttr){.grad_norm = {.max_norm = max_norm}}, (RowCounts){0});
    add_segments(c);
    add_space(c, "grads", 0, 1);
    case_scaling(c, 8);
}

static void update_init(OpCase *c, Op op)
{
    case_init(c, op, adam, (RowCounts){0});
    add_segments(c);
    add_space(c, "grads", 0, 1);
    add_space(c, "weights", 0, 0.5);
    add_space(c, "m", 0, 0.1);
    add_space(c, "v", 0.1, 0.1);
    const Segment *zeros = &space.segments[2];
    memset((float *)case_initial(c, "weights") + zeros->offset, 0, (size_t)zeros->size * sizeof(float));
    case_ctl(c)->learning_rate = 1e-2f;
    case_ctl(c)->bias1 = 1.7f;
    case_ctl(c)->bias2 = 1.3f;
    *(Stats *)case_initial(c, "stats") = (Stats){.grad_norm = 10, .grad_scale = 0.25f, .finite = 1};
}

static void test_shapes(void **state)
{
    (void)state;
    static const float limits[] = {0, 1, 1e6f};
    OpCase c;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        norm_init(&c, limits[i]);
        case_check(&c, (Tolerance){0});
        case_free(&c);
    }
    for (int op = 0; op < 2; op++) {
        update_init(&c, op ? OP_LAMB : OP_ADAMW);
        case_check(&c, (Tolerance){0});
        case_free(&c);
    }
}

/* Longer than the share of a block of threads at a time, exactly as long, and one element longer. */
static void test_long_segments(void **state)
{
    static const Segment long_ones[] = {
        {0, 40001, 0.01f, 1, 0, 0, 0, 0}, {40064, 16384, 0.1f, 1, 0, 0, 0, 0},  {56448, 64, 0, 1, 0, 0, 0, 0},
        {56512, 16385, 0, 0, 0, 0, 0, 0}, {72960, 32768, 0.01f, 1, 0, 0, 0, 0},
    };
    Space usual = space;
    space = (Space){long_ones, sizeof long_ones / sizeof *long_ones, 72960 + 32768};
    test_shapes(state);
    space = usual;
}

static void test_norm(void **state)
{
    (void)state;
    static const float limits[] = {0, 1, 1e6f};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            OpCase c;
            norm_init(&c, limits[i]);
            float *grads = case_initial(&c, "grads");
            double squares = 0;
            for (int64_t j = 0; j < SIZE; j++)
                if (owned(j))
                    squares += (double)grads[j] * (double)grads[j];
                else
                    grads[j] = NAN; /* what lies between does not count */
            case_run(&c, backend, (RunOptions){0});
            double norm = sqrt(squares) / 8, scale = 1.0 / 8;
            if (limits[i] > 0 && norm > (double)limits[i]) scale *= (double)limits[i] / norm;
            const Stats *stats = case_bytes(&c, "stats");
            assert_int_equal(stats->finite, 1);
            assert_true(fabs(stats->grad_norm - norm) < 1e-12 * norm);
            assert_true(fabs((double)stats->grad_scale - scale) < 1e-7 * scale);
            case_free(&c);
        }
}

/* Any value that is not finite is found, and the sum of finite ones does not overflow. */
static void test_not_finite(void **state)
{
    (void)state;
    static const struct {
        int64_t at;
        float value;
        int finite;
    } cases[] = {{0, NAN, 0}, {3127, INFINITY, 0}, {4288, -INFINITY, 0}, {4289, NAN, 1}, {1500, 3e38f, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            OpCase c;
            norm_init(&c, 1);
            ((float *)case_initial(&c, "grads"))[cases[i].at] = cases[i].value;
            case_run(&c, backend, (RunOptions){0});
            assert_int_equal(((const Stats *)case_bytes(&c, "stats"))->finite, cases[i].finite);
            case_free(&c);
        }
}

/* The loss scale after a step; the gradient counts as unscaled by the one that it was made with. */
static void test_loss_scale(void **state)
{
    (void)state;
    static const struct {
        LossScaling was, is;
        int32_t interval;
        bool overflow;
    } cases[] = {
        {{1024, 5, 3}, {1024, 5, 3}, 0, false}, /* fixed */
        {{1024, 5, 3}, {1024, 5, 3}, 0, true},
        {{1024, 5, 3}, {1024, 6, 3}, 7, false},
        {{1024, 6, 3}, {2048, 0, 3}, 7, false}, /* the seventh in a row */
        {{1024, 6, 3}, {512, 0, 4}, 7, true},
        {{1024, 0, 0}, {2048, 0, 0}, 1, false},
        {{2, 1, 9}, {1, 0, 10}, 7, true},
        {{1, 1, 9}, {1, 0, 10}, 7, true},
        {{1.5f, 0, 0}, {1, 0, 1}, 7, true},
        {{LOSS_SCALE_MOST, 6, 0}, {LOSS_SCALE_MOST, 0, 0}, 7, false},
        {{LOSS_SCALE_MOST / 2, 6, 0}, {LOSS_SCALE_MOST, 0, 0}, 7, false},
        {{LOSS_SCALE_MOST, 6, 0}, {LOSS_SCALE_MOST / 2, 0, 1}, 7, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            OpCase c;
            norm_init(&c, 0);
            c.attr.grad_norm.growth_interval = cases[i].interval;
            *(LossScaling *)case_initial(&c, "scaling") = cases[i].was;
            float *grads = case_initial(&c, "grads");
            memset(grads, 0, SIZE * sizeof *grads);
            grads[200] = cases[i].overflow ? INFINITY : 3;
            case_run(&c, backend, (RunOptions){0});
            const Stats *stats = case_bytes(&c, "stats");
            assert_memory_equal(case_bytes(&c, "scaling"), &cases[i].is, sizeof(LossScaling));
            assert_int_equal(stats->finite, !cases[i].overflow);
            assert_true(stats->grad_scale == (cases[i].overflow ? 0 : (float)(1.0 / (double)cases[i].was.scale)));
            if (!cases[i].overflow) assert_true(stats->grad_norm == 3.0 / (double)cases[i].was.scale);
            case_free(&c);
        }
}

/* Without the operand the scale is 1: all but fp16. */
static void test_no_loss_scale(void **state)
{
    (void)state;
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        OpCase c;
        case_init(&c, OP_GRAD_NORM, (OpAttr){.grad_norm = {.max_norm = 2, .growth_interval = 1}}, (RowCounts){0});
        add_segments(&c);
        case_add(&c, "grads", F32, fixed(1), SIZE);
        case_set(&c, "grads", 200, 1, (float[]){8});
        case_run(&c, backend, (RunOptions){0});
        const Stats *stats = case_bytes(&c, "stats");
        assert_true(stats->grad_norm == 8 && stats->grad_scale == 0.25f);
        case_free(&c);
    }
}

static const char *const names[] = {"weights", "m", "v"};

/* An overflow, norm and update one after the other as in a plan: weights and moments keep their bits. */
static void test_overflow_leaves_the_state(void **state)
{
    (void)state;
    for (int lamb = 0; lamb < 2; lamb++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            OpCase norm, c;
            norm_init(&norm, 1);
            norm.attr.grad_norm.growth_interval = 2000;
            case_set(&norm, "grads", 4288, 1, (float[]){NAN});
            case_run(&norm, backend, (RunOptions){0});
            update_init(&c, lamb ? OP_LAMB : OP_ADAMW);
            case_take(&c, "stats", &norm, "stats");
            case_run(&c, backend, (RunOptions){0});
            for (int j = 0; j < 3; j++)
                assert_memory_equal(case_bytes(&c, names[j]), case_initial(&c, names[j]), SIZE * sizeof(float));
            assert_true(((const LossScaling *)case_bytes(&norm, "scaling"))->scale == 4);
            case_free(&norm);
            case_free(&c);
        }
}

/* Both optimizers from their formulas in double; elements of no segment keep their bits. */
static void test_updates(void **state)
{
    (void)state;
    for (int lamb = 0; lamb < 2; lamb++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            OpCase c;
            update_init(&c, lamb ? OP_LAMB : OP_ADAMW);
            const float *p0 = case_initial(&c, "weights"), *g0 = case_initial(&c, "grads");
            const float *m0 = case_initial(&c, "m"), *v0 = case_initial(&c, "v");
            static float want[3][SIZE];
            static double u[SIZE];
            memcpy(want[0], p0, sizeof want[0]);
            memcpy(want[1], m0, sizeof want[1]);
            memcpy(want[2], v0, sizeof want[2]);
            for (int s = 0; s < N_SEGMENTS; s++) {
                double p_squares = 0, u_squares = 0;
                int64_t end = segments[s].offset + segments[s].size;
                for (int64_t i = segments[s].offset; i < end; i++) {
                    double g = (double)g0[i] * 0.25, m = 0.9 * (double)m0[i] + 0.1 * g;
                    double v = 0.999 * (double)v0[i] + 0.001 * g * g;
                    u[i] = m * 1.7 / (sqrt(v * 1.3) + 1e-6) + (double)segments[s].decay * (double)p0[i];
                    want[1][i] = (float)m;
                    want[2][i] = (float)v;
                    p_squares += (double)p0[i] * (double)p0[i];
                    u_squares += u[i] * u[i];
                }
                double ratio = 1;
                if (lamb && segments[s].trust && p_squares > 0 && u_squares > 0) ratio = sqrt(p_squares / u_squares);
                for (int64_t i = segments[s].offset; i < end; i++)
                    want[0][i] = (float)((double)p0[i] - 1e-2 * ratio * u[i]);
            }
            case_run(&c, backend, (RunOptions){0});
            for (int j = 0; j < 3; j++) {
                const float *found = case_bytes(&c, names[j]), *old = case_initial(&c, names[j]);
                expect_close(names[j], found, want[j], SIZE, 1e-6);
                for (int64_t i = 0; i < SIZE; i++)
                    if (!owned(i) && memcmp(&found[i], &old[i], sizeof(float)) != 0)
                        fail_msg("%s: %s of element %lld, in no segment, was changed", backend->name, names[j],
                                 (long long)i);
            }
            case_free(&c);
        }
}

static float copy_element(Dtype dtype, const void *copies, int64_t i)
{
    if (dtype == F32) return ((const float *)copies)[i];
    uint16_t half = ((const uint16_t *)copies)[i];
    return dtype == BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/* Compute copies of tensors that lie in them are the new weights, rounded; elements of no such tensor keep their bits,
   and so do all where the update is skipped. */
static void check_copies(Op op, Dtype dtype, int64_t size, bool finite)
{
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        OpCase c;
        update_init(&c, op);
        ((Stats *)case_initial(&c, "stats"))->finite = finite;
        case_add_random(&c, "copies", dtype, fixed(size), 1, 1);
        if (case_runs_on(&c, backend)) {
            case_run(&c, backend, (RunOptions){0});
            const float *weights = case_bytes(&c, "weights");
            for (int64_t i = 0; i < size; i++) {
                bool copied = false;
                for (int s = 0; s < N_SEGMENTS && finite; s++)
                    copied |= i >= segments[s].offset && i < segments[s].offset + segments[s].size &&
                              segments[s].offset + segments[s].size <= size;
                float want =
                    copied ? type_rounded(dtype, weights[i]) : copy_element(dtype, case_initial(&c, "copies"), i);
                if (copy_element(dtype, case_bytes(&c, "copies"), i) != want)
                    fail_msg("%s: the copy of element %lld is %g, expected %g", backend->name, (long long)i,
                             (double)copy_element(dtype, case_bytes(&c, "copies"), i), (double)want);
            }
        }
        case_free(&c);
    }
}

static void test_copies(void **state)
{
    (void)state;
    for (int lamb = 0; lamb < 2; lamb++)
        for (int t = 0; t < N_COMPUTE; t++) {
            check_copies(lamb ? OP_LAMB : OP_ADAMW, compute_types[t], SIZE, true);
            check_copies(lamb ? OP_LAMB : OP_ADAMW, compute_types[t], 3200, true); /* the first three tensors */
            check_copies(lamb ? OP_LAMB : OP_ADAMW, compute_types[t], 3201, true); /* and a part of the next */
            check_copies(lamb ? OP_LAMB : OP_ADAMW, compute_types[t], SIZE, false);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_long_segments),
        cmocka_unit_test(test_norm),          cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_updates),       cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_no_loss_scale), cmocka_unit_test(test_overflow_leaves_the_state),
        cmocka_unit_test(test_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
