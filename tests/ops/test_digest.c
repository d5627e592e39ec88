/* DIGEST. */
#include "ops/harness.h"

typedef struct {
    int64_t rows, cols;
    Dtype dtype;
} Shape;

static const Shape shapes[] = {{1, 1, U8},    {3, 7, U8},   {64, 56, U8},  {65, 36, F32},  {5, 2, F32}, {2, 1025, F32},
                               {7, 36, BF16}, {9, 5, BF16}, {65, 12, F16}, {1, 3001, I32}, {4, 3, I64}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* x holds random bytes, NaNs among them. */
static void init(OpCase *c, const Shape *s)
{
    case_init(c, OP_DIGEST, (OpAttr){0}, rows_tokens(s->rows));
    case_add(c, "x", s->dtype, rows_kind(ROWS_TOKENS), s->cols);
    case_add(c, "sums", I64, rows_kind(ROWS_TOKENS), 1);
    unsigned char *x = case_initial(c, "x");
    for (size_t i = 0; i < c->in[DIGEST_IN_x].bytes; i++) x[i] = (unsigned char)philox4(1, (uint32_t)i, 0, 0, 0).v[0];
}

/* Low 64 bits of a·b, by 32-bit halves. */
static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t low = (a & 0xffffffff) * (b & 0xffffffff);
    return low + (((a >> 32) * (b & 0xffffffff) + (a & 0xffffffff) * (b >> 32)) << 32);
}

/* Second formula: bytes are put together by arithmetic, and the words of all rows are numbered by one counter. */
static void test_meaning(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SHAPES; i++) {
        OpCase c;
        init(&c, &shapes[i]);
        case_check(&c, (Tolerance){0});
        const unsigned char *x = case_initial(&c, "x");
        const uint64_t *sums = case_bytes(&c, "sums");
        uint64_t number = 0;
        size_t bytes = (size_t)shapes[i].cols * dtype_size(shapes[i].dtype);
        for (int64_t r = 0; r < shapes[i].rows; r++) {
            uint64_t sum = 0;
            for (size_t first = 0; first < bytes; first += 8) {
                uint64_t word = 0;
                for (size_t b = first; b < first + 8 && b < bytes; b++)
                    word += (uint64_t)x[(size_t)r * bytes + b] << 8 * (b - first);
                word += product(++number, 11400714819323198485u);
                word = product(word ^ word / 4294967296u, 15485907386658061715u);
                sum += word ^ word / 536870912u;
            }
            assert_int_equal(sums[r], sum);
        }
        case_free(&c);
    }
}

/* A flipped bit changes the sum of its row and no other, on every backend. */
static void test_every_bit_counts(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 21 };
    OpCase c;
    init(&c, &(Shape){ROWS, COLS, U8});
    unsigned char *x = case_initial(&c, "x");
    for (Backend *backend = ops_next(NULL); backend; backend = ops_next(backend)) {
        uint64_t before[ROWS];
        case_run(&c, backend, (RunOptions){0});
        memcpy(before, case_bytes(&c, "sums"), sizeof before);
        for (int bit = 0; bit < 8 * ROWS * COLS; bit++) {
            x[bit / 8] ^= (unsigned char)(1 << bit % 8);
            case_run(&c, backend, (RunOptions){0});
            const uint64_t *after = case_bytes(&c, "sums");
            for (int r = 0; r < ROWS; r++) assert_true((after[r] != before[r]) == (r == bit / 8 / COLS));
            x[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    }
    case_free(&c);
}

/* The same words at other places have other sums: equal rows differ, and so do swapped words. */
static void test_places_count(void **state)
{
    (void)state;
    enum { ROWS = 40, COLS = 4 };
    OpCase c;
    init(&c, &(Shape){ROWS, COLS, I64});
    int64_t *x = case_initial(&c, "x");
    memset(x, 0, ROWS * COLS * sizeof *x);
    x[4] = x[9] = 1; /* rows 1 and 2: 1 0 0 0 and 0 1 0 0 */
    case_run(&c, ops_ref(), (RunOptions){0});
    const uint64_t *sums = case_bytes(&c, "sums");
    uint64_t swapped = sums[1];
    for (int r = 0; r < ROWS; r++)
        for (int other = 0; other < r; other++) assert_true(sums[r] != sums[other]);
    x[4] = 0;
    x[5] = 1;
    case_run(&c, ops_ref(), (RunOptions){0});
    sums = case_bytes(&c, "sums");
    assert_true(sums[1] != swapped);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meaning),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_places_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
