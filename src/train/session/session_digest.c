/* Digests of a session's gradients and weights. */

#include "train/session/session_pipeline.h"

/* What this rank's elements of an array that lies as its weights do add to the digest of the whole space: of those that
   it owns, or with `all` of all in this table, by their places. */
static Status sum_values(const Session *s, const ParamTable *all, const float *there, uint64_t *sum)
{
    const Holding *h = &s->plan.input.place->holding;
    const ParamTable *t = all ? all : &s->model->params;
    int rank = ranks_rank(s->options.ranks);
    int64_t most = s->options.backend->device ? SESSION_VIEW : INT64_MAX; /* long views have several threads */
    float *room = session_room(s);
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
    int n = ranks_size(s->options.ranks);
    uint64_t own, *parts = mem_array((size_t)n, sizeof *parts);
    Status status = sum_values(s, NULL, there, &own);
    if (status == OK) status = ranks_allgather(s->options.ranks, &own, sizeof own, parts);
    *sum = 0;
    for (int r = 0; r < n && status == OK; r++) *sum += parts[r];
    free(parts);
    return status;
}

/* A finding may be damaged itself: then it is one in `t`, the tensor that it was read from. */
static Status read_found(const Session *s, int chunk, TensorId t, AuditFound *found)
{
    const Plan *p = &s->plan.chunk[chunk].train;
    TRY(exec_download(s->train[chunk], t, found, sizeof *found));
    bool known = found->tensor >= 0 && found->tensor < p->n_tensors && found->row >= 0 &&
                 (plan_maker(p, (TensorId)found->tensor) != NONE || p->tensors[found->tensor].original != NONE);
    if (found->rows < 0 || (found->rows > 0 && !known)) *found = (AuditFound){.rows = 1, .tensor = t};
    return OK;
}

Status session_audit_found(const Session *s, AuditFound *found, int *chunk)
{
    *found = s->found;
    *chunk = 0;
    for (int k = 0; k < session_chunks(s) && found->rows == 0; k++) {
        TensorId t = s->plan.chunk[k].train_tensors.audit;
        *chunk = k;
        if (t != NONE) TRY(read_found(s, k, t, found));
    }
    return OK;
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
    return read_found(s, 0, s->plan.chunk->train_tensors.watch.changed, found);
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

typedef struct {
    uint64_t grads;
    double loss[2];
    int64_t correct[2];
} Branch;

static void put_stats(const Stats *stats, Branch *b)
{
    memcpy(b->loss, stats->loss, sizeof b->loss);
    memcpy(b->correct, stats->correct, sizeof b->correct);
}

/* Gradients, and behind them those of a word embedding's second use; losses of each direction. */
static Status place_branches(const Session *s, Branch all[2])
{
    const RankPlace *p = s->plan.input.place;
    Stats stats;
    TRY(sum_values(s, &p->held.params, session_gradients(s), &all[0].grads));
    if (p->both_uses) {
        Param second = *model_tied(p->whole);
        second.offset = 0;
        TRY(sum_values(s, &(ParamTable){.params = &second, .count = 1}, session_gradients(s) + p->held.params.size,
                       &all[1].grads));
    }
    for (int d = 0; d < p->grid.directions; d++) {
        int k = place_last_chunk(p, d);
        if (k < 0) continue;
        TRY(exec_download(s->train[k], s->plan.chunk[k].train_tensors.stats, &stats, sizeof stats));
        put_stats(&stats, &all[d]);
    }
    return OK;
}

static Status virtual_branches(const Session *s, int n, Branch *all) // (n)
{
    Stats stats[1 + MOST_WAITING];
    TRY(exec_virtual_stats(s->train[0], stats));
    for (int k = 0; k < n; k++) {
        TRY(sum_values(s, &s->model->params, exec_virtual_gradients(s->train[0], k), &all[k].grads));
        put_stats(&stats[k], &all[k]);
    }
    return OK;
}

Status session_own_digest(const Session *s, uint64_t *digest)
{
    int n = s->pipeline ? 2 : 1 + exec_virtual_waiting(s->train[0]);
    Branch *all = mem_array((size_t)n, sizeof *all);
    Status status = s->pipeline ? place_branches(s, all) : virtual_branches(s, n, all);
    *digest = digest_of(all, (size_t)n * sizeof *all).lo;
    free(all);
    return status;
}

/* A rank of a sharded optimizer has the sums of its own elements alone. */
Status session_gradient_digest(const Session *s, uint64_t *digest)
{
    return session_scattered(s) ? sum_over_ranks(s, session_gradients(s), digest)
                                : sum_values(s, &s->model->params, session_gradients(s), digest);
}

Status session_weights_digest(const Session *s, uint64_t *digest)
{
    bool own;
    const float *weights = session_part(s, STATE_WEIGHTS, &own);
    if (session_has_all(s, STATE_WEIGHTS)) return sum_values(s, &s->model->params, weights, digest);
    TRY(session_check_same(s));
    return sum_over_ranks(s, weights, digest);
}
