/* K-FAC's sets of a session: their tensors, and their saved form, in which they are saved, read and sent in pieces. */

#include "train/session/session_pipeline.h"

const Kfac *session_kfac(const Session *s)
{
    return kfac_sets(&s->plan.input.place->kfac) ? &s->plan.input.place->kfac : NULL;
}

const Kfac *session_kfac_whole(const Session *s) { return s->plan.input.place->whole_kfac; }

float *session_kfac_set(const Session *s, bool next)
{
    return (float *)s->memory[0].base[REGION_KFAC] + (next ? 0 : session_kfac(s)->table.size);
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

/* The tensor of a whole set of which a tensor of the saved form is the triangle. */
static const Param *square_of(const Kfac *k, int saved) { return &k->table.params[saved % k->table.count]; }

/* In the backend's memory; NULL: this rank does not hold it. */
static float *tensor_of(const Session *s, int saved)
{
    const Kfac *k = session_kfac_whole(s);
    const ParamTable *own = &session_kfac(s)->table;
    int at = params_find(own, square_of(k, saved)->name);
    return at < 0 ? NULL : session_kfac_set(s, saved >= k->table.count) + own->params[at].offset;
}

/* The part of [begin, end) that lies in a tensor of the saved form. */
static Interval part_of(const Param *p, int64_t begin, int64_t end)
{
    int64_t last = p->offset + p->rows;
    return (Interval){begin > p->offset ? begin : p->offset, end < last ? end : last};
}

static Status put_back(KfacRoom *r)
{
    bool written = r->written;
    r->written = false;
    return written ? backend_upload(r->session->options.backend, r->there, r->room, kfac_bytes(r->square)) : OK;
}

/* The square of a tensor of the saved form, which this rank has: where it lies, or of a device a copy. */
static Status open_tensor(KfacRoom *r, int saved, bool write, float **here)
{
    const Session *s = r->session;
    float *there = tensor_of(s, saved);
    CHECK(there, "%s is not held", session_kfac_whole(s)->saved.params[saved].name);
    *here = there;
    if (!s->options.backend->device) return OK;
    if (r->there != there) TRY(put_back(r));
    if (!r->room) r->room = kfac_matrix(session_kfac_whole(s));
    *here = r->room;
    r->written |= write;
    if (r->there == there) return OK;
    r->there = there;
    r->square = square_of(session_kfac_whole(s), saved);
    return backend_download(s->options.backend, r->room, there, kfac_bytes(r->square));
}

/* Reads elements of the saved form into `to`, or writes them from `from`; the other one is NULL. */
static Status pass_elements(KfacRoom *r, int64_t begin, int64_t end, float *to, const float *from)
{
    const Kfac *k = session_kfac_whole(r->session);
    for (int i = 0; i < k->saved.count; i++) {
        const Param *p = &k->saved.params[i], *square = square_of(k, i);
        Interval part = part_of(p, begin, end);
        int64_t first = part.begin - p->offset, last = part.end - p->offset;
        float *here;
        if (first >= last) continue;
        TRY(open_tensor(r, i, from != NULL, &here));
        if (to)
            kfac_pack(square, first, last, here, to + (part.begin - begin));
        else
            kfac_unpack(square, first, last, from + (part.begin - begin), here);
    }
    return OK;
}

Status kfac_room_read(KfacRoom *r, int64_t begin, int64_t end, float *to)
{
    memset(to, 0, (size_t)(end - begin) * sizeof *to); /* the gaps between tensors */
    return pass_elements(r, begin, end, to, NULL);
}

Status kfac_room_write(KfacRoom *r, int64_t begin, int64_t end, const float *from)
{
    return pass_elements(r, begin, end, NULL, from);
}

Status kfac_room_close(KfacRoom *r, Status status)
{
    if (status == OK) status = put_back(r);
    free(r->room);
    *r = (KfacRoom){.session = r->session};
    return status;
}

Status session_read_kfac(const Session *s, int64_t begin, int64_t end, float *to)
{
    KfacRoom room = {.session = s};
    return kfac_room_close(&room, kfac_room_read(&room, begin, end, to));
}
