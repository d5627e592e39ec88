/* K-FAC's ops against second formulas in double: moments row by row, inverses by Gauss and Jordan with pivoting. */
#include <math.h>

#include "ops/harness.h"

/* ---- CURVATURE ---- */

static void curvature(OpCase *c, Dtype dtype, int64_t rows, int64_t real, int64_t cols, int64_t first, int64_t n)
{
    case_init(c, OP_CURVATURE, (OpAttr){.curvature = {.first = first, .n = n, .interval = 1}}, rows_tokens(rows));
    case_ctl(c)->n_tokens = (int32_t)real;
    case_ctl(c)->kfac_tokens = 7;
    case_add_random(c, "x", dtype, rows_kind(ROWS_TOKENS), cols, 1);
    case_add_random(c, "factor", F32, fixed(n), n, 0.1);
}

static void test_curvature(void **state)
{
    static const int64_t shapes[][5] = {{64, 64, 8, 0, 8},     {64, 37, 24, 8, 8}, {128, 128, 96, 64, 32},
                                        {192, 129, 40, 0, 40}, {64, 0, 16, 0, 16}, {64, 50, 60, 20, 20},
                                        {64, 64, 9, 0, 9}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < N_COMPUTE; d++) {
            OpCase c;
            const int64_t *v = shapes[s];
            curvature(&c, compute_types[d], v[0], v[1], v[2], v[3], v[4]);
            case_check(&c, (Tolerance){0});
            case_expect_accumulated(&c, "factor");
            case_run(&c, ops_ref(), (RunOptions){0});
            float *x = case_values(&c, "x"), *factor = case_values(&c, "factor");
            const float *before = case_initial(&c, "factor");
            for (int64_t i = 0; i < v[4]; i++)
                for (int64_t j = 0; j < v[4]; j++) {
                    double sum = (double)before[i * v[4] + j];
                    for (int64_t r = 0; r < v[1]; r++)
                        sum += (double)x[r * v[2] + v[3] + i] * (double)x[r * v[2] + v[3] + j];
                    assert_true(fabs(sum - (double)factor[i * v[4] + j]) < 1e-4);
                }
            free(x);
            free(factor);
            case_free(&c);
        }
}

/* In a step that gathers nothing it leaves the sums alone. */
static void test_no_refresh(void **state)
{
    (void)state;
    OpCase c;
    curvature(&c, F32, 64, 64, 8, 0, 8);
    case_ctl(&c)->kfac_tokens = 0;
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        if (!case_runs_on(&c, backend)) continue;
        case_run(&c, backend, (RunOptions){0});
        assert_memory_equal(case_bytes(&c, "factor"), case_initial(&c, "factor"), 64 * sizeof(float));
    }
    case_free(&c);
}

/* ---- INVERT ---- */

/* m (n, n) becomes its inverse. */
static void invert(double *m, int64_t n)
{
    double *both = mem_array((size_t)(2 * n * n), sizeof *both);
    for (int64_t i = 0; i < n; i++) {
        memcpy(both + 2 * n * i, m + n * i, (size_t)n * sizeof *m);
        both[2 * n * i + n + i] = 1;
    }
    for (int64_t c = 0; c < n; c++) {
        int64_t best = c;
        for (int64_t i = c; i < n; i++)
            if (fabs(both[2 * n * i + c]) > fabs(both[2 * n * best + c])) best = i;
        for (int64_t j = 0; j < 2 * n; j++) {
            double swapped = both[2 * n * best + j];
            both[2 * n * best + j] = both[2 * n * c + j];
            both[2 * n * c + j] = swapped;
        }
        for (int64_t i = 0; i < n; i++) {
            double factor = both[2 * n * i + c] / both[2 * n * c + c];
            for (int64_t j = c; i != c && j < 2 * n; j++) both[2 * n * i + j] -= factor * both[2 * n * c + j];
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) m[n * i + j] = both[2 * n * i + n + j] / both[2 * n * i + i];
    free(both);
}

/* Sums of `rows` random outer products: with fewer rows than n the matrix alone is singular. */
static void random_sums(float *to, int64_t n, int64_t rows, uint64_t seed, double scale)
{
    float *row = mem_array((size_t)n, sizeof *row);
    memset(to, 0, (size_t)(n * n) * sizeof *to);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i++)
            row[i] = (float)(scale * ((double)philox4(seed, (uint32_t)r, (uint32_t)i, 0, 0).v[0] / 4294967296.0 - 0.3));
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) to[i * n + j] += row[i] * row[j];
    }
    free(row);
}

enum { TOKENS = 50 };
static const double lambda = 1e-3;

/* `ready`: before. */
static void inversion(OpCase *c, double damping, int64_t k, int64_t n, bool from, bool of_output, double ready)
{
    case_init(c, OP_INVERT, (OpAttr){.kfac = {(float)damping, k, n, of_output}}, rows_tokens(1));
    case_ctl(c)->kfac_tokens = TOKENS;
    if (from) case_add(c, "from", F32, fixed(k), k);
    case_add(c, "a", F32, fixed(k), k);
    case_add(c, "b", F32, fixed(n), n);
    case_add(c, "ready", F32, fixed(1), 1);
    random_sums(case_initial(c, from ? "from" : "a"), k, TOKENS, 1, 1);
    random_sums(case_initial(c, "b"), n, TOKENS, 2, 0.02);
    *(float *)case_initial(c, "ready") = (float)ready;
}

/* Error of `found` against (sums·scale + γ·I)⁻¹. */
static void expect_inverse(const char *what, const float *sums, const float *found, int64_t n, double scale,
                           double gamma, double most)
{
    double *want = mem_array((size_t)(n * n), sizeof *want);
    float *rounded = mem_array((size_t)(n * n), sizeof *rounded);
    for (int64_t i = 0; i < n * n; i++) want[i] = (double)sums[i] * scale;
    for (int64_t i = 0; i < n; i++) want[n * i + i] += gamma;
    invert(want, n);
    for (int64_t i = 0; i < n * n; i++) rounded[i] = (float)want[i];
    expect_close(what, found, rounded, n * n, most);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) assert_true(found[i * n + j] == found[j * n + i]);
    free(want);
    free(rounded);
}

static double trace(const float *m, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)m[i * n + i];
    return sum;
}

/* A's, which leaves B's damping; B's with that damping. Neither touches the other's matrix. */
static void check_inverses(double damping, int64_t k, int64_t n, bool from, double most)
{
    double gamma_b = 0;
    for (int of_output = 0; of_output < 2; of_output++) {
        OpCase c;
        inversion(&c, damping, k, n, from, of_output, gamma_b);
        const float *a = case_initial(&c, from ? "from" : "a"), *b = case_initial(&c, "b");
        double pi = sqrt((trace(a, k) / TOKENS / (double)k) / (trace(b, n) * TOKENS / (double)n)), root = sqrt(damping);
        gamma_b = root / pi;
        case_check(&c, (Tolerance){.f32 = most});
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            if (!case_runs_on(&c, backend)) continue;
            case_run(&c, backend, (RunOptions){0});
            double ready = (double)*(const float *)case_bytes(&c, "ready");
            assert_true(fabs(ready - (of_output ? 1 : gamma_b)) <= 1e-6 * gamma_b);
            if (of_output)
                expect_inverse("B", b, case_bytes(&c, "b"), n, TOKENS, gamma_b, most);
            else
                expect_inverse("A", a, case_bytes(&c, "a"), k, 1.0 / TOKENS, root * pi, most);
            const char *other = of_output ? "a" : "b";
            assert_memory_equal(case_bytes(&c, other), case_initial(&c, other),
                                (size_t)(of_output ? k * k : n * n) * sizeof(float));
        }
        case_free(&c);
    }
}

static void test_invert(void **state)
{
    static const int64_t shapes[][2] = {{1, 1}, {5, 3}, {16, 64}, {130, 20}, {128, 257}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int from = 0; from < 2; from++) check_inverses(lambda, shapes[s][0], shapes[s][1], from, 2e-3);
}

/* Of rank 50, with conditions of some 1e6: fp32 keeps the error near the condition times 2^-24, whatever the number of
   blocks. Where the condition's square counts nothing is left. */
static void test_nearly_singular(void **state)
{
    (void)state;
    check_inverses(1e-8, 150, 300, false, 0.05);
}

enum { SIDE = 4 };

/* The flag that both INVERTs leave for these sums. */
static float ready_of(Backend *backend, float *a, float *b) // (SIDE, SIDE)
{
    Ctl ctl = {.kfac_tokens = TOKENS};
    float ready = 0;
    OpCall call = {.op = OP_INVERT, .attr = {.kfac = {(float)lambda, SIDE, SIDE, false}}};
    RowCounts rows[2] = {rows_tokens(1), rows_tokens(1)};
    *IN(&call, INVERT, ctl) = (Operand){&ctl, U8, fixed(1), sizeof ctl};
    *OUT(&call, INVERT, a) = (Operand){a, F32, fixed(SIDE), SIDE};
    *OUT(&call, INVERT, b) = (Operand){b, F32, fixed(SIDE), SIDE};
    *OUT(&call, INVERT, ready) = (Operand){&ready, F32, fixed(1), 1};
    for (int of_output = 0; of_output < 2; of_output++) {
        call.attr.kfac.of_output = of_output;
        call.scratch_bytes = backend->op[OP_INVERT].scratch(&call, rows);
        call.scratch = aligned_alloc(64, (call.scratch_bytes + 63) / 64 * 64);
        if (backend->device)
            ops_run_on_device(backend, &call, rows);
        else
            assert_ok(backend->op[OP_INVERT].run(&call, rows));
        free(call.scratch);
    }
    return ready;
}

/* Sums that are no moments: values that are not finite, traces of 0 or less, and an eigenvalue so negative that ten
   times the damping five times does not help. A less negative one is damped away. */
static void test_bad_factors(void **state)
{
    static const struct {
        int factor, row, column;
        float value, ready;
    } cases[] = {{0, 0, 0, NAN, 0},   {1, 1, 2, NAN, 0},  {0, 1, 2, INFINITY, 0}, {1, 3, 3, INFINITY, 0},
                 {1, 0, 0, -1e9f, 0}, {0, 1, 2, 3e7f, 0}, {0, 2, 3, 60.0f, 1},    {0, 0, 0, 1.0f, 1}};
    (void)state;
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++)
        for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
            float sums[2][SIDE * SIDE];
            bool zero = i == sizeof cases / sizeof *cases;
            random_sums(sums[0], SIDE, TOKENS, 1, 1);
            random_sums(sums[1], SIDE, TOKENS, 2, 0.02);
            if (zero)
                memset(sums[1], 0, sizeof sums[1]);
            else
                sums[cases[i].factor][cases[i].row * SIDE + cases[i].column] =
                    sums[cases[i].factor][cases[i].column * SIDE + cases[i].row] = cases[i].value;
            float ready = ready_of(backend, sums[0], sums[1]), want = zero ? 0 : cases[i].ready;
            if (ready != want)
                fail_msg("%s, case %zu: ready is %g, expected %g", backend->name, i, (double)ready, (double)want);
        }
}

/* ---- ADOPT ---- */

static void test_adopt(void **state)
{
    (void)state;
    for (int ready = 0; ready < 2; ready++) {
        OpCase c;
        case_init(&c, OP_ADOPT, (OpAttr){.kfac = {0, 3, 5, false}}, rows_tokens(1));
        case_add_random(&c, "a", F32, fixed(3), 3, 1);
        case_add_random(&c, "b", F32, fixed(5), 5, 1);
        case_add(&c, "ready", F32, fixed(1), 1);
        case_add_random(&c, "a_inv", F32, fixed(3), 3, 1);
        case_add_random(&c, "b_inv", F32, fixed(5), 5, 1);
        case_add(&c, "has", F32, fixed(1), 1);
        *(float *)case_initial(&c, "ready") = (float)ready;
        case_check(&c, (Tolerance){0});
        case_run(&c, ops_ref(), (RunOptions){0});
        assert_memory_equal(case_bytes(&c, "a_inv"), case_initial(&c, ready ? "a" : "a_inv"), 9 * sizeof(float));
        assert_memory_equal(case_bytes(&c, "b_inv"), case_initial(&c, ready ? "b" : "b_inv"), 25 * sizeof(float));
        assert_true(*(const float *)case_bytes(&c, "has") == (float)ready);
        case_free(&c);
    }
}

/* ---- PRECONDITION ---- */

static void test_precondition(void **state)
{
    static const int64_t shapes[][2] = {{1, 1}, {7, 3}, {64, 16}, {40, 130}, {200, 100}};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int has = 0; has < 2; has++)
            for (int bias = 0; bias < 2; bias++) {
                OpCase c;
                int64_t k = shapes[s][0], n = shapes[s][1];
                case_init(&c, OP_PRECONDITION, (OpAttr){.kfac = {0, k, n, false}}, rows_tokens(1));
                case_add(&c, "a_inv", F32, fixed(k), k);
                case_add(&c, "b_inv", F32, fixed(n), n);
                random_sums(case_initial(&c, "a_inv"), k, 3, 3, 1);
                random_sums(case_initial(&c, "b_inv"), n, 3, 4, 1);
                case_add(&c, "has", F32, fixed(1), 1);
                *(float *)case_initial(&c, "has") = (float)has;
                case_add_random(&c, "dw", F32, fixed(n), k, 1);
                if (bias) case_add_random(&c, "db", F32, fixed(n), 1, 1);
                case_check(&c, (Tolerance){0});
                case_run(&c, ops_ref(), (RunOptions){0});
                const float *a = case_initial(&c, "a_inv"), *b = case_initial(&c, "b_inv"),
                            *dw = case_initial(&c, "dw");
                float *want = mem_array((size_t)(n * k), sizeof *want), *found = case_values(&c, "dw");
                double *half = mem_array((size_t)(n * k), sizeof *half); // dw·a_inv
                for (int64_t i = 0; i < n * k; i++)
                    for (int64_t q = 0; q < k; q++) half[i] += (double)dw[i / k * k + q] * (double)a[q * k + i % k];
                for (int64_t i = 0; i < n * k; i++) {
                    double sum = 0;
                    for (int64_t p = 0; p < n; p++) sum += (double)b[i / k * n + p] * half[p * k + i % k];
                    want[i] = has ? (float)sum : dw[i];
                }
                expect_close("dw", found, want, n * k, 1e-5);
                free(half);
                if (bias) {
                    const float *db = case_initial(&c, "db");
                    float *got = case_values(&c, "db");
                    for (int64_t i = 0; i < n; i++) {
                        double sum = 0;
                        for (int64_t p = 0; p < n; p++) sum += (double)b[i * n + p] * (double)db[p];
                        assert_true(fabs((has ? sum : (double)db[i]) - (double)got[i]) < 1e-4 * (1 + fabs(sum)));
                    }
                    free(got);
                }
                free(want);
                free(found);
                case_free(&c);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curvature),       cmocka_unit_test(test_no_refresh),  cmocka_unit_test(test_invert),
        cmocka_unit_test(test_nearly_singular), cmocka_unit_test(test_bad_factors), cmocka_unit_test(test_adopt),
        cmocka_unit_test(test_precondition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
