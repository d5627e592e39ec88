/* Times of a schedule's works, with links and sums. */

#include "plan/pipeline/schedule.h"

typedef struct {
    const Schedule *s;
    const ScheduleCosts *costs;
    Timeline *t;
    int *next;       /* (places) next work */
    double *done[2]; /* (directions, stages, micros) when a boundary has come: x, dx; -1: not yet */
    double *link[2]; /* (places, places) when a link is free: forward, backward */
} Simulation;

enum { FORWARD, BACKWARD };

static double *boundary_time(Simulation *m, int way, int direction, int stage, int micro)
{
    int stages = pipeline_stages(&m->s->shape);
    return &m->done[way]
                   [((size_t)direction * (size_t)stages + (size_t)stage) * (size_t)m->s->shape.micros + (size_t)micro];
}

/* When the work's input is there; −1: unknown as yet. */
static double input_time(Simulation *m, int place, const Work *w)
{
    const Pipeline *p = &m->s->shape;
    int stage = pipeline_stage(p, place, w->chunk), direction = pipeline_direction(p, w->chunk);
    bool first = stage == 0, last = stage == pipeline_stages(p) - 1;
    if (w->kind == WORK_WEIGHT || (w->kind == WORK_FORWARD ? first : last)) return 0;
    return *boundary_time(m, w->kind == WORK_FORWARD ? FORWARD : BACKWARD, direction, stage, w->micro);
}

static void send_boundary(Simulation *m, int place, const Work *w, double when)
{
    const Pipeline *p = &m->s->shape;
    int way = w->kind == WORK_FORWARD ? FORWARD : BACKWARD, direction = pipeline_direction(p, w->chunk), to, chunk;
    int stage = pipeline_stage(p, place, w->chunk) + (way == FORWARD ? 1 : -1);
    if (w->kind == WORK_WEIGHT || stage < 0 || stage >= pipeline_stages(p)) return;
    pipeline_home(p, stage, direction, &to, &chunk);
    if (to != place) {
        double *free_at = &m->link[way][place * p->places + to];
        *free_at = (when > *free_at ? when : *free_at) + m->costs->boundary;
        when = *free_at + m->costs->latency;
    }
    *boundary_time(m, way, direction, stage, w->micro) = when;
}

static bool run_next(Simulation *m, int place, double *clock)
{
    const Schedule *s = m->s;
    if (m->next[place] == s->first[place + 1]) return false;
    const Work *w = &s->works[m->next[place]];
    double start = input_time(m, place, w);
    if (start < 0) return false;
    if (start < *clock) start = *clock;
    *clock = start + m->costs->seconds[w->kind][pipeline_stage(&s->shape, place, w->chunk)];
    m->t->spans[m->next[place]++] = (TimeSpan){start, *clock};
    send_boundary(m, place, w, *clock);
    return true;
}

/* When the terms of a sum are complete on a place of its stage. */
static double terms_time(const Schedule *s, const StageSum *sum, const Timeline *t, int place, int chunk)
{
    for (int i = s->first[place]; i < s->first[place + 1]; i++)
        if (s->works[i].last && s->works[i].chunk == chunk && sum->early >= 0) return t->spans[i].end - sum->early;
    return t->works_s;
}

/* All places of a stage take part in its sum. */
static double sums_end(const Schedule *s, const ScheduleCosts *costs, const Timeline *t)
{
    const Pipeline *p = &s->shape;
    int directions = pipeline_directions(p);
    double last = t->works_s, *lane = mem_array((size_t)p->places, sizeof *lane);
    for (const StageSum *sum = costs->sums; sum < costs->sums + costs->n_sums; sum++) {
        double end = 0;
        int place[2], chunk;
        for (int d = 0; d < directions; d++) {
            pipeline_home(p, sum->stage, d, &place[d], &chunk);
            end = fmax(end, fmax(lane[place[d]], terms_time(s, sum, t, place[d], chunk)));
        }
        end += sum->seconds;
        for (int d = 0; d < directions; d++) lane[place[d]] = end;
        last = fmax(last, end);
    }
    free(lane);
    return last;
}

void schedule_simulate(const Schedule *s, const ScheduleCosts *costs, Timeline *t)
{
    const Pipeline *p = &s->shape;
    size_t places = (size_t)p->places, boundaries = 2 * (size_t)pipeline_stages(p) * (size_t)p->micros + 1;
    int n = s->first[p->places], run = 0, before = -1;
    *t = (Timeline){.spans = mem_array((size_t)n + 1, sizeof *t->spans)};
    Simulation m = {.s = s, .costs = costs, .t = t, .next = mem_array(places, sizeof(int))};
    double *clock = mem_array(places, sizeof *clock), worked = 0;
    for (int way = 0; way < 2; way++) {
        m.link[way] = mem_array(places * places, sizeof(double));
        m.done[way] = mem_array(boundaries, sizeof(double));
        for (size_t i = 0; i < boundaries; i++) m.done[way][i] = -1;
    }
    for (int place = 0; place < p->places; place++) m.next[place] = s->first[place];
    while (run != before) {
        before = run;
        for (int place = 0; place < p->places; place++)
            while (run_next(&m, place, &clock[place])) run++;
    }
    CHECK(run == n, "a schedule that was verified does not stick");
    for (int i = 0; i < n; i++) worked += t->spans[i].end - t->spans[i].start;
    for (int place = 0; place < p->places; place++)
        if (clock[place] > t->works_s) t->works_s = clock[place];
    t->sums_s = sums_end(s, costs, t);
    if (t->works_s > 0) t->bubble = 1 - worked / ((double)p->places * t->works_s);
    for (int way = 0; way < 2; way++) {
        MEM_FREE(m.link[way], m.done[way]);
    }
    MEM_FREE(m.next, clock);
}

void timeline_free(Timeline *t)
{
    free(t->spans);
    *t = (Timeline){0};
}
