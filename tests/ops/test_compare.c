/* COMPARE. */
#include "ops/harness.h"

/* Runs it over `n` sums that differ in the rows of `differ` (a list that ends with −1), after what was found before. */
static AuditFound run(Backend *b, int64_t n, const int64_t *differ, AuditFound before)
{
    OpCase c;
    AuditFound found;
    case_init(&c, OP_COMPARE, (OpAttr){.compare = {41}}, rows_tokens(n));
    case_add(&c, "first", I64, rows_kind(ROWS_TOKENS), 1);
    case_add(&c, "again", I64, rows_kind(ROWS_TOKENS), 1);
    case_add(&c, "audit", U8, fixed(1), sizeof(AuditFound));
    int64_t *first = case_initial(&c, "first"), *again = case_initial(&c, "again");
    for (int64_t r = 0; r < n; r++) first[r] = again[r] = (int64_t)philox4(3, (uint32_t)r, 0, 0, 0).v[0];
    for (; *differ >= 0; differ++) again[*differ] ^= INT64_C(1) << *differ % 64;
    memcpy(case_initial(&c, "audit"), &before, sizeof before);
    case_run(&c, b, (RunOptions){0});
    memcpy(&found, case_bytes(&c, "audit"), sizeof found);
    case_free(&c);
    return found;
}

static void expect(AuditFound found, int64_t rows, int64_t tensor, int64_t row)
{
    assert_int_equal(found.rows, rows);
    assert_int_equal(found.tensor, tensor);
    assert_int_equal(found.row, row);
}

static void test_first_difference_stays(void **state)
{
    (void)state;
    for (Backend *b = ops_next(NULL); b; b = ops_next(b)) {
        for (int64_t rows = 1; rows < 2000; rows += 333) {
            expect(run(b, rows, (const int64_t[]){-1}, (AuditFound){0}), 0, 0, 0);
            expect(run(b, rows, (const int64_t[]){rows - 1, -1}, (AuditFound){0}), 1, 41, rows - 1);
            expect(run(b, rows, (const int64_t[]){rows / 2, -1}, (AuditFound){9, 7, 5}), 10, 7, 5);
        }
        expect(run(b, 1300, (const int64_t[]){1299, 700, 257, 256, -1}, (AuditFound){0}), 4, 41, 256);
        expect(run(b, 1300, (const int64_t[]){-1}, (AuditFound){9, 7, 5}), 9, 7, 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_difference_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
