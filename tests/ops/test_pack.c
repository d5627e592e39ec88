/* PACK and ZERO. A backend's packed layout is its own; that products read it right is tested with the products. */
#include "ops/harness.h"

static float packed(const Operand *copy, int64_t i)
{
    if (copy->dtype == F32) return ((const float *)copy->data)[i];
    uint16_t half = ((const uint16_t *)copy->data)[i];
    return copy->dtype == BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/* ref's copies are plain matrices, (n, k) and (k, n), each value rounded to nearest even. */
static void test_ref_layout(void **state)
{
    (void)state;
    enum { N = 5, K = 7 };
    Backend *ref = ops_ref();
    for (int t = 0; t < N_COMPUTE; t++)
        for (int transposed = 0; transposed < 2; transposed++) {
            OpCase c;
            case_init(&c, OP_PACK, (OpAttr){.pack = {N, K, transposed}}, (RowCounts){0});
            case_add_random(&c, "weight", F32, fixed(N), K, 3);
            case_add(&c, "copy", compute_types[t], fixed(N), K);
            assert_int_equal(ref->copy_bytes(compute_types[t], N, K, transposed), N * K * dtype_size(compute_types[t]));
            case_run(&c, ref, (RunOptions){0});
            float *weight = case_values(&c, "weight");
            const Operand copy = {.data = (void *)(uintptr_t)case_bytes(&c, "copy"), .dtype = compute_types[t]};
            for (int i = 0; i < N; i++)
                for (int j = 0; j < K; j++) {
                    float w = weight[i * K + j];
                    w = type_rounded(compute_types[t], w);
                    assert_true(packed(&copy, transposed ? j * N + i : i * K + j) == w);
                }
            free(weight);
            case_free(&c);
        }
}

/* Packing again gives the same bits, within the bytes that the backend named, in every backend and odd sizes. */
static void test_bytes(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{36, 52}, {1, 36}, {3, 128}, {108, 36}, {1024, 64}};
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend))
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int t = 0; t < N_COMPUTE; t++)
                for (int transposed = 0; transposed < 2; transposed++) {
                    char why[256];
                    if (!backend->supports(backend, compute_types[t], why, sizeof why)) continue;
                    size_t bytes = backend->copy_bytes(compute_types[t], shapes[i][0], shapes[i][1], transposed);
                    if (bytes == 0) continue; /* DGRAD reads the forward copy */
                    OpCase c;
                    case_init(&c, OP_PACK, (OpAttr){.pack = {shapes[i][0], shapes[i][1], transposed}}, (RowCounts){0});
                    case_add_random(&c, "weight", F32, fixed(shapes[i][0]), shapes[i][1], 3);
                    assert_int_equal(bytes % dtype_size(compute_types[t]), 0);
                    case_add(&c, "copy", compute_types[t], fixed(1), (int64_t)(bytes / dtype_size(compute_types[t])));
                    if (case_runs_on(&c, backend)) {
                        unsigned char *first = mem_alloc(bytes);
                        case_run(&c, backend, (RunOptions){0});
                        memcpy(first, case_bytes(&c, "copy"), bytes);
                        case_run(&c, backend, (RunOptions){.scratch = 0xff});
                        assert_memory_equal(first, case_bytes(&c, "copy"), bytes);
                        free(first);
                    }
                    case_free(&c);
                }
}

static void test_zero(void **state)
{
    (void)state;
    static const struct {
        Dtype dtype;
        Rows rows;
        int64_t cols;
    } shapes[] = {
        {F32, {ROWS_FIXED, 1}, 1}, {F32, {ROWS_TOKENS, 0}, 36}, {BF16, {ROWS_TOKENS, 0}, 7}, {U8, {ROWS_FIXED, 1}, 56}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        OpCase c;
        case_init(&c, OP_ZERO, (OpAttr){0}, rows_tokens(65));
        case_add(&c, "x", shapes[i].dtype, shapes[i].rows, shapes[i].cols);
        case_check(&c, (Tolerance){0});
        const unsigned char *bytes = case_bytes(&c, "x");
        for (size_t j = 0; j < (size_t)case_count(&c, "x") * dtype_size(shapes[i].dtype); j++)
            assert_int_equal(bytes[j], 0);
        case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref_layout),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
