/* The launcher's machine in virtual time: what it is told, and what it has asked for since a start began. */
#pragma once

#include "testing.h"

#include <math.h>
#include <signal.h>

#include "launch/launch_state.h"

enum { BED_HOSTS = 6, BED_MOST_ACTIONS = 2 * BED_HOSTS + 4 };

typedef struct {
    LaunchState s;
    Site sites[BED_HOSTS];
    bool mute[BED_HOSTS]; /* agents that say nothing any more */
    double now, beat;
    double signalled[NSIG], killed, lost[BED_HOSTS]; /* INFINITY: not yet */
    int signals, warnings, pauses, beats;
    bool released[BED_HOSTS];
} Bed;

/* The documented times (docs/cluster.md). */
static inline LaunchTimes bed_times(double peer_timeout)
{
    return (LaunchTimes){.connect = 300,
                         .retry = {20, 10},
                         .silence = fmax(peer_timeout, 10),
                         .notice = peer_timeout + 5,
                         .fail = 2,
                         .save = 115,
                         .saved = 10,
                         .stop = 600};
}

static inline void bed_tell(Bed *b, LaunchEvent e)
{
    LaunchState *s = &b->s;
    launch_on(s, &e, b->now);
    assert_in_range(s->n_actions, 0, BED_MOST_ACTIONS);
    for (int i = 0; i < s->n_actions; i++) {
        const LaunchAction *a = &s->actions[i];
        switch (a->kind) {
        case LAUNCH_DO_SIGNAL:
            b->signalled[a->number] = fmin(b->signalled[a->number], b->now);
            b->signals++;
            break;
        case LAUNCH_DO_KILL:
            b->killed = fmin(b->killed, b->now);
            break;
        case LAUNCH_DO_WARN:
            b->warnings++;
            break;
        case LAUNCH_DO_LOSE:
            b->lost[a->number] = b->now;
            break;
        case LAUNCH_DO_BEAT:
            b->beats++;
            break;
        case LAUNCH_DO_PAUSE:
            b->pauses++;
            break;
        case LAUNCH_DO_RELEASE:
            b->released[a->number] = true;
            break;
        }
    }
    s->n_actions = 0;
}

static inline void bed_time(Bed *b) { bed_tell(b, (LaunchEvent){.kind = LAUNCH_TIME}); }

/* Time passes until `until`, or until the phase ends. Agents that are not mute give signs of life. */
static inline void bed_until(Bed *b, double until)
{
    LaunchPhase phase = b->s.phase;
    bed_time(b);
    for (int turns = 0; b->s.phase == phase && b->now < until; turns++) {
        assert_true(turns < 100000); /* the machine does not ask for the same time again and again */
        b->now = fmin(fmin(fmax(b->s.wake, b->now), b->beat), until);
        for (int h = 0; b->now >= b->beat && h < b->s.n_hosts && phase <= PHASE_RUNS; h++)
            if (!b->mute[h] && !b->s.hosts[h].lost) bed_tell(b, (LaunchEvent){.kind = LAUNCH_HEARD, .host = h});
        if (b->now >= b->beat) b->beat = b->now + LAUNCH_SIGN_S;
        bed_time(b);
    }
}
static inline void bed_pass(Bed *b, double seconds) { bed_until(b, b->now + seconds); }

static inline void bed_init(Bed *b, int n_hosts, double peer_timeout)
{
    *b = (Bed){.now = 1000};
    for (int h = 0; h < n_hosts; h++) b->sites[h] = (Site){.open = true};
    b->s.sites = b->sites;
    b->s.n_hosts = n_hosts;
    b->s.times = bed_times(peer_timeout);
}

/* Begins a start, whose agents have yet to answer. */
static inline void bed_begin(Bed *b)
{
    for (int i = 0; i < NSIG; i++) b->signalled[i] = INFINITY;
    for (int h = 0; h < BED_HOSTS; h++) b->lost[h] = INFINITY;
    b->killed = INFINITY;
    b->signals = b->warnings = b->pauses = b->beats = 0;
    memset(b->released, 0, sizeof b->released);
    b->beat = b->now + LAUNCH_SIGN_S;
    memset(b->mute, 0, sizeof b->mute);
    bed_tell(b, (LaunchEvent){.kind = LAUNCH_START});
}

/* Agents answer, and each open host gets `ranks`. */
static inline void bed_place(Bed *b, int ranks)
{
    for (int h = 0; h < b->s.n_hosts; h++)
        if (b->sites[h].open) bed_tell(b, (LaunchEvent){.kind = LAUNCH_HELLO, .host = h});
    bed_time(b);
    assert_int_equal(b->s.phase, PHASE_READY);
    for (int h = 0; h < b->s.n_hosts; h++) {
        b->sites[h].ranks = b->sites[h].open ? ranks : 0;
        if (b->sites[h].limit == 0) b->sites[h].limit = ranks;
    }
    bed_tell(b, (LaunchEvent){.kind = LAUNCH_PLACED});
}

static inline void bed_end(Bed *b, int rank, int code, int number)
{
    bed_tell(b, (LaunchEvent){.kind = LAUNCH_END, .rank = rank, .code = code, .number = number});
}
static inline void bed_report(Bed *b, int rank, Report report, int about, bool silent)
{
    bed_tell(b, (LaunchEvent){.kind = LAUNCH_REPORT, .rank = rank, .report = report, .about = about, .silent = silent});
}
/* The rank notices by itself that the other one is silent. */
static inline void bed_misses(Bed *b, int rank, int about)
{
    bed_report(b, rank, REPORT_LOST, about, true);
    bed_report(b, rank, REPORT_SILENT, about, false);
}
static inline void bed_signal(Bed *b, int number)
{
    bed_tell(b, (LaunchEvent){.kind = LAUNCH_SIGNAL, .number = number});
}

/* The ranks have ended; the verdict is checked. `rank` -1: a host is blamed. */
static inline void bed_judge(Bed *b)
{
    bed_time(b);
    assert_int_equal(b->s.phase, PHASE_ENDED);
    bed_tell(b, (LaunchEvent){.kind = LAUNCH_AUDITED, .rank = -1, .about = -1, .folder = true});
    assert_int_equal(b->s.phase, PHASE_OVER);
}
static inline void bed_next(Bed *b, double trained)
{
    bed_tell(b, (LaunchEvent){.kind = LAUNCH_NEXT, .trained = trained});
}

#define assert_verdict(b, a_cause, a_code, a_rank, a_host)                                                             \
    do {                                                                                                               \
        const Verdict *v_ = &(b)->s.verdict;                                                                           \
        if (v_->cause != (a_cause) || v_->code != (a_code) || v_->rank != (a_rank) || v_->host != (a_host))            \
            fail_msg("cause %d, code %d, rank %d, host %d", v_->cause, v_->code, v_->rank, v_->host);                  \
    } while (0)
#define assert_near(x, y)                                                                                              \
    do {                                                                                                               \
        if (!(fabs((x) - (y)) < 1e-6)) fail_msg(#x " is %g, not %g", (double)(x), (double)(y));                        \
    } while (0)
