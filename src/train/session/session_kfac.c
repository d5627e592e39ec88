/* K-FAC's sets of a session: their tensors, and their saved form, in which they are saved, read and sent in pieces. */
#include <stdlib.h>
#include <string.h>

#include "train/session/session_pipeline.h"

Status session_settle_kfac(const Session *s) { return s->pipeline && session_kfac(s) ? pipeline_kfac_settle(s) : OK; }

bool session_kfac_pending(const Session *s) { return s->pipeline && session_kfac(s) && s->pipeline->kfac.refresh; }

float *session_kfac_tensor(const Session *s, bool next, const char *name)
{
    const ParamTable *t = &session_kfac(s)->table;
    int at = params_find(t, name);
    return at < 0 ? NULL : session_kfac_set(s, next) + t->params[at].offset;
}

Status session_kfac_failed(const Session *s, bool own, int64_t *failed)
{
    const KfacPlan *plan = &session_kfac(s)->plan;
    *failed = 0;
    for (int i = 0; i < plan->n; i++) {
        float ready;
        if (own && !plan->linears[i].own) continue;
        TRY(backend_download(s->options.backend, &ready, session_kfac_set(s, true) + plan->linears[i].flag,
                             sizeof ready));
        *failed += ready == 0;
    }
    return OK;
}

float *session_kfac_room(const Session *s)
{
    return s->options.backend->device ? kfac_matrix(session_kfac_whole(s)) : NULL;
}

Status session_kfac_take(const Session *s, const Param *p, const float *there, float *room, float **here)
{
    *here = room ? room : (float *)(uintptr_t)there;
    return room ? backend_download(s->options.backend, room, there, kfac_bytes(p)) : OK;
}

Status session_kfac_put(const Session *s, const Param *p, const float *here, float *there)
{
    return here == there ? OK : backend_upload(s->options.backend, there, here, kfac_bytes(p));
}

/* The tensor of a whole set of which a tensor of the saved form is the triangle. */
static const Param *square_of(const Kfac *k, int saved) { return &k->table.params[saved % k->table.count]; }

static float *tensor_of(const Session *s, int saved)
{
    const Kfac *k = session_kfac_whole(s);
    return session_kfac_tensor(s, saved >= k->table.count, square_of(k, saved)->name);
}

/* The part of [begin, end) that lies in a tensor of the saved form. */
static Interval part_of(const Param *p, int64_t begin, int64_t end)
{
    int64_t last = p->offset + p->rows;
    return (Interval){begin > p->offset ? begin : p->offset, end < last ? end : last};
}

Status session_read_kfac(const Session *s, int64_t begin, int64_t end, float *to)
{
    const Kfac *k = session_kfac_whole(s);
    Status status = OK;
    float *room = session_kfac_room(s), *here;
    memset(to, 0, (size_t)(end - begin) * sizeof *to); /* the gaps between tensors */
    for (int i = 0; i < k->saved.count; i++) {
        const Param *p = &k->saved.params[i];
        Interval part = part_of(p, begin, end);
        if (part.begin >= part.end) continue;
        const float *own = tensor_of(s, i);
        CHECK(own, "%s is not held", p->name);
        TRY_DONE(session_kfac_take(s, square_of(k, i), own, room, &here));
        kfac_pack(square_of(k, i), part.begin - p->offset, part.end - p->offset, here, to + (part.begin - begin));
    }
done:
    free(room);
    return status;
}

/* ---- sets that rank 0 fills ---- */

/* Sets that this rank does not hold in memory of the host. */
static bool fills_buffer(const Session *s) { return s->pipeline || s->options.backend->device; }

float *session_kfac_buffer(const Session *s)
{
    float *buffer = session_save_buffer(s);
    return buffer ? buffer + 3 * s->whole->params.size : NULL;
}

void session_clear_kfac(Session *s)
{
    const Kfac *k = session_kfac_whole(s);
    if (fills_buffer(s)) {
        memset(session_kfac_buffer(s), 0, (size_t)k->saved.size * sizeof(float));
        return;
    }
    for (int set = 0; set < kfac_sets(k); set++)
        memset(session_kfac_set(s, set == 1), 0, (size_t)k->table.size * sizeof(float));
}

void session_fill_kfac(Session *s, int64_t begin, int64_t end, const float *from)
{
    const Kfac *k = session_kfac_whole(s);
    if (fills_buffer(s)) {
        memcpy(session_kfac_buffer(s) + begin, from, (size_t)(end - begin) * sizeof *from);
        return;
    }
    for (int i = 0; i < k->saved.count; i++) {
        const Param *p = &k->saved.params[i];
        Interval part = part_of(p, begin, end);
        if (part.begin < part.end)
            kfac_unpack(square_of(k, i), part.begin - p->offset, part.end - p->offset, from + (part.begin - begin),
                        tensor_of(s, i));
    }
}

Status session_spread_kfac(const Session *s)
{
    const Kfac *k = session_kfac(s);
    Ranks *ranks = s->options.ranks;
    Status status = OK;
    if (s->pipeline) return pipeline_kfac_spread(s);
    float *room = session_kfac_room(s);
    for (int i = 0; i < k->saved.count; i++) {
        const Param *saved = &k->saved.params[i], *p = square_of(k, i);
        float *there = tensor_of(s, i), *here = room ? room : there;
        if (room && ranks_first(ranks)) kfac_unpack(p, 0, saved->rows, session_kfac_buffer(s) + saved->offset, here);
        TRY_DONE(ranks_broadcast(ranks, here, kfac_bytes(p)));
        TRY_DONE(session_kfac_put(s, p, here, there));
    }
done:
    free(room);
    return status;
}

Status session_collect_kfac(const Session *s) { return session_kfac(s) ? pipeline_kfac_collect(s) : OK; }
