/* The check of a schedule. It knows where stages are, how many buffers there are and which works a class of slots is
   for, and trusts nothing else of schedule.c: neither order, slots nor sums. */

#include "plan/pipeline/schedule.h"

typedef struct {
    int from, to; /* works: the one that sends and the one that receives */
} Message;

/* From a place to another, of forward or backward works. */
typedef struct {
    Message *messages;
    int n, cap, matched;   /* matched: messages whose receiver is known */
    int sent, moved, used; /* while the ranks are played through */
} Link;

typedef struct {
    const Schedule *s;
    int *work_index; /* (places, chunks, N_WORKS, micros) −1 */
    int *freed;      /* (works) of F: the work that must have ended before its activation's slot is written; −1 */
    int *message;    /* (works) its place on the link it sends over; −1: none */
    Link *links;     /* (2, places, places) */
    int *next;       /* (places) */
} Verifier;

static int place_of(const Schedule *s, int work)
{
    int place = 0;
    while (work >= s->first[place + 1]) place++;
    return place;
}

static Status work_error(const Schedule *s, int work, const char *what)
{
    const Work *w = &s->works[work];
    int place = place_of(s, work);
    return fail(E_FAIL, "%s: rank %d, work %d (%c of micro-batch %d, chunk %d): %s", pipeline_name(s->shape.kind),
                place, work - s->first[place], work_letter(w->kind), w->micro, w->chunk, what);
}

static int *work_index(const Verifier *v, int place, int chunk, WorkKind kind, int micro)
{
    const Pipeline *p = &v->s->shape;
    return &v->work_index[((place * p->chunks + chunk) * N_WORKS + (int)kind) * p->micros + micro];
}

/* ---- one rank ---- */

/* The work of the same micro-batch and chunk that must come before. */
static int needed_kind(WorkKind kind)
{
    return kind == WORK_FORWARD ? -1 : kind == WORK_WEIGHT ? (int)WORK_INPUT : (int)WORK_FORWARD;
}

static Status check_works(Verifier *v, int place)
{
    const Schedule *s = v->s;
    const Pipeline *p = &s->shape;
    bool split = pipeline_splits_backward(p->kind);
    for (int i = s->first[place]; i < s->first[place + 1]; i++) {
        const Work *w = &s->works[i];
        bool halves = w->kind == WORK_INPUT || w->kind == WORK_WEIGHT;
        if (w->chunk < 0 || w->chunk >= p->chunks || w->micro < 0 || w->micro >= pipeline_micros(p, w->chunk) ||
            (int)w->kind < 0 || w->kind >= N_WORKS || (w->kind != WORK_FORWARD && halves != split))
            return fail(E_FAIL, "%s: rank %d, work %d does not exist in this schedule", pipeline_name(p->kind), place,
                        i - s->first[place]);
        if (*work_index(v, place, w->chunk, w->kind, w->micro) >= 0) return work_error(s, i, "a second time");
        if (w->micro > 0 && *work_index(v, place, w->chunk, w->kind, w->micro - 1) < 0)
            return work_error(s, i, "before that of the micro-batch before it");
        int before = needed_kind(w->kind);
        if (before >= 0 && *work_index(v, place, w->chunk, (WorkKind)before, w->micro) < 0)
            return work_error(s, i, "before the work whose result it reads");
        *work_index(v, place, w->chunk, w->kind, w->micro) = i;
    }
    int kinds = split ? 3 : 2, works = 0;
    for (int chunk = 0; chunk < p->chunks; chunk++) works += kinds * pipeline_micros(p, chunk);
    if (s->first[place + 1] - s->first[place] != works)
        return fail(E_FAIL, "%s: rank %d has %d works, expected %d", pipeline_name(p->kind), place,
                    s->first[place + 1] - s->first[place], works);
    return OK;
}

static Status check_slots(Verifier *v, int place, SlotKind kind)
{
    const Schedule *s = v->s;
    const Pipeline *p = &s->shape;
    int most = 0;
    for (int chunk = 0; chunk < p->chunks; chunk++)
        if (schedule_slots(s, place, chunk, kind) > most) most = schedule_slots(s, place, chunk, kind);
    int *holds = mem_array((size_t)(p->chunks * most + 1), sizeof *holds);       /* (chunks, most) micro-batch + 1 */
    int *released = mem_array((size_t)(p->chunks * most + 1), sizeof *released); /* the same: last reader + 1 */
    Status status = OK;
    for (int i = s->first[place]; i < s->first[place + 1]; i++) {
        const Work *w = &s->works[i];
        bool written = work_writes(w, kind, pipeline_splits_backward(p->kind)), last = work_reads_last(w, kind);
        bool read = last || (kind == SLOT_OPERAND && w->kind == WORK_INPUT);
        if (!written && !read) continue;
        if (w->slot[kind] < 0 || w->slot[kind] >= schedule_slots(s, place, w->chunk, kind))
            TRY_DONE(work_error(s, i, "a slot that does not exist"));
        int slot = w->chunk * most + w->slot[kind];
        if (written && holds[slot]) TRY_DONE(work_error(s, i, "writes a slot that has not been read"));
        if (read && holds[slot] != w->micro + 1) TRY_DONE(work_error(s, i, "reads a slot of another micro-batch"));
        if (written && kind == SLOT_ACTIVATION) v->freed[i] = released[slot] - 1;
        if (written || last) holds[slot] = written ? w->micro + 1 : 0;
        if (last) released[slot] = i + 1;
    }
done:
    MEM_FREE(holds, released);
    return status;
}

static Status check_sums(const Verifier *v, int place)
{
    const Schedule *s = v->s;
    for (int chunk = 0; chunk < s->shape.chunks; chunk++) {
        int last = -1, marked = -1;
        for (int i = s->first[place]; i < s->first[place + 1]; i++) {
            const Work *w = &s->works[i];
            if (w->chunk != chunk) continue;
            if (w->kind != WORK_FORWARD) last = i;
            if (w->last && marked >= 0) return work_error(s, i, "the chunk's sums begin a second time");
            if (w->last) marked = i;
        }
        if (marked >= 0 && marked != last)
            return work_error(s, marked, "sums begin before the chunk's gradients are complete");
        if (last >= 0 && marked < 0) return work_error(s, last, "no sum of the chunk's gradients after it");
    }
    return OK;
}

/* ---- between ranks ---- */

static bool is_forward(const Work *w) { return w->kind == WORK_FORWARD; }

/* The neighbour whose boundary the work reads (`step` −1 forward) or makes: −1 if none, else its place and chunk. */
static int neighbour(const Schedule *s, int place, const Work *w, bool reads, int *chunk)
{
    const Pipeline *p = &s->shape;
    int stage = pipeline_stage(p, place, w->chunk), other = stage + (is_forward(w) == reads ? -1 : 1), home;
    if (w->kind == WORK_WEIGHT || other < 0 || other >= pipeline_stages(p)) return -1;
    pipeline_home(p, other, pipeline_direction(p, w->chunk), &home, chunk);
    return home;
}

/* Between the chunks of a place a boundary has one buffer. */
static Status check_handovers(const Verifier *v, int place)
{
    const Schedule *s = v->s;
    for (int i = s->first[place]; i < s->first[place + 1]; i++) {
        const Work *w = &s->works[i];
        int chunk;
        if (neighbour(s, place, w, false, &chunk) != place || w->micro == 0) continue;
        if (*work_index(v, place, chunk, w->kind, w->micro - 1) > i)
            return work_error(s, i, "makes a boundary before the last one was taken");
    }
    return OK;
}

static Link *link_of(const Verifier *v, const Work *w, int from, int to)
{
    return &v->links[((is_forward(w) ? 0 : 1) * v->s->shape.places + from) * v->s->shape.places + to];
}

static void collect_messages(Verifier *v, int place)
{
    const Schedule *s = v->s;
    for (int i = s->first[place]; i < s->first[place + 1]; i++) {
        int chunk, to = neighbour(s, place, &s->works[i], false, &chunk);
        v->message[i] = -1;
        if (to < 0 || to == place) continue;
        Link *l = link_of(v, &s->works[i], place, to);
        v->message[i] = l->n;
        MEM_PUSH(l->messages, l->n, l->cap, (Message){i, -1});
    }
}

/* The receiver takes its messages in the order in which they are sent. */
static Status match_messages(Verifier *v, int place)
{
    const Schedule *s = v->s;
    for (int i = s->first[place]; i < s->first[place + 1]; i++) {
        const Work *w = &s->works[i];
        int chunk, from = neighbour(s, place, w, true, &chunk);
        if (from < 0 || from == place) continue;
        Link *l = link_of(v, w, from, place);
        if (l->matched == l->n) return work_error(s, i, "no rank sends what it receives");
        Message *m = &l->messages[l->matched++];
        if (s->works[m->from].micro != w->micro || s->works[m->from].chunk != chunk)
            return work_error(s, i, "its boundary is sent in another order than it is received");
        m->to = i;
    }
    return OK;
}

/* Messages of a link move one after another, each when it was sent and its receiver has a buffer and a slot for it. */
static void move_messages(const Verifier *v, Link *l, int to)
{
    const Work *works = v->s->works;
    for (; l->moved < l->sent; l->moved++) {
        int receiver = l->messages[l->moved].to, held = 0;
        for (int m = l->used; m < l->moved; m++) held += works[l->messages[m].to].chunk == works[receiver].chunk;
        if (held == pipeline_buffers(&v->s->shape) || v->next[to] <= v->freed[receiver]) return;
    }
}

static bool can_run(const Verifier *v, int place, int i)
{
    const Schedule *s = v->s;
    const Work *w = &s->works[i];
    int chunk, from = neighbour(s, place, w, true, &chunk), to = neighbour(s, place, w, false, &chunk);
    int buffers = pipeline_buffers(&s->shape);
    if (from == place) {
        neighbour(s, place, w, true, &chunk);
        if (*work_index(v, place, chunk, w->kind, w->micro) >= i) return false;
    } else if (from >= 0) {
        Link *l = link_of(v, w, from, place);
        move_messages(v, l, place);
        if (l->moved == l->used) return false;
    }
    if (to < 0 || to == place || w->micro < buffers) return true; /* it has a buffer to send from */
    Link *l = link_of(v, w, place, to);
    move_messages(v, l, to);
    return v->message[*work_index(v, place, w->chunk, w->kind, w->micro - buffers)] < l->moved;
}

static void advance_rank(Verifier *v, int place, int i)
{
    const Work *w = &v->s->works[i];
    int chunk, from = neighbour(v->s, place, w, true, &chunk), to = neighbour(v->s, place, w, false, &chunk);
    if (from >= 0 && from != place) link_of(v, w, from, place)->used++;
    if (to >= 0 && to != place) link_of(v, w, place, to)->sent++;
    v->next[place] = i + 1;
}

static Status check_end(Verifier *v)
{
    const Schedule *s = v->s;
    int places = s->shape.places, left = s->first[places];
    for (int before = left + 1; left < before;) {
        before = left;
        for (int place = 0; place < places; place++)
            while (v->next[place] < s->first[place + 1] && can_run(v, place, v->next[place])) {
                advance_rank(v, place, v->next[place]);
                left--;
            }
    }
    for (int place = 0; place < places; place++)
        if (v->next[place] < s->first[place + 1])
            return work_error(s, v->next[place], "waits forever: the ranks wait for each other");
    return OK;
}

Status schedule_verify(const Schedule *s)
{
    const Pipeline *p = &s->shape;
    int places = p->places, n = s->first[places], n_at = places * p->chunks * N_WORKS * p->micros;
    size_t n_links = 2 * (size_t)places * (size_t)places;
    Status status = OK;
    Verifier v = {.s = s,
                  .work_index = mem_array((size_t)n_at + 1, sizeof(int)),
                  .freed = mem_array((size_t)n + 1, sizeof(int)),
                  .message = mem_array((size_t)n + 1, sizeof(int)),
                  .links = mem_array(n_links, sizeof(Link)),
                  .next = mem_array((size_t)places, sizeof(int))};
    for (int i = 0; i < n_at; i++) v.work_index[i] = -1;
    for (int i = 0; i < n; i++) v.freed[i] = -1;
    for (int place = 0; place < places; place++) {
        v.next[place] = s->first[place];
        TRY_DONE(check_works(&v, place));
        TRY_DONE(check_handovers(&v, place));
        for (int kind = 0; kind < N_ORDER_SLOTS; kind++) TRY_DONE(check_slots(&v, place, (SlotKind)kind));
        TRY_DONE(check_sums(&v, place));
    }
    for (int place = 0; place < places; place++) collect_messages(&v, place);
    for (int place = 0; place < places; place++) TRY_DONE(match_messages(&v, place));
    TRY_DONE(check_end(&v));
done:
    for (size_t i = 0; i < n_links; i++) free(v.links[i].messages);
    MEM_FREE(v.work_index, v.freed, v.message, v.links, v.next);
    return status;
}
