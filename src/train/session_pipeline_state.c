/* Weights and moments of a pipeline: parts on all ranks, in the backend's memory; the whole in rank 0's save buffer. */
#include <stdlib.h>
#include <string.h>

#include "train/session_pipeline.h"

/* ---- the backend's memory, as the host exchanges it ---- */

float *pipeline_copy(const Session *s, float *there)
{
    if (!s->options.backend->device) return there;
    return (float *)((char *)s->memory.base[REGION_COMM] +
                     place_scratch_bytes(s->plan.input.place, s->options.backend));
}

static void check_copy(const Session *s, int64_t n)
{
    CHECK(!s->options.backend->device || (size_t)n * sizeof(float) <= place_copy_bytes(s->plan.input.place),
          "%lld elements at once", (long long)n);
}

Status pipeline_take(const Session *s, const float *there, int64_t n, float **here)
{
    check_copy(s, n);
    *here = pipeline_copy(s, (float *)(uintptr_t)there);
    return *here == there ? OK : backend_download(s->options.backend, *here, there, (size_t)n * sizeof *there);
}

Status pipeline_put(const Session *s, float *there, int64_t n)
{
    const float *here = pipeline_copy(s, there);
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
    TRY(ranks_pass(ranks, 0, pipeline_copy(s, part), bytes, false));
    return pipeline_put(s, part, n);
}

static Status pass_tensor(const Session *s, int rank, float *whole, float *part, int64_t count, bool to_part)
{
    for (int64_t at = 0; at < count; at += piece(s, at, count))
        TRY(pass_piece(s, rank, whole ? whole + at : NULL, part ? part + at : NULL, piece(s, at, count), to_part));
    return OK;
}

/* All tensors of a rank; with `kept` those alone of which it is the first holder. */
static Status pass_part(const Session *s, int rank, float *whole, float *place, bool to_part, bool kept)
{
    const PipelinePlace *at = s->plan.input.place;
    Ranks *ranks = s->options.ranks;
    Model part;
    Status status = OK;
    if (!ranks_first(ranks) && ranks_rank(ranks) != rank) return OK;
    place_part(at, rank, &part);
    for (int i = 0; i < part.params.count && status == OK; i++) {
        const Param *own = &part.params.params[i];
        int of = params_find(&at->whole->params, own->name);
        if (kept && place_keeper(at, of) != rank) continue;
        status = pass_tensor(s, rank, whole ? whole + at->whole->params.params[of].offset : NULL, place + own->offset,
                             param_held(own), to_part);
    }
    model_free(&part);
    return status;
}

Status pipeline_spread(const Session *s, const float *whole, float *place)
{
    Ranks *ranks = s->options.ranks;
    TRY(ranks_meet(ranks));
    for (int r = 0; r < ranks_size(ranks); r++) TRY(pass_part(s, r, (float *)(uintptr_t)whole, place, true, false));
    return OK;
}

Status pipeline_collect(const Session *s, float *whole, const float *place)
{
    Ranks *ranks = s->options.ranks;
    TRY(ranks_meet(ranks));
    for (int r = 0; r < ranks_size(ranks); r++) TRY(pass_part(s, r, whole, (float *)(uintptr_t)place, false, true));
    return OK;
}

Status pipeline_read_range(const Session *s, const float *place, int64_t begin, int64_t end, float *to)
{
    const PipelinePlace *at = s->plan.input.place;
    memset(to, 0, (size_t)(end - begin) * sizeof *to);
    for (int i = 0; i < at->held.params.count; i++) {
        const Param *own = &at->held.params.params[i];
        int64_t there = at->whole->params.params[at->of_whole[i]].offset;
        int64_t from = there > begin ? there : begin, stop = there + param_held(own);
        if (stop > end) stop = end;
        if (from < stop)
            TRY(backend_download(s->options.backend, to + (from - begin), place + own->offset + (from - there),
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
    for (int i = 0; i < at->held.params.count; i++) {
        const Param *own = &at->held.params.params[i];
        TRY_DONE(digest_tensor(s, weights + own->offset, param_held(own), &all[at->of_whole[i]]));
        all[at->of_whole[i]] |= 1;
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
    for (int i = 0; i < at->held.params.count; i++) {
        const Param *own = &at->held.params.params[i];
        int64_t place = at->whole->params.params[at->of_whole[i]].offset;
        if (place_keeper(at, at->of_whole[i]) == ranks_rank(ranks))
            TRY_DONE(add_sum(s, values + own->offset, param_held(own), place, sums));
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
