/* The watch's questions after its process was stopped. What it decides in a job is tried in tests/sim. */
#include "testing.h"

#include "comm/watch/watch_state.h"

#define TIMEOUT 30.0
#define BEAT    5.0

/* A process that was stopped does not take the others for silent before its watch has read what they sent. */
static void test_continued(void **state)
{
    bool silent;
    WatchState s = watch_state(0, 3, TIMEOUT, BEAT);
    double now = 100;
    (void)state;
    for (int r = 1; r < 3; r++) watch_on(&s, &(WatchEvent){.kind = WATCH_MET, .rank = r}, now);
    now += 2 * TIMEOUT;
    assert_false(watch_state_gone(&s, 1, now, &silent));
    for (double end = now + TIMEOUT + BEAT; now < end; now += BEAT)
        watch_on(&s, &(WatchEvent){.kind = WATCH_HEARD, .rank = 1}, now);
    assert_false(watch_state_gone(&s, 1, now, &silent));
    assert_true(watch_state_gone(&s, 2, now, &silent) && silent);
    assert_false(watch_state_gone(&s, 0, now, &silent) || silent);
    watch_state_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_continued)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
