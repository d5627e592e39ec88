/* Whether, when and on which hosts the launcher starts again. */
#include "launch_bed.h"

enum { PEER = 30 };

static void done(Bed *b) { launch_state_free(&b->s); }

/* A start in which host `lost` is lost (-1: a rank is killed), and the pause after it. */
static void fault(Bed *b, int lost, double trained)
{
    bed_begin(b);
    bed_place(b, 1);
    bed_report(b, 0, REPORT_MET, -1, false);
    if (lost >= 0) bed_tell(b, (LaunchEvent){.kind = LAUNCH_GONE, .host = lost, .why = "gone"});
    for (int r = 0; r < b->s.n_ranks; r++)
        if (launch_host_of(&b->s, r) != lost) bed_end(b, r, lost < 0 && r == 0 ? 0 : 77, lost < 0 && r == 0 ? 9 : 0);
    bed_judge(b);
    bed_next(b, trained);
}
static void pause_of(Bed *b, double seconds)
{
    double at = b->now;
    assert_int_equal(b->s.phase, PHASE_PAUSE);
    bed_pass(b, 1000);
    assert_int_equal(b->s.phase, PHASE_START);
    assert_near(b->now, at + seconds);
}
static void check_open(const Bed *b, const char *wanted) /* "101": of three hosts */
{
    for (int h = 0; h < b->s.n_hosts; h++) assert_int_equal(b->sites[h].open, wanted[h] == '1');
}

static void test_pauses(void **state) /* which double after starts that do not advance */
{
    (void)state;
    Bed b;
    bed_init(&b, 1, PEER);
    b.s.max_restarts = 12;
    double pause = 0.5, trained = 0;
    for (int i = 0; i < 12; i++) {
        bool advances = i == 0 || i == 3;
        pause = advances ? 0.5 : fmin(2 * pause, 60);
        trained += advances;
        fault(&b, -1, trained);
        pause_of(&b, pause);
    }
    fault(&b, -1, 99);
    assert_true(b.s.phase == PHASE_DONE && b.s.restarts == 12);
    done(&b);
}

static void test_hosts_return(void **state)
{
    (void)state;
    Bed b;
    bed_init(&b, 3, PEER);
    b.s.max_restarts = 9;
    fault(&b, 1, 1);
    check_open(&b, "101"); /* it is left out once */
    pause_of(&b, 0.5);
    fault(&b, 2, 2);
    check_open(&b, "110");
    pause_of(&b, 0.5);
    bed_begin(&b); /* host 1 still does not answer: the start continues without it, after 10 s */
    double at = b.now;
    bed_tell(&b, (LaunchEvent){.kind = LAUNCH_HELLO, .host = 0});
    bed_pass(&b, 100);
    assert_near(b.lost[1], at + 10);
    assert_int_equal(b.s.phase, PHASE_READY);
    check_open(&b, "100");
    done(&b);
}

static void test_needed(void **state) /* --ranks needs the host, so it is tried at once */
{
    (void)state;
    Bed b;
    bed_init(&b, 3, PEER);
    b.s.max_restarts = 9;
    b.s.wanted = 3;
    fault(&b, 1, 1);
    check_open(&b, "111");
    pause_of(&b, 0.5);
    bed_begin(&b);
    for (int h = 0; h < 3; h++) bed_tell(&b, (LaunchEvent){.kind = LAUNCH_GONE, .host = h, .why = "gone"});
    bed_time(&b);
    assert_verdict(&b, CAUSE_NO_START, 77, -1, -1); /* all are lost: they may come back */
    assert_true(b.s.verdict.again);
    bed_next(&b, 1);
    check_open(&b, "111");
    pause_of(&b, 1);
    b.sites[1].excluded = true; /* by --audit: the others have too few slots */
    fault(&b, -1, 1);
    assert_int_equal(b.s.phase, PHASE_DONE);
    done(&b);
}

static void test_stopped_between(void **state)
{
    (void)state;
    Bed b;
    bed_init(&b, 1, PEER);
    b.s.max_restarts = 9;
    fault(&b, -1, 1);
    bed_signal(&b, SIGCONT);
    assert_int_equal(b.s.phase, PHASE_PAUSE);
    bed_signal(&b, SIGTERM);
    assert_int_equal(b.s.phase, PHASE_DONE);
    done(&b);
}

/* A start of two hosts in which rank 1 is killed, and rank 0 stands. */
static void stand(Bed *b)
{
    bed_init(b, 2, PEER);
    b->s.max_restarts = 1;
    b->s.standby = true;
    bed_begin(b);
    bed_place(b, 1);
    bed_report(b, 0, REPORT_MET, -1, false);
    bed_end(b, 1, 0, SIGKILL);
    bed_tell(b, (LaunchEvent){.kind = LAUNCH_STANDS, .rank = 0});
    bed_judge(b);
    assert_verdict(b, CAUSE_RANK, 77, 1, 1);
    assert_true(launch_goes_on(&b->s, 0) && launch_goes_on(&b->s, 1));
}

/* Time passes, and the first `hosts` are heard. */
static void pass_with(Bed *b, double seconds, int hosts)
{
    for (double until = b->now + seconds; b->now < until; b->now++) {
        for (int h = 0; h < hosts; h++) bed_tell(b, (LaunchEvent){.kind = LAUNCH_HEARD, .host = h});
        bed_time(b);
    }
}

static void test_standby(void **state)
{
    (void)state;
    Bed b;
    stand(&b);
    bed_tell(&b, (LaunchEvent){.kind = LAUNCH_GONE, .host = 1, .why = "gone"});
    bed_next(&b, 1);
    assert_true(!b.released[0] && b.released[1]);
    bed_pass(&b, 1000);
    assert_int_equal(b.s.phase, PHASE_START);
    bed_begin(&b);
    assert_true(b.s.hosts[0].met && !b.s.hosts[1].met); /* an agent that has ended is asked again */
    bed_place(&b, 1);
    bed_end(&b, 0, 77, 0);
    bed_end(&b, 1, 0, SIGKILL);
    bed_judge(&b);
    bed_next(&b, 2); /* the restarts are used up */
    assert_true(b.s.phase == PHASE_DONE && b.released[0] && b.released[1]);
    done(&b);
}

static void test_standby_silent(void **state) /* an agent that falls silent between two starts */
{
    (void)state;
    Bed b;
    stand(&b);
    bed_next(&b, 1);
    pass_with(&b, PEER, 1);
    assert_int_equal(b.s.phase, PHASE_START);
    bed_time(&b);
    bed_begin(&b);
    assert_true(b.s.hosts[0].met && !b.s.hosts[1].met);
    done(&b);
    stand(&b);
    bed_next(&b, 1);
    pass_with(&b, PEER - 2, 1); /* not for as long as the limit */
    bed_begin(&b);
    assert_true(b.s.hosts[0].met && b.s.hosts[1].met);
    pass_with(&b, 4, 1);
    assert_true(!b.s.hosts[0].lost && b.s.hosts[1].lost);
    done(&b);
}

static void test_standby_between(void **state)
{
    (void)state;
    Bed b;
    stand(&b);
    pass_with(&b, 60, 2); /* other agents are waited for */
    assert_in_range(b.beats, 20, 40);
    bed_next(&b, 1);
    assert_true(!b.released[0] && !b.released[1]);
    bed_signal(&b, SIGTERM);
    assert_true(b.s.phase == PHASE_DONE && b.released[0] && b.released[1]);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pauses),         cmocka_unit_test(test_hosts_return),
                                       cmocka_unit_test(test_needed),         cmocka_unit_test(test_stopped_between),
                                       cmocka_unit_test(test_standby),        cmocka_unit_test(test_standby_silent),
                                       cmocka_unit_test(test_standby_between)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
