#include "train/measure/pace.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/host.h"
#include "base/sort.h"
#include "base/test_switch.h"

#define KEPT       4096 /* steps, the newest */
#define WARM_UP    3    /* steps that are not counted, where there are more */
#define NOTABLE    1.05 /* a rank is slow above so many times the mean of the others, */
#define ERRORS     3    /* and above it by so many standard errors of its own mean */
#define LEAST_RUN  10   /* steps before a rank is called slow */
#define LOOK_FIRST 100  /* steps of the process before such a rank is named, and between further times */
#define LOOK_EVERY 1000

/* A rank is slow during training if its own work takes SLOW times the median of the others in two windows in a row. */
#define SLOW         3.0
#define WINDOW_STEPS 5
#define WINDOW_S     2.0

typedef struct {
    int32_t rank, threads;
    int64_t steps, switches;                        /* counted; involuntary switches of the thread that trains */
    double seconds, waited_s, processor_s, squares; /* of each step's own seconds */
    char host[64], gpu[80];                         /* "": no GPU */
    SamplingSummary sampled;
} Totals;

typedef struct {
    Totals t;
    float own_s[KEPT]; /* the newest min(steps, KEPT), in any order */
} PaceRecord;

/* What ranks did since a window began. */
typedef struct {
    int64_t steps;
    double seconds;
    double *before, *now; // (size)
    int suspect, slow;    /* ranks; -1: none */
} Window;

struct Pace {
    Ranks *ranks;
    PaceRecord r;
    int64_t seen;
    double own_s; /* since the start */
    double processor_began;
    int64_t switches_began;
    Window window; /* rank 0's */
};

static int64_t switches(void)
{
    struct rusage u;
    return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nivcsw : 0;
}

Pace *pace_open(Ranks *ranks)
{
    Pace *p = mem_alloc(sizeof *p);
    p->ranks = ranks;
    p->window.before = mem_array((size_t)ranks_size(ranks), sizeof(double));
    p->window.now = mem_array((size_t)ranks_size(ranks), sizeof(double));
    p->window.suspect = p->window.slow = -1;
    return p;
}

/* The rank with most own work in `own`, and the median of the others'. */
static int find_slowest(const double *own, int n, double *others)
{
    double *sorted = mem_array((size_t)n, sizeof *sorted);
    int slowest = 0;
    memcpy(sorted, own, (size_t)n * sizeof *own);
    qsort(sorted, (size_t)n, sizeof *sorted, sort_by_value);
    *others = sorted[(n - 1) / 2];
    free(sorted);
    for (int i = 1; i < n; i++)
        if (own[i] > own[slowest]) slowest = i;
    return slowest;
}

/* Looks for a slow rank at the end of each window, and warns once. */
static void look_at_window(Pace *p, double seconds)
{
    Window *w = &p->window;
    int n = ranks_size(p->ranks);
    double others;
    if (n < 2 || !ranks_first(p->ranks)) return;
    w->steps++;
    w->seconds += seconds;
    if (w->steps < WINDOW_STEPS || w->seconds < test_seconds("PACE_WINDOW", WINDOW_S)) return;
    ranks_all_own_s(p->ranks, w->now);
    for (int i = 0; i < n; i++) {
        double own = w->now[i] - w->before[i];
        w->before[i] = w->now[i];
        w->now[i] = own / (double)w->steps;
    }
    int slowest = find_slowest(w->now, n, &others);
    bool slow = p->seen > WARM_UP + w->steps && w->now[slowest] > SLOW * others;
    if (slow && slowest == w->suspect && slowest != w->slow) {
        log_warn("%s is slow: its own work takes %.3g s a step, the others' %.3g s; all wait for it",
                 comm_peer_name(ranks_comm(p->ranks), slowest), w->now[slowest], others);
        w->slow = slowest;
    } else if (w->slow >= 0 && w->now[w->slow] < SLOW / 2 * others) {
        log_info("%s is as fast as the others again", comm_peer_name(ranks_comm(p->ranks), w->slow));
        w->slow = -1;
    }
    w->suspect = slow ? slowest : -1;
    w->steps = 0;
    w->seconds = 0;
}

void pace_step(Pace *p, double seconds, double waited)
{
    Totals *t = &p->r.t;
    double own = fmax(seconds - waited, 0);
    p->own_s += own;
    ranks_tell_own_s(p->ranks, p->own_s);
    look_at_window(p, seconds);
    if (p->seen++ == WARM_UP || p->seen == 1) { /* the first steps count only where there are no others */
        p->r = (PaceRecord){0};
        p->processor_began = clock_thread();
        p->switches_began = switches();
        if (p->seen > 1) return;
    }
    p->r.own_s[t->steps++ % KEPT] = (float)own;
    t->squares += own * own;
    t->seconds += seconds;
    t->waited_s += waited;
    t->processor_s = clock_thread() - p->processor_began;
    t->switches = switches() - p->switches_began;
}

static double own_seconds(const Totals *t) { return (t->seconds - t->waited_s) / (double)t->steps; }

/* The standard error of that mean, by the spread of the steps. */
static double own_error(const Totals *t)
{
    double n = (double)t->steps, mean = own_seconds(t);
    return sqrt(fmax(t->squares / n - mean * mean, 0) / n);
}

static void put_member(Buf *out, const char *name, double value)
{
    if (isfinite(value)) buf_member(out, name, value);
}

static void put_record(const PaceRecord *r, Buf *out)
{
    const Totals *t = &r->t;
    int kept = t->steps < KEPT ? (int)t->steps : KEPT;
    buf_printf(out, "{\"rank\": %d", t->rank);
    buf_member_text(out, "host", t->host);
    if (*t->gpu) buf_member_text(out, "gpu", t->gpu);
    buf_printf(out, ", \"threads\": %d, \"steps\": %lld", t->threads, (long long)t->steps);
    buf_member(out, "seconds", t->seconds);
    put_member(out, "waited_s", t->waited_s);
    put_member(out, "processor_s", t->processor_s);
    buf_printf(out, ", \"switches\": %lld", (long long)t->switches);
    put_member(out, "sm_mhz", t->sampled.sm_mhz);
    put_member(out, "watts", t->sampled.watts);
    put_member(out, "celsius", t->sampled.celsius);
    put_member(out, "ecc", t->sampled.ecc);
    put_member(out, "slowed", t->sampled.slowed);
    if (isfinite(t->sampled.slowed)) {
        buf_puts(out, ", \"throttle\": \"");
        put_throttle(out, t->sampled.reasons);
        buf_puts(out, "\"");
    }
    buf_puts(out, ", \"own_s\": [");
    for (int i = 0; i < kept; i++) buf_printf(out, "%s%.6g", i ? ", " : "", (double)r->own_s[i]);
    buf_puts(out, "]}\n");
}

/* The rank whose own work took longest, if the others waited for it; else "". */
static void name_slowest(const Totals *all, int n, Buf *out)
{
    double others = 0, waited = 0;
    int slowest = 0;
    buf_puts(out, "");
    for (int i = 1; i < n; i++)
        if (own_seconds(&all[i]) > own_seconds(&all[slowest])) slowest = i;
    const Totals *t = &all[slowest];
    if (n < 2 || t->steps < LEAST_RUN) return;
    for (int i = 0; i < n; i++) {
        if (i == slowest) continue;
        others += own_seconds(&all[i]) / (n - 1);
        waited += all[i].waited_s / (n - 1);
    }
    if (own_seconds(t) <= NOTABLE * others || own_seconds(t) <= others + ERRORS * own_error(t)) return;
    buf_printf(out, "rank %d on %s", t->rank, t->host);
    if (*t->gpu) buf_printf(out, " (%s)", t->gpu);
    buf_printf(out,
               ": its own work takes %.3g s a step, theirs %.3g s; in %lld steps of %.3g s together they waited %.3g s "
               "each, it %.3g s",
               own_seconds(t), others, (long long)t->steps, t->seconds, waited, t->waited_s);
}

static void fill_record(Pace *p, const Run *run)
{
    Totals *t = &p->r.t;
    const Backend *b = run->setup.backend;
    t->rank = ranks_rank(run->ranks);
    t->threads = b ? b->threads : 0;
    if (b && b->device) snprintf(t->gpu, sizeof t->gpu, "%s", b->device->unit);
    host_name(t->host, sizeof t->host);
}

Status pace_look(Pace *p, const Run *run)
{
    if (!run->ranks || (p->seen != LOOK_FIRST && p->seen % LOOK_EVERY != 0)) return OK;
    int n = ranks_size(run->ranks);
    Totals *all = mem_array((size_t)n, sizeof *all);
    Buf text = {0};
    fill_record(p, run);
    test_at_number("pace", p->seen, ranks_rank(run->ranks));
    Status status = ranks_allgather(run->ranks, &p->r.t, sizeof *all, all);
    if (status == OK) name_slowest(all, n, &text);
    if (text.len && run_first(run)) log_info("the others wait for %s", text.data);
    buf_free(&text);
    free(all);
    return status;
}

Status pace_finish(Pace *p, Run *run, Sampling *sampling)
{
    int n = ranks_size(run->ranks);
    PaceRecord *all = mem_array((size_t)n, sizeof *all);
    fill_record(p, run);
    p->r.t.sampled = sampling_summary(sampling);
    Status status = ranks_allgather(run->ranks, &p->r, sizeof *all, all);
    if (status == OK && run_first(run)) {
        Buf text = {0};
        Totals *totals = mem_array((size_t)n, sizeof *totals);
        for (int i = 0; i < n; i++) {
            put_record(&all[i], &text);
            totals[i] = all[i].t;
        }
        if (file_write_text(run->c->output_dir, "ranks.jsonl", &text) != OK) log_warn("%s", status_message());
        name_slowest(totals, n, &run->waited_for);
        if (run->waited_for.len) log_info("the others waited for %s", run->waited_for.data);
        free(totals);
    }
    free(all);
    return status;
}

void pace_close(Pace *p)
{
    if (!p) return;
    MEM_FREE(p->window.before, p->window.now, p);
}
