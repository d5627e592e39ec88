/* The agent's decisions: case by case, and under random schedules. */
#include "testing.h"

#include <math.h>
#include <signal.h>

#include "launch/agent_state.h"

static struct {
    AgentState s;
    double now;
    double termed, killed; /* INFINITY: not yet */
    int signals[NSIG], beats, ends;
    size_t limit; /* of the last end */
} a;

static void tell(AgentEvent e)
{
    agent_on(&a.s, &e, a.now);
    assert_in_range(a.s.n_actions, 0, 4);
    for (int i = 0; i < a.s.n_actions; i++) {
        const AgentAction *action = &a.s.actions[i];
        switch (action->kind) {
        case AGENT_DO_SIGNAL:
            a.signals[action->number]++;
            if (action->number == SIGTERM) a.termed = fmin(a.termed, a.now);
            break;
        case AGENT_DO_KILL:
            a.killed = fmin(a.killed, a.now);
            break;
        case AGENT_DO_BEAT:
            a.beats++;
            break;
        case AGENT_DO_TELL:
            a.ends++;
            a.limit = action->limit;
            break;
        }
    }
    a.s.n_actions = 0;
}
static void tell_kind(AgentEventKind kind) { tell((AgentEvent){.kind = kind}); }
static void order(int number) { tell((AgentEvent){.kind = AGENT_SIGNAL, .number = number}); }

static void begin(int ranks, double silence)
{
    free(a.s.actions);
    memset(&a, 0, sizeof a);
    a.now = 1000;
    a.termed = a.killed = INFINITY;
    a.s = (AgentState){.silence = silence, .grace = 30, .kills = 5, .heard = a.now};
    for (int i = 0; i < ranks; i++) tell_kind(AGENT_STARTED);
    tell_kind(AGENT_TIME);
}

/* Time passes, with a turn where the machine wants one. `heard`: of the launcher. */
static void pass(double seconds, bool heard)
{
    for (double until = a.now + seconds; a.now < until;) {
        a.now = fmin(fmax(a.s.wake, a.now + 0.001), until);
        if (heard) tell_kind(AGENT_HEARD);
        tell_kind(AGENT_TIME);
    }
}

static void test_beats(void **state)
{
    (void)state;
    begin(2, 30);
    pass(100, true);
    assert_in_range(a.beats, 50, 51);
    assert_true(a.termed == INFINITY && a.killed == INFINITY && !agent_is_done(&a.s));
}

static void test_lost_launcher(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        begin(2, 30);
        if (!silent) tell_kind(AGENT_GONE);
        double at = a.now + (silent ? 30 : 0);
        pass(100, false);
        assert_true(fabs(a.termed - at) < 1e-6 && fabs(a.killed - at - 30) < 1e-6 && a.signals[SIGTERM] == 1);
        for (int i = 0; i < 2; i++) {
            assert_false(agent_is_done(&a.s));
            tell((AgentEvent){.kind = AGENT_ENDED, .child = i, .killed = true, .kills = 6, .limit = 1});
            assert_int_equal(a.limit, 0); /* older kernels only count how often the limit was reached */
        }
        assert_true(agent_is_done(&a.s) && a.ends == 2);
    }
    begin(1, 0); /* without a limit only its end counts */
    pass(1000, false);
    assert_true(a.termed == INFINITY);
}

static void test_asked_once(void **state) /* by the scheduler, by the launcher, at its loss */
{
    (void)state;
    begin(1, 30);
    order(SIGTERM);
    order(SIGTERM);
    tell_kind(AGENT_GONE);
    assert_int_equal(a.signals[SIGTERM], 1);
    begin(1, 30);
    order(SIGUSR1);
    order(SIGUSR1);
    assert_int_equal(a.signals[SIGUSR1], 2);
}

static void test_again(void **state) /* orders to the ranks of a start are not for those of the next one */
{
    (void)state;
    begin(1, 30);
    order(SIGTERM);
    tell_kind(AGENT_KILL);
    tell_kind(AGENT_AGAIN);
    tell_kind(AGENT_STARTED);
    assert_int_equal(a.signals[SIGTERM], 1);
    tell((AgentEvent){.kind = AGENT_ENDED, .killed = true, .kills = 6, .limit = 7});
    assert_int_equal(a.limit, 7); /* this agent has not killed it */
    order(SIGTERM);
    assert_int_equal(a.signals[SIGTERM], 2);
}

static void test_suspended_launcher(void **state)
{
    (void)state;
    begin(1, 30);
    order(SIGSTOP);
    int beats = a.beats;
    a.now += 10000;
    tell_kind(AGENT_TIME);
    assert_true(a.termed == INFINITY && a.beats == beats && a.signals[SIGSTOP] == 1);
    order(SIGCONT);
    pass(29, false);
    assert_true(a.termed == INFINITY);
    pass(2, false);
    assert_true(a.termed < INFINITY);
    begin(1, 30); /* it ends meanwhile: ranks that are stopped could not save */
    order(SIGSTOP);
    tell_kind(AGENT_GONE);
    assert_true(a.signals[SIGCONT] == 1 && a.signals[SIGTERM] == 1);
}

static void test_suspended_agent(void **state) /* the launcher's messages have yet to be read */
{
    (void)state;
    begin(1, 30);
    pass(10, true);
    a.now += 1000;
    tell_kind(AGENT_TIME);
    assert_true(a.termed == INFINITY);
    pass(29, false);
    assert_true(a.termed == INFINITY);
}

static void test_memory(void **state)
{
    (void)state;
    begin(4, 30);
    tell((AgentEvent){.kind = AGENT_ENDED, .child = 0, .killed = true, .kills = 5, .limit = 100});
    assert_int_equal(a.limit, 0); /* killed by someone else */
    tell((AgentEvent){.kind = AGENT_ENDED, .child = 1, .killed = true, .kills = 6, .limit = 100});
    assert_int_equal(a.limit, 100);
    tell((AgentEvent){.kind = AGENT_ENDED, .child = 2, .killed = true, .kills = 6, .limit = 100});
    assert_int_equal(a.limit, 0);
    tell_kind(AGENT_KILL);
    tell((AgentEvent){.kind = AGENT_ENDED, .child = 3, .killed = true, .kills = 7, .limit = 100});
    assert_int_equal(a.limit, 0);
}

/* Whatever comes: ranks get SIGTERM at most once, 30 s before SIGKILL unless that is an order, and no rank outlives its
   launcher by more. */
static void test_schedules(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int schedule = 0; schedule < 5000; schedule++) {
        begin(1 + (int)(testing_random(&seed) % 4), 10);
        double lost = INFINITY, heard = a.now;
        bool ordered = false, asleep = false;
        for (int turn = 0; turn < 200 && !agent_is_done(&a.s); turn++) {
            int kind = (int)(testing_random(&seed) % 40);
            a.now += (double)(testing_random(&seed) % 1000) / 400;
            if (kind < 20) tell_kind(AGENT_HEARD), heard = a.now;
            if (kind == 20) order(SIGTERM);
            if (kind == 21 || kind == 22) order(kind == 21 ? SIGSTOP : SIGCONT), asleep = kind == 21, heard = a.now;
            if (kind == 23 && !(testing_random(&seed) % 4)) tell_kind(AGENT_KILL), ordered = true;
            if (kind == 24) tell_kind(AGENT_GONE), lost = fmin(lost, a.now);
            if (kind == 25 && a.s.alive > 0) tell((AgentEvent){.kind = AGENT_ENDED});
            tell_kind(AGENT_TIME);
            if (a.s.lost && lost == INFINITY) {
                assert_true(!asleep && a.now >= heard + 10);
                lost = a.now;
            }
            if (!asleep && a.now >= heard + 10 && turn > 0) assert_true(a.s.lost);
            assert_true(a.signals[SIGTERM] <= 1 && (!a.s.lost || a.signals[SIGTERM] == 1));
            if (a.killed < INFINITY && !ordered) assert_true(a.killed >= lost + 30);
            if (a.now >= lost + 30) assert_true(a.killed < INFINITY);
        }
    }
    free(a.s.actions);
    a.s.actions = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_beats),
                                       cmocka_unit_test(test_lost_launcher),
                                       cmocka_unit_test(test_asked_once),
                                       cmocka_unit_test(test_again),
                                       cmocka_unit_test(test_suspended_launcher),
                                       cmocka_unit_test(test_suspended_agent),
                                       cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_schedules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
