/* Weights and moments of a session as the host fills and reads them. */

#include "train/session/session_pipeline.h"

void session_free_filled(Session *s)
{
    if (s->filled && !session_save_buffer(s)) free(s->filled);
    s->filled = NULL;
}

static size_t array_bytes(const Session *s) { return (size_t)s->model->params.size * sizeof(float); }

/* The address of an array, in the backend's memory. */
static float *place_of(const Session *s, StateArray which)
{
    float *start = s->memory[0].base[which == STATE_WEIGHTS ? REGION_WEIGHT : REGION_MOMENT];
    CHECK(start, "a session without training has no moments");
    if (which != STATE_V) return start;
    return start + s->plan.chunk->train.tensors[s->plan.chunk->train_tensors.moments_v].offset / sizeof(float);
}

bool session_has_all(const Session *s, int array) { return holding_has_all(session_holding(s), session_kind(array)); }

bool session_scattered(const Session *s) { return s->pipeline || !session_has_all(s, STATE_M); }

/* ---- elements of this rank, by their numbers in the whole space ---- */

float *session_element(const Session *s, int array, int64_t element)
{
    return place_of(s, (StateArray)array) +
           holding_place(session_holding(s), session_kind(array), ranks_rank(s->options.ranks), element);
}

Status session_read_range(const Session *s, int array, int64_t begin, int64_t end, float *to)
{
    if (array == SESSION_SETS) return session_read_kfac(s, begin, end, to);
    return backend_download(s->options.backend, to, session_element(s, array, begin),
                            (size_t)(end - begin) * sizeof *to);
}

/* ---- between ranks ---- */

/* This rank's elements of an array, as an end of a move. */
typedef struct {
    const Session *session;
    int array;
    KfacRoom room;
} OwnArray;

static Status read_own(void *array, int64_t begin, int64_t end, float *to)
{
    OwnArray *a = array;
    return a->array == SESSION_SETS ? kfac_room_read(&a->room, begin, end, to)
                                    : session_read_range(a->session, a->array, begin, end, to);
}

static Status write_own(void *array, int64_t begin, int64_t end, const float *from)
{
    OwnArray *a = array;
    if (a->array == SESSION_SETS) return kfac_room_write(&a->room, begin, end, from);
    return backend_upload(a->session->options.backend, session_element(a->session, a->array, begin), from,
                          (size_t)(end - begin) * sizeof *from);
}

static float *own_at(void *array, int64_t begin)
{
    const OwnArray *a = array;
    bool here = a->array != SESSION_SETS && !a->session->options.backend->device;
    return here ? session_element(a->session, a->array, begin) : NULL;
}

Status session_move(const Session *s, int array, const Intervals *from, const Intervals *to, MoveEnds ends)
{
    Ranks *ranks = s->options.ranks;
    const Intervals *has = session_holding(s)->has[session_kind(array)];
    OwnArray own = {s, array, {.session = s}};
    if (!ends.read && !ends.given_at) ends.giver = &own, ends.read = read_own, ends.given_at = own_at;
    if (!ends.taken_at) ends.taker = &own, ends.write = write_own, ends.taken_at = own_at;
    TRY(ranks_meet(ranks));
    Status status = holding_move(ranks_comm(ranks), from ? from : has, to ? to : has, &ends);
    return ranks_all(ranks, kfac_room_close(&own.room, status));
}

/* What this rank gives and has itself is read into its place first, by all ranks at once; the rest while it moves. */
typedef struct {
    OwnArray own;
    const Intervals *has;
    MoveRead *read;
    void *giver;
} Taking;

static bool is_held(const Taking *t, int64_t element)
{
    Interval v = {element, element};
    return intervals_next(t->has, element + 1, &v);
}

static Status give(void *taking, int64_t begin, int64_t end, float *to)
{
    Taking *t = taking;
    return is_held(t, begin) ? read_own(&t->own, begin, end, to) : t->read(t->giver, begin, end, to);
}

static float *given_at(void *taking, int64_t begin)
{
    Taking *t = taking;
    return is_held(t, begin) ? own_at(&t->own, begin) : NULL;
}

static Status read_into_place(Taking *t, int64_t begin, int64_t end, float *room)
{
    float *here = own_at(&t->own, begin);
    TRY(t->read(t->giver, begin, end, here ? here : room));
    return here ? OK : write_own(&t->own, begin, end, room);
}

static Status read_held(Taking *t, const Intervals *from)
{
    Status status = OK;
    float *room = mem_array(MOVE_MOST, sizeof *room);
    for (int i = 0; i < from->count; i++) {
        Interval v = {from->intervals[i].begin, from->intervals[i].begin};
        while (intervals_next(t->has, from->intervals[i].end, &v))
            for (int64_t at = v.begin, end; at < v.end; at = end) {
                end = v.end - at < MOVE_MOST ? v.end : at + MOVE_MOST;
                TRY_DONE(read_into_place(t, at, end, room));
            }
    }
done:
    free(room);
    return kfac_room_close(&t->own.room, status);
}

/* ---- from GPU to GPU, on the comm lane ---- */

enum { GIVEN, PASSED }; /* events */

Status devices_enter(const Session *s)
{
    Device *d = s->options.backend->device;
    TRY(d->choose_lane(d, LANE_COMPUTE));
    TRY(d->event_record(d, GIVEN));
    TRY(d->choose_lane(d, LANE_COMM));
    return d->event_wait(d, GIVEN);
}

static Status join(Device *d, CommDevice *between)
{
    TRY(d->event_record(d, PASSED));
    TRY(d->choose_lane(d, LANE_COMPUTE));
    return comm_device_wait(between, exec_event_done, &(ExecEvent){d, PASSED});
}

Status devices_join(const Session *s, CommDevice *between, Status status)
{
    if (status == OK) status = join(s->options.backend->device, between);
    if (status != OK) comm_device_abort(between);
    return status;
}

/* The ranks' GPUs are connected, and the parts are the whole array without overlap. */
static bool moves_on_devices(const Session *s, int array, const Intervals *from)
{
    int64_t size = 0;
    for (int r = 0; r < ranks_size(s->options.ranks); r++) size += from[r].size;
    return session_holders_device(s) && array != SESSION_SETS && session_has_all(s, array) &&
           size == s->model->params.size;
}

static Status share_on_devices(const Session *s, int array, const Intervals *from)
{
    Device *d = s->options.backend->device;
    CommDevice *all = session_holders_device(s);
    TRY(devices_enter(s));
    return devices_join(s, all, comm_device_parts(all, place_of(s, (StateArray)array), from, false, d->stream(d)));
}

Status session_take(const Session *s, int array, const Intervals *from, MoveRead *read, void *giver)
{
    Ranks *ranks = s->options.ranks;
    int rank = ranks_rank(ranks);
    Taking t = {{s, array, {.session = s}}, &session_holding(s)->has[session_kind(array)][rank], read, giver};
    TRY(ranks_all(ranks, read_held(&t, &from[rank])));
    if (moves_on_devices(s, array, from)) return share_on_devices(s, array, from);
    MoveEnds ends = {.giver = &t, .read = give, .given_at = given_at, .in_place = true};
    return kfac_room_close(&t.own.room, session_move(s, array, from, NULL, ends));
}

float *session_fill(Session *s)
{
    float *buffer = session_save_buffer(s);
    if (!s->options.backend->device && session_has_all(s, STATE_WEIGHTS)) return place_of(s, STATE_WEIGHTS);
    if (!s->filled) s->filled = buffer ? buffer : mem_alloc(array_bytes(s));
    return s->filled;
}

static Status upload_filled(Session *s)
{
    if (!s->filled) return OK;
    TRY(backend_upload(s->options.backend, place_of(s, STATE_WEIGHTS), s->filled, array_bytes(s)));
    session_free_filled(s);
    return OK;
}

Status session_ready(Session *s)
{
    TRY(upload_filled(s));
    return session_pack(s);
}

static Status read_filled(void *filled, int64_t begin, int64_t end, float *to)
{
    if (filled) memcpy(to, (const float *)filled + begin, (size_t)(end - begin) * sizeof *to);
    return OK; /* NULL: they were filled in their places */
}

/* Alone, session_ready copies what was filled. */
Status session_share(Session *s)
{
    if (!s->options.ranks) return session_ready(s);
    Intervals *first = mem_array((size_t)ranks_size(s->options.ranks), sizeof *first);
    intervals_add(first, 0, s->model->params.size);
    Status status = session_take(s, STATE_WEIGHTS, first, read_filled, s->filled);
    session_free_filled(s);
    intervals_free_all(first, ranks_size(s->options.ranks));
    return status == OK ? session_ready(s) : status;
}

const float *session_part(const Session *s, StateArray which, bool *own)
{
    *own = which != STATE_WEIGHTS && holding_slice(session_holding(s));
    return place_of(s, which);
}

/* ---- whether ranks agree ---- */

float *session_room(const Session *s)
{
    return s->options.backend->device ? mem_array(SESSION_VIEW, sizeof(float)) : NULL;
}

const float *session_view(const Session *s, const float *there, int64_t n, float *room, Status *status)
{
    if (!s->options.backend->device) return there;
    if (*status == OK) *status = backend_download(s->options.backend, room, there, (size_t)n * sizeof *room);
    return room;
}

static Status digest_tensor(const Session *s, const float *there, int64_t count, float *room, uint64_t *digest)
{
    Status status = OK;
    DigestStream *all = digest_new();
    for (int64_t at = 0, n; at < count && status == OK; at += n) {
        n = count - at < SESSION_VIEW ? count - at : SESSION_VIEW;
        digest_update(all, session_view(s, there + at, n, room, &status), (size_t)n * sizeof *room);
    }
    *digest = digest_value(all).lo | 1;
    digest_free(all);
    return status;
}

/* A digest of each tensor, 0 where it is not held here, against that of the first rank that holds it. */
Status session_check_same(const Session *s)
{
    Ranks *ranks = s->options.ranks;
    if (!ranks) return OK;
    const ParamTable *t = &s->model->params;
    size_t count = (size_t)t->count, bytes = count * sizeof(uint64_t);
    uint64_t *all = mem_alloc(bytes);
    float *room = session_room(s);
    Status status = OK;
    for (int i = 0; i < t->count; i++) {
        const Param *p = &t->params[i];
        if (!holding_has(session_holding(s), HELD_WEIGHTS, ranks_rank(ranks), p->offset)) continue;
        TRY_DONE(digest_tensor(s, session_element(s, STATE_WEIGHTS, p->offset), param_held(p), room, &all[i]));
    }
    log_debug("the weights' digest is %s", DIGEST_TEXT(digest_of(all, bytes)));
    TRY_DONE(ranks_gather(ranks, (void **)&all, &bytes));
    for (size_t i = 0; i < count && status == OK; i++) {
        int keeper = 0;
        while (all[(size_t)keeper * count + i] == 0) keeper++;
        for (int r = keeper + 1; r < ranks_size(ranks) && status == OK; r++) {
            uint64_t own = all[(size_t)r * count + i];
            if (own && own != all[(size_t)keeper * count + i])
                status = fail(E_FAIL, "ranks that must agree differ: %s has other bits on rank %d than on rank %d",
                              t->params[i].name, r, keeper);
        }
    }
done:
    MEM_FREE(all, room);
    return status;
}

/* Collective: a form that any rank's LayerNorms ask for. */
static Status merge_forms(const Session *s, uint8_t *forms)
{
    Ranks *ranks = s->options.ranks;
    size_t n = (size_t)(2 * s->model->config.layers + 1), bytes = n * (size_t)ranks_size(ranks);
    uint8_t *all = mem_alloc(bytes);
    Status status = ranks_allgather(ranks, forms, n, all);
    for (size_t i = 0; i < bytes && status == OK; i++) forms[i % n] |= all[i];
    free(all);
    return status;
}

/* From a device come the LayerNorms alone, into a space whose other pages are never touched. */
Status session_norm_forms(const Session *s, uint8_t *forms)
{
    const Model *held = &s->plan.input.place->held;
    const ParamTable *t = &held->params;
    const Backend *b = s->options.backend;
    const float *weights = place_of(s, STATE_WEIGHTS);
    float *norms = NULL;
    Status status = OK;
    if (b->device) norms = mem_array((size_t)t->size, sizeof *norms);
    for (int i = 0; norms && i < t->count; i++) {
        const Param *p = &t->params[i];
        if (!strstr(p->name, "LayerNorm")) continue;
        TRY_DONE(
            backend_download(b, norms + p->offset, weights + p->offset, (size_t)(p->rows * p->cols) * sizeof *norms));
    }
    model_norm_forms(held, norms ? norms : weights, forms);
    if (!session_has_all(s, STATE_WEIGHTS)) status = merge_forms(s, forms);
done:
    free(norms);
    return status;
}
