/* Weights and moments of a pipeline: parts on all ranks, the whole on rank 0. Host memory alone. */
#include <stdlib.h>
#include <string.h>

#include "train/session_pipeline.h"

/* Sends a tensor of rank 0's `whole` to where a rank has it, or the other way; within rank 0 it is copied. */
static Status pass_tensor(Ranks *ranks, int rank, float *whole, float *part, int64_t count, bool to_part)
{
    size_t bytes = (size_t)count * sizeof *part;
    if (rank == 0 && ranks_first(ranks)) {
        memcpy(to_part ? part : whole, to_part ? whole : part, bytes);
        return OK;
    }
    if (ranks_first(ranks)) return ranks_pass(ranks, rank, whole, bytes, to_part);
    return ranks_rank(ranks) == rank ? ranks_pass(ranks, 0, part, bytes, !to_part) : OK;
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
        status = pass_tensor(ranks, rank, whole ? whole + at->whole->params.params[of].offset : NULL,
                             place ? place + own->offset : NULL, param_held(own), to_part);
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

void pipeline_read_range(const Session *s, const float *place, int64_t begin, int64_t end, float *to)
{
    const PipelinePlace *at = s->plan.input.place;
    memset(to, 0, (size_t)(end - begin) * sizeof *to);
    for (int i = 0; i < at->held.params.count; i++) {
        const Param *own = &at->held.params.params[i];
        int64_t there = at->whole->params.params[at->of_whole[i]].offset;
        int64_t from = there > begin ? there : begin, stop = there + param_held(own);
        if (stop > end) stop = end;
        if (from < stop)
            memcpy(to + (from - begin), place + own->offset + (from - there), (size_t)(stop - from) * sizeof *to);
    }
}

/* A digest of each parameter of the whole table, 0 where it is not held here; all ranks' (ranks, count). */
Status pipeline_check_same(const Session *s, const float *weights)
{
    const PipelinePlace *at = s->plan.input.place;
    Ranks *ranks = s->options.ranks;
    int count = at->whole->params.count;
    size_t bytes = (size_t)count * sizeof(uint64_t);
    uint64_t *all = mem_alloc(bytes);
    for (int i = 0; i < at->held.params.count; i++) {
        const Param *own = &at->held.params.params[i];
        all[at->of_whole[i]] = digest_of(weights + own->offset, (size_t)param_held(own) * sizeof *weights).lo | 1;
    }
    Status status = ranks_gather(ranks, (void **)&all, &bytes);
    for (int i = 0; i < count && status == OK; i++) {
        int keeper = place_keeper(at, i);
        for (int r = 0; r < ranks_size(ranks) && status == OK; r++) {
            uint64_t own = all[(size_t)r * (size_t)count + (size_t)i];
            if (own && own != all[(size_t)keeper * (size_t)count + (size_t)i])
                status = fail(E_FAIL, "ranks that must agree differ: %s has other bits on rank %d than on rank %d",
                              at->whole->params.params[i].name, r, keeper);
        }
    }
    free(all);
    return status;
}

Status pipeline_digest(const Session *s, const float *values, uint64_t *digest)
{
    const PipelinePlace *at = s->plan.input.place;
    Ranks *ranks = s->options.ranks;
    size_t bytes = sizeof(uint64_t);
    uint64_t *sums = mem_alloc(bytes);
    for (int i = 0; i < at->held.params.count; i++) {
        const Param *own = &at->held.params.params[i];
        if (place_keeper(at, at->of_whole[i]) == ranks_rank(ranks))
            *sums += param_sum(values + own->offset, param_held(own), at->whole->params.params[at->of_whole[i]].offset);
    }
    Status status = ranks_gather(ranks, (void **)&sums, &bytes);
    *digest = 0;
    for (size_t r = 0; r < bytes / sizeof *sums && status == OK; r++) *digest += sums[r];
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
