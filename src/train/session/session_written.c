/* What a rank writes into a checkpoint (holding_written), in its save buffer. */

#include "base/parallel.h"
#include "train/session/session_pipeline.h"

static int rank_of(const Session *s) { return ranks_rank(s->options.ranks); }

float *session_written(const Session *s)
{
    const Memory *m = s->memory;
    return session_saves(s) ? (float *)(void *)((char *)m->base[REGION_ACT] + s->plan.buffer_at) : m->base[REGION_SAVE];
}

float *session_save_buffer(const Session *s)
{
    return holding_writes_all(session_holding(s), rank_of(s)) ? session_written(s) : NULL;
}

static const Intervals *written(const Session *s, int array)
{
    return &session_holding(s)->writes[array == SESSION_SETS][rank_of(s)];
}

/* The buffer's place of an element: the arrays lie one behind the other, each the rank's part alone. */
static float *buffered(const Session *s, int array, int64_t element)
{
    return session_written(s) + array * written(s, STATE_WEIGHTS)->size + intervals_before(written(s, array), element);
}

/* ---- to the buffer ---- */

typedef struct {
    const Session *session;
    int array;
} Part;

static float *buffered_at(void *part, int64_t begin)
{
    const Part *p = part;
    return buffered(p->session, p->array, begin);
}

/* Collective: rank 0's part of an array, from those that have it. */
static Status bring_first(const Session *s, int array)
{
    Part part = {s, array};
    Intervals *first = mem_array((size_t)ranks_size(s->options.ranks), sizeof *first);
    *first = session_holding(s)->writes[array == SESSION_SETS][0];
    Status status = session_move(s, array, NULL, first, (MoveEnds){.taken_at = buffered_at, .taker = &part});
    free(first);
    return status;
}

/* This rank's part of an array, from its own memory. */
static Status bring_own(const Session *s, int array)
{
    const Intervals *part = written(s, array);
    for (int i = 0; i < part->count; i++) {
        Interval v = part->intervals[i];
        float *to = buffered(s, array, v.begin);
        if (array < N_STATE_ARRAYS && !s->options.backend->device)
            parallel_copy(to, session_element(s, array, v.begin), (size_t)(v.end - v.begin));
        else
            TRY(session_read_range(s, array, v.begin, v.end, to));
    }
    return OK;
}

Status session_bring(const Session *s)
{
    int arrays = session_kfac(s) ? SESSION_SETS + 1 : N_STATE_ARRAYS;
    bool brought[SESSION_SETS + 1] = {false};
    for (int a = 0; a < arrays; a++) { /* first what all ranks take part in */
        brought[a] = holding_brings(session_holding(s), session_kind(a));
        if (brought[a]) TRY(bring_first(s, a));
    }
    for (int a = 0; a < arrays && session_written(s); a++)
        if (!brought[a] || rank_of(s) > 0) TRY(bring_own(s, a));
    return OK;
}

/* ---- whether weights are finite ---- */

/* Position of the first NaN or infinity, or −1. */
static int64_t first_not_finite(const float *x, int64_t n) // (n)
{
    enum { BLOCK = 1024 };
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t end = at + BLOCK < n ? at + BLOCK : n;
        uint32_t largest = 0, bits; /* of magnitudes, which are ordered as their bits are */
        for (int64_t i = at; i < end; i++) {
            memcpy(&bits, x + i, sizeof bits);
            bits &= 0x7fffffff;
            if (bits > largest) largest = bits;
        }
        if (largest < 0x7f800000) continue;
        for (int64_t i = at; i < end; i++)
            if (!isfinite(x[i])) return i;
    }
    return -1;
}

Status session_check_range(const Session *s, int64_t from, int64_t to, const float *weights)
{
    const ParamTable *t = &s->model->params;
    if (first_not_finite(weights, to - from) < 0) return OK;
    for (int i = 0; i < t->count; i++) {
        const Param *p = &t->params[i];
        int64_t begin = p->offset > from ? p->offset : from, end = p->offset + param_exported(p);
        if (end > to) end = to;
        int64_t at = begin < end ? first_not_finite(weights + (begin - from), end - begin) : -1;
        if (at < 0) continue;
        float found = weights[begin - from + at];
        at += begin - p->offset;
        return fail(E_NUMERIC, "tensor %s is %g at [%lld, %lld]", p->name, (double)found, (long long)(at / p->cols),
                    (long long)(at % p->cols));
    }
    return OK;
}

Status session_check_written(const Session *s)
{
    const Intervals *part = written(s, STATE_WEIGHTS);
    for (int i = 0; i < part->count; i++) {
        Interval v = part->intervals[i];
        const float *x =
            session_written(s) ? buffered(s, STATE_WEIGHTS, v.begin) : session_element(s, STATE_WEIGHTS, v.begin);
        TRY(session_check_range(s, v.begin, v.end, x));
    }
    return OK;
}
