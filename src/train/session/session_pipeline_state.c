/* Weights and moments of a pipeline: parts on all ranks, in the backend's memory; the whole in rank 0's save buffer. */
#include <stdlib.h>
#include <string.h>

#include "train/session/session_pipeline.h"

/* ---- the backend's memory, as the host exchanges it ---- */

static float *copy_of(const Session *s, float *there)
{
    if (!s->options.backend->device) return there;
    return (float *)((char *)s->memory.base[REGION_COMM] + s->plan.input.place->scratch);
}

static void check_copy(const Session *s, int64_t n)
{
    CHECK(!s->options.backend->device || (size_t)n * sizeof(float) <= place_copy_bytes(s->plan.input.place),
          "%lld elements at once", (long long)n);
}

Status pipeline_take(const Session *s, const float *there, int64_t n, float **here)
{
    check_copy(s, n);
    *here = copy_of(s, (float *)(uintptr_t)there);
    return *here == there ? OK : backend_download(s->options.backend, *here, there, (size_t)n * sizeof *there);
}

Status pipeline_put(const Session *s, float *there, int64_t n)
{
    const float *here = copy_of(s, there);
    check_copy(s, n);
    return here == there ? OK : backend_upload(s->options.backend, there, here, (size_t)n * sizeof *there);
}

/* Elements of the piece of `count` that begins at `at`. */
static int64_t piece(const Session *s, int64_t at, int64_t count)
{
    int64_t most = s->plan.input.place->bucket;
    return count - at < most ? count - at : most;
}

/* ---- between ranks ---- */

/* Sends a piece of rank 0's `whole` to where a rank has it, or the other way; within rank 0 it is copied. */
static Status pass_piece(const Session *s, int rank, float *whole, float *part, int64_t n, bool to_part)
{
    Ranks *ranks = s->options.ranks;
    const Backend *b = s->options.backend;
    size_t bytes = (size_t)n * sizeof *part;
    float *here;
    if (rank == 0) return to_part ? backend_upload(b, part, whole, bytes) : backend_download(b, whole, part, bytes);
    if (ranks_first(ranks)) return ranks_pass(ranks, rank, whole, bytes, to_part);
    if (!to_part) {
        TRY(pipeline_take(s, part, n, &here));
        return ranks_pass(ranks, 0, here, bytes, true);
    }
    TRY(ranks_pass(ranks, 0, copy_of(s, part), bytes, false));
    return pipeline_put(s, part, n);
}

static Status pass_tensor(const Session *s, int rank, float *whole, float *part, int64_t count, bool to_part)
{
    for (int64_t at = 0; at < count; at += piece(s, at, count))
        TRY(pass_piece(s, rank, whole ? whole + at : NULL, part ? part + at : NULL, piece(s, at, count), to_part));
    return OK;
}

/* All that a rank has of an array; with `kept` what it keeps for all. */
static Status pass_rank(const Session *s, int rank, StateArray which, float *whole, float *own, bool to_part, bool kept)
{
    const PipelinePlace *at = s->plan.input.place;
    Ranks *ranks = s->options.ranks;
    bool moments = which != STATE_WEIGHTS;
    PlaceParts list;
    Status status = OK;
    if (!ranks_first(ranks) && ranks_rank(ranks) != rank) return OK;
    place_list(at, rank, moments && at->shard, kept, &list);
    for (int i = 0; i < list.n && status == OK; i++) {
        const PlacePart *x = &list.parts[i];
        status = pass_tensor(s, rank, whole ? whole + at->whole->params.params[x->param].offset + x->begin : NULL,
                             own + (moments ? x->moment : x->held), x->end - x->begin, to_part);
    }
    place_list_free(&list);
    return status;
}

Status pipeline_spread(const Session *s, StateArray which, const float *whole, float *own)
{
    Ranks *ranks = s->options.ranks;
    TRY(ranks_meet(ranks));
    for (int r = 0; r < ranks_size(ranks); r++)
        TRY(pass_rank(s, r, which, (float *)(uintptr_t)whole, own, true, false));
    return OK;
}

Status pipeline_collect(const Session *s, StateArray which, float *whole, const float *own)
{
    Ranks *ranks = s->options.ranks;
    TRY(ranks_meet(ranks));
    for (int r = 0; r < ranks_size(ranks); r++)
        TRY(pass_rank(s, r, which, whole, (float *)(uintptr_t)own, false, true));
    return OK;
}

Status pipeline_read_range(const Session *s, StateArray which, const float *own, int64_t begin, int64_t end, float *to)
{
    const SessionPipeline *p = s->pipeline;
    const PlaceParts *list = &p->own[which != STATE_WEIGHTS];
    memset(to, 0, (size_t)(end - begin) * sizeof *to);
    for (int i = 0; i < list->n; i++) {
        const PlacePart *x = &list->parts[i];
        int64_t there = p->place->whole->params.params[x->param].offset + x->begin;
        int64_t from = there > begin ? there : begin, stop = there + x->end - x->begin;
        if (stop > end) stop = end;
        if (from < stop)
            TRY(backend_download(s->options.backend, to + (from - begin),
                                 own + (which == STATE_WEIGHTS ? x->held : x->moment) + (from - there),
                                 (size_t)(stop - from) * sizeof *to));
    }
    return OK;
}

static Status digest_tensor(const Session *s, const float *there, int64_t count, uint64_t *digest)
{
    Status status = OK;
    DigestStream *all = digest_new();
    for (int64_t at = 0; at < count; at += piece(s, at, count)) {
        float *here;
        TRY_DONE(pipeline_take(s, there + at, piece(s, at, count), &here));
        digest_update(all, here, (size_t)piece(s, at, count) * sizeof *here);
    }
    *digest = digest_value(all).lo;
done:
    digest_free(all);
    return status;
}

/* A digest of each parameter of the whole table, 0 where it is not held here; all ranks' (ranks, count). */
Status pipeline_check_same(const Session *s, const float *weights)
{
    const PipelinePlace *at = s->plan.input.place;
    Ranks *ranks = s->options.ranks;
    int count = at->whole->params.count;
    size_t bytes = (size_t)count * sizeof(uint64_t);
    uint64_t *all = mem_alloc(bytes);
    Status status = OK;
    for (int i = 0; i < s->pipeline->own[0].n; i++) {
        const PlacePart *x = &s->pipeline->own[0].parts[i];
        TRY_DONE(digest_tensor(s, weights + x->held, x->end, &all[x->param]));
        all[x->param] |= 1;
    }
    status = ranks_gather(ranks, (void **)&all, &bytes);
    for (int i = 0; i < count && status == OK; i++) {
        int keeper = place_keeper(at, i);
        for (int r = 0; r < ranks_size(ranks) && status == OK; r++) {
            uint64_t own = all[(size_t)r * (size_t)count + (size_t)i];
            if (own && own != all[(size_t)keeper * (size_t)count + (size_t)i])
                status = fail(E_FAIL, "ranks that must agree differ: %s has other bits on rank %d than on rank %d",
                              at->whole->params.params[i].name, r, keeper);
        }
    }
done:
    free(all);
    return status;
}

/* Pieces are whole norm blocks. */
static Status add_sum(const Session *s, const float *there, int64_t count, int64_t place, uint64_t *sum)
{
    for (int64_t at = 0; at < count; at += piece(s, at, count)) {
        float *here;
        TRY(pipeline_take(s, there + at, piece(s, at, count), &here));
        *sum += param_sum(here, piece(s, at, count), place + at);
    }
    return OK;
}

Status pipeline_digest(const Session *s, const float *values, uint64_t *digest)
{
    const PipelinePlace *at = s->plan.input.place;
    Ranks *ranks = s->options.ranks;
    size_t bytes = sizeof(uint64_t);
    uint64_t *sums = mem_alloc(bytes);
    Status status = OK;
    *digest = 0;
    for (int i = 0; i < s->pipeline->kept.n; i++) {
        const PlacePart *x = &s->pipeline->kept.parts[i];
        int64_t place = at->whole->params.params[x->param].offset + x->begin;
        TRY_DONE(add_sum(s, values + x->held, x->end - x->begin, place, sums));
    }
    TRY_DONE(ranks_gather(ranks, (void **)&sums, &bytes));
    for (size_t r = 0; r < bytes / sizeof *sums; r++) *digest += sums[r];
done:
    free(sums);
    return status;
}

Status pipeline_merge_forms(const Session *s, uint8_t *forms)
{
    Ranks *ranks = s->options.ranks;
    size_t n = (size_t)(2 * s->model->config.layers + 1), bytes = n;
    uint8_t *all = mem_alloc(n);
    memcpy(all, forms, n);
    Status status = ranks_gather(ranks, (void **)&all, &bytes);
    for (size_t i = 0; i < bytes && status == OK; i++) forms[i % n] |= all[i];
    free(all);
    return status;
}
