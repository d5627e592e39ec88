/* Slices of the flat space: each element once, cut at norm blocks, even, for every number of ranks. */
#include "slices_of.h"
#include "testing.h"

enum { RANKS = 64 };

/* Tensors of many sizes; a group whose members follow each other without a gap, off the 64-element grid. */
static ParamTable make_table(Param *params, int n, uint64_t seed)
{
    ParamTable t = {.params = params, .count = n};
    for (int i = 0; i < n; i++) {
        static const int64_t most[] = {3, 70, 1024, 5000, 70000};
        int64_t size = 1 + (int64_t)(testing_random(&seed) % (uint64_t)most[testing_random(&seed) % 5]);
        if (i % 5 == 4) size = 1024 * (1 + size % 7);
        bool in_group = i % 7 == 3;
        if (!in_group) t.size = (t.size + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
        params[i] = (Param){.rows = size, .cols = 1, .n_dims = 1, .padded = size, .offset = t.size};
        t.size += size;
    }
    t.size = (t.size + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    return t;
}

/* A tensor's start, or whole norm blocks after it. */
static bool is_cut(const ParamTable *t, int64_t at)
{
    for (int i = 0; i < t->count; i++) {
        int64_t behind = at - t->params[i].offset;
        if (behind >= 0 && behind < param_held(&t->params[i])) return behind % NORM_BLOCK == 0;
    }
    return at == t->size;
}

static void check(const ParamTable *t, const int64_t *buckets, int n_buckets)
{
    Intervals slices[RANKS];
    uint8_t *owners = mem_alloc((size_t)t->size);
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        memset(owners, 0, (size_t)t->size);
        slices_of(t, buckets, n_buckets, ranks, slices);
        for (int r = 0; r < ranks; r++) {
            int64_t end = -1, size = 0;
            for (int k = 0; k < slices[r].count; k++) {
                Interval v = slices[r].intervals[k];
                assert_true(v.begin > end && v.begin < v.end && v.end <= t->size);
                assert_true(is_cut(t, v.begin) && is_cut(t, v.end));
                for (int64_t e = v.begin; e < v.end; e++) owners[e]++;
                size += v.end - v.begin;
                end = v.end;
            }
            assert_int_equal(size, slices[r].size);
            int64_t even = t->size / ranks, slack = n_buckets * (NORM_BLOCK + PARAM_ALIGN + 1);
            assert_true(size >= even - slack && size <= even + slack);
        }
        for (int64_t e = 0; e < t->size; e++)
            if (owners[e] != 1) fail_msg("element %lld has %d owners of %d", (long long)e, owners[e], ranks);
        for (int r = 0; r < ranks; r++) intervals_free(&slices[r]);
    }
    free(owners);
}

static void test_random_tables(void **state)
{
    (void)state;
    Param params[40];
    for (uint64_t seed = 1; seed <= 6; seed++) {
        ParamTable t = make_table(params, 1 + (int)(seed * 7 % 40), seed);
        check(&t, NULL, 1);
        int64_t buckets[4] = {0};
        int n = 1;
        for (int i = 1; i < t.count && n < 4; i++)
            if (t.params[i].offset > (int64_t)n * t.size / 4) buckets[n++] = t.params[i].offset;
        check(&t, buckets, n);
    }
}

/* One bucket: one interval each. With more ranks than blocks some have no interval. The figures are computed by hand.
 */
static void test_by_hand(void **state)
{
    (void)state;
    Param params[] = {{.rows = 2048, .cols = 1, .padded = 2048, .offset = 0},
                      {.rows = 10, .cols = 1, .padded = 10, .offset = 2048},
                      {.rows = 1500, .cols = 1, .padded = 1500, .offset = 2112}};
    ParamTable t = {.params = params, .count = 3, .size = 3648};
    Intervals s[8];
    slices_of(&t, NULL, 0, 2, s); /* ideal 1824; cuts at 0, 1024, 2048, 2112, 3136, 3648 */
    assert_int_equal(s[0].count, 1);
    assert_int_equal(s[0].intervals[0].end, 2048);
    assert_int_equal(s[1].intervals[0].begin, 2048);
    assert_int_equal(s[1].size, 1600);
    for (int r = 0; r < 2; r++) intervals_free(&s[r]);
    slices_of(&t, NULL, 0, 8, s); /* ideals 456 912 1368 1824 2280 2736 3192: cuts 0 1024 1024 2048 2112 3136 3136 */
    static const int64_t sizes[8] = {0, 1024, 0, 1024, 64, 1024, 0, 512};
    for (int r = 0; r < 8; r++) {
        assert_int_equal(s[r].size, sizes[r]);
        assert_int_equal(s[r].count, sizes[r] > 0);
        intervals_free(&s[r]);
    }
    int64_t buckets[] = {0, 2048};
    slices_of(&t, buckets, 2, 2, s); /* 0–1024 | 1024–2048; 2048–3136 | 3136–3648: ideal 2848 */
    assert_int_equal(s[0].count, 2);
    assert_int_equal(s[0].size, 1024 + 1088);
    assert_int_equal(s[1].count, 2);
    assert_int_equal(s[1].intervals[1].begin, 3136);
    for (int r = 0; r < 2; r++) intervals_free(&s[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_tables), cmocka_unit_test(test_by_hand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
