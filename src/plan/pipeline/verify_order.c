/* The check of the orders in which a place takes statistics between its works. It knows neither gaps nor queues' order.
 */

#include "plan/pipeline/fill.h"

typedef struct {
    const FillProblem *q;
    const FillOrders *orders;
    int (*of)[N_SLOTS];
    int place;
} Check;

static Status bad(const Check *c, int step, int i, const char *what)
{
    const Work *w = &c->orders->steps[step].works[i];
    return fail(E_FAIL, "fill: place %d, step %d, work %d (%c of micro-batch %d, chunk %d): %s", c->place, step, i,
                work_letter(w->kind), w->micro, w->chunk, what);
}

static bool is_statistic(const Work *w) { return w->kind == WORK_CURVE_A || w->kind == WORK_CURVE_G; }

static const FillItem *item_of(const Check *c, const Work *w) { return &c->orders->items[w->item]; }

static Status check_works(const Check *c, int step)
{
    const Schedule *s = c->q->schedule;
    const FillOrder *o = &c->orders->steps[step];
    int next = s->first[c->place];
    for (int i = 0; i < o->n; i++) {
        const Work *w = &o->works[i], *want = &s->works[next];
        if (w->kind >= N_WORKS) continue;
        if (next == s->first[c->place + 1]) return bad(c, step, i, "is not in the schedule");
        if (w->kind != want->kind || w->chunk != want->chunk || w->micro != want->micro)
            return bad(c, step, i, "comes out of order");
        next++;
    }
    return next == s->first[c->place + 1] ? OK
                                          : fail(E_FAIL, "fill: place %d, step %d: works are left out", c->place, step);
}

/* In the first step it has come already where w needs it. */
static bool made_before(const Check *c, int step, int i)
{
    const Work *w = &c->orders->steps[step].works[i];
    bool forward = w->kind == WORK_CURVE_A && !(c->q->late && c->q->late[item_of(c, w)->layer]);
    for (int k = 0; k < (step ? c->orders->steps[0].n : i); k++) {
        const Work *m = &c->orders->steps[0].works[k];
        bool makes = forward ? m->kind == WORK_FORWARD : m->kind == WORK_BACKWARD || m->kind == WORK_INPUT;
        if (makes && m->chunk == w->chunk && m->micro == w->micro) return true;
    }
    return false;
}

static Status check_statistics(const Check *c)
{
    Status status = OK;
    int n = c->orders->n, *times = mem_array((size_t)n + 1, sizeof *times);
    for (int step = 0; step < c->orders->n_steps; step++)
        for (int i = 0; i < c->orders->steps[step].n; i++) {
            const Work *w = &c->orders->steps[step].works[i];
            if (!is_statistic(w)) continue;
            const FillItem *x = item_of(c, w);
            if (w->item < 0 || w->item >= n || times[w->item]++ > 0) TRY_DONE(bad(c, step, i, "is taken twice"));
            if (!made_before(c, step, i)) TRY_DONE(bad(c, step, i, "comes before the work that makes its operand"));
            for (int k = 0; k < n; k++) {
                const FillItem *other = &c->orders->items[k];
                bool earlier = other->kind == x->kind && other->chunk == x->chunk && other->layer == x->layer &&
                               other->micro < x->micro;
                if (earlier && times[k] == 0) TRY_DONE(bad(c, step, i, "comes before that of an earlier micro-batch"));
            }
        }
    for (int k = 0; k < n; k++)
        if (times[k] == 0)
            TRY_DONE(fail(E_FAIL, "fill: place %d: a statistic of layer %d, micro-batch %d, is not taken", c->place,
                          c->orders->items[k].layer, c->orders->items[k].micro));
done:
    free(times);
    return status;
}

/* Works of a micro-batch of one step, where the first step's statistics may come in a later one. */
static bool same_micro(const Work *a, int step_a, const Work *b, int step_b)
{
    int from_a = is_statistic(a) ? 0 : step_a, from_b = is_statistic(b) ? 0 : step_b;
    return a->chunk == b->chunk && a->micro == b->micro && from_a == from_b;
}

static bool writes(const Work *w, int which)
{
    return which == 0 ? w->kind == WORK_FORWARD : w->kind == WORK_BACKWARD || w->kind == WORK_INPUT;
}

/* From the work that writes a slot to the last of its micro-batch: all have that slot, and no other micro-batch of the
   chunk has. */
static Status check_slot(const Check *c, int step, int i, int which)
{
    const Work *w = &c->orders->steps[step].works[i];
    int slot = w->slot[SLOT_CURVE_A + which], last_step = step, last = i;
    if (slot < 0 || slot >= c->of[w->chunk][SLOT_CURVE_A + which]) return bad(c, step, i, "has no such slot");
    for (int s = step; s < c->orders->n_steps; s++)
        for (int k = s == step ? i + 1 : 0; k < c->orders->steps[s].n; k++) {
            const Work *x = &c->orders->steps[s].works[k];
            if (!same_micro(w, step, x, s)) continue;
            if (x->slot[SLOT_CURVE_A + which] != slot) return bad(c, s, k, "has another slot than its micro-batch");
            last_step = s;
            last = k;
        }
    for (int s = step; s <= last_step; s++)
        for (int k = s == step ? i + 1 : 0; k < (s == last_step ? last : c->orders->steps[s].n); k++) {
            const Work *x = &c->orders->steps[s].works[k];
            if (x->chunk == w->chunk && !same_micro(w, step, x, s) && writes(x, which) &&
                x->slot[SLOT_CURVE_A + which] == slot)
                return bad(c, s, k, "writes a slot that is still read");
        }
    return OK;
}

Status fill_verify_orders(const FillProblem *q, int place, int (*of)[N_SLOTS], const FillOrders *orders)
{
    const Check c = {q, orders, of, place};
    for (int step = 0; step < orders->n_steps; step++) TRY(check_works(&c, step));
    TRY(check_statistics(&c));
    for (int step = 0; step < orders->n_steps; step++)
        for (int i = 0; i < orders->steps[step].n; i++)
            for (int which = 0; which < 2; which++)
                if (writes(&orders->steps[step].works[i], which)) TRY(check_slot(&c, step, i, which));
    return OK;
}
