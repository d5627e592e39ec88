/* stream_copy copies what memcpy does, and nothing else, from and to any place. */
#include "base/stream_copy.h"
#include "testing.h"

enum { ROOM = 1024 };

static void test_all_places(void **state)
{
    (void)state;
    uint8_t from[ROOM], to[ROOM];
    for (size_t i = 0; i < ROOM; i++) from[i] = (uint8_t)(i * 7 + 1);
    for (size_t n = 0; n < 300; n++)
        for (size_t place = 0; place < 64; place += 1 + n % 7) {
            size_t source = (place * 5 + n) % 61;
            memset(to, 0xa5, sizeof to);
            stream_copy(to + 64 + place, from + source, n);
            assert_memory_equal(to + 64 + place, from + source, n);
            for (size_t i = 0; i < ROOM; i++)
                if (i < 64 + place || i >= 64 + place + n) assert_int_equal(to[i], 0xa5);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
