/* The order of a step in a run: a place's works, and between them items of its queue, with the slots of their operands.
 */

#include "plan/pipeline/fill.h"

typedef struct {
    FillSlots *s;
    const FillStep *step;
    FillItem *items;
    int n;
    FillOrder *out;
} Ordering;

void fill_slots_free(FillSlots *s)
{
    free(s->kept);
    *s = (FillSlots){0};
}

int fill_least_slots(const int slots[N_SLOTS], SlotKind kind, bool split)
{
    if (kind == SLOT_CURVE_A) return slots[split ? SLOT_OPERAND : SLOT_ACTIVATION];
    return split ? slots[SLOT_GRADIENT] : 1;
}

static bool is_statistic(const FillItem *x) { return x->kind != FILL_INVERSE; }

static bool splits(const Ordering *o) { return pipeline_splits_backward(o->step->schedule->shape.kind); }

/* ---- slots ---- */

static FillKept *find_kept(const Ordering *o, int chunk, int micro, bool former)
{
    for (int i = 0; i < o->s->n; i++) {
        FillKept *k = &o->s->kept[i];
        if (k->chunk == chunk && k->micro == micro && k->former == former) return k;
    }
    return NULL;
}

static void release(const Ordering *o, FillKept *k)
{
    if (k->ended && k->left == 0) *k = o->s->kept[--o->s->n];
}

/* The lowest that is free; −1: none. */
static int free_slot(const Ordering *o, int chunk, int which)
{
    for (int slot = 0; slot < o->s->slots[chunk][SLOT_CURVE_A + which]; slot++) {
        bool used = false;
        for (int i = 0; i < o->s->n; i++) used |= o->s->kept[i].chunk == chunk && o->s->kept[i].slot[which] == slot;
        if (!used) return slot;
    }
    return -1;
}

static void append(const Ordering *o, Work w) { MEM_PUSH(o->out->works, o->out->n, o->out->cap, w); }

static void take_item(const Ordering *o, int i)
{
    FillItem *x = &o->items[i];
    Work w = {.kind = WORK_INVERSE, .chunk = x->chunk, .micro = x->micro, .slot = {-1, -1, -1, -1, -1}, .item = i};
    x->taken = true;
    if (is_statistic(x)) {
        FillKept *k = find_kept(o, x->chunk, x->micro, !o->step->refresh);
        CHECK(k && k->slot[1] >= (x->kind == FILL_GRADIENTS ? 0 : -1), "a statistic without its operand");
        w.kind = x->kind == FILL_INPUTS ? WORK_CURVE_A : WORK_CURVE_G;
        w.slot[SLOT_CURVE_A] = k->slot[0];
        w.slot[SLOT_CURVE_G] = k->slot[1];
        k->left--;
        append(o, w);
        release(o, k);
        return;
    }
    append(o, w);
}

/* The first micro-batch of those whose B has run: statistics ascend. */
static FillKept *oldest_waiting(const Ordering *o, int chunk)
{
    FillKept *oldest = NULL;
    for (int i = 0; i < o->s->n; i++) {
        FillKept *k = &o->s->kept[i];
        if (k->chunk == chunk && k->left > 0 && k->slot[1] >= 0 && (!oldest || k->micro < oldest->micro)) oldest = k;
    }
    return oldest;
}

static void take_all_of(const Ordering *o, const FillKept *k)
{
    int chunk = k->chunk, micro = k->micro;
    for (int i = 0; i < o->n; i++)
        if (!o->items[i].taken && is_statistic(&o->items[i]) && o->items[i].chunk == chunk &&
            o->items[i].micro == micro)
            take_item(o, i);
}

static int need_slot(const Ordering *o, int chunk, int which)
{
    for (int slot; (slot = free_slot(o, chunk, which)) < 0;) {
        FillKept *k = oldest_waiting(o, chunk);
        CHECK(k, "chunk %d has too few slots", chunk);
        take_all_of(o, k);
    }
    return free_slot(o, chunk, which);
}

/* ---- the order ---- */

static int count_statistics(const Ordering *o, int chunk, int micro)
{
    int n = 0;
    for (int i = 0; o->step->refresh && i < o->n; i++)
        n += !o->items[i].taken && is_statistic(&o->items[i]) && o->items[i].chunk == chunk &&
             o->items[i].micro == micro;
    return n;
}

static void add_work(const Ordering *o, Work w)
{
    FillKept *k;
    if (w.kind == WORK_FORWARD) {
        int slot = need_slot(o, w.chunk, 0);
        int left = count_statistics(o, w.chunk, w.micro);
        MEM_PUSH(o->s->kept, o->s->n, o->s->cap,
                 (FillKept){.chunk = w.chunk, .micro = w.micro, .left = left, .slot = {slot, -1}});
    }
    if (w.kind == WORK_BACKWARD || w.kind == WORK_INPUT) {
        int slot = need_slot(o, w.chunk, 1); /* which may move what is kept */
        find_kept(o, w.chunk, w.micro, false)->slot[1] = slot;
    }
    k = find_kept(o, w.chunk, w.micro, false);
    w.slot[SLOT_CURVE_A] = k->slot[0];
    w.slot[SLOT_CURVE_G] = k->slot[1];
    append(o, w);
    k->ended = w.kind == (splits(o) ? WORK_WEIGHT : WORK_BACKWARD);
    release(o, k);
}

/* Those of this step that have their place before `when`, in the order of these. */
static void take_placed(const Ordering *o, double when)
{
    for (;;) {
        int first = -1;
        for (int i = 0; i < o->n; i++) {
            const FillItem *x = &o->items[i];
            if (x->taken || x->start < o->step->begin || x->start >= when) continue;
            if (first < 0 || x->start < o->items[first].start) first = i;
        }
        if (first < 0) return;
        take_item(o, first);
    }
}

static void take_statistics(const Ordering *o)
{
    for (int i = 0; i < o->n; i++)
        if (!o->items[i].taken && is_statistic(&o->items[i])) take_item(o, i);
}

void fill_order(FillSlots *s, const FillStep *step, FillItem *items, int n, FillOrder *out)
{
    const Schedule *schedule = step->schedule;
    Ordering o = {s, step, items, n, out};
    for (int i = 0; i < s->n; i++) s->kept[i].former = true;
    for (int i = schedule->first[step->place]; i < schedule->first[step->place + 1]; i++) {
        const Work *w = &schedule->works[i];
        if (w->micro >= step->micros[pipeline_direction(&schedule->shape, w->chunk)]) continue;
        take_placed(&o, step->begin + step->timeline->spans[i].start);
        add_work(&o, *w);
    }
    take_placed(&o, step->end);
    if (step->drain) take_statistics(&o);
}

void fill_drain(FillSlots *s, FillItem *items, int n, FillOrder *out)
{
    const FillStep none = {0};
    Ordering o = {s, &none, items, n, out};
    for (int i = 0; i < s->n; i++) s->kept[i].former = true;
    take_statistics(&o);
}

/* ---- the steps of a refresh as planned ---- */

void fill_make_orders(const FillProblem *q, const Fill *fill, int place, int (*of)[N_SLOTS], FillOrders *out)
{
    FillSlots slots = {.slots = of};
    *out = (FillOrders){.items = mem_array((size_t)fill->n + 1, sizeof *out->items),
                        .steps = mem_array((size_t)fill->gathered, sizeof *out->steps),
                        .n_steps = fill->gathered};
    for (int i = 0; i < fill->n; i++)
        if (fill->items[i].place == place && is_statistic(&fill->items[i])) out->items[out->n++] = fill->items[i];
    for (int step = 0; step < fill->gathered; step++) {
        FillStep in = fill_planned_step(q, fill, place, step);
        in.drain = step + 1 == fill->gathered;
        fill_order(&slots, &in, out->items, out->n, &out->steps[step]);
    }
    fill_slots_free(&slots);
}

void fill_orders_free(FillOrders *o)
{
    for (int step = 0; step < o->n_steps; step++) free(o->steps[step].works);
    MEM_FREE(o->steps, o->items);
    *o = (FillOrders){0};
}

void fill_wanted_slots(const FillProblem *q, const Fill *fill, int place, int (*wanted)[2])
{
    const Pipeline *shape = &q->schedule->shape;
    int(*plenty)[N_SLOTS] = mem_array((size_t)shape->chunks, sizeof *plenty);
    FillOrders orders;
    for (int chunk = 0; chunk < shape->chunks; chunk++) {
        plenty[chunk][SLOT_CURVE_A] = plenty[chunk][SLOT_CURVE_G] = 2 * shape->micros;
        wanted[chunk][0] = wanted[chunk][1] = 1;
    }
    fill_make_orders(q, fill, place, plenty, &orders);
    for (int step = 0; step < orders.n_steps; step++)
        for (int i = 0; i < 2 * orders.steps[step].n; i++) {
            const Work *w = &orders.steps[step].works[i / 2];
            int slot = w->slot[SLOT_CURVE_A + i % 2], *most = &wanted[w->chunk][i % 2];
            if (slot >= *most) *most = slot + 1;
        }
    fill_orders_free(&orders);
    free(plenty);
}
