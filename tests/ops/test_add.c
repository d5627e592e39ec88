/* ADD: sums and copies of flat arrays, beside each other, on each other, and from any element on. */
#include "ops/harness.h"

enum { N = 1000 };

static float value(int64_t i, int salt)
{
    return (float)(philox4((uint64_t)salt, (uint32_t)i, 0, 0, 0).v[0] % 2001) / 7 - 142;
}

/* `shared`: 0: z lies apart, 1: on x, 2: on y. Elements first … first + n of arrays. */
static void check_add(Backend *b, int64_t n, int64_t first, bool with_y, int shared)
{
    float x[N + 16], y[N + 16], z[N + 16];
    void *place[3];
    float *host[] = {x, y, z};
    for (int64_t i = 0; i < N + 16; i++)
        x[i] = i % 9 == 4 ? -0.0f : value(i, 1), y[i] = value(i, 2), z[i] = value(i, 3);
    for (int k = 0; k < 3; k++) {
        assert_ok(backend_alloc(b, sizeof x, &place[k]));
        assert_ok(backend_upload(b, place[k], host[k], sizeof x));
    }
    int to = shared == 1 ? 0 : shared == 2 ? 1 : 2;
    Operand flat = {.dtype = F32, .rows = fixed(n), .cols = 1};
    OpCall call = {.op = OP_ADD};
    for (int k = 0; k < 2; k++) {
        call.in[k] = flat;
        call.in[k].data = k && !with_y ? NULL : (float *)place[k] + first;
    }
    call.out[0] = flat;
    call.out[0].data = (float *)place[to] + first;
    assert_ok(b->op[OP_ADD].run(&call, &(RowCounts){0}));
    float got[N + 16];
    assert_ok(backend_download(b, got, place[to], sizeof got));
    for (int64_t i = 0; i < N + 16; i++) {
        bool in = i >= first && i < first + n;
        float e = !in ? host[to][i] : with_y ? x[i] + y[i] : x[i];
        assert_int_equal(f32_bits(got[i]), f32_bits(e));
    }
    for (int k = 0; k < 3; k++) backend_release(b, place[k], sizeof x);
}

static void test_add(void **state)
{
    static const int64_t sizes[] = {1, 7, 8, 300, N};
    (void)state;
    for (Backend *b = ops_next(NULL); b; b = ops_next(b))
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int64_t first = 0; first < 9; first += 4)
                for (int shared = 0; shared < 3; shared++) {
                    check_add(b, sizes[i], first, true, shared);
                    if (shared < 2) check_add(b, sizes[i], first + 1, false, shared);
                }
}

static void test_rules(void **state)
{
    (void)state;
    for (int with_y = 0; with_y < 2; with_y++) {
        OpCase c;
        case_init(&c, OP_ADD, (OpAttr){0}, rows_tokens(1));
        case_add_random(&c, "x", F32, fixed(N), 3, 4);
        if (with_y) case_add_random(&c, "y", F32, fixed(N), 3, 4);
        case_add(&c, "z", F32, fixed(N), 3);
        case_check(&c, (Tolerance){0});
        case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_add)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
