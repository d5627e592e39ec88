/* The automatic assignment: place by place and gap by gap, the first item of the queue that is ready and fits. */
#include "plan/pipeline/fill.h"

#include "base/sort.h"

#define ROOM        1.05 /* an item takes a gap only with this much to spare */
#define TINY        1e-3 /* of a step: shorter gaps stay empty, and no piece is shorter */
#define PIECE_SHARE 4    /* a piece of an inverse takes at most this part of the median gap */

/* ---- one place in one step ---- */

typedef struct {
    double start, end;
} Gap;

/* Between the works, and behind them until the last of all places ends. `gaps`: (works + 1). */
static int find_gaps(const FillStep *g, Gap *gaps)
{
    const Schedule *s = g->schedule;
    int n = 0;
    double at = g->begin;
    for (int i = s->first[g->place]; i < s->first[g->place + 1]; i++) {
        const TimeSpan *work = &g->timeline->spans[i];
        if (g->begin + work->start > at + g->least) gaps[n++] = (Gap){at, g->begin + work->start};
        at = g->begin + work->end;
    }
    if (g->begin + g->timeline->works_s > at + g->least) gaps[n++] = (Gap){at, g->begin + g->timeline->works_s};
    return n;
}

static Gap *new_gaps(const Schedule *s, int place)
{
    return mem_array((size_t)(s->first[place + 1] - s->first[place]) + 1, sizeof(Gap));
}

/* When the work of this step that makes an operand has ended. */
static double work_end(const FillStep *g, const FillItem *x)
{
    const Schedule *s = g->schedule;
    bool forward = x->kind == FILL_INPUTS && !(g->late && g->late[x->layer]);
    for (int i = s->first[g->place]; i < s->first[g->place + 1]; i++) {
        const Work *w = &s->works[i];
        bool makes = forward ? w->kind == WORK_FORWARD : w->kind == WORK_BACKWARD || w->kind == WORK_INPUT;
        if (makes && w->chunk == x->chunk && w->micro == x->micro) return g->begin + g->timeline->spans[i].end;
    }
    CHECK(false, "a micro-batch passes through each chunk");
    return 0;
}

/* INFINITY: its turn has not come. `made`: of statistics. */
static double when_ready(const FillStep *g, const double *made, const FillItem *items, int i)
{
    const FillItem *x = &items[i];
    if ((x->kind == FILL_INVERSE) != g->inverses) return INFINITY;
    if (!x->follows || x[-1].taken) return made[i];
    return x[-1].end >= 0 ? x[-1].end : INFINITY;
}

/* The first that can start now in a gap; −1. *next: when to look again. */
static int choose(const FillStep *g, const double *made, const FillItem *items, int n, double now, double end,
                  double *next)
{
    *next = INFINITY;
    for (int i = 0; i < n; i++) {
        if (items[i].taken || items[i].start >= 0) continue;
        double from = when_ready(g, made, items, i);
        if (from > now) {
            if (from < *next) *next = from;
        } else if (items[i].seconds * ROOM < end - now) {
            return i;
        }
    }
    return -1;
}

double fill_gaps(const FillStep *g, FillItem *items, int n)
{
    const Schedule *s = g->schedule;
    int works = s->first[g->place + 1] - s->first[g->place];
    Gap *gaps = new_gaps(s, g->place);
    double *made = mem_array((size_t)n + 1, sizeof *made), last = g->begin;
    int n_gaps = find_gaps(g, gaps);
    for (int i = 0; i < n; i++)
        if (g->refresh && items[i].kind != FILL_INVERSE && !items[i].taken) made[i] = work_end(g, &items[i]);
    if (works > 0) last = g->begin + g->timeline->spans[s->first[g->place + 1] - 1].end;
    for (int k = 0; k < n_gaps; k++)
        for (double now = gaps[k].start, next; now < gaps[k].end;) {
            int i = choose(g, made, items, n, now, gaps[k].end, &next);
            if (i < 0) {
                now = next;
                continue;
            }
            items[i].start = now;
            now = items[i].end = now + items[i].seconds;
            if (now > last) last = now;
        }
    MEM_FREE(gaps, made);
    return last;
}

/* ---- all places ---- */

typedef struct {
    int first, end; /* its items */
    double median;  /* of its gaps */
    double busy;    /* until then the step's last item runs, at least its last work */
} FillLane;

typedef struct {
    const FillProblem *q;
    Fill *fill;
    FillLane *lanes; /* (places) */
} Filling;

static const Pipeline *shape(const Filling *f) { return &f->q->schedule->shape; }

FillStep fill_planned_step(const FillProblem *q, const Fill *fill, int place, int step)
{
    const Pipeline *p = &q->schedule->shape;
    return (FillStep){.schedule = q->schedule,
                      .place = place,
                      .micros = {pipeline_micros(p, 0), pipeline_micros(p, p->chunks - 1)},
                      .timeline = q->timeline,
                      .begin = fill->begins[step],
                      .end = fill->begins[step + 1],
                      .refresh = step == 0,
                      .least = TINY * q->step,
                      .late = q->late};
}

/* Over all allowed steps; the last gap of all has no end. */
static double median_gap(const Filling *f, int place)
{
    const FillStep g = fill_planned_step(f->q, f->fill, place, 0);
    Gap *gaps = new_gaps(g.schedule, place);
    int n = find_gaps(&g, gaps);
    double median = 0, *sizes = mem_array((size_t)n + 1, sizeof *sizes);
    for (int i = 0; i < n; i++) sizes[i] = gaps[i].end - gaps[i].start;
    qsort(sizes, (size_t)n, sizeof *sizes, sort_by_value);
    if (n > 0) median = sizes[(n - 1) / 2];
    MEM_FREE(sizes, gaps);
    return median;
}

/* ---- the queue ---- */

static void add(Filling *f, FillItem item)
{
    item.start = item.end = -1;
    f->fill->items[f->fill->n++] = item;
}

static int stage_of(const Filling *f, int place, int chunk) { return pipeline_stage(shape(f), place, chunk); }

/* Micro-batch by micro-batch, A before G. */
static void queue_statistics(Filling *f, int place, FillKind kind)
{
    for (int micro = 0; micro < shape(f)->micros; micro++)
        for (int chunk = 0; chunk < shape(f)->chunks; chunk++) {
            if (micro >= pipeline_micros(shape(f), chunk)) continue;
            int stage = stage_of(f, place, chunk);
            for (int layer = f->q->first[stage]; layer < f->q->first[stage + 1]; layer++)
                add(f, (FillItem){.kind = kind,
                                  .place = place,
                                  .chunk = chunk,
                                  .layer = layer,
                                  .micro = micro,
                                  .seconds = f->q->statistics[kind]});
        }
}

typedef struct {
    int layer, factor;
    double seconds;
} Inverse;

static int larger_first(const void *a, const void *b)
{
    const Inverse *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return x->factor - y->factor;
}

/* INFINITY: inverses stay whole. */
static double longest_piece(const Filling *f, int place)
{
    double most = fmax(f->lanes[place].median / PIECE_SHARE, f->q->least_piece);
    return f->q->whole || most <= TINY * f->q->step ? INFINITY : most;
}

/* The inverses of a stage, larger first, each to the holder with the least so far. Holders are the pipelines, chimera's
   in both directions; the first pipeline stands for all. */
static void queue_inverses(Filling *f, int place, int chunk)
{
    const FillProblem *q = f->q;
    int stage = stage_of(f, place, chunk), n = 0, directions = pipeline_directions(shape(f));
    int holders = directions * q->replicas, mine = directions == 2 ? chunk : 0, layers = q->first[stage + 1];
    Inverse *all = mem_array((size_t)(layers - q->first[stage]) * (size_t)q->factors, sizeof *all);
    double *load = mem_array((size_t)holders, sizeof *load);
    for (int layer = q->first[stage]; layer < layers; layer++)
        for (int k = 0; k < q->factors; k++) all[n++] = (Inverse){layer, k, q->inverse[k]};
    qsort(all, (size_t)n, sizeof *all, larger_first);
    double most = longest_piece(f, place);
    for (int i = 0; i < n; i++) {
        int owner = 0;
        for (int h = 1; h < holders; h++)
            if (load[h] < load[owner]) owner = h;
        load[owner] += all[i].seconds;
        if (owner != mine) continue;
        int pieces = (int)ceil(all[i].seconds / most - 1e-9);
        for (int piece = 0; piece < (pieces > 1 ? pieces : 1); piece++)
            add(f, (FillItem){.kind = FILL_INVERSE,
                              .place = place,
                              .chunk = chunk,
                              .layer = all[i].layer,
                              .factor = all[i].factor,
                              .piece = piece,
                              .follows = piece > 0,
                              .seconds = all[i].seconds / (pieces > 1 ? pieces : 1)});
    }
    MEM_FREE(all, load);
}

/* At most. */
static size_t count_items(const Filling *f)
{
    const Pipeline *p = shape(f);
    double shortest = INFINITY;
    for (int place = 0; place < p->places; place++) shortest = fmin(shortest, longest_piece(f, place));
    double pieces = 0;
    for (int k = 0; k < f->q->factors; k++) pieces += 1 + ceil(f->q->inverse[k] / shortest);
    int layers = f->q->first[pipeline_stages(p)], directions = pipeline_directions(p);
    return (size_t)directions * (size_t)layers * (2 * (size_t)p->micros + (size_t)pieces) + 1;
}

/* ---- step by step ---- */

static bool is_pending(const FillItem *x, bool inverse) { return x->end < 0 && (x->kind == FILL_INVERSE) == inverse; }

static int pending(const Filling *f, int place, bool inverses)
{
    int n = 0;
    for (int i = f->lanes[place].first; i < f->lanes[place].end; i++) n += is_pending(&f->fill->items[i], inverses);
    return n;
}

/* What found no gap runs behind the works. Returns how long the step's end waits for it. */
static double run_rest(Filling *f, int step, bool inverses)
{
    double end = f->fill->begins[step] + f->q->timeline->works_s, late = end;
    for (int place = 0; place < shape(f)->places; place++) {
        double at = f->lanes[place].busy;
        for (int i = f->lanes[place].first; i < f->lanes[place].end; i++) {
            FillItem *x = &f->fill->items[i];
            if (!is_pending(x, inverses)) continue;
            x->start = at;
            at = x->end = at + x->seconds;
        }
        if (at > late && at > f->lanes[place].busy) late = at;
    }
    return late - end;
}

/* Returns whether all statistics are taken. A step that brings a place no further is the last that they take, and a
   step is left for the inverses. */
static bool fill_step(Filling *f, int step, bool gathered)
{
    bool stuck = step + 1 >= f->q->steps - 1, left = false;
    for (int place = 0; place < shape(f)->places; place++) {
        FillLane *lane = &f->lanes[place];
        FillStep g = fill_planned_step(f->q, f->fill, place, step);
        g.inverses = gathered;
        int before = pending(f, place, false);
        lane->busy = fill_gaps(&g, f->fill->items + lane->first, lane->end - lane->first);
        int after = pending(f, place, false);
        left |= after > 0;
        stuck |= step > 0 && after > 0 && after == before; /* in the first step operands may come too late */
    }
    if (!gathered && left && !stuck) return false;
    if (gathered) return true;
    f->fill->gathered = step + 1;
    f->fill->exposed += run_rest(f, step, false) + f->q->sum;
    return true;
}

/* Where the last step also was the one of the statistics, inverses come behind their sums. */
static void end_last(Filling *f, double exposed_before)
{
    int step = f->q->steps - 1;
    double waits = f->fill->exposed - exposed_before;
    double from = f->fill->begins[step] + f->q->timeline->works_s + waits;
    for (int place = 0; place < shape(f)->places; place++)
        if (f->fill->gathered == step + 1 && f->lanes[place].busy < from) f->lanes[place].busy = from;
    f->fill->exposed = exposed_before + fmax(waits, run_rest(f, step, true));
}

static void sum_up(const Filling *f)
{
    Fill *fill = f->fill;
    const FillProblem *q = f->q;
    for (int i = 0; i < fill->n; i++) {
        fill->seconds += fill->items[i].seconds;
        while (fill->steps < q->steps && fill->begins[fill->steps] < fill->items[i].end) fill->steps++;
    }
    if (fill->steps < 1) fill->steps = 1;
    double time = (double)shape(f)->places * (fill->steps * q->timeline->works_s + fill->exposed);
    double bubbles = time - (1 - q->timeline->bubble) * fill->steps * shape(f)->places * q->timeline->works_s;
    if (bubbles > 0) fill->filled = fill->seconds / bubbles;
    if (fill->filled > 1) fill->filled = 1; /* bubbles are counted to the last work, items also run behind it */
    if (time > 0) fill->utilization = 1 - (1 - fill->filled) * bubbles / time;
}

void fill_make(const FillProblem *problem, Fill *fill)
{
    Filling f = {.q = problem, .fill = fill};
    int places = shape(&f)->places;
    CHECK(problem->steps >= 1 && problem->factors <= FILL_FACTORS, "a refresh takes a step or more");
    f.lanes = mem_array((size_t)places, sizeof *f.lanes);
    *fill = (Fill){.begins = mem_array((size_t)problem->steps + 1, sizeof *fill->begins)};
    for (int place = 0; place < places; place++) f.lanes[place].median = median_gap(&f, place);
    fill->items = mem_array(count_items(&f), sizeof *fill->items);
    for (int place = 0; place < places; place++) {
        f.lanes[place].first = fill->n;
        queue_statistics(&f, place, FILL_INPUTS);
        queue_statistics(&f, place, FILL_GRADIENTS);
        for (int chunk = 0; chunk < shape(&f)->chunks; chunk++) queue_inverses(&f, place, chunk);
        f.lanes[place].end = fill->n;
    }
    bool gathered = false;
    for (int step = 0; step < problem->steps; step++) {
        double before = fill->exposed;
        gathered = fill_step(&f, step, gathered);
        if (step == problem->steps - 1) end_last(&f, before);
        fill->begins[step + 1] = (step + 1) * problem->step + fill->exposed;
    }
    sum_up(&f);
    free(f.lanes);
}

void fill_free(Fill *fill)
{
    MEM_FREE(fill->items, fill->begins);
    *fill = (Fill){0};
}
