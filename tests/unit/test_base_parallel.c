/* Every element is processed once, for any length and grain; ranges have the promised lengths. */
#include <stdatomic.h>
#include <stdlib.h>

#include "testing.h"

#include "base/parallel.h"

enum { MOST = 5000 };

typedef struct {
    unsigned char touched[MOST];
    size_t n, grain;
    atomic_int wrong, ranges;
} Seen;

static void touch(void *arg, size_t begin, size_t end)
{
    Seen *s = arg;
    atomic_fetch_add(&s->ranges, 1);
    if (begin % s->grain != 0 || begin >= end || end > s->n) atomic_fetch_add(&s->wrong, 1);
    if (end != s->n && (end - begin) % s->grain != 0) atomic_fetch_add(&s->wrong, 1);
    if (end - begin < s->grain && s->n >= s->grain) atomic_fetch_add(&s->wrong, 1);
    for (size_t i = begin; i < end && i < MOST; i++) s->touched[i]++;
}

static void test_each_once(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 1023, 1024, 4999, MOST};
    static const size_t grains[] = {1, 2, 3, 16, 1000, 100000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
            Seen *s = calloc(1, sizeof *s);
            assert_non_null(s);
            s->n = lengths[l];
            s->grain = grains[g];
            parallel_ranges(s->n, s->grain, touch, s);
            assert_int_equal(s->wrong, 0);
            assert_true(s->n > 0 ? s->ranges >= 1 && s->ranges <= 8 : s->ranges == 0);
            for (size_t i = 0; i < MOST; i++) assert_int_equal(s->touched[i], i < s->n);
            free(s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
