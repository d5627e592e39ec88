/* The watch's questions after its process was stopped, and its beats. What it decides in a job is tried in tests/sim.
 */
#include "testing.h"

#include "comm/watch/watch_state.h"

#define TIMEOUT 30.0
#define BEAT    5.0

/* A process that was stopped does not take the others for silent before its watch has read what they sent. */
static void test_continued(void **state)
{
    WatchState s = watch_state(0, 3, TIMEOUT, BEAT);
    double now = 100;
    (void)state;
    for (int r = 1; r < 3; r++) watch_on(&s, &(WatchEvent){.kind = WATCH_MET, .rank = r}, now);
    now += 2 * TIMEOUT;
    assert_int_equal(watch_state_peer(&s, 1, 0, now), PEER_WELL);
    for (double end = now + TIMEOUT + BEAT; now < end; now += BEAT)
        watch_on(&s, &(WatchEvent){.kind = WATCH_HEARD, .rank = 1}, now);
    assert_int_equal(watch_state_peer(&s, 1, 0, now), PEER_WELL);
    assert_int_equal(watch_state_peer(&s, 2, 0, now), PEER_SILENT);
    assert_int_equal(watch_state_peer(&s, 0, 0, now), PEER_WELL);
    watch_state_free(&s);
}

/* Ranks that begin at different times send their signs of life at the same ones. */
static void test_together(void **state)
{
    double sent[2] = {0};
    (void)state;
    for (int r = 0; r < 2; r++) {
        WatchState s = watch_state(r, 2, TIMEOUT, BEAT);
        watch_on(&s, &(WatchEvent){.kind = WATCH_MET, .rank = 1 - r}, 1001.3 + r);
        for (int turn = 0; turn < 3; turn++) {
            s.n_actions = 0;
            sent[r] = s.wake;
            watch_on(&s, &(WatchEvent){.kind = WATCH_TIME, .rank = r}, s.wake);
            assert_int_equal(s.n_actions, 1);
            assert_int_equal(s.actions[0].what, WATCH_SEND_BEAT);
            assert_true(s.wake > sent[r] && s.wake < sent[r] + 1.01 * BEAT);
        }
        watch_state_free(&s);
    }
    assert_true(sent[0] == sent[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_continued), cmocka_unit_test(test_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
