/* Lists of intervals: what lies before an element, and the next elements without a gap. */
#include "testing.h"

#include "base/interval.h"

/* The elements from `begin` to before `end` that the list has, as digits of a number. */
static long long elements(const Intervals *list, int64_t begin, int64_t end)
{
    long long digits = 0;
    Interval v = {begin, begin};
    while (intervals_next(list, end, &v)) {
        assert_true(begin <= v.begin && v.begin < v.end && v.end <= end);
        digits = (digits * 10 + v.begin) * 10 + v.end;
    }
    return digits;
}

static void test_next(void **state)
{
    (void)state;
    Intervals list = {0};
    intervals_add(&list, 1, 3);
    intervals_add(&list, 3, 4);
    intervals_add(&list, 6, 6);
    intervals_add(&list, 6, 9);
    assert_int_equal(list.count, 2);
    assert_int_equal(intervals_before(&list, 7), 4);
    assert_int_equal(elements(&list, 0, 9), 1469);
    assert_int_equal(elements(&list, 2, 7), 2467);
    assert_int_equal(elements(&list, 4, 6), 0);
    assert_int_equal(elements(&list, 2, 2), 0);
    assert_int_equal(elements(NULL, 2, 7), 27);
    assert_int_equal(elements(NULL, 2, 2), 0);
    intervals_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_next)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
