/* The automatic assignment: place by place and gap by gap, the first item of the queue that is ready and fits. */
#include "plan/fill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROOM        1.05 /* an item takes a gap only with this much to spare */
#define TINY        1e-3 /* of a step: shorter gaps stay empty, and no piece is shorter */
#define PIECE_SHARE 4    /* a piece of an inverse takes at most this part of the median gap */

typedef struct {
    double start, end;
} Gap;

typedef struct {
    Gap *gaps; /* (n) */
    int n, next;
    double busy;    /* until then an item runs */
    int first, end; /* its items */
    double median;  /* of its gaps */
} Lane;

typedef struct {
    const FillProblem *q;
    Fill *fill;
    Lane *lanes;      /* (places) */
    double *gathered; /* (layers) when the last statistic so far has ended */
    int *missing;     /* (layers) statistics that are not taken yet */
} Filling;

static const Pipeline *shape(const Filling *f) { return &f->q->schedule->shape; }

/* ---- gaps ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The gaps of a place in all allowed steps. The last has no end: what fits nowhere runs there, exposed. */
static void find_gaps(const Filling *f, int place, Lane *lane)
{
    const Schedule *s = f->q->schedule;
    int works = s->first[place + 1] - s->first[place];
    lane->gaps = mem_array((size_t)f->q->steps * (size_t)(works + 1) + 1, sizeof *lane->gaps);
    double least = TINY * f->q->step, *sizes = mem_array((size_t)f->q->steps * (size_t)(works + 1) + 1, sizeof *sizes);
    for (int step = 0; step < f->q->steps; step++) {
        double begin = step * f->q->step, at = begin;
        for (int i = s->first[place]; i < s->first[place + 1]; i++) {
            const Span *work = &f->q->timeline->spans[i];
            if (begin + work->start > at + least) lane->gaps[lane->n++] = (Gap){at, begin + work->start};
            at = begin + work->end;
        }
        double end = step == f->q->steps - 1 ? INFINITY : begin + f->q->timeline->sums_s;
        if (end > at + least) lane->gaps[lane->n++] = (Gap){at, end};
    }
    for (int i = 0; i < lane->n; i++) sizes[i] = lane->gaps[i].end - lane->gaps[i].start;
    qsort(sizes, (size_t)lane->n, sizeof *sizes, ascending);
    if (lane->n > 1) lane->median = sizes[(lane->n - 1) / 2];
    free(sizes);
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
            for (int layer = f->q->first[stage]; layer < f->q->first[stage + 1]; layer++) {
                add(f, (FillItem){.kind = kind,
                                  .place = place,
                                  .chunk = chunk,
                                  .layer = layer,
                                  .micro = micro,
                                  .seconds = f->q->statistics[kind]});
                f->missing[layer]++;
            }
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
    int stage = stage_of(f, place, chunk), n = 0, directions = shape(f)->kind == PIPELINE_CHIMERA ? 2 : 1;
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
                              .seconds = all[i].seconds / (pieces > 1 ? pieces : 1)});
    }
    free(all);
    free(load);
}

/* At most. */
static size_t count_items(const Filling *f)
{
    const Pipeline *p = shape(f);
    double shortest = INFINITY;
    for (int place = 0; place < p->places; place++) shortest = fmin(shortest, longest_piece(f, place));
    double pieces = 0;
    for (int k = 0; k < f->q->factors; k++) pieces += 1 + ceil(f->q->inverse[k] / shortest);
    int layers = f->q->first[pipeline_stages(p)], directions = p->kind == PIPELINE_CHIMERA ? 2 : 1;
    return (size_t)directions * (size_t)layers * (2 * (size_t)p->micros + (size_t)pieces) + 1;
}

/* ---- what is ready ---- */

/* When the work of this step that makes an operand has ended. */
static double work_end(const Filling *f, const FillItem *x)
{
    const Schedule *s = f->q->schedule;
    for (int i = s->first[x->place]; i < s->first[x->place + 1]; i++) {
        const Work *w = &s->works[i];
        bool makes =
            x->kind == FILL_INPUTS ? w->kind == WORK_FORWARD : w->kind == WORK_BACKWARD || w->kind == WORK_INPUT;
        if (makes && w->chunk == x->chunk && w->micro == x->micro) return f->q->timeline->spans[i].end;
    }
    CHECK(false, "a micro-batch passes through each chunk");
    return 0;
}

/* INFINITY: unknown as yet. `ready`: (items) of statistics, found once. */
static double when_ready(const Filling *f, const double *ready, int i)
{
    const FillItem *x = &f->fill->items[i];
    if (x->kind != FILL_INVERSE) return ready[i];
    if (x->piece > 0) return x[-1].end >= 0 ? x[-1].end : INFINITY;
    return f->missing[x->layer] ? INFINITY : f->gathered[x->layer] + f->q->sum;
}

/* Starts what the place can start now. Returns when to look again: INFINITY never. */
static double fill_place(Filling *f, const double *ready, int place, double now)
{
    Lane *lane = &f->lanes[place];
    double next = INFINITY;
    if (lane->busy > now) return lane->busy;
    while (lane->next < lane->n && lane->gaps[lane->next].end <= now) lane->next++;
    if (lane->next == lane->n) return INFINITY;
    const Gap *gap = &lane->gaps[lane->next];
    if (gap->start > now) return gap->start;
    while (lane->first < lane->end && f->fill->items[lane->first].end >= 0) lane->first++;
    for (int i = lane->first; i < lane->end; i++) {
        FillItem *x = &f->fill->items[i];
        if (x->end >= 0) continue;
        double from = when_ready(f, ready, i);
        if (from > now) {
            if (from < next) next = from;
            continue;
        }
        if (!(x->seconds * ROOM < gap->end - now)) continue;
        x->start = now;
        x->end = lane->busy = now + x->seconds;
        if (x->kind != FILL_INVERSE) {
            f->missing[x->layer]--;
            if (x->end > f->gathered[x->layer]) f->gathered[x->layer] = x->end;
        }
        return lane->busy;
    }
    if (lane->next + 1 == lane->n) return next;
    double later = lane->gaps[lane->next + 1].start;
    if (later <= now) lane->next++; /* by rounding they touch */
    return later < next ? later : next;
}

/* ---- results ---- */

static double last_end(const Fill *fill)
{
    double end = 0;
    for (int i = 0; i < fill->n; i++)
        if (fill->items[i].end > end) end = fill->items[i].end;
    return end;
}

static void sum_up(const Filling *f)
{
    Fill *fill = f->fill;
    const FillProblem *q = f->q;
    double end = last_end(fill), allowed = (q->steps - 1) * q->step + q->timeline->sums_s;
    for (int i = 0; i < fill->n; i++) fill->seconds += fill->items[i].seconds;
    fill->exposed = end > allowed ? end - allowed : 0;
    fill->steps = (int)ceil(end / q->step - 1e-9);
    if (fill->steps < 1) fill->steps = 1;
    if (fill->steps > q->steps) fill->steps = q->steps;
    double time = (double)shape(f)->places * (fill->steps * q->timeline->works_s + fill->exposed);
    double bubbles = time - (1 - q->timeline->bubble) * fill->steps * shape(f)->places * q->timeline->works_s;
    if (bubbles > 0) fill->filled = fill->seconds / bubbles;
    if (fill->filled > 1) fill->filled = 1; /* bubbles are counted to the last work, items also run behind it */
    if (time > 0) fill->utilization = 1 - (1 - fill->filled) * bubbles / time;
}

void fill_make(const FillProblem *problem, Fill *fill)
{
    Filling f = {.q = problem, .fill = fill};
    int places = shape(&f)->places, layers = problem->first[pipeline_stages(shape(&f))];
    CHECK(problem->steps >= 1 && problem->factors <= FILL_FACTORS, "a refresh takes a step or more");
    f.lanes = mem_array((size_t)places, sizeof *f.lanes);
    f.gathered = mem_array((size_t)layers, sizeof *f.gathered);
    f.missing = mem_array((size_t)layers, sizeof *f.missing);
    for (int place = 0; place < places; place++) find_gaps(&f, place, &f.lanes[place]);
    *fill = (Fill){.items = mem_array(count_items(&f), sizeof *fill->items)};
    for (int place = 0; place < places; place++) {
        f.lanes[place].first = fill->n;
        queue_statistics(&f, place, FILL_INPUTS);
        queue_statistics(&f, place, FILL_GRADIENTS);
        for (int chunk = 0; chunk < shape(&f)->chunks; chunk++) queue_inverses(&f, place, chunk);
        f.lanes[place].end = fill->n;
    }
    double *ready = mem_array((size_t)fill->n + 1, sizeof *ready);
    for (int i = 0; i < fill->n; i++)
        if (fill->items[i].kind != FILL_INVERSE) ready[i] = work_end(&f, &fill->items[i]);
    for (double now = 0; now < INFINITY;) {
        double next = INFINITY;
        for (int place = 0; place < places; place++) {
            double again = fill_place(&f, ready, place, now);
            if (again < next) next = again;
        }
        now = next;
    }
    sum_up(&f);
    for (int place = 0; place < places; place++) free(f.lanes[place].gaps);
    free(f.lanes);
    free(f.gathered);
    free(f.missing);
    free(ready);
}

void fill_free(Fill *fill)
{
    free(fill->items);
    *fill = (Fill){0};
}
