#include "train/measure/profile_files.h"

#include "base/sort.h"
#include "train/pipelines/pipeline.h"

enum { ROUND_TRIPS = 16 };

static int count_of(const Buf *works) { return (int)(works->len / sizeof(StepWork)); }

static const StepWork *list_of(const Buf *works) { return (const void *)works->data; }

/* F, B, I, W, A, G, V, sum, update */
static void name_work(int kind, char name[16])
{
    if (kind < STEP_SUM)
        snprintf(name, 16, "%c", work_letter((WorkKind)kind));
    else
        snprintf(name, 16, "%s", kind == STEP_SUM ? "sum" : "update");
}

static BarKind bar_of(int kind)
{
    return kind == STEP_SUM ? BAR_SUM : kind == STEP_UPDATE ? BAR_UPDATE : pipeline_bar((WorkKind)kind);
}

/* ---- of this rank ---- */

static void add(Buf *works, StepWork w) { buf_append(works, &w, sizeof w); }

void works_take(const Session *s, int rank, int64_t step, double zero, Buf *works)
{
    int n;
    const ExecWork *own = exec_pipeline_works(session_works(s), &n);
    PipelineTimes t = s->times;
    for (int i = 0; i < n; i++)
        add(works, (StepWork){rank, (int)own[i].kind, own[i].stage, own[i].direction, step, own[i].micro, own[i].tokens,
                              own[i].begin - zero, own[i].end - zero});
    add(works, (StepWork){rank, STEP_SUM, -1, -1, step, -1, 0, t.sums.start - zero, t.sums.end - zero});
    add(works, (StepWork){rank, STEP_UPDATE, -1, -1, step, -1, 0, t.update.start - zero, t.update.end - zero});
}

void works_trace(const Buf *works, const Trace *trace, int track, Buf *events)
{
    for (int i = 0; i < count_of(works); i++) {
        const StepWork *w = &list_of(works)[i];
        char work[16], name[48];
        name_work(w->kind, work);
        if (w->micro < 0)
            snprintf(name, sizeof name, "%s", work);
        else
            snprintf(name, sizeof name, "%s%lld", work, (long long)w->micro);
        trace_span(trace, events, track, "work", name, w->begin + trace->zero, w->end + trace->zero);
        buf_printf(events, ", \"args\": {\"stage\": %d, \"micro_batch\": %lld, \"tokens\": %lld}}", w->stage,
                   (long long)w->micro, (long long)w->tokens);
    }
}

/* ---- between ranks ---- */

static Status answer_clock(Comm *c)
{
    double now;
    TRY(comm_receive(c, 0, &now, sizeof now));
    now = clock_monotonic();
    return comm_send(c, 0, &now, sizeof now);
}

/* By messages there and back, with the clock of `peer` in between. */
static Status measure_clock(Comm *c, int peer, double measured[2])
{
    measured[1] = INFINITY;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        double start = clock_monotonic(), theirs = 0;
        TRY(comm_send(c, peer, &theirs, sizeof theirs));
        TRY(comm_receive(c, peer, &theirs, sizeof theirs));
        double end = clock_monotonic();
        if ((end - start) / 2 >= measured[1]) continue;
        measured[0] = theirs - (start + end) / 2;
        measured[1] = (end - start) / 2;
    }
    return OK;
}

Status works_clock(Ranks *ranks, double *ahead, double *error)
{
    double own[2] = {0};
    int64_t node;
    *ahead = *error = 0;
    if (!ranks) return OK;
    Comm *c = ranks_comm(ranks);
    node = c->node;
    TRY(ranks_broadcast(ranks, &node, sizeof node));
    for (int r = 1; r < ranks_size(ranks); r++) {
        double measured[2];
        TRY(ranks_meet(ranks));
        if (ranks_first(ranks)) {
            TRY(measure_clock(c, r, measured));
            TRY(comm_send(c, r, measured, sizeof measured));
        } else if (c->rank == r) {
            for (int i = 0; i < ROUND_TRIPS; i++) TRY(answer_clock(c));
            TRY(comm_receive(c, 0, own, sizeof own));
        }
    }
    if (c->node == node) return OK; /* one clock */
    *ahead = own[0];
    *error = own[1];
    return OK;
}

Status works_collect(Ranks *ranks, Buf *bytes)
{
    void *all = bytes->data;
    size_t size = bytes->len;
    Status status = ranks_gather(ranks, &all, &size);
    *bytes = (Buf){0};
    if (status == OK && ranks_first(ranks)) buf_append(bytes, all, size);
    free(all);
    return status;
}

/* ---- the picture: planned with the measured medians, and measured ---- */

/* The median of all steps' works of a kind, of a stage where that is not below 0. */
static double median(const Buf *works, int kind, int stage)
{
    const StepWork *w = list_of(works);
    int n = 0;
    double *seconds = mem_array((size_t)count_of(works) + 1, sizeof *seconds), middle;
    for (int i = 0; i < count_of(works); i++)
        if (w[i].kind == kind && (stage < 0 || w[i].stage == stage)) seconds[n++] = w[i].end - w[i].begin;
    middle = n ? sort_median(seconds, n) : 0;
    free(seconds);
    return middle;
}

/* Micro-batches of a step, of the direction with more of them. */
static int micros_of(const Buf *works, int64_t step)
{
    int64_t most = -1;
    for (int i = 0; i < count_of(works); i++)
        if (list_of(works)[i].step == step && list_of(works)[i].micro > most) most = list_of(works)[i].micro;
    return (int)most + 1;
}

/* Further passes follow the first. */
static void draw_planned(const RankPlace *place, const Buf *works, int64_t step, TimelinePanel *panel)
{
    const Grid *g = &place->grid;
    int directions = g->directions, most = g->shape.micros / directions, n = micros_of(works, step);
    double at = 0, busy = 0, *seconds = mem_array((size_t)N_WORKS * (size_t)g->stages, sizeof *seconds);
    double update = median(works, STEP_UPDATE, -1);
    Timeline t = {0};
    ScheduleCosts costs = {.latency = 0};
    for (int kind = 0; kind < N_WORKS; kind++) {
        costs.seconds[kind] = seconds + kind * g->stages;
        for (int s = 0; s < g->stages; s++) seconds[kind * g->stages + s] = median(works, kind, s);
    }
    for (int first = 0; first < n; first += most) {
        at += t.works_s;
        timeline_free(&t);
        const Schedule *s = &place->schedules[(n - first < most ? n - first : most) * directions];
        schedule_simulate(s, &costs, &t);
        pipeline_draw(s, &t, first, at, g->replicas, panel);
        busy += (1 - t.bubble) * t.works_s;
    }
    t.sums_s = t.works_s + median(works, STEP_SUM, -1);
    pipeline_draw_end(at, &t, update, panel);
    snprintf(panel->title, sizeof panel->title, "%s, planned with the measured medians: bubble %.1f %%, %.4g ms a step",
             pipeline_name(g->shape.kind), 100 * (1 - busy / (at + t.works_s)), 1e3 * (at + t.sums_s + update));
    timeline_free(&t);
    free(seconds);
}

/* A step: its first work's begin, its last one's end, the end of its update, and the seconds in works. */
typedef struct {
    double begin, works, end, busy;
} Extent;

static Extent extent_of(const Buf *works, int64_t step)
{
    Extent e = {INFINITY, 0, 0, 0};
    for (int i = 0; i < count_of(works); i++) {
        const StepWork *w = &list_of(works)[i];
        if (w->step != step) continue;
        e.begin = fmin(e.begin, w->begin);
        e.end = fmax(e.end, w->end);
        if (w->stage < 0) continue;
        e.works = fmax(e.works, w->end);
        e.busy += w->end - w->begin;
    }
    return e;
}

static void draw_measured(const RankPlace *place, const Buf *works, int64_t step, TimelinePanel *panel)
{
    Extent e = extent_of(works, step);
    for (int i = 0; i < count_of(works); i++) {
        const StepWork *w = &list_of(works)[i];
        if (w->step == step)
            timeline_add(panel,
                         (TimelineBar){w->rank, bar_of(w->kind), w->begin - e.begin, w->end - e.begin, (int)w->micro});
    }
    snprintf(panel->title, sizeof panel->title, "%s, measured in step %lld: bubble %.1f %%, %.4g ms",
             pipeline_name(place->grid.shape.kind), (long long)step,
             100 * (1 - e.busy / (panel->rows * (e.works - e.begin))), 1e3 * (e.end - e.begin));
}

/* The profiled step of median length. */
static int64_t typical_step(const Buf *works)
{
    int64_t first = INT64_MAX, last = 0, best = 0;
    double lengths[64], wanted;
    int n = 0;
    for (int i = 0; i < count_of(works); i++) {
        if (list_of(works)[i].step < first) first = list_of(works)[i].step;
        if (list_of(works)[i].step > last) last = list_of(works)[i].step;
    }
    for (int64_t step = first; step <= last && n < 64; step++) {
        Extent e = extent_of(works, step);
        if (e.end > 0) lengths[n++] = e.end - e.begin;
    }
    qsort(lengths, (size_t)n, sizeof *lengths, sort_by_value);
    wanted = lengths[n / 2];
    for (int64_t step = last; step >= first; step--) {
        Extent e = extent_of(works, step);
        if (e.end > 0 && e.end - e.begin == wanted) best = step;
    }
    return best;
}

static Status write_picture(const RankPlace *place, const char *dir, const Buf *works)
{
    int ranks = grid_ranks(&place->grid);
    int64_t step = typical_step(works);
    TimelinePanel panels[2] = {{.rows = ranks}, {.rows = ranks}};
    Buf out = {0};
    draw_planned(place, works, step, &panels[0]);
    draw_measured(place, works, step, &panels[1]);
    schedule_svg(panels, 2, "ranks", &out);
    timeline_panels_free(panels, 2);
    return svg_write(dir, "timeline.svg", &out);
}

/* ---- the table ---- */

static Status write_table(const RankPlace *place, const char *dir, const Buf *works)
{
    Buf out = {0};
    buf_puts(&out, "step,rank,place,replica,stage,work,micro_batch,tokens,begin_s,end_s\n");
    for (int i = 0; i < count_of(works); i++) {
        const StepWork *w = &list_of(works)[i];
        int replica = w->rank % place->grid.replicas * place->grid.directions + (w->direction > 0);
        char work[16];
        buf_printf(&out, "%lld,%d,%d,", (long long)w->step, w->rank, w->rank / place->grid.replicas);
        if (w->stage >= 0) buf_printf(&out, "%d,%d", replica, w->stage);
        name_work(w->kind, work);
        buf_printf(&out, "%s,%s,", w->stage >= 0 ? "" : ",", work);
        if (w->micro >= 0) buf_printf(&out, "%lld,%lld", (long long)w->micro, (long long)w->tokens);
        buf_puts(&out, w->micro >= 0 ? "" : ",");
        buf_printf(&out, ",%.9f,%.9f\n", w->begin, w->end);
    }
    return file_write_text(dir, "work.csv", &out);
}

Status works_write(const RankPlace *place, const char *dir, const Buf *works)
{
    TRY(write_picture(place, dir, works));
    return write_table(place, dir, works);
}
