#include "train/pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define KEPT      4096 /* steps, the newest */
#define WARM_UP   3    /* steps that are not counted, where there are more */
#define NOTABLE   1.05 /* a rank is slow above so many times the mean of the others */
#define LEAST_RUN 10   /* steps before a rank is called slow */

/* A rank is slow during training if its own work takes SLOW times the median of the others in two windows in a row. */
#define SLOW         3.0
#define WINDOW_STEPS 5
#define WINDOW_S     2.0

typedef struct {
    int32_t rank, threads;
    int64_t steps, switches; /* counted; involuntary switches of the thread that trains */
    double seconds, waited_s, processor_s;
    char host[64];
    float own_s[KEPT]; /* the newest min(steps, KEPT), in any order */
} Record;

/* What ranks did since a window began. */
typedef struct {
    int64_t steps;
    double seconds;
    double *before, *now; // (size)
    int suspect, slow;    /* ranks; -1: none */
} Watch;

struct Pace {
    Ranks *ranks;
    Record r;
    int64_t seen;
    double own_s; /* since the start */
    double processor_began;
    int64_t switches_began;
    Watch watch; /* rank 0's */
};

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t switches(void)
{
    struct rusage u;
    return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nivcsw : 0;
}

Pace *pace_open(Ranks *ranks)
{
    Pace *p = mem_alloc(sizeof *p);
    p->ranks = ranks;
    p->watch.before = mem_array((size_t)ranks_size(ranks), sizeof(double));
    p->watch.now = mem_array((size_t)ranks_size(ranks), sizeof(double));
    p->watch.suspect = p->watch.slow = -1;
    return p;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The rank with most own work in `own`, and the median of the others'. */
static int find_slowest(const double *own, int n, double *others)
{
    double *sorted = mem_array((size_t)n, sizeof *sorted);
    int slowest = 0;
    memcpy(sorted, own, (size_t)n * sizeof *own);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
    *others = sorted[(n - 1) / 2];
    free(sorted);
    for (int i = 1; i < n; i++)
        if (own[i] > own[slowest]) slowest = i;
    return slowest;
}

/* Looks for a slow rank at the end of each window, and warns once. */
static void watch_step(Pace *p, double seconds)
{
    Watch *w = &p->watch;
    int n = ranks_size(p->ranks);
    double others;
    if (n < 2 || !ranks_first(p->ranks)) return;
    w->steps++;
    w->seconds += seconds;
    if (w->steps < WINDOW_STEPS || w->seconds < WINDOW_S) return;
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
    Record *r = &p->r;
    p->own_s += fmax(seconds - waited, 0);
    ranks_tell_own_s(p->ranks, p->own_s);
    watch_step(p, seconds);
    if (p->seen++ == WARM_UP || p->seen == 1) { /* the first steps count only where there are no others */
        *r = (Record){0};
        p->processor_began = processor_seconds();
        p->switches_began = switches();
        if (p->seen > 1) return;
    }
    r->own_s[r->steps++ % KEPT] = (float)fmax(seconds - waited, 0);
    r->seconds += seconds;
    r->waited_s += waited;
    r->processor_s = processor_seconds() - p->processor_began;
    r->switches = switches() - p->switches_began;
}

static int kept(const Record *r) { return r->steps < KEPT ? (int)r->steps : KEPT; }

static double own_seconds(const Record *r) { return (r->seconds - r->waited_s) / (double)r->steps; }

static void put_record(const Record *r, Buf *out)
{
    buf_printf(out, "{\"rank\": %d, \"host\": ", r->rank);
    buf_json(out, r->host);
    buf_printf(out, ", \"threads\": %d, \"steps\": %lld, \"seconds\": ", r->threads, (long long)r->steps);
    buf_double(out, r->seconds);
    buf_puts(out, ", \"waited_s\": ");
    buf_double(out, r->waited_s);
    buf_puts(out, ", \"processor_s\": ");
    buf_double(out, r->processor_s);
    buf_printf(out, ", \"switches\": %lld, \"own_s\": [", (long long)r->switches);
    for (int i = 0; i < kept(r); i++) buf_printf(out, "%s%.6g", i ? ", " : "", (double)r->own_s[i]);
    buf_puts(out, "]}\n");
}

/* The rank whose own work took longest, if the others waited for it. */
static void log_slowest(const Record *all, int n)
{
    double others = 0, waited = 0;
    int slowest = 0;
    for (int i = 1; i < n; i++)
        if (own_seconds(&all[i]) > own_seconds(&all[slowest])) slowest = i;
    const Record *r = &all[slowest];
    if (n < 2 || r->steps < LEAST_RUN) return;
    for (int i = 0; i < n; i++) {
        if (i == slowest) continue;
        others += own_seconds(&all[i]) / (n - 1);
        waited += all[i].waited_s / (n - 1);
    }
    if (own_seconds(r) > NOTABLE * others)
        log_info("the others waited for rank %d on %s: its own work takes %.3g s a step, theirs %.3g s; in %lld steps "
                 "of %.3g s together they waited %.3g s each, it %.3g s",
                 r->rank, r->host, own_seconds(r), others, (long long)r->steps, r->seconds, waited, r->waited_s);
}

Status pace_finish(Pace *p, const Run *run)
{
    Record *all = mem_alloc(sizeof *all);
    size_t bytes = sizeof *all;
    Status status = OK;
    p->r.rank = ranks_rank(run->ranks);
    p->r.threads = run->setup.backend ? run->setup.backend->threads : 0;
    if (gethostname(p->r.host, sizeof p->r.host - 1) != 0) strcpy(p->r.host, "?");
    *all = p->r;
    status = ranks_gather(run->ranks, (void **)&all, &bytes);
    if (status == OK && run_first(run)) {
        Buf text = {0};
        char *path = file_join(run->c->output_dir, "ranks.jsonl");
        int n = (int)(bytes / sizeof *all);
        for (int i = 0; i < n; i++) put_record(&all[i], &text);
        if (file_write_durable(path, text.data, text.len) != OK) log_warn("%s", status_message());
        log_slowest(all, n);
        buf_free(&text);
        free(path);
    }
    free(all);
    return status;
}

void pace_close(Pace *p)
{
    if (!p) return;
    free(p->watch.before);
    free(p->watch.now);
    free(p);
}
