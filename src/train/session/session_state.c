/* Weights and moments of a session as the host fills and reads them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/session/session_pipeline.h"

float *session_save_buffer(const Session *s) { return s->memory.base[REGION_SAVE]; }

static void drop_filled(Session *s, StateArray which)
{
    if (s->filled[which] && !session_save_buffer(s)) free(s->filled[which]);
    s->filled[which] = NULL;
}

void session_free_filled(Session *s)
{
    for (StateArray i = 0; i < N_STATE_ARRAYS; i++) drop_filled(s, i);
}

static size_t array_bytes(const Session *s) { return (size_t)s->whole->params.size * sizeof(float); }

/* The address of an array, in the backend's memory. */
static float *place_of(const Session *s, StateArray which)
{
    float *start = s->memory.base[which == STATE_WEIGHTS ? REGION_WEIGHT : REGION_MOMENT];
    CHECK(start, "a session without training has no moments");
    if (which != STATE_V) return start;
    return start + s->plan.train.tensors[s->plan.train_tensors.moments_v].offset / sizeof(float);
}

bool session_sharded(const Session *s) { return s->plan.input.exchange && s->plan.input.exchange->shard; }

bool session_scattered(const Session *s) { return s->pipeline || session_sharded(s); }

bool session_has_all(const Session *s, StateArray which)
{
    return !s->pipeline && (which == STATE_WEIGHTS || !session_sharded(s));
}

/* ---- moments of a sharded optimizer: of this rank's slice, in the order of its intervals ---- */

static void copy_slice(float *space, float *slice, const Intervals *of, bool out_of_space)
{
    for (int k = 0; k < of->count; k++) {
        size_t n = (size_t)(of->intervals[k].end - of->intervals[k].begin);
        float *there = space + of->intervals[k].begin;
        memcpy(out_of_space ? slice : there, out_of_space ? there : slice, n * sizeof *slice);
        slice += n;
    }
}

/* The intervals of a slice, one after the other in `values` (`packed`) or at their places in the flat space. */
static Status pass_intervals(const Session *s, int slice_of, int peer, float *values, bool packed, bool send)
{
    const Intervals *of = &s->plan.input.exchange->slices[slice_of];
    for (int k = 0; k < of->count; k++) {
        int64_t begin = of->intervals[k].begin, n = of->intervals[k].end - begin;
        TRY(ranks_pass(s->options.ranks, peer, packed ? values : values + begin, (size_t)n * sizeof *values, send));
        if (packed) values += n;
    }
    return OK;
}

/* Between rank 0's `space` and the slices of all ranks. A device's slice passes through a copy. */
static Status pass_moments(const Session *s, StateArray which, float *space, bool to_first)
{
    Status status = OK;
    Ranks *ranks = s->options.ranks;
    const Backend *b = s->options.backend;
    const Intervals *slices = s->plan.input.exchange->slices;
    size_t bytes = (size_t)slices[ranks_rank(ranks)].size * sizeof(float);
    float *there = place_of(s, which), *slice = b->device ? mem_alloc(bytes) : there;
    TRY_DONE(ranks_meet(ranks));
    if (b->device && to_first && bytes) TRY_DONE(backend_download(b, slice, there, bytes));
    if (!ranks_first(ranks)) {
        TRY_DONE(pass_intervals(s, ranks_rank(ranks), 0, slice, true, to_first));
    } else {
        copy_slice(space, slice, &slices[0], !to_first);
        for (int r = 1; r < ranks_size(ranks); r++) TRY_DONE(pass_intervals(s, r, r, space, false, !to_first));
    }
    if (b->device && !to_first && bytes) status = backend_upload(b, there, slice, bytes);
done:
    if (b->device) free(slice);
    return status;
}

static Status spread_moments(Session *s, StateArray which)
{
    bool first = ranks_first(s->options.ranks);
    Status status = pass_moments(s, which, first ? session_fill(s, which) : NULL, false);
    s->filled[which] = NULL;
    return status;
}

Status session_collect(const Session *s)
{
    float *buffer = session_save_buffer(s);
    for (StateArray a = s->pipeline ? STATE_WEIGHTS : STATE_M; a < N_STATE_ARRAYS; a++) {
        float *room = buffer ? buffer + a * s->whole->params.size : NULL;
        TRY(s->pipeline ? pipeline_collect(s, a, room, place_of(s, a)) : pass_moments(s, a, room, true));
    }
    return OK;
}

float *session_fill(Session *s, StateArray which)
{
    float *buffer = session_save_buffer(s), **filled = &s->filled[which];
    if (!s->options.backend->device && session_has_all(s, which)) return place_of(s, which);
    if (!*filled) *filled = buffer ? buffer + which * s->whole->params.size : mem_alloc(array_bytes(s));
    return *filled;
}

static Status upload_filled(Session *s, StateArray a)
{
    if (!s->filled[a]) return OK;
    TRY(backend_upload(s->options.backend, place_of(s, a), s->filled[a], array_bytes(s)));
    drop_filled(s, a);
    return OK;
}

static Status first_event(void *device, bool *done) { return ((Device *)device)->event_done(device, 0, done); }

/* From rank 0's GPU to the others', on the comm lane. */
static Status broadcast_on_devices(Session *s, StateArray which)
{
    Device *d = s->options.backend->device;
    CommDevice *comm_device = s->options.comm_device;
    TRY(upload_filled(s, which));
    TRY(d->wait(d));
    TRY(ranks_meet(s->options.ranks));
    TRY(d->choose_lane(d, LANE_COMM));
    Status status =
        comm_device_broadcast(comm_device, place_of(s, which), (size_t)s->model->params.size, 0, d->stream(d));
    if (status == OK) status = d->event_record(d, 0);
    if (status == OK) status = comm_device_wait(comm_device, first_event, d);
    if (status != OK) comm_device_abort(comm_device);
    return status == OK ? d->choose_lane(d, LANE_COMPUTE) : status;
}

Status session_ready(Session *s)
{
    for (StateArray a = 0; a < N_STATE_ARRAYS; a++) TRY(upload_filled(s, a));
    if (s->pipeline) return pipeline_pack(s, 0);
    if (s->train) return session_pack(s);
    return exec_run(s->eval, s->plan.eval.pack, &s->plan.eval.capacity);
}

Status session_share(Session *s, bool moments)
{
    Ranks *ranks = s->options.ranks;
    for (StateArray a = 0; s->pipeline && a < (moments ? N_STATE_ARRAYS : STATE_M); a++) {
        TRY(pipeline_spread(s, a, ranks_first(ranks) ? session_fill(s, a) : NULL, place_of(s, a)));
        drop_filled(s, a);
    }
    if (s->pipeline) return session_ready(s);
    for (StateArray a = 0; ranks && a < (moments ? N_STATE_ARRAYS : STATE_M); a++)
        if (a != STATE_WEIGHTS && session_sharded(s))
            TRY(spread_moments(s, a));
        else if (s->options.comm_device)
            TRY(broadcast_on_devices(s, a));
        else
            TRY(ranks_broadcast(ranks, session_fill(s, a), array_bytes(s)));
    return session_ready(s);
}

static bool read_by_copy(const Session *s) { return s->options.backend->device && !s->pipeline; }

Status session_read(const Session *s, StateArray which, float *room, const float **values)
{
    const Backend *b = s->options.backend;
    CHECK(which == STATE_WEIGHTS || !session_sharded(s), "moments of a sharded optimizer are collected");
    *values = s->pipeline ? session_save_buffer(s) + which * s->whole->params.size : place_of(s, which);
    if (!read_by_copy(s)) return OK;
    float *copy = room ? room : mem_alloc(array_bytes(s));
    Status status = backend_download(b, copy, *values, array_bytes(s));
    *values = status == OK ? copy : NULL;
    if (status != OK && !room) free(copy);
    return status;
}

const float *session_part(const Session *s, StateArray which, bool *own)
{
    *own = which != STATE_WEIGHTS && session_sharded(s);
    return place_of(s, which);
}

Status session_read_range(const Session *s, StateArray which, int64_t begin, int64_t end, float *to)
{
    bool own;
    if (s->pipeline) return pipeline_read_range(s, which, place_of(s, which), begin, end, to);
    const float *from = session_part(s, which, &own);
    from += own ? intervals_before(&s->plan.input.exchange->slices[ranks_rank(s->options.ranks)], begin) : begin;
    return backend_download(s->options.backend, to, from, (size_t)(end - begin) * sizeof *to);
}

void session_read_done(const Session *s, const float *values)
{
    if (read_by_copy(s)) free((void *)(uintptr_t)values);
}

Status session_check_same(const Session *s)
{
    const float *weights;
    char hex[33];
    if (!s->options.ranks) return OK;
    if (s->pipeline) return pipeline_check_same(s, place_of(s, STATE_WEIGHTS));
    TRY(session_read(s, STATE_WEIGHTS, NULL, &weights));
    digest_format(digest_of(weights, (size_t)s->model->params.size * sizeof *weights), hex);
    session_read_done(s, weights);
    log_debug("the weights' digest is %s", hex);
    return ranks_same(s->options.ranks, "the digest of the weights", hex);
}

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

Status session_check_weights(const Session *s, const float *weights)
{
    const ParamTable *t = &s->whole->params;
    if (first_not_finite(weights, t->size) < 0) return OK;
    for (int i = 0; i < t->count; i++) {
        const Param *p = &t->params[i];
        int64_t at = first_not_finite(weights + p->offset, param_exported(p));
        if (at >= 0)
            return fail(E_NUMERIC, "tensor %s is %g at [%lld, %lld]", p->name, (double)weights[p->offset + at],
                        (long long)(at / p->cols), (long long)(at % p->cols));
    }
    return OK;
}

/* From a device come the LayerNorms alone, into a space whose other pages are never touched. */
Status session_norm_forms(const Session *s, uint8_t *forms)
{
    const ParamTable *t = &s->model->params;
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
    model_norm_forms(s->model, norms ? norms : weights, forms);
    if (s->pipeline) status = pipeline_merge_forms(s, forms);
done:
    free(norms);
    return status;
}
