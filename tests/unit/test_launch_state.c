/* The launcher's decisions, case by case. */
#include "launch_bed.h"

enum { PEER = 30 };

/* A start on hosts with `each` ranks, which have met. */
static void start(Bed *b, int hosts, int each)
{
    bed_init(b, hosts, PEER);
    b->s.max_restarts = 100;
    bed_begin(b);
    bed_place(b, each);
    bed_report(b, 0, REPORT_MET, -1, false);
    bed_pass(b, 100);
}
static void done(Bed *b) { launch_state_free(&b->s); }

static void test_all_well(void **state)
{
    (void)state;
    Bed b;
    start(&b, 2, 2);
    for (int r = 0; r < 4; r++) bed_end(&b, r, 0, 0);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_NONE, 0, -1, -1);
    assert_true(b.signals == 0 && b.killed == INFINITY && !b.s.verdict.again);
    bed_next(&b, 1);
    assert_int_equal(b.s.phase, PHASE_DONE);
    done(&b);
}

/* ---- lost ranks ---- */

static void test_killed(void **state)
{
    (void)state;
    Bed b;
    start(&b, 1, 3);
    double at = b.now;
    bed_end(&b, 1, 0, SIGKILL);
    bed_report(&b, 0, REPORT_LOST, 1, false);
    bed_report(&b, 2, REPORT_LOST, 1, false);
    bed_pass(&b, 30); /* they save */
    bed_end(&b, 0, 77, 0);
    bed_pass(&b, 80);
    assert_true(b.killed == INFINITY); /* the last survivor may save, too */
    assert_near(b.signalled[SIGTERM], at + PEER + 5);
    bed_end(&b, 2, 77, 0);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 77, 1, 0);
    assert_true(b.s.verdict.again);
    done(&b);
}

static void test_unnoticed(void **state) /* the survivor does not notice, and does not end */
{
    (void)state;
    Bed b;
    start(&b, 1, 2);
    double at = b.now;
    bed_end(&b, 1, 0, SIGSEGV);
    bed_pass(&b, 400);
    assert_near(b.signalled[SIGTERM], at + PEER + 5);
    assert_near(b.killed, at + PEER + 5 + 115);
    assert_int_equal(b.warnings, 1);
    bed_end(&b, 0, 0, SIGKILL);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 77, 1, 0);
    assert_int_equal(launch_lost_beside(&b.s, -1), -1);
    done(&b);
}

/* Before all have met the others notice nothing, and have nothing to save. */
static void test_early(void **state)
{
    (void)state;
    Bed b;
    bed_init(&b, 1, PEER);
    bed_begin(&b);
    bed_place(&b, 3);
    bed_end(&b, 1, 0, SIGKILL);
    bed_time(&b);
    assert_near(b.signalled[SIGTERM], b.now);
    bed_end(&b, 0, 75, 0);
    bed_end(&b, 2, 0, SIGTERM); /* before it handled signals */
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 77, 1, 0);
    assert_int_equal(launch_lost_beside(&b.s, -1), -1);
    done(&b);
}
static void test_early_signal(void **state)
{
    (void)state;
    Bed b;
    for (int number = SIGINT; number <= SIGTERM; number += SIGTERM - SIGINT) {
        bed_init(&b, 1, PEER);
        bed_begin(&b);
        bed_place(&b, 3);
        bed_end(&b, 1, 0, SIGKILL);
        bed_signal(&b, number);
        assert_near(b.signalled[number], b.now);
        bed_end(&b, 0, 75, 0);
        bed_end(&b, 2, 75, 0);
        bed_judge(&b);
        assert_true(b.s.verdict.code == 75 && !b.s.verdict.again);
        done(&b);
    }
}

/* A rank that freezes before all have met: nothing can be saved, so it gets no time for that. */
static void test_unmet(void **state)
{
    (void)state;
    Bed b;
    bed_init(&b, 1, PEER);
    bed_begin(&b);
    bed_place(&b, 3);
    bed_pass(&b, 300); /* --connect-timeout */
    bed_end(&b, 2, 77, 0);
    bed_end(&b, 0, 77, 0);
    double at = b.now;
    bed_pass(&b, 300);
    assert_near(b.killed, at + PEER + 15);
    bed_end(&b, 1, 0, SIGKILL);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 77, 1, 0);
    done(&b);
}

static void test_frozen(void **state)
{
    (void)state;
    Bed b;
    for (int i = 0; i < 4; i++) {
        int save = i % 2 * 9, hosts = i < 2 ? 3 : 1; /* seconds */
        start(&b, hosts, 3 / hosts);
        double at = b.now;
        bed_misses(&b, 0, 1);
        bed_misses(&b, 2, 1);
        bed_pass(&b, save);
        bed_report(&b, 0, REPORT_SAVED, -1, false);
        bed_report(&b, 0, REPORT_SILENT, 1, false);
        bed_end(&b, 0, 77, 0);
        bed_end(&b, 2, 77, 0);
        bed_pass(&b, 100);
        assert_near(b.killed, fmax(at + save + 2, hosts > 1 ? at + 4 : 0));
        bed_end(&b, 1, 0, SIGKILL);
        bed_judge(&b);
        assert_verdict(&b, CAUSE_RANK, 77, 1, hosts > 1);
        assert_true(rank_is_frozen(&b.s.ranks[1]));
        done(&b);
    }
}

/* A rank that is out of reach, and so is its agent for 3 s: both are heard before it counts as frozen. */
static void test_frozen_or_far(void **state)
{
    (void)state;
    Bed b;
    for (int far = 0; far < 2; far++) {
        start(&b, 2, 1);
        double at = b.now;
        b.mute[1] = true;
        bed_misses(&b, 0, 1);
        bed_end(&b, 0, 77, 0);
        bed_pass(&b, 7);
        assert_true(b.killed == INFINITY);
        b.mute[1] = false;
        if (far) bed_misses(&b, 1, 0); /* it was sent long ago */
        bed_tell(&b, (LaunchEvent){.kind = LAUNCH_HEARD, .host = 1});
        bed_pass(&b, 60);
        if (!far) assert_near(b.killed, at + 7);
        if (far) assert_true(b.killed == INFINITY);
        bed_end(&b, 1, far ? 77 : 0, far ? 0 : SIGKILL);
        bed_judge(&b);
        if (far) assert_verdict(&b, CAUSE_CUT_OFF, 77, -1, 1);
        if (!far) assert_verdict(&b, CAUSE_RANK, 77, 1, 1);
        done(&b);
    }
}

static void test_two_frozen(void **state) /* both are named, also on two hosts, which each report the other's */
{
    (void)state;
    Bed b;
    start(&b, 2, 2);
    double at = b.now;
    for (int by = 0; by < 4; by += 3) {
        bed_report(&b, by, REPORT_LOST, by ? 1 : 2, true);
        bed_report(&b, by, REPORT_SILENT, 1, false);
        bed_report(&b, by, REPORT_SILENT, 2, false);
        bed_end(&b, by, 77, 0);
    }
    bed_pass(&b, 50);
    assert_near(b.killed, at + 2); /* a rank of the own host reports each */
    bed_end(&b, 1, 0, SIGKILL);
    bed_end(&b, 2, 0, SIGKILL);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 77, 1, 0);
    assert_int_equal(launch_lost_beside(&b.s, -1), 2);
    assert_int_equal(launch_lost_beside(&b.s, 2), -1);
    done(&b);
}

/* A rank that freezes while it helps to save after another's death: once the state is saved, nobody waits for it. */
static void test_helper(void **state)
{
    (void)state;
    Bed b;
    start(&b, 1, 3);
    bed_end(&b, 2, 0, SIGKILL);
    bed_report(&b, 0, REPORT_LOST, 2, false);
    bed_report(&b, 1, REPORT_LOST, 2, false);
    bed_pass(&b, 60);
    assert_true(b.killed == INFINITY);
    bed_report(&b, 0, REPORT_SAVED, -1, false);
    bed_report(&b, 0, REPORT_SILENT, 1, false);
    double at = b.now;
    bed_end(&b, 0, 77, 0);
    bed_pass(&b, 60);
    assert_near(b.killed, at + 10);
    bed_end(&b, 1, 0, SIGKILL);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 77, 2, 0);
    assert_int_equal(launch_lost_beside(&b.s, -1), -1); /* the frozen one noticed the loss before */
    done(&b);
}

/* The rank that leads the save freezes: the others name it, and save beside if they can. */
static void test_leader(void **state)
{
    (void)state;
    Bed b;
    for (int saved = 0; saved < 2; saved++) {
        start(&b, 1, 3);
        bed_end(&b, 2, 0, SIGKILL);
        bed_report(&b, 0, REPORT_LOST, 2, false);
        bed_report(&b, 1, REPORT_LOST, 2, false);
        bed_pass(&b, PEER);
        bed_report(&b, 1, REPORT_FROZEN, 0, false);
        bed_pass(&b, 5);
        if (saved) bed_report(&b, 1, REPORT_SAVED, -1, false);
        bed_end(&b, 1, 77, 0);
        double at = b.now;
        bed_pass(&b, 60);
        assert_near(b.killed, at + (saved ? 2 : 10));
        bed_end(&b, 0, 0, SIGKILL);
        bed_judge(&b);
        assert_verdict(&b, CAUSE_RANK, 77, 2, 0);
        assert_int_equal(launch_lost_beside(&b.s, -1), -1);
        done(&b);
    }
}

/* A frozen rank that continues finds the others gone: it is named, and its host is not cut off. */
static void test_thawed(void **state)
{
    (void)state;
    Bed b;
    start(&b, 2, 1);
    bed_misses(&b, 0, 1);
    bed_end(&b, 0, 77, 0);
    bed_pass(&b, 3);
    bed_report(&b, 1, REPORT_LOST, 0, false);
    bed_pass(&b, 50);
    assert_true(b.killed == INFINITY); /* it may save */
    bed_end(&b, 1, 77, 0);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 77, 1, 1);
    assert_int_equal(b.sites[1].lost_in, 0);
    done(&b);
}

/* Two ranks freeze; one continues, and hears from a third that the other one is lost. */
static void test_one_thawed(void **state)
{
    (void)state;
    Bed b;
    start(&b, 3, 1);
    bed_misses(&b, 0, 2);
    bed_report(&b, 0, REPORT_SILENT, 1, false);
    bed_report(&b, 0, REPORT_SILENT, 2, false);
    bed_end(&b, 0, 77, 0);
    bed_report(&b, 1, REPORT_LOST, 2, true);
    bed_end(&b, 1, 77, 0);
    bed_pass(&b, 60);
    b.now += 0.1;
    bed_end(&b, 2, 0, SIGKILL);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 77, 2, 2);
    for (int h = 0; h < 3; h++) assert_int_equal(b.sites[h].lost_in, 0);
    done(&b);
}

/* ---- hosts ---- */

/* Two sides of three hosts report each other as silent. */
static void test_cut_off(void **state)
{
    (void)state;
    static const struct {
        int here, alone, lost[2]; /* the launcher's host, or -1; the host that is alone; the hosts that are cut off */
    } cases[] = {{0, 0, {1, 2}}, {0, 2, {2, 2}}, {1, 0, {0, 0}}, {2, 2, {0, 1}}, {-1, 0, {0, 0}}, {-1, 1, {1, 1}}};
    Bed b;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start(&b, 3, 1);
        int alone = cases[i].alone;
        if (cases[i].here >= 0) b.sites[cases[i].here].here = true;
        for (int a = 0; a < 3; a++)
            for (int c = 0; c < 3; c++)
                if ((a == alone) != (c == alone)) bed_misses(&b, a, c);
        bed_pass(&b, 60);
        assert_true(b.killed == INFINITY);
        for (int a = 0; a < 3; a++) bed_end(&b, a, 77, 0);
        bed_judge(&b);
        assert_verdict(&b, CAUSE_CUT_OFF, 77, -1, cases[i].lost[0]);
        for (int h = 0; h < 3; h++)
            assert_int_equal(b.sites[h].lost_in, h == cases[i].lost[0] || h == cases[i].lost[1]);
        done(&b);
    }
}

/* A stop, of which ranks end with a lost peer alone. */
static void test_stopped_and_lost(void **state)
{
    (void)state;
    Bed b;
    start(&b, 2, 1);
    bed_signal(&b, SIGTERM);
    for (int r = 0; r < 2; r++) bed_end(&b, r, 77, 0);
    bed_judge(&b);
    assert_int_equal(b.s.verdict.code, 75);
    assert_false(b.s.verdict.again);
    done(&b);
}

/* A rank that is cut off ends before it finds all others silent: then the one that it names is not cut off. */
static void test_cut_off_in_haste(void **state)
{
    (void)state;
    Bed b;
    start(&b, 3, 1);
    bed_misses(&b, 1, 2);
    bed_end(&b, 1, 77, 0);
    for (int r = 0; r < 3; r += 2) bed_misses(&b, r, 1);
    for (int r = 0; r < 3; r += 2) bed_end(&b, r, 77, 0);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_CUT_OFF, 77, -1, 1);
    assert_int_equal(b.sites[2].lost_in, 0);
    done(&b);
}

/* Two ranks freeze in turn, and each reports the other: no host is cut off. */
static void test_frozen_in_turn(void **state)
{
    (void)state;
    Bed b;
    start(&b, 2, 1);
    bed_misses(&b, 0, 1);
    bed_pass(&b, 10);
    bed_report(&b, 1, REPORT_LOST, 1, true); /* it continues, and finds that it was reported */
    bed_pass(&b, PEER);
    bed_report(&b, 1, REPORT_SILENT, 0, false);
    bed_end(&b, 1, 77, 0);
    bed_pass(&b, 200);
    b.now += 0.1;
    bed_end(&b, 0, 0, SIGKILL);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 77, 0, 0);
    for (int h = 0; h < 2; h++) assert_int_equal(b.sites[h].lost_in, 0);
    done(&b);
}

/* A rank that is cut off, and does not end in time. */
static void test_cut_off_and_killed(void **state)
{
    (void)state;
    Bed b;
    start(&b, 2, 1);
    for (int r = 0; r < 2; r++) bed_misses(&b, r, !r);
    bed_end(&b, 0, 77, 0);
    double at = b.now;
    bed_pass(&b, 300);
    assert_near(b.killed, at + PEER + 5 + 115);
    b.now += 0.1;
    bed_end(&b, 1, 0, SIGKILL);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_CUT_OFF, 77, -1, 1);
    done(&b);
}

static void test_agent_frozen(void **state)
{
    (void)state;
    Bed b;
    start(&b, 2, 2);
    double heard = b.s.hosts[1].heard;
    b.mute[1] = true;
    bed_pass(&b, 100);
    assert_near(b.lost[1], heard + PEER);
    assert_near(b.signalled[SIGTERM], b.lost[1] + PEER + 5);
    bed_end(&b, 0, 75, 0);
    bed_end(&b, 1, 75, 0);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_HOST, 77, -1, 1);
    assert_int_equal(b.sites[1].lost_in, 1);
    bed_end(&b, 2, 0, SIGKILL); /* a late message */
    done(&b);
}

/* The launcher was suspended: the messages of agents come later than its time. */
static void test_suspended(void **state)
{
    (void)state;
    Bed b;
    start(&b, 2, 1);
    bed_signal(&b, SIGTSTP);
    assert_true(b.pauses == 1 && b.signalled[SIGSTOP] == b.now);
    b.now += 1000;
    bed_signal(&b, SIGCONT);
    assert_near(b.signalled[SIGCONT], b.now);
    bed_pass(&b, 100);
    assert_true(b.lost[0] == INFINITY && b.lost[1] == INFINITY && b.killed == INFINITY);
    assert_int_equal(b.s.phase, PHASE_RUNS);
    done(&b);
}

static void test_no_answer(void **state)
{
    (void)state;
    Bed b;
    bed_init(&b, 2, PEER);
    b.s.max_restarts = 9;
    bed_begin(&b);
    double at = b.now;
    bed_tell(&b, (LaunchEvent){.kind = LAUNCH_HELLO, .host = 0});
    bed_pass(&b, 1000);
    assert_near(b.lost[1], at + 300);
    assert_verdict(&b, CAUSE_NO_START, 77, -1, -1); /* the first start is that of all hosts */
    assert_false(b.s.verdict.again);
    done(&b);
}

/* ---- ranks that end by themselves ---- */

static void test_failure(void **state)
{
    (void)state;
    Bed b;
    static const int codes[] = {1, 2, 76, 78, 79};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        start(&b, 2, 1);
        double at = b.now;
        bed_end(&b, 1, codes[i], 0);
        bed_pass(&b, 10);
        assert_near(b.signalled[SIGTERM], at + 2);
        bed_end(&b, 0, 77, 0); /* it lost a peer, but that is no cause */
        bed_judge(&b);
        bool damage = codes[i] == 78;
        assert_verdict(&b, damage ? CAUSE_DAMAGE : CAUSE_RANK, codes[i], damage ? -1 : 1, damage ? -1 : 1);
        assert_int_equal(b.s.verdict.again, damage);
        done(&b);
    }
}

static void test_memory(void **state)
{
    (void)state;
    Bed b;
    start(&b, 1, 2);
    bed_tell(&b, (LaunchEvent){.kind = LAUNCH_END, .rank = 1, .number = SIGKILL, .memory_limit = 1});
    bed_end(&b, 0, 77, 0);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 76, 1, 0);
    assert_false(b.s.verdict.again);
    done(&b);
}

static void test_excluded(void **state)
{
    (void)state;
    Bed b;
    start(&b, 2, 1);
    bed_end(&b, 0, 77, 0);
    bed_end(&b, 1, 77, 0);
    bed_time(&b);
    bed_tell(&b, (LaunchEvent){.kind = LAUNCH_AUDITED, .rank = 1, .about = -1, .folder = true});
    assert_verdict(&b, CAUSE_EXCLUDED, 77, 1, 1);
    done(&b);
}

static void test_stopped_alone(void **state) /* a rank that a signal stopped alone stops all */
{
    (void)state;
    Bed b;
    start(&b, 1, 3);
    double at = b.now;
    bed_end(&b, 1, 75, 0);
    bed_pass(&b, 10);
    assert_near(b.signalled[SIGTERM], at + 2);
    bed_end(&b, 0, 75, 0);
    bed_end(&b, 2, 75, 0);
    bed_judge(&b);
    assert_verdict(&b, CAUSE_RANK, 75, 1, 0);
    assert_false(b.s.verdict.again);
    done(&b);
}

/* ---- signals ---- */

static void test_signals(void **state)
{
    (void)state;
    static const int numbers[][2] = {{SIGTERM, SIGTERM}, {SIGINT, SIGINT}, {SIGUSR2, SIGUSR2}, {SIGHUP, SIGTERM}};
    Bed b;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        start(&b, 1, 2);
        double at = b.now;
        bed_signal(&b, numbers[i][0]);
        assert_near(b.signalled[numbers[i][1]], at);
        bed_signal(&b, SIGTERM); /* a second one tells them nothing */
        bed_end(&b, 0, 75, 0);
        bed_pass(&b, 590);
        assert_true(b.signals == 1 && b.killed == INFINITY); /* rank 1 saves */
        bed_pass(&b, 100);
        assert_near(b.killed, at + 600);
        bed_end(&b, 1, 0, SIGKILL);
        bed_judge(&b);
        assert_verdict(&b, CAUSE_RANK, 77, 1, 0);
        assert_false(b.s.verdict.again);
        done(&b);
    }
}

static void test_two_interrupts(void **state)
{
    (void)state;
    Bed b;
    start(&b, 1, 2);
    bed_signal(&b, SIGINT);
    bed_pass(&b, 1);
    bed_signal(&b, SIGINT);
    assert_near(b.killed, b.now);
    b.now += 0.1;
    bed_end(&b, 0, 0, SIGKILL);
    bed_end(&b, 1, 0, SIGKILL);
    bed_judge(&b);
    assert_true(b.s.verdict.code == 130 && !b.s.verdict.again && b.warnings == 0);
    done(&b);
}

static void test_grid_engine(void **state) /* USR1 saves and continues */
{
    (void)state;
    Bed b;
    start(&b, 1, 1);
    b.s.under_grid_engine = true;
    bed_signal(&b, SIGUSR1);
    bed_signal(&b, SIGUSR1);
    assert_true(b.signals == 2 && b.s.stop_signal == 0);
    bed_pass(&b, 1000);
    assert_true(b.s.phase == PHASE_RUNS && b.killed == INFINITY);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_well),
                                       cmocka_unit_test(test_killed),
                                       cmocka_unit_test(test_unnoticed),
                                       cmocka_unit_test(test_early),
                                       cmocka_unit_test(test_early_signal),
                                       cmocka_unit_test(test_unmet),
                                       cmocka_unit_test(test_frozen),
                                       cmocka_unit_test(test_frozen_or_far),
                                       cmocka_unit_test(test_two_frozen),
                                       cmocka_unit_test(test_helper),
                                       cmocka_unit_test(test_leader),
                                       cmocka_unit_test(test_thawed),
                                       cmocka_unit_test(test_cut_off),
                                       cmocka_unit_test(test_one_thawed),
                                       cmocka_unit_test(test_cut_off_and_killed),
                                       cmocka_unit_test(test_cut_off_in_haste),
                                       cmocka_unit_test(test_stopped_and_lost),
                                       cmocka_unit_test(test_frozen_in_turn),
                                       cmocka_unit_test(test_agent_frozen),
                                       cmocka_unit_test(test_suspended),
                                       cmocka_unit_test(test_no_answer),
                                       cmocka_unit_test(test_failure),
                                       cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_excluded),
                                       cmocka_unit_test(test_stopped_alone),
                                       cmocka_unit_test(test_signals),
                                       cmocka_unit_test(test_two_interrupts),
                                       cmocka_unit_test(test_grid_engine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
