/* The orders of works, one function per schedule, and the slots that an order needs. */
#include "plan/pipeline/schedule.h"

static const struct {
    const char *name;
    int least;
    bool more;
} pipelines[] = {
#define X(id, name, order, least, more) {name, least, more},
    PIPELINE_LIST(X)
#undef X
};

const char *pipeline_name(PipelineKind kind) { return pipelines[kind].name; }
int pipeline_chunks(PipelineKind kind) { return pipelines[kind].least; }
bool pipeline_consecutive(PipelineKind kind) { return pipelines[kind].least == 1; }
bool pipeline_splits_backward(PipelineKind kind) { return kind == PIPELINE_ZB_H1 || kind == PIPELINE_ZB_V; }

/* Places of interleaved that are far apart are in groups of other sizes, and the longer the pipeline the more
   boundaries lie between them. Found by schedule_verify for up to 24 places, 90 micro-batches and 5 chunks (tests/plan/
   test_schedule.c has a part). */
int pipeline_buffers(const Pipeline *p)
{
    int more = p->kind == PIPELINE_INTERLEAVED ? (p->places + 2) / 3 : 0;
    return more > 2 ? more : 2;
}

char work_letter(WorkKind kind) { return "FBIWAGV"[kind]; }

Status pipeline_check(const Pipeline *p)
{
    const char *name = pipeline_name(p->kind);
    int least = pipelines[p->kind].least;
    bool more = pipelines[p->kind].more;
    if (p->places < 1) return fail(E_USAGE, "%s needs at least one rank, found %d", name, p->places);
    if (p->chunks < least || (p->chunks > least && !more))
        return fail(E_USAGE, "%s has %s%d stage%s on a rank, found %d", name, more ? "at least " : "", least,
                    least > 1 ? "s" : "", p->chunks);
    if (p->kind == PIPELINE_CHIMERA && p->places % 2)
        return fail(E_USAGE, "chimera needs an even number of stages, found %d; give --stages %d", p->places,
                    p->places + 1);
    if (p->micros < 0) return fail(E_USAGE, "a step has 0 or more micro-batches, found %d", p->micros);
    return OK;
}

int pipeline_stages(const Pipeline *p) { return p->kind == PIPELINE_CHIMERA ? p->places : p->places * p->chunks; }

int pipeline_stage(const Pipeline *p, int place, int chunk)
{
    bool up = chunk == 1;
    switch (p->kind) {
    case PIPELINE_INTERLEAVED:
        return chunk * p->places + place;
    case PIPELINE_CHIMERA:
        return up ? p->places - 1 - place : place;
    case PIPELINE_ZB_V:
        return up ? 2 * p->places - 1 - place : place;
    default:
        return place * p->chunks + chunk;
    }
}

void pipeline_home(const Pipeline *p, int stage, int direction, int *place, int *chunk)
{
    if (pipeline_consecutive(p->kind)) {
        *place = stage / p->chunks;
        *chunk = stage % p->chunks;
        return;
    }
    *chunk = p->kind == PIPELINE_CHIMERA ? direction : stage / p->places;
    bool up = *chunk == 1 && p->kind != PIPELINE_INTERLEAVED;
    *place = up ? p->places - 1 - stage % p->places : stage % p->places;
}

int pipeline_micros(const Pipeline *p, int chunk)
{
    if (p->kind != PIPELINE_CHIMERA) return p->micros;
    return chunk == 0 ? (p->micros + 1) / 2 : p->micros / 2;
}

/* ---- orders ---- */

typedef struct {
    const Pipeline *p;
    Work *works;
    int n;
} Order;

/* Skips micro-batches beyond the last. */
static void add_work(Order *o, WorkKind kind, int chunk, int micro)
{
    if (micro >= pipeline_micros(o->p, chunk)) return;
    o->works[o->n++] = (Work){.kind = kind, .chunk = chunk, .micro = micro, .slot = {-1, -1, -1, -1, -1}};
}

static int smaller(int a, int b) { return a < b ? a : b; }

/* Adds a work of each of a place's chunks, one behind the other: F down the stages, the others up. */
static void add_works(Order *o, WorkKind kind, int micro)
{
    int chunks = o->p->chunks;
    for (int k = 0; k < chunks; k++) add_work(o, kind, kind == WORK_FORWARD ? k : chunks - 1 - k, micro);
}

static void gpipe(Order *o, int place)
{
    (void)place;
    for (int m = 0; m < o->p->micros; m++) add_works(o, WORK_FORWARD, m);
    for (int m = 0; m < o->p->micros; m++) add_works(o, WORK_BACKWARD, m);
}

/* Where backward is split, a place with few warm-up works puts off as many weight gradients. */
static void one_forward_one_backward(Order *o, int place)
{
    bool split = pipeline_splits_backward(o->p->kind);
    int n = o->p->micros, ahead = smaller(n, o->p->places - 1 - place), weights = 0;
    for (int m = 0; m < ahead; m++) add_works(o, WORK_FORWARD, m);
    for (int m = 0; m < n; m++) {
        add_works(o, WORK_FORWARD, ahead + m);
        add_works(o, split ? WORK_INPUT : WORK_BACKWARD, m);
        if (split && m >= place) add_works(o, WORK_WEIGHT, weights++);
    }
    while (split && weights < n) add_works(o, WORK_WEIGHT, weights++);
}

/* Groups of micro-batches of sizes as even as can be, larger first. With a small last group the order sticks. */
static int group_first(const Pipeline *p, int group)
{
    int groups = p->micros / p->places > 1 ? p->micros / p->places : 1;
    return group * (p->micros / groups) + smaller(group, p->micros % groups);
}

/* Works in the order of groups, in a group of chunks, in a chunk of micro-batches. Fills chunk and micro of each. */
static void interleaved_sequence(const Pipeline *p, bool forward, Work *out) // (chunks · micros)
{
    int n = 0;
    for (int group = 0; group_first(p, group) < p->micros; group++)
        for (int k = 0; k < p->chunks; k++)
            for (int m = group_first(p, group); m < group_first(p, group + 1); m++)
                out[n++] = (Work){.chunk = forward ? k : p->chunks - 1 - k, .micro = m};
}

static void interleaved(Order *o, int place)
{
    const Pipeline *p = o->p;
    int n = p->chunks * p->micros,
        ahead = smaller(n, 2 * (p->places - 1 - place) + (p->chunks - 1) * smaller(group_first(p, 1), p->micros));
    Work *forward = mem_array((size_t)n, sizeof *forward), *backward = mem_array((size_t)n, sizeof *backward);
    interleaved_sequence(p, true, forward);
    interleaved_sequence(p, false, backward);
    for (int i = 0; i < ahead; i++) add_work(o, WORK_FORWARD, forward[i].chunk, forward[i].micro);
    for (int i = 0; i < n; i++) {
        if (ahead + i < n) add_work(o, WORK_FORWARD, forward[ahead + i].chunk, forward[ahead + i].micro);
        add_work(o, WORK_BACKWARD, backward[i].chunk, backward[i].micro);
    }
    MEM_FREE(forward, backward);
}

/* Units of as many micro-batches as places, half of them in each direction. A place of the lower half is that of the
   upper half with the directions exchanged. */
static void chimera(Order *o, int place)
{
    const Pipeline *p = o->p;
    bool mirrored = place >= p->places / 2;
    int half = p->places / 2, down = mirrored, up = !mirrored, near = mirrored ? p->places - 1 - place : place,
        far = half - near, forward[2] = {0}, backward[2] = {0};
    int units = (p->micros + p->places - 1) / p->places;
    for (int unit = 0; unit < units; unit++) {
        for (int i = 0; i < far; i++) {
            if (unit > 0) add_work(o, WORK_BACKWARD, down, backward[down]++);
            add_work(o, WORK_FORWARD, down, forward[down]++);
        }
        for (int i = 0; i < near; i++) {
            add_work(o, WORK_FORWARD, up, forward[up]++);
            add_work(o, WORK_FORWARD, down, forward[down]++);
        }
        for (int i = 0; i < far; i++) {
            add_work(o, WORK_FORWARD, up, forward[up]++);
            add_work(o, WORK_BACKWARD, up, backward[up]++);
        }
        for (int i = 0; i < near; i++) {
            add_work(o, WORK_BACKWARD, down, backward[down]++);
            add_work(o, WORK_BACKWARD, up, backward[up]++);
        }
    }
    for (int i = 0; i < far; i++) add_work(o, WORK_BACKWARD, down, backward[down]++);
}

/* The list for at least 2·places − 1 micro-batches; add_work skips the others. */
static void zb_v(Order *o, int place)
{
    int places = o->p->places, n = o->p->micros > 2 * places - 1 ? o->p->micros : 2 * places - 1;
    int f[2] = {0}, i[2] = {0}, w[2] = {0};
    for (int k = 0; k < 2 * (places - place) - 1; k++) add_work(o, WORK_FORWARD, 0, f[0]++);
    for (int k = 0; k < place; k++) {
        add_work(o, WORK_FORWARD, 1, f[1]++);
        add_work(o, WORK_FORWARD, 0, f[0]++);
    }
    for (int k = 0; k < places - place; k++) {
        add_work(o, WORK_FORWARD, 1, f[1]++);
        add_work(o, WORK_INPUT, 1, i[1]++);
        add_work(o, WORK_WEIGHT, 1, w[1]++);
    }
    while (f[1] < n) {
        if (f[0] < n) add_work(o, WORK_FORWARD, 0, f[0]++);
        add_work(o, WORK_INPUT, 0, i[0]++);
        add_work(o, WORK_WEIGHT, 0, w[0]++);
        add_work(o, WORK_FORWARD, 1, f[1]++);
        add_work(o, WORK_INPUT, 1, i[1]++);
        add_work(o, WORK_WEIGHT, 1, w[1]++);
    }
    for (int k = 0; k < place; k++) {
        add_work(o, WORK_INPUT, 0, i[0]++);
        add_work(o, WORK_INPUT, 1, i[1]++);
    }
    for (int k = 0; k < places - place; k++) {
        add_work(o, WORK_INPUT, 0, i[0]++);
        add_work(o, WORK_WEIGHT, 0, w[0]++);
    }
    while (w[1] < n) add_work(o, WORK_WEIGHT, 1, w[1]++);
    while (w[0] < n) add_work(o, WORK_WEIGHT, 0, w[0]++);
}

/* Writes the order of a place into `out` without `last` and slots, and returns its length. */
static int order_of(const Pipeline *p, int place, Work *out)
{
    static void (*const orders[])(Order *, int place) = {
#define X(id, name, order, ...) order,
        PIPELINE_LIST(X)
#undef X
    };
    Order o = {p, out, 0};
    orders[p->kind](&o, place);
    return o.n;
}

/* ---- slots ---- */

/* Each micro-batch gets the lowest free slot when its writer comes; its reader frees it. */
static void assign_slots(Schedule *s, int place, SlotKind kind)
{
    const Pipeline *p = &s->shape;
    int *held = mem_array((size_t)p->chunks * (size_t)p->micros + 1, sizeof *held); /* (chunks, slots): micro + 1 */
    for (int i = s->first[place]; i < s->first[place + 1]; i++) {
        Work *w = &s->works[i];
        int *of_chunk = held + w->chunk * p->micros, slot = 0,
            *count = &s->slots[(place * p->chunks + w->chunk) * N_SLOTS + (int)kind];
        bool written = work_writes(w, kind, pipeline_splits_backward(p->kind));
        bool passes = kind == SLOT_OPERAND && w->kind == WORK_INPUT; /* between writer and reader, of the same memory */
        if (!written && !passes && !work_reads_last(w, kind)) continue;
        while (of_chunk[slot] != (written ? 0 : w->micro + 1)) slot++;
        if (passes) {
            w->slot[kind] = slot;
            continue;
        }
        of_chunk[slot] = written ? w->micro + 1 : 0;
        w->slot[kind] = slot;
        if (slot >= *count) *count = slot + 1;
    }
    free(held);
}

/* Sums begin after the last B, or after the last of I and W. */
static void mark_last(const Pipeline *p, Work *works, int n)
{
    for (int chunk = 0; chunk < p->chunks; chunk++) {
        int last = -1;
        for (int i = 0; i < n; i++)
            if (works[i].chunk == chunk && works[i].kind != WORK_FORWARD) last = i;
        if (last >= 0) works[last].last = true;
    }
}

void schedule_make(const Pipeline *p, Schedule *s)
{
    size_t places = (size_t)p->places, most = 3 * (size_t)p->chunks * (size_t)p->micros;
    *s = (Schedule){.shape = *p,
                    .works = mem_array(places * most, sizeof *s->works),
                    .first = mem_array(places + 1, sizeof *s->first),
                    .slots = mem_array(places * (size_t)p->chunks * N_SLOTS, sizeof *s->slots)};
    for (int place = 0; place < p->places; place++) {
        Work *works = s->works + s->first[place];
        int n = order_of(p, place, works);
        mark_last(p, works, n);
        s->first[place + 1] = s->first[place] + n;
        for (int kind = 0; kind < N_ORDER_SLOTS; kind++) assign_slots(s, place, (SlotKind)kind);
    }
}

void schedule_free(Schedule *s)
{
    MEM_FREE(s->works, s->first, s->slots);
    *s = (Schedule){0};
}
