/* Digests of a session's gradients and weights. */
#include <stdlib.h>
#include <string.h>

#include "train/session/session_pipeline.h"

/* What this rank's elements of an array that lies as its weights do add to the digest of the whole space: of those that
   it owns, or of all. */
static Status sum_values(const Session *s, const float *there, bool all, uint64_t *sum)
{
    const Holding *h = &s->plan.input.place->holding;
    const ParamTable *t = &s->model->params;
    int rank = ranks_rank(s->options.ranks);
    int64_t most = s->options.backend->device ? SESSION_VIEW : INT64_MAX; /* long views have several threads */
    float *room = mem_array(SESSION_VIEW, sizeof *room);
    Status status = OK;
    *sum = 0;
    for (int i = 0; i < t->count; i++) {
        int64_t begin = t->params[i].offset, end = begin + param_held(&t->params[i]);
        Interval v = {begin, begin};
        while (intervals_next(all ? NULL : &h->own[SPACE_MODEL][rank], end, &v))
            for (int64_t at = v.begin, n; at < v.end && status == OK; at += n) { /* whole norm blocks */
                const float *from = there + (all ? at : holding_place(h, HELD_WEIGHTS, rank, at));
                n = v.end - at < most ? v.end - at : most;
                *sum += param_sum(session_view(s, from, n, room, &status), n, at);
            }
    }
    free(room);
    return status;
}

/* Collective. The digest of the whole space, from the elements that each rank owns. */
static Status sum_over_ranks(const Session *s, const float *there, uint64_t *sum)
{
    uint64_t *parts = mem_alloc(sizeof *parts);
    size_t bytes = sizeof *parts;
    Status status = sum_values(s, there, false, parts);
    if (status == OK) status = ranks_gather(s->options.ranks, (void **)&parts, &bytes);
    *sum = 0;
    for (size_t r = 0; r < bytes / sizeof *parts && status == OK; r++) *sum += parts[r];
    free(parts);
    return status;
}

/* A finding may be damaged itself: then it is one in `t`, the tensor that it was read from. */
static Status read_found(const Session *s, TensorId t, AuditFound *found)
{
    const Plan *p = &s->plan.chunk->train;
    TRY(exec_download(s->train[0], t, found, sizeof *found));
    bool known = found->tensor >= 0 && found->tensor < p->n_tensors && found->row >= 0 &&
                 (plan_maker(p, (TensorId)found->tensor) != NONE || p->tensors[found->tensor].original != NONE);
    if (found->rows < 0 || (found->rows > 0 && !known)) *found = (AuditFound){.rows = 1, .tensor = t};
    return OK;
}

Status session_audit_found(const Session *s, AuditFound *found)
{
    TensorId t = s->plan.chunk->train_tensors.audit;
    *found = s->found;
    return t == NONE || found->rows > 0 ? OK : read_found(s, t, found);
}

/* ---- weights and moments ---- */

Status session_note(Session *s)
{
    return exec_run(s->train[0], s->plan.chunk->train.note, &s->plan.chunk->train.capacity);
}

void session_note_update(Session *s) { s->note_due = true; }

Status session_changed(const Session *s, AuditFound *found)
{
    TRY(exec_run(s->train[0], s->plan.chunk->train.check, &s->plan.chunk->train.capacity));
    return read_found(s, s->plan.chunk->train_tensors.watch.changed, found);
}

Status session_noted_digest(const Session *s, uint64_t *digest)
{
    const Plan *p = &s->plan.chunk->train;
    const TensorId *parts = s->plan.chunk->train_tensors.watch.sums;
    size_t bytes[2], at = 0;
    Status status = OK;
    for (int k = 0; k < 2; k++) bytes[k] = parts[k] == NONE ? 0 : p->tensors[parts[k]].bytes;
    char *sums = mem_alloc(bytes[0] + bytes[1]);
    for (int k = 0; k < 2 && status == OK; at += bytes[k++])
        if (bytes[k]) status = exec_download(s->train[0], parts[k], sums + at, bytes[k]);
    *digest = digest_of(sums, bytes[0] + bytes[1]).lo;
    free(sums);
    return status;
}

/* ---- gradients ---- */

static const float *gradients(const Session *s) { return exec_data(s->train[0], s->plan.chunk->train_tensors.grads); }

Status session_own_digest(const Session *s, uint64_t *digest)
{
    typedef struct {
        uint64_t grads;
        double loss[2];
        int64_t correct[2];
    } Branch;
    int n = 1 + exec_virtual_waiting(s->train[0]);
    Branch *all = mem_array((size_t)n, sizeof *all);
    Stats stats[1 + MOST_WAITING];
    Status status = exec_virtual_stats(s->train[0], stats);
    for (int k = 0; k < n && status == OK; k++) {
        status = sum_values(s, exec_virtual_gradients(s->train[0], k), true, &all[k].grads);
        memcpy(all[k].loss, stats[k].loss, sizeof all[k].loss);
        memcpy(all[k].correct, stats[k].correct, sizeof all[k].correct);
    }
    *digest = digest_of(all, (size_t)n * sizeof *all).lo;
    free(all);
    return status;
}

/* A rank of a sharded optimizer has the sums of its own elements alone. */
Status session_gradient_digest(const Session *s, uint64_t *digest)
{
    return session_scattered(s) ? sum_over_ranks(s, gradients(s), digest) : sum_values(s, gradients(s), true, digest);
}

Status session_weights_digest(const Session *s, uint64_t *digest)
{
    bool own;
    const float *weights = session_part(s, STATE_WEIGHTS, &own);
    if (session_has_all(s, STATE_WEIGHTS)) return sum_values(s, weights, true, digest);
    TRY(session_check_same(s));
    return sum_over_ranks(s, weights, digest);
}
