/* The launcher's decisions under random schedules: ranks that end, fail, freeze, hang, notice and save; agents that are
   lost or out of reach for a while; a network that is cut; signals. CAIRN_TEST_SEED runs one schedule, and prints it.
 */
#include "launch_bed.h"

enum { RANKS = 12, MESSAGES = 4096 };
#define LONG      2000.0 /* seconds after which a schedule without an end is interrupted */
#define SLOW_LINK 1.0    /* seconds, at most, from an agent to the launcher and back */

typedef enum { TRAINS, SURVIVES, STOPS, GONE } Doing;

typedef struct {
    Doing doing;
    bool aware;
    bool hangs;               /* it neither saves nor ends, but is not silent */
    double frozen, thaws;     /* INFINITY: never */
    double ends_at;           /* SURVIVES, STOPS */
    bool fault;               /* it was killed or failed by itself */
    double notices[RANKS];    /* when it finds that rank lost; INFINITY: not known yet */
    bool finds_silent[RANKS]; /* ... silent, else ended */
} Process;

typedef struct {
    double at;
    LaunchEvent e;
} Message;

static struct {
    Bed b;
    uint64_t seed;
    int hosts, each, n;
    double peer_timeout, now;
    Process of[RANKS];
    double delay[BED_HOSTS], cut[BED_HOSTS], heals[BED_HOSTS], dead[BED_HOSTS], beat[BED_HOSTS]; /* of agents */
    double arrived[BED_HOSTS]; /* the last message of this agent */
    double network_cut;        /* INFINITY: never */
    bool far[BED_HOSTS];       /* the side of the network behind the cut */
    double order_at[2];        /* ranks get SIGTERM, SIGKILL then; INFINITY: never */
    bool ordered[2][BED_HOSTS];
    Message messages[MESSAGES]; // (n_messages)
    int n_messages;
    double first_loss, first_stop, first_saved; /* as the launcher knows */
    int interrupts, faults;
    bool traced;
} w;

/* With CAIRN_TEST_SEED. */
#define trace(...)                                                                                                     \
    do {                                                                                                               \
        if (w.traced) print_message("%8.3f ", w.now), print_message(__VA_ARGS__), print_message("\n");                 \
    } while (0)

static double uniform(double low, double high)
{
    return low + (high - low) * (double)(testing_random(&w.seed) >> 11) * 0x1p-53;
}
static bool chance(double p) { return uniform(0, 1) < p; }
static int pick(int n) { return (int)(testing_random(&w.seed) % (uint64_t)n); }
static int host_of(int rank) { return rank / w.each; }
static bool is_frozen(const Process *p, double at) { return at >= p->frozen && at < p->thaws; }
static bool is_apart(int a, int b) { return w.now >= w.network_cut && w.far[host_of(a)] != w.far[host_of(b)]; }

/* ---- agents ---- */

/* Messages of an agent arrive in order; while its link is cut they wait. */
static void send(int host, LaunchEvent e)
{
    double at = w.now + w.delay[host];
    if (w.now >= w.cut[host] && w.now < w.heals[host]) at = w.heals[host] + w.delay[host];
    if (w.now >= w.dead[host] || at == INFINITY) return;
    w.arrived[host] = fmax(w.arrived[host], at);
    assert_in_range(w.n_messages, 0, MESSAGES - 1);
    e.host = host;
    w.messages[w.n_messages++] = (Message){w.arrived[host], e};
}

static void report(int rank, Report what, int about, bool silent)
{
    send(host_of(rank),
         (LaunchEvent){.kind = LAUNCH_REPORT, .rank = rank, .report = what, .about = about, .silent = silent});
}

/* The others of its side notice soon, but for an end in order. */
static void ends(int rank, int code, int number, size_t limit)
{
    Process *p = &w.of[rank];
    if (p->doing == GONE) return;
    p->doing = GONE;
    send(host_of(rank),
         (LaunchEvent){.kind = LAUNCH_END, .rank = rank, .code = code, .number = number, .memory_limit = limit});
    for (int i = 0; i < w.n && (number || (code && code != 75)); i++) {
        if (is_apart(i, rank) || w.of[i].aware) continue;
        w.of[i].notices[rank] = w.now + uniform(0, 1);
        w.of[i].finds_silent[rank] = false;
    }
}

/* From now on `a` hears nothing of `b`: the last sign of life came up to 2 s ago. */
static void falls_silent(int a, int b)
{
    double notices = w.now + w.peer_timeout - uniform(0, fmin(2, w.peer_timeout / 6));
    if (notices >= w.of[a].notices[b]) return;
    w.of[a].notices[b] = notices;
    w.of[a].finds_silent[b] = true;
}

/* ---- ranks ---- */

/* A rank that continues waits for new signs of life. */
static double notices_at(const Process *p, int other)
{
    bool again = p->thaws < INFINITY && p->finds_silent[other];
    return again ? fmax(p->notices[other], p->thaws + w.peer_timeout) : p->notices[other];
}

/* The first loss that the rank knows of, which it tells the others. It saves, if it was not asked to end before. */
static void becomes_aware(int rank, int lost, bool silent)
{
    Process *p = &w.of[rank];
    report(rank, REPORT_LOST, lost, silent);
    p->aware = true;
    for (int i = 0; i < w.n; i++) {
        if (i == lost || is_apart(i, rank) || w.of[i].notices[lost] < w.now + 0.05) continue;
        w.of[i].notices[lost] = w.now + 0.05;
        w.of[i].finds_silent[lost] = silent;
    }
    if (p->doing == STOPS) return;
    p->doing = SURVIVES;
    p->ends_at = w.now + (chance(0.8) ? uniform(0, 3) : chance(0.7) ? uniform(3, 30) : uniform(30, 100));
    if (p->hangs) p->ends_at = INFINITY;
}

static void rank_turn(int rank)
{
    Process *p = &w.of[rank];
    if (p->doing == GONE || is_frozen(p, w.now)) return;
    for (int i = 0; i < w.n; i++) {
        const Process *other = &w.of[i];
        bool reported = w.now >= p->thaws && other->aware && w.now >= other->notices[rank];
        if (!p->aware && reported && !is_apart(rank, i)) becomes_aware(rank, rank, true);
        if (w.now < notices_at(p, i)) continue;
        bool frozen = is_frozen(other, w.now);
        if (p->finds_silent[i] && other->doing != GONE && !is_apart(rank, i) && !frozen) continue;
        if (!p->aware) becomes_aware(rank, i, p->finds_silent[i]);
        if (frozen && other->aware && w.now >= other->frozen + w.peer_timeout && chance(0.05))
            report(rank, REPORT_FROZEN, i, false);
    }
    if (p->doing == TRAINS && w.now >= 200) ends(rank, 0, 0, 0);
    if ((p->doing != SURVIVES && p->doing != STOPS) || w.now < p->ends_at) return;
    if (p->doing == SURVIVES && chance(0.7)) report(rank, REPORT_SAVED, -1, false);
    for (int i = 0; i < w.n && p->aware; i++)
        if (w.now >= notices_at(p, i) && p->finds_silent[i] && (is_apart(rank, i) || is_frozen(&w.of[i], w.now)))
            report(rank, REPORT_SILENT, i, false);
    ends(rank, p->doing == STOPS ? 75 : 77, 0, 0);
}

static void obey(int host, int order)
{
    if (w.now < w.order_at[order] + w.delay[host] || w.ordered[order][host]) return;
    if (w.now >= w.dead[host] || w.b.s.hosts[host].lost) return; /* its agent ends its ranks by itself */
    if (w.now >= w.cut[host] && w.now < w.heals[host]) return;
    w.ordered[order][host] = true;
    for (int i = host * w.each; i < (host + 1) * w.each; i++) {
        Process *p = &w.of[i];
        if (order == 1) ends(i, 0, SIGKILL, 0);
        if (p->doing != TRAINS) continue;
        p->doing = STOPS;
        p->ends_at = p->hangs ? INFINITY : w.now + uniform(0, 20);
    }
}

/* ---- faults ---- */

static void launcher_gets(int number)
{
    bed_signal(&w.b, number);
    w.first_stop = fmin(w.first_stop, w.now);
    w.interrupts += number == SIGINT;
}

static void fault(void)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR2, SIGHUP};
    int rank = pick(w.n), host = host_of(rank), kind = pick(9);
    Process *p = &w.of[rank];
    w.faults++;
    trace("fault %d of rank %d on host %d", kind, rank, host);
    if (kind <= 3 && p->doing == GONE) return;
    switch (kind) {
    case 0: /* killed */
        p->fault = true;
        ends(rank, 0, chance(0.5) ? SIGKILL : SIGSEGV, 0);
        break;
    case 1: /* fails */
        p->fault = true;
        if (chance(0.5)) ends(rank, 1, 0, 0);
        if (p->doing != GONE) ends(rank, 0, SIGKILL, 1 << 20);
        break;
    case 2:
    case 3: /* freezes */
        p->frozen = w.now;
        p->thaws = chance(0.7) ? INFINITY : w.now + uniform(0, 2 * w.peer_timeout);
        for (int i = 0; i < w.n; i++)
            if (i != rank) falls_silent(i, rank);
        break;
    case 4: /* the network is cut */
        if (w.network_cut < INFINITY) break;
        for (int h = 0; h < w.hosts; h++) w.far[h] = chance(0.5);
        w.network_cut = w.now;
        for (int a = 0; a < w.n; a++)
            for (int b = 0; b < w.n; b++)
                if (is_apart(a, b)) falls_silent(a, b);
        break;
    case 5: /* the agent is out of reach */
        if (w.cut[host] < INFINITY) break;
        w.cut[host] = w.now;
        w.heals[host] = chance(0.5) ? INFINITY : w.now + uniform(0, 60);
        break;
    case 6: /* the host is gone */
        send(host, (LaunchEvent){.kind = LAUNCH_GONE, .why = "its connection ended"});
        for (int i = host * w.each; i < (host + 1) * w.each; i++) {
            w.of[i].fault = true;
            ends(i, 0, SIGKILL, 0);
        }
        w.dead[host] = w.now;
        break;
    case 7:
        launcher_gets(signals[pick(4)]);
        break;
    case 8:
        w.of[pick(w.n)].hangs = true;
        break;
    }
}

/* ---- what must hold ---- */

static bool in_reach(int host)
{
    bool near_cut = w.now >= w.cut[host] - 20 && w.now < w.heals[host] + 20;
    return w.now < w.dead[host] && !near_cut && !w.b.s.hosts[host].lost;
}

/* Nobody is killed who lives, and may still save, before the documented times. */
static void check_kill(void)
{
    const LaunchTimes *t = &w.b.s.times;
    bool due = w.now >= w.first_loss + t->notice + t->save || w.now >= w.first_stop + t->stop || w.interrupts > 1 ||
               w.now >= w.first_saved + t->saved;
    bool unmet = !w.b.s.met && w.now >= w.first_loss + t->notice + t->saved;
    for (int i = 0; i < w.n && !due && !unmet; i++) {
        const Process *p = &w.of[i];
        if (p->doing == GONE || p->hangs || p->frozen < INFINITY || !in_reach(host_of(i))) continue;
        fail_msg("at %g rank %d is killed, which %s; first loss %g", w.now, i,
                 p->doing == SURVIVES ? "saves" : "has noticed nothing yet", w.first_loss);
    }
}

static void check_bounds(void)
{
    const LaunchTimes *t = &w.b.s.times;
    double most = fmin(w.first_loss + t->notice + t->save, w.first_stop + t->stop);
    if (w.b.s.phase == PHASE_RUNS && w.now > most + 1e-6) assert_true(w.b.killed < INFINITY);
    /* A host out of reach is lost meanwhile. */
    if (w.now > most + t->silence + 2 * LAUNCH_SIGN_S + 2 * SLOW_LINK) fail_msg("no end at %g", w.now);
}

static void check_verdict(void)
{
    const Verdict *v = &w.b.s.verdict;
    const Process *p = v->rank >= 0 ? &w.of[v->rank] : NULL;
    const Rank *r = p ? &w.b.s.ranks[v->rank] : NULL;
    int size[2] = {0, 0}; /* ranks of each side of a cut network */
    bool side = w.far[0]; /* that goes on: with the launcher's host, else the larger one, or rank 0's */
    bool known = true;    /* every rank has said what it knows, and none froze besides */
    for (int i = 0; i < w.n; i++) {
        size[w.far[host_of(i)]]++;
        known = known && w.of[i].frozen == INFINITY && w.b.s.ranks[i].aware;
    }
    if (size[0] != size[1]) side = size[1] > size[0];
    for (int h = 0; h < w.hosts; h++)
        if (w.b.sites[h].here) side = w.far[h];
    if (w.faults == 0) assert_verdict(&w.b, CAUSE_NONE, 0, -1, -1);
    for (int i = 0; i < w.n; i++) { /* a failure is never hidden, nor by a stop */
        const Rank *k = &w.b.s.ranks[i];
        if (k->ended && !k->signal && k->code == 1) assert_true(v->code == 1 || v->code == 130);
    }
    if (v->cause == CAUSE_CUT_OFF) assert_true(w.network_cut < INFINITY);
    if (v->cause == CAUSE_CUT_OFF && known) assert_true(w.far[v->host] != side);
    if (v->cause == CAUSE_HOST) assert_true(w.dead[v->host] < INFINITY || w.cut[v->host] < INFINITY);
    if (!r || !r->signal) return;
    if (rank_killed_late(&w.b.s, r) && rank_is_frozen(r) && in_reach(v->host)) assert_true(p->frozen < INFINITY);
    if (!rank_killed_late(&w.b.s, r)) assert_true(p->fault || w.b.signalled[SIGTERM] < INFINITY);
}

/* ---- a schedule ---- */

static void deliver(void)
{
    int kept = 0;
    for (int i = 0; i < w.n_messages; i++) {
        Message m = w.messages[i];
        if (m.at > w.now) {
            w.messages[kept++] = m;
            continue;
        }
        if (w.b.s.hosts[m.e.host].lost) continue;
        trace("kind %d host %d rank %d report %d about %d%s code %d signal %d", m.e.kind, m.e.host, m.e.rank,
              m.e.report, m.e.about, m.e.silent ? " silent" : "", m.e.code, m.e.number);
        bed_tell(&w.b, m.e);
        bool loss = m.e.kind == LAUNCH_GONE || (m.e.kind == LAUNCH_END && (m.e.number || (m.e.code && m.e.code != 75)));
        if (loss) w.first_loss = fmin(w.first_loss, w.now);
        if (m.e.kind == LAUNCH_END && m.e.code == 75) w.first_stop = fmin(w.first_stop, w.now);
        if (m.e.kind == LAUNCH_REPORT && m.e.report == REPORT_SAVED) w.first_saved = fmin(w.first_saved, w.now);
    }
    w.n_messages = kept;
}

static void begin(uint64_t seed)
{
    memset(&w, 0, sizeof w);
    w.traced = getenv("CAIRN_TEST_SEED");
    w.seed = seed * 2654435761u + 1;
    w.hosts = 1 + pick(4);
    w.each = 1 + pick(3);
    w.n = w.hosts * w.each;
    w.peer_timeout = chance(0.3) ? 5 : 30;
    w.network_cut = w.first_loss = w.first_stop = w.first_saved = w.order_at[0] = w.order_at[1] = INFINITY;
    bed_init(&w.b, w.hosts, w.peer_timeout);
    if (chance(0.7)) w.b.sites[pick(w.hosts)].here = true;
    w.b.now = 0;
    bed_begin(&w.b);
    bed_place(&w.b, w.each);
    for (int h = 0; h < w.hosts; h++) {
        w.delay[h] = chance(0.8) ? 0.001 : uniform(0, SLOW_LINK);
        w.cut[h] = w.heals[h] = w.dead[h] = INFINITY;
    }
    for (int i = 0; i < w.n; i++) {
        w.of[i].frozen = w.of[i].thaws = INFINITY;
        for (int k = 0; k < w.n; k++) w.of[i].notices[k] = INFINITY;
    }
}

static void run(uint64_t seed)
{
    int n_faults = 0;
    double at[4];
    begin(seed);
    Bed *b = &w.b;
    n_faults = pick(4);
    for (int i = 0; i < n_faults; i++) at[i] = i && chance(0.3) ? at[i - 1] : uniform(1, 60);
    for (int i = 0; i < w.n; i++) report(i, REPORT_MET, -1, false);
    bool silent = false;
    while (b->s.phase == PHASE_RUNS) {
        b->now = w.now;
        for (int i = 0; i < n_faults; i++)
            if (w.now >= at[i]) at[i] = INFINITY, fault();
        for (int h = 0; h < w.hosts; h++) {
            for (int order = 0; order < 2; order++) obey(h, order);
            if (w.now >= w.beat[h]) send(h, (LaunchEvent){.kind = LAUNCH_HEARD}), w.beat[h] = w.now + LAUNCH_SIGN_S;
        }
        for (int i = 0; i < w.n; i++) rank_turn(i);
        deliver();
        int signals = b->signals;
        double killed = b->killed;
        bed_time(b);
        for (int h = 0; h < w.hosts; h++)
            if (b->lost[h] == w.now) w.first_loss = fmin(w.first_loss, w.now);
        if (b->killed < killed) check_kill();
        if (b->killed < INFINITY) w.order_at[1] = fmin(w.order_at[1], w.now);
        if (b->signals > signals || w.first_stop == w.now) w.order_at[0] = fmin(w.order_at[0], w.now);
        check_bounds();
        if (w.now > LONG && w.interrupts < 2) { /* the only ranks left are frozen, or hang, with no loss */
            silent = true;
            launcher_gets(SIGINT);
        }
        w.now = fmin(w.now + uniform(0.01, 0.5), fmax(b->s.wake, w.now + 0.001));
    }
    if (!silent) {
        bed_judge(b);
        check_verdict();
    }
    launch_state_free(&b->s);
}

static uint64_t schedule;

static void test_schedules(void **state)
{
    (void)state;
    const char *first = getenv("CAIRN_TEST_SEED");
    uint64_t n = first ? 1 : testing_deep() ? 1000000 : 10000;
    for (schedule = first ? strtoull(first, NULL, 10) : 1; n > 0; schedule++, n--) run(schedule);
}

static int print_schedule(void **state)
{
    (void)state;
    print_message("ended at CAIRN_TEST_SEED=%llu\n", (unsigned long long)schedule);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_schedules, print_schedule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
