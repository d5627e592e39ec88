/* Rank 0 asks for elements that ranks have in parts. */

#include "train/session/session_pipeline.h"

/* Rank 0's array of elements from `first` on. */
typedef struct {
    float *values;
    int64_t first;
} Collected;

static float *collected_at(void *collected, int64_t begin)
{
    const Collected *c = collected;
    return c->values + (begin - c->first);
}

struct SessionAsk {
    const Session *session;
    KfacRoom sets; /* of rank 0's own */
    bool left;     /* elements did not come, and the other ranks have left */
};

/* Elements that are asked for; an empty interval ends it. */
typedef struct {
    int64_t array;
    Interval v;
} Question;

static Status collect(const Session *s, const Question *q, float *to)
{
    Collected collected = {to, q->v.begin};
    Intervals *first = mem_array((size_t)ranks_size(s->options.ranks), sizeof *first);
    intervals_add(first, q->v.begin, q->v.end);
    Status status =
        session_move(s, (int)q->array, NULL, first, (MoveEnds){.taken_at = collected_at, .taker = &collected});
    intervals_free_all(first, ranks_size(s->options.ranks));
    return status;
}

Status session_ask(void *ask, int array, int64_t begin, int64_t end, float *to)
{
    SessionAsk *a = ask;
    const Session *s = a->session;
    if (session_has_all(s, array))
        return array == SESSION_SETS ? kfac_room_read(&a->sets, begin, end, to)
                                     : session_read_range(s, array, begin, end, to);
    Question q = {array, {begin, end}};
    Status status = ranks_broadcast(s->options.ranks, &q, sizeof q);
    if (status == OK) status = collect(s, &q, to);
    a->left = status != OK;
    return status;
}

static Status answer(const Session *s)
{
    for (;;) {
        Question q;
        TRY(ranks_broadcast(s->options.ranks, &q, sizeof q));
        if (q.v.begin == q.v.end) return OK;
        TRY(collect(s, &q, NULL));
    }
}

static Status end_asking(SessionAsk *a, Status status)
{
    Question end = {0};
    status = kfac_room_close(&a->sets, status);
    if (a->left) return status;
    char *why = mem_strdup(status_message());
    Status told = ranks_broadcast(a->session->options.ranks, &end, sizeof end);
    status = status == OK ? told : fail(status, "%s", why);
    free(why);
    return status;
}

Status session_asking(const Session *s, Status (*first)(void *context, SessionAsk *ask), void *context)
{
    Ranks *ranks = s->options.ranks;
    SessionAsk ask = {.session = s, .sets = {.session = s}};
    return ranks_all(ranks, ranks_first(ranks) ? end_asking(&ask, first(context, &ask)) : answer(s));
}
