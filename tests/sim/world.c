/* Time, processes, the lines between them, and what befalls them. */
#include "sim.h"

#include <setjmp.h>
#include <stdarg.h>

Sim w;

#define LIMIT_S    100000.0 /* no job takes so long */
#define PATIENCE_S 1000.0   /* of the user of a launcher that is frozen for ever */
#define AFTER_S    200.0    /* for agents and ranks to end behind their launcher: silence, grace, and a save */

enum { MOST_EVENTS = 50000000 };

/* ---- memory of a run ---- */

typedef struct Block {
    struct Block *next;
    size_t used, size;
    _Alignas(16) char bytes[];
} Block;

static Block *blocks, *block; /* all; the one in use */

void *sim_alloc(size_t size)
{
    size = (size + 15) & ~(size_t)15;
    while (block && block->used + size > block->size) block = block->next;
    if (!block) {
        size_t room = size > (size_t)1 << 20 ? size : (size_t)1 << 20;
        Block *b = mem_alloc(sizeof *b + room);
        *b = (Block){.size = room};
        Block **end = &blocks;
        while (*end) end = &(*end)->next;
        *end = block = b;
    }
    void *memory = block->bytes + block->used;
    block->used += size;
    return memset(memory, 0, size);
}

static void forget_all(void)
{
    for (Block *b = blocks; b; b = b->next) b->used = 0;
    block = blocks;
}

/* ---- chance ---- */

static uint64_t draw(void)
{
    uint64_t z = w.random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

double uniform(double low, double high) { return low + (high - low) * (double)(draw() >> 11) * 0x1p-53; }
bool chance(double p) { return uniform(0, 1) < p; }
int pick(int n) { return (int)(draw() % (uint64_t)n); }

/* ---- what is to come ---- */

typedef enum { LETTER, WAKE, THAW, CHILD, STRIKE, HEAL, UP, LAST } EventKind;

typedef struct {
    double at;
    uint64_t order; /* of events at one time: the one that was planned first */
    void *what;     /* Proc or Letter */
    uint32_t token;
    uint8_t kind, a, b; /* an EventKind; a fault, or hosts */
} Event;

static Event *queue; // (n_queue) a heap
static int n_queue, cap_queue;
static uint64_t planned;
static jmp_buf out;

static bool before(const Event *x, const Event *y) { return x->at < y->at || (x->at == y->at && x->order < y->order); }

static void plan(Event e)
{
    e.order = planned++;
    MEM_PUSH(queue, n_queue, cap_queue, e);
    int i = n_queue - 1;
    for (; i > 0 && before(&e, &queue[(i - 1) / 2]); i = (i - 1) / 2) queue[i] = queue[(i - 1) / 2];
    queue[i] = e;
}

static Event next_event(void)
{
    Event first = queue[0], last = queue[--n_queue];
    int i = 0;
    for (int child; (child = 2 * i + 1) < n_queue; i = child) {
        if (child + 1 < n_queue && before(&queue[child + 1], &queue[child])) child++;
        if (!before(&queue[child], &last)) break;
        queue[i] = queue[child];
    }
    queue[i] = last;
    return first;
}

/* ---- words ---- */

static const char *name_of(const Proc *p, char text[32])
{
    if (!p)
        snprintf(text, 32, "-");
    else if (p->kind == PROC_LAUNCHER)
        snprintf(text, 32, "launcher");
    else if (p->kind == PROC_AGENT)
        snprintf(text, 32, "%d agent %d", p->start, p->host);
    else
        snprintf(text, 32, "%d %s %d", p->start, p->kind == PROC_RANK ? "rank" : "idle", p->rank);
    return text;
}

void trace_line(const Proc *p, const char *format, ...)
{
    char name[32];
    va_list args;
    printf("%9.3f %-11s ", w.now, name_of(p, name));
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

void story(const char *format, ...)
{
    va_list args;
    if (w.story.len) buf_puts(&w.story, "; ");
    va_start(args, format);
    buf_vprintf(&w.story, format, args);
    va_end(args);
    trace(NULL, "story: %s", w.story.data);
}

void sim_fail(const char *format, ...)
{
    va_list args;
    int n = snprintf(w.failure, sizeof w.failure, "at %.3f s: ", w.now);
    va_start(args, format);
    vsnprintf(w.failure + n, sizeof w.failure - (size_t)n, format, args);
    va_end(args);
    w.failed = true;
    trace(NULL, "broken: %s", w.failure);
    longjmp(out, 1);
}

/* ---- processes ---- */

static const Behaviour *behaviour_of(const Proc *p)
{
    static const Behaviour *const of[] = {&launcher_behaviour, &agent_behaviour, &rank_behaviour, &idle_behaviour};
    return of[p->kind];
}

/* Where another process has the line of this one. */
static int place_of(const Proc *p)
{
    if (p->kind >= PROC_RANK) return 1 + SIM_HOSTS + p->rank;
    return p->kind == PROC_AGENT ? 1 + p->host : 0;
}

static int count_places(void) { return 1 + SIM_HOSTS + w.schedule.hosts * w.schedule.each + w.schedule.standby; }

static Line *line_to(const Proc *p, const Proc *peer) { return &p->lines[place_of(peer)]; }

Proc *start_rank(int start, int rank)
{
    if (start == w.starts) return rank < w.n_ranks ? w.ranks[rank] : NULL;
    for (int i = 0; i < w.n_procs; i++)
        if (w.procs[i]->kind == PROC_RANK && w.procs[i]->start == start && w.procs[i]->rank == rank) return w.procs[i];
    return NULL;
}

Proc *proc_begin(ProcKind kind, int host, int start, int rank, Proc *parent)
{
    Proc *p = sim_alloc(sizeof *p);
    *p = (Proc){.kind = kind, .start = start, .host = host, .rank = rank, .begun = w.now, .parent = parent};
    p->wake = INFINITY;
    p->thawed = -INFINITY;
    p->born = w.starts;
    p->lines = sim_alloc((size_t)count_places() * sizeof *p->lines);
    p->inbox_end = &p->inbox;
    MEM_PUSH(w.procs, w.n_procs, w.cap_procs, p);
    bool newest = start == w.starts; /* an order of an earlier start may have been held back by a cut */
    if (kind == PROC_AGENT && newest) w.agents[host] = p;
    if (kind == PROC_RANK && newest) w.ranks[rank] = p;
    trace(p, "begins");
    proc_wake(p, w.now);
    return p;
}

void proc_wake(Proc *p, double at)
{
    if (at >= p->wake || p->life == PROC_DEAD) return;
    p->wake = at;
    plan((Event){.at = fmax(at, w.now), .kind = WAKE, .what = p, .token = ++p->token});
}

static void post_closed(Proc *p)
{
    for (int i = 0; i < count_places(); i++)
        if (p->lines[i].peer) line_close(p, p->lines[i].peer);
}

/* `vanishes`: with its host, so that nobody hears of it. */
static void end_process(Proc *p, int code, int signal, bool vanishes)
{
    if (p->life == PROC_DEAD) return;
    if (p->life == PROC_FROZEN) p->frozen_s += w.now - p->since;
    trace(p,
          vanishes ? "is gone with its host"
          : signal ? "is ended by signal %d"
                   : "ends with %d",
          signal ? signal : code);
    p->life = PROC_DEAD;
    p->since = w.now;
    p->code = code;
    p->signal = signal;
    p->vanished = vanishes;
    p->wake = INFINITY;
    disk_forget(p);
    if (vanishes) return;
    post_closed(p);
    if (p->kind >= PROC_RANK) { /* its last words come first */
        double last = line_to(p->parent, p)->last;
        plan((Event){.at = fmax(w.now, last), .kind = CHILD, .what = p});
    }
    for (int i = 0; i < w.n_procs && p->kind == PROC_AGENT; i++) /* the kernel does so */
        if (w.procs[i]->parent == p) end_process(w.procs[i], 0, SIGKILL, false);
}

void proc_end(Proc *p, int code, int signal) { end_process(p, code, signal, false); }

void proc_freeze(Proc *p, double seconds)
{
    if (!proc_runs(p)) return;
    trace(p, "freezes for %g s", seconds);
    p->life = PROC_FROZEN;
    p->since = w.now;
    p->freezes++;
    if (seconds < INFINITY) plan((Event){.at = w.now + seconds, .kind = THAW, .what = p, .token = p->freezes});
}

static void tell_child(Proc *p)
{
    Proc *parent = p->parent;
    if (p->told || !proc_runs(parent)) return;
    p->told = true;
    behaviour_of(parent)->child(parent, p);
}

static void thaw(Proc *p)
{
    const Behaviour *b = behaviour_of(p);
    if (p->life != PROC_FROZEN) return;
    trace(p, "goes on");
    p->life = PROC_RUNS;
    p->frozen_s += w.now - p->since;
    p->thawed = p->since = w.disturbed = w.now;
    p->wake = INFINITY;
    proc_wake(p, w.now);
    while (p->n_signals > 0 && proc_runs(p)) {
        int number = p->signals[0];
        memmove(p->signals, p->signals + 1, (size_t)--p->n_signals * sizeof number);
        b->signalled(p, number);
    }
    if (proc_runs(p) && chance(0.5)) b->time(p); /* it looks at the time before it reads */
    while (p->inbox && proc_runs(p)) {
        Letter *l = p->inbox;
        p->inbox = l->next;
        if (!p->inbox) p->inbox_end = &p->inbox;
        b->hears(p, l);
    }
    for (int i = 0; i < w.n_procs && p->kind == PROC_AGENT; i++)
        if (w.procs[i]->parent == p && w.procs[i]->life == PROC_DEAD) tell_child(w.procs[i]);
}

void proc_signal(Proc *p, int number)
{
    if (!p || p->life == PROC_DEAD) return;
    trace(p, "gets signal %d", number);
    if (number == SIGKILL)
        proc_end(p, 0, SIGKILL);
    else if (number == SIGSTOP)
        proc_freeze(p, INFINITY);
    else if (number == SIGCONT && p->life == PROC_FROZEN)
        thaw(p);
    else if (p->life == PROC_FROZEN && p->n_signals < (int)(sizeof p->signals / sizeof *p->signals))
        p->signals[p->n_signals++] = number;
    else if (p->life == PROC_RUNS)
        behaviour_of(p)->signalled(p, number);
}

/* ---- lines ---- */

void line_open(Proc *a, Proc *b)
{
    if (line_to(a, b)->peer == b && line_to(b, a)->peer == a) return;
    *line_to(a, b) = (Line){.peer = b};
    *line_to(b, a) = (Line){.peer = a};
    line_to(a, b)->held_end = &line_to(a, b)->held;
    line_to(b, a)->held_end = &line_to(b, a)->held;
    if (a->life == PROC_DEAD) line_close(a, b);
    if (b->life == PROC_DEAD) line_close(b, a);
}

bool is_cut(int host, int other) { return w.down[host] || w.down[other] || w.cut[host][other]; }

void say(Proc *from, Proc *to, Letter l)
{
    Line *mine = line_to(from, to), *its = line_to(to, from);
    if (mine->peer != to || mine->closed || its->peer != from || its->closed || to->life == PROC_DEAD) return;
    bool near = from->host == to->host;
    double delay = near ? 0.001 : chance(0.1) ? w.schedule.delay : w.schedule.delay / 20;
    its->last = fmax(its->last, w.now + uniform(0, delay));
    Letter *copy = sim_alloc(sizeof *copy);
    *copy = l;
    copy->from = from;
    copy->to = to;
    plan((Event){.at = its->last, .kind = LETTER, .what = copy});
}

void line_close(Proc *from, Proc *to)
{
    Line *mine = line_to(from, to);
    if (mine->peer != to || mine->closed) return;
    say(from, to, (Letter){.word = SAY_CLOSED});
    mine->closed = true;
}

static void deliver(Letter *l)
{
    Proc *to = l->to, *from = l->from;
    Line *line = line_to(to, from);
    l->next = NULL;
    if (line->peer != from || line->closed || to->life == PROC_DEAD || from->vanished) return;
    if (is_cut(from->host, to->host)) {
        *line->held_end = l;
        line->held_end = &l->next;
    } else if (to->life == PROC_FROZEN) {
        *to->inbox_end = l;
        to->inbox_end = &l->next;
    } else {
        behaviour_of(to)->hears(to, l);
    }
}

/* What was held back arrives at once. */
static void release(Proc *p, int host)
{
    for (int i = 0; i < count_places(); i++) {
        Line *line = &p->lines[i];
        if (!line->held || line->peer->host != host) continue;
        Letter *l = line->held;
        line->held = NULL;
        line->held_end = &line->held;
        for (; l; l = l->next) plan((Event){.at = w.now, .kind = LETTER, .what = l});
        line->last = fmax(line->last, w.now);
    }
}

static double cut_seconds(int host, int other)
{
    bool cut = w.cut[host][other];
    return w.cut_s[host][other] + (cut ? w.now - w.cut_at[host][other] : 0);
}

double silent_s(const Proc *p, const Proc *to)
{
    return p->frozen_s + (p->life == PROC_RUNS ? 0 : w.now - p->since) + cut_seconds(p->host, to->host);
}

bool troubled(const Proc *a, const Proc *b)
{
    bool froze = a->frozen_s > 0 || b->frozen_s > 0 || a->life == PROC_FROZEN || b->life == PROC_FROZEN;
    return froze || a->vanished || b->vanished || cut_seconds(a->host, b->host) > 0;
}

/* ---- faults ---- */

static void cut_pair(int host, int other, double seconds)
{
    if (host == other || w.cut[host][other]) return;
    w.cut[host][other] = w.cut[other][host] = true;
    w.cut_at[host][other] = w.cut_at[other][host] = w.now;
    if (seconds < INFINITY) plan((Event){.at = w.now + seconds, .kind = HEAL, .a = (uint8_t)host, .b = (uint8_t)other});
}

static int count_hosts(void) { return w.schedule.hosts + !w.schedule.here; }

static void release_between(int host, int other)
{
    if (is_cut(host, other)) return;
    for (int i = 0; i < w.n_procs; i++) {
        if (w.procs[i]->host == host) release(w.procs[i], other);
        if (w.procs[i]->host == other) release(w.procs[i], host);
    }
}

static void heal(int host, int other)
{
    trace(NULL, "hosts %d and %d are in touch again", host, other);
    w.cut_s[host][other] = w.cut_s[other][host] = cut_seconds(host, other);
    w.cut[host][other] = w.cut[other][host] = false;
    w.healed[host][other] = w.healed[other][host] = w.disturbed = w.now;
    release_between(host, other);
}

static void host_down(int host, double seconds)
{
    if (w.down[host]) return;
    trace(NULL, "host %d goes down for %g s", host, seconds);
    w.down[host] = true;
    for (int i = 0; i < w.n_procs; i++)
        if (w.procs[i]->host == host) end_process(w.procs[i], 0, SIGKILL, true);
    if (seconds < INFINITY) plan((Event){.at = w.now + seconds, .kind = UP, .a = (uint8_t)host});
}

static void strike(Fault *f)
{
    Proc *rank = proc_last(standby_target(f->target));
    Proc *agent = f->target < SIM_HOSTS ? w.agents[f->target] : NULL;
    f->struck = true;
    w.kinds[f->kind] = true;
    w.disturbed = w.now;
    switch (f->kind) {
    case FAULT_KILL:
        if (rank) proc_end(rank, 0, SIGKILL);
        break;
    case FAULT_FREEZE:
        proc_freeze(rank, f->seconds);
        break;
    case FAULT_FAIL:
    case FAULT_DESERT:
    case FAULT_HANG:
    case FAULT_FULL:
    case FAULT_SLOW:
        if (proc_runs(rank)) trainer_struck(rank, f);
        break;
    case FAULT_SIGNAL:
        proc_signal(rank, f->number);
        break;
    case FAULT_KILL_AGENT:
        if (agent) proc_end(agent, 0, SIGKILL);
        break;
    case FAULT_FREEZE_AGENT:
        proc_freeze(agent, f->seconds);
        break;
    case FAULT_HOST:
        host_down(f->target, f->seconds);
        break;
    case FAULT_CUT:
        trace(NULL, "host %d is cut off from %d for %g s", f->target, f->other, f->seconds);
        for (int h = 0; h < count_hosts(); h++)
            if (f->other < 0 || h == f->other) cut_pair(f->target, h, f->seconds);
        break;
    case FAULT_KILL_LAUNCHER:
        proc_end(w.launcher, 0, SIGKILL);
        break;
    case FAULT_FREEZE_LAUNCHER:
        proc_freeze(w.launcher, f->seconds);
        if (f->seconds == INFINITY) plan((Event){.at = w.now + PATIENCE_S, .kind = LAST});
        break;
    case FAULT_SIGNAL_LAUNCHER:
        proc_signal(w.launcher, f->number);
        break;
    case FAULT_SCHEDULER:
        plan((Event){.at = w.now + f->seconds, .kind = LAST});
        for (int i = 0, n = w.n_procs; i < n; i++)
            if (f->number || w.procs[i] == w.launcher) proc_signal(w.procs[i], SIGTERM);
        break;
    case N_FAULT_KINDS:
        break;
    }
}

bool point(Proc *p, Point at, int number)
{
    bool ends = false; /* by itself */
    for (int i = 0; i < w.schedule.n_faults && proc_runs(p); i++) {
        Fault *f = &w.schedule.faults[i];
        if (f->at != at || f->struck || (f->by >= 0 && f->by != p->rank)) continue;
        if (at == POINT_STEP ? number != f->nth : f->seen++ != f->nth) continue;
        trace(p, "comes to fault %d", i);
        strike(f);
        ends = ends || ((f->kind == FAULT_FAIL || f->kind == FAULT_DESERT) && w.ranks[f->target] == p);
    }
    return ends || !proc_runs(p);
}

/* ---- a run ---- */

static void happen(const Event *e)
{
    Proc *p = e->what;
    switch ((EventKind)e->kind) {
    case LETTER:
        deliver(e->what);
        break;
    case WAKE:
        if (p->life != PROC_RUNS || e->token != p->token) break;
        p->wake = INFINITY;
        behaviour_of(p)->time(p);
        break;
    case THAW:
        p = proc_last(p);
        if (e->token == p->freezes) thaw(p);
        break;
    case CHILD:
        tell_child(p);
        break;
    case STRIKE:
        strike(&w.schedule.faults[e->a]);
        break;
    case HEAL:
        heal(e->a, e->b);
        break;
    case UP:
        trace(NULL, "host %d is up again", e->a);
        w.down[e->a] = false;
        w.disturbed = w.now;
        for (int h = 0; h < count_hosts(); h++) w.healed[h][e->a] = w.healed[e->a][h] = w.now;
        for (int h = 0; h < count_hosts(); h++) release_between(e->a, h);
        break;
    case LAST:
        w.disturbed = w.now;
        for (int i = 0, n = w.n_procs; i < n; i++) proc_signal(w.procs[i], SIGKILL);
        break;
    }
}

/* Whether any process is there. */
static bool goes_on(void)
{
    static int alive; /* was so the last time */
    if (alive < w.n_procs && w.procs[alive]->life != PROC_DEAD) return true;
    for (alive = 0; alive < w.n_procs; alive++)
        if (w.procs[alive]->life != PROC_DEAD) return true;
    return false;
}

/* How the ranks of a launcher that was killed have ended. */
static void tell_orphans(void)
{
    Buf ends = {0};
    for (int r = 0; r < w.n_ranks; r++) {
        const Proc *p = w.ranks[r];
        if (p && p->life == PROC_DEAD) buf_printf(&ends, " %d", p->signal ? 128 + p->signal : p->code);
    }
    story("launcher killed, ranks end with%s", ends.data ? ends.data : " nothing");
    buf_free(&ends);
}

static void run(void)
{
    for (int i = 0; i < w.schedule.n_faults; i++) {
        Fault *f = &w.schedule.faults[i];
        f->struck = false;
        f->seen = 0;
        if (f->at == POINT_TIME) plan((Event){.at = f->when, .kind = STRIKE, .a = (uint8_t)i});
    }
    launcher_open();
    while (n_queue > 0 && goes_on()) {
        Event e = next_event();
        w.now = fmax(w.now, e.at);
        w.events++;
        if (w.launcher->life == PROC_DEAD && w.now > fmax(w.launcher->since, w.disturbed) + AFTER_S) break;
        must(w.now < LIMIT_S && w.events < MOST_EVENTS, "the job does not end");
        happen(&e);
    }
    if (w.launcher->signal) tell_orphans();
    launcher_check_end();
    standby_check_end();
}

bool sim_run(const Schedule *s, bool traced)
{
    Buf story = w.story;
    Proc **procs = w.procs;
    int cap = w.cap_procs;
    forget_all();
    story.len = 0;
    w = (Sim){.schedule = *s, .random = s->seed, .trace = traced, .procs = procs, .cap_procs = cap, .exit_code = -1};
    w.story = story;
    w.now = 0.001; /* no machine sees time 0, as none does of a clock that began long before */
    n_queue = 0;
    planned = 0;
    disk_reset();
    if (setjmp(out) == 0) run();
    for (int i = 0; i < w.n_procs; i++) {
        if (w.procs[i]->kind == PROC_AGENT && w.procs[i]->agent) agent_free(w.procs[i]->agent);
        if (w.procs[i]->kind == PROC_RANK && w.procs[i]->trainer) trainer_free(w.procs[i]->trainer);
    }
    launcher_close();
    return !w.failed;
}
