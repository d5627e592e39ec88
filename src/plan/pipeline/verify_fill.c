/* The check of a fill. It knows neither gaps nor queues. */

#include "plan/pipeline/fill.h"

#define CLOSE 1e-9 /* relative: sums of the same times in another order */

typedef struct {
    const FillProblem *q;
    const Fill *fill;
    double slack;
} Check;

static Status bad(const FillItem *x, const char *what)
{
    static const char *const names[N_FILLS] = {"the inputs' statistic", "the gradients' statistic", "the inverse"};
    if (x->kind == FILL_INVERSE)
        return fail(E_FAIL, "fill: place %d, %s of factor %d of layer %d, piece %d: %s", x->place, names[x->kind],
                    x->factor, x->layer, x->piece, what);
    return fail(E_FAIL, "fill: place %d, %s of layer %d, micro-batch %d: %s", x->place, names[x->kind], x->layer,
                x->micro, what);
}

static bool makes_operand(const Work *w, FillKind kind, bool late)
{
    return kind == FILL_INPUTS && !late ? w->kind == WORK_FORWARD : w->kind == WORK_BACKWARD || w->kind == WORK_INPUT;
}

/* ---- a place does one thing at a time ---- */

typedef struct {
    double start, end;
    const FillItem *item; /* NULL: a work */
} Busy;

static int earlier(const void *a, const void *b)
{
    const Busy *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static Status check_alone(const Check *c, int place)
{
    const Schedule *s = c->q->schedule;
    Status status = OK;
    int n = 0;
    Busy *busy = mem_array((size_t)c->fill->n + (size_t)(c->q->steps * (s->first[place + 1] - s->first[place])) + 1,
                           sizeof *busy);
    for (int i = 0; i < c->fill->n; i++)
        if (c->fill->items[i].place == place)
            busy[n++] = (Busy){c->fill->items[i].start, c->fill->items[i].end, &c->fill->items[i]};
    for (int step = 0; step < c->q->steps; step++)
        for (int i = s->first[place]; i < s->first[place + 1]; i++)
            busy[n++] = (Busy){c->fill->begins[step] + c->q->timeline->spans[i].start,
                               c->fill->begins[step] + c->q->timeline->spans[i].end, NULL};
    qsort(busy, (size_t)n, sizeof *busy, earlier);
    for (int i = 1; i < n; i++) {
        const FillItem *item = busy[i].item ? busy[i].item : busy[i - 1].item;
        if (item && busy[i].start < busy[i - 1].end - c->slack)
            TRY_DONE(bad(item, "runs beside a work or another item"));
    }
done:
    free(busy);
    return status;
}

/* ---- statistics ---- */

static const FillItem *find_statistic(const Check *c, FillKind kind, int place, int chunk, int layer, int micro, int *n)
{
    const FillItem *found = NULL;
    *n = 0;
    for (int i = 0; i < c->fill->n; i++) {
        const FillItem *x = &c->fill->items[i];
        if (x->kind != kind || x->place != place || x->chunk != chunk || x->layer != layer || x->micro != micro)
            continue;
        found = x;
        ++*n;
    }
    return found;
}

/* The statistics of one layer of a chunk. */
static Status check_statistics(const Check *c, FillKind kind, int place, int chunk, int layer, double *gathered)
{
    const Schedule *s = c->q->schedule;
    double before = 0;
    for (int micro = 0; micro < pipeline_micros(&s->shape, chunk); micro++) {
        int n;
        const FillItem *x = find_statistic(c, kind, place, chunk, layer, micro, &n);
        const FillItem wanted = {.kind = kind, .place = place, .layer = layer, .micro = micro};
        if (n != 1) return bad(&wanted, n ? "is taken twice" : "is not taken");
        if (x->start < before - c->slack) return bad(x, "comes before that of an earlier micro-batch");
        if (x->end < x->start + x->seconds - c->slack) return bad(x, "is cut short");
        before = x->start;
        for (int i = s->first[place]; i < s->first[place + 1]; i++)
            if (s->works[i].chunk == chunk && s->works[i].micro == micro &&
                makes_operand(&s->works[i], kind, c->q->late && c->q->late[layer]) &&
                x->start < c->q->timeline->spans[i].end - c->slack)
                return bad(x, "comes before the work that makes its operand");
        if (x->end > *gathered) *gathered = x->end;
    }
    return OK;
}

/* ---- inverses ---- */

/* At most one place has it, in order and whole, and not before `from`. `seconds`: of its pieces. */
static Status check_inverse(const Check *c, int layer, int factor, double from, double *seconds)
{
    const FillItem *before = NULL;
    *seconds = 0;
    for (int i = 0; i < c->fill->n; i++) {
        const FillItem *x = &c->fill->items[i];
        if (x->kind != FILL_INVERSE || x->layer != layer || x->factor != factor) continue;
        if (x->start < from - c->slack) return bad(x, "begins before its statistics are summed");
        if (before && x->place != before->place) return bad(x, "is on two places");
        if (x->piece != (before ? before->piece + 1 : 0)) return bad(x, "is not the next piece");
        if (before && x->start < before->end - c->slack) return bad(x, "begins before the piece before it has ended");
        if (x->end < x->start + x->seconds - c->slack) return bad(x, "is cut short");
        before = x;
        *seconds += x->seconds;
    }
    if (before && *seconds < c->q->inverse[factor] - c->slack) return bad(before, "the pieces are not the whole");
    return OK;
}

static Status check_gathered(const Check *c, int stage, int layer, double *gathered)
{
    const Pipeline *p = &c->q->schedule->shape;
    for (int direction = 0; direction < pipeline_directions(p); direction++) {
        int place, chunk;
        pipeline_home(p, stage, direction, &place, &chunk);
        TRY(check_statistics(c, FILL_INPUTS, place, chunk, layer, gathered));
        TRY(check_statistics(c, FILL_GRADIENTS, place, chunk, layer, gathered));
    }
    return OK;
}

/* Holders sum where the step of the last statistic ends. */
static double sums_begin(const Check *c, double gathered)
{
    int step = 0;
    while (step + 1 < c->q->steps && gathered > c->fill->begins[step + 1] + c->slack) step++;
    double works = c->fill->begins[step] + c->q->timeline->works_s;
    return c->q->steps > step + 1 ? c->fill->begins[step + 1] : gathered > works ? gathered : works;
}

/* Without other pipelines every inverse is here; with them this one has its share. */
static Status check_inverses(const Check *c, int layer, double from)
{
    double of_one, done = 0, all = 0;
    for (int factor = 0; factor < c->q->factors; factor++) {
        TRY(check_inverse(c, layer, factor, from, &of_one));
        done += of_one;
        all += c->q->inverse[factor];
        if (of_one == 0 && c->q->replicas == 1 && c->q->inverse[factor] > 0)
            return fail(E_FAIL, "fill: nobody inverts factor %d of layer %d", factor, layer);
    }
    return done <= all + c->slack ? OK : fail(E_FAIL, "fill: layer %d is inverted more than once", layer);
}

static Status check_begins(const Check *c)
{
    for (int step = 0; step < c->q->steps; step++)
        if (c->fill->begins[step + 1] < c->fill->begins[step] + c->q->step - c->slack)
            return fail(E_FAIL, "fill: step %d begins before the one before it has ended", step + 1);
    return OK;
}

Status fill_verify(const FillProblem *problem, const Fill *fill)
{
    const Pipeline *p = &problem->schedule->shape;
    Check c = {problem, fill, CLOSE * (problem->step * (problem->steps + 1) + fill->seconds)};
    double gathered = 0;
    for (int i = 0; i < fill->n; i++) {
        const FillItem *x = &fill->items[i];
        if (x->place < 0 || x->place >= p->places || x->start < 0) return bad(x, "was not placed");
    }
    TRY(check_begins(&c));
    for (int place = 0; place < p->places; place++) TRY(check_alone(&c, place));
    for (int stage = 0; stage < pipeline_stages(p); stage++)
        for (int layer = problem->first[stage]; layer < problem->first[stage + 1]; layer++)
            TRY(check_gathered(&c, stage, layer, &gathered));
    for (int layer = 0; layer < problem->first[pipeline_stages(p)]; layer++)
        TRY(check_inverses(&c, layer, sums_begin(&c, gathered)));
    return OK;
}
