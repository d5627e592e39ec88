/* Packed rows: every sequence once, three and `most` tokens at most in a row, and few rows. */
#include "testing.h"

#include "tasks/pretrain/shards/job.h"

/* Packs lengths and checks all rows; returns their number. */
static int64_t packed(const int32_t *lengths, int64_t n, int most)
{
    int64_t *offset = mem_array((size_t)n + 1, sizeof *offset), *order = mem_array((size_t)n + 1, sizeof *order),
            *first = mem_array((size_t)n + 1, sizeof *first), *again = mem_array((size_t)n + 1, sizeof *again);
    uint8_t *seen = mem_alloc((size_t)n + 1);
    for (int64_t i = 0; i < n; i++) offset[i + 1] = offset[i] + lengths[i];
    int64_t rows = shards_pack(offset, n, most, order, first);
    assert_int_equal(first[0], 0);
    assert_int_equal(first[rows], n);
    for (int64_t r = 0; r < rows; r++) {
        int64_t tokens = 0;
        assert_in_range(first[r + 1] - first[r], 1, SHARDS_PER_ROW);
        for (int64_t k = first[r]; k < first[r + 1]; k++) {
            assert_in_range(order[k], 0, n - 1);
            assert_int_equal(seen[order[k]]++, 0);
            tokens += lengths[order[k]];
        }
        assert_in_range(tokens, 1, most);
    }
    assert_int_equal(shards_pack(offset, n, most, again, first), rows);
    assert_memory_equal(again, order, (size_t)n * sizeof *order);
    free(offset);
    free(order);
    free(first);
    free(again);
    free(seen);
    return rows;
}

static void a_few(void **state)
{
    (void)state;
    assert_int_equal(packed(NULL, 0, 16), 0);
    assert_int_equal(packed((int32_t[]){16}, 1, 16), 1);
    assert_int_equal(packed((int32_t[]){5, 5, 5}, 3, 16), 1);
    assert_int_equal(packed((int32_t[]){4, 4, 4, 4}, 4, 16), 2); /* three at most */
    assert_int_equal(packed((int32_t[]){8, 8, 8, 8}, 4, 16), 2);
    assert_int_equal(packed((int32_t[]){9, 9, 9}, 3, 16), 3);
    assert_int_equal(packed((int32_t[]){1, 10, 5, 16, 6, 10}, 6, 16), 3);
    assert_int_equal(packed((int32_t[]){12, 2, 2, 8, 4, 4}, 6, 16), 2); /* 12 2 2 and 8 4 4, not 12 4 */
}

/* On Wikipedia's lengths MLPerf's own packing has 1.999 sequences in a row of 512 tokens. */
static void the_lengths_of_wikipedia(void **state)
{
    enum { N = 20000 };
    int64_t counts[513] = {0}, all = 0, tokens = 0;
    uint64_t x = 7;
    Buf text = {0};
    (void)state;
    assert_ok(file_read("bench/lengths/wikipedia-lengths.tsv", 1 << 20, &text));
    for (char *line = text.data; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        int length;
        long long count;
        if (sscanf(line, "%d %lld", &length, &count) != 2) continue;
        assert_in_range(length, 1, 512);
        all += counts[length] = count;
    }
    int32_t *lengths = mem_array(N, sizeof *lengths);
    for (int i = 0; i < N; i++) {
        int64_t at = (int64_t)(testing_random(&x) % (uint64_t)all);
        for (lengths[i] = 1; at >= counts[lengths[i]]; lengths[i]++) at -= counts[lengths[i]];
        tokens += lengths[i];
    }
    int64_t rows = packed(lengths, N, 512);
    print_message("%.4f sequences in a row, %.4f by tokens\n", (double)N / (double)rows, N * 512.0 / (double)tokens);
    assert_true((double)rows * 512 < 1.01 * (double)tokens);
    free(lengths);
    buf_free(&text);
}

static void any_lengths(void **state)
{
    uint64_t x = 3;
    (void)state;
    for (int turn = 0; turn < 300; turn++) {
        int32_t lengths[200];
        int most = 1 + (int)(testing_random(&x) % 40), n = (int)(testing_random(&x) % 200);
        for (int i = 0; i < n; i++) lengths[i] = 1 + (int32_t)(testing_random(&x) % (uint64_t)most);
        packed(lengths, n, most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_few), cmocka_unit_test(the_lengths_of_wikipedia),
                                       cmocka_unit_test(any_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
