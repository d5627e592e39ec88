#include "train/parts/exchange.h"

#include <string.h>

#include "optim/optim.h"

#define LEAST_BUCKETS 8         /* of a model that is small for --bucket-size: one bucket would come at the end */
#define LEAST_BUCKET  (1 << 18) /* elements: LEAST_BUCKETS makes no smaller ones */

static void add_start(GradientBuckets *x, int *cap, int64_t at)
{
    if (x->n > 0 && x->starts[x->n - 1] == at) return;
    MEM_PUSH(x->starts, x->n, *cap, at);
}

/* A bucket ends where the next tensor would make it larger than `most`, and where the embeddings begin, whose gradients
   all come last. A larger tensor is cut into pieces of the same number of norm blocks. */
static void find_starts(GradientBuckets *x, const ParamTable *params, int64_t most)
{
    int cap = 0;
    add_start(x, &cap, 0);
    for (int i = 0; i < params->count; i++) {
        int64_t begin = params->params[i].offset,
                end = i + 1 < params->count ? params->params[i + 1].offset : params->size;
        bool embeddings = i > 0 && params->params[i].layer < 0 && params->params[i - 1].layer >= 0;
        if (end - x->starts[x->n - 1] <= most && !embeddings) continue;
        add_start(x, &cap, begin);
        int64_t pieces = (end - begin + most - 1) / most;
        for (int64_t p = 1; p < pieces; p++)
            add_start(x, &cap, begin + (end - begin) * p / pieces / NORM_BLOCK * NORM_BLOCK);
    }
    MEM_GROW(x->starts, x->n, cap);
    x->starts[x->n] = params->size;
}

/* For the sums of every bucket. */
static void find_room(GradientBuckets *all)
{
    for (int r = 0; r < all->ranks; r++) {
        int own = comm_branches(all->tree, all->ranks, r);
        if (own > all->branches) all->branches = own;
    }
    for (int b = 0; b < all->n; b++) {
        size_t bytes = comm_reduce_bytes(gradient_parts(all, b), all->ranks, all->wire, all->tree);
        int64_t received = comm_received(gradient_parts(all, b), all->ranks, all->tree);
        if (bytes > all->scratch_bytes) all->scratch_bytes = (bytes + 63) / 64 * 64;
        if (received > all->received) all->received = received;
    }
}

void exchange_init(Exchange *x, const ParamTable *params, int ranks, int64_t bucket_bytes, Dtype wire)
{
    int64_t most = bucket_bytes / (int64_t)sizeof(float), some = params->size / LEAST_BUCKETS;
    if (some < LEAST_BUCKET) some = LEAST_BUCKET;
    if (most > some) most = some;
    *x = (Exchange){.buckets = {.ranks = ranks, .wire = wire}};
    GradientBuckets *all = &x->buckets;
    find_starts(all, params, most > NORM_BLOCK ? most : NORM_BLOCK);
    size_t count = (size_t)all->n * (size_t)ranks;
    all->parts = mem_array(count, sizeof *all->parts);
    x->intervals = mem_array(count, sizeof *x->intervals);
    for (int b = 0; b < all->n; b++) {
        int64_t begin = all->starts[b], end = all->starts[b + 1], from = begin;
        for (int r = 0; r < ranks; r++) {
            size_t i = (size_t)b * (size_t)ranks + (size_t)r;
            int64_t to = slice_cut(params, begin, end, r, ranks);
            x->intervals[i] = (Interval){from, to};
            all->parts[i] = (Intervals){.intervals = &x->intervals[i], .count = to > from, .size = to - from};
            from = to;
        }
        if (end - begin > all->largest) all->largest = end - begin;
    }
    find_room(all);
}

/* After exchange_init: ranks' sums are added in the tree of base/sum_tree.h over so many terms. */
static void add_in_tree(Exchange *x, int64_t terms)
{
    x->buckets.tree = terms;
    find_room(&x->buckets);
}

Intervals *exchange_slices(const ParamTable *params, const Exchange *x)
{
    int ranks = x ? x->buckets.ranks : 1;
    Intervals *slices = mem_array((size_t)ranks, sizeof *slices);
    param_slices(params, x ? x->buckets.starts : NULL, x ? x->buckets.n : 0, ranks, slices);
    return slices;
}

void exchange_shard(Exchange *x, const ParamTable *params, int rank)
{
    GradientBuckets *all = &x->buckets;
    x->shard = true;
    x->rank = rank;
    x->slices = exchange_slices(params, x);
    all->sums = mem_array((size_t)all->ranks, sizeof *all->sums);
    for (int r = 0; r < all->ranks; r++)
        for (int k = 0; k < x->slices[r].count; k++) {
            Interval v = x->slices[r].intervals[k];
            intervals_add(&all->sums[r], 2 * optim_norm_blocks(params, v.begin), 2 * optim_norm_blocks(params, v.end));
        }
    int64_t table = 2 * optim_norm_blocks(params, params->size);
    if (table > all->largest) all->largest = table;
    size_t bytes = comm_reduce_bytes(all->sums, all->ranks, F32, 0);
    if (bytes > all->scratch_bytes) all->scratch_bytes = (bytes + 63) / 64 * 64;
}

void exchange_from_options(const Config *c, const ParamTable *params, int ranks, int rank, Exchange *x)
{
    exchange_init(x, params, ranks, c->bucket_size, strcmp(c->wire, "bf16") == 0 ? BF16 : F32);
    if (c->virtual_ranks % ranks == 0) add_in_tree(x, c->virtual_ranks);
    if (strcmp(c->shard, "optimizer") == 0) exchange_shard(x, params, rank);
}

void exchange_free(Exchange *x)
{
    GradientBuckets *all = &x->buckets;
    for (int r = 0; x->slices && r < all->ranks; r++) intervals_free(&x->slices[r]), intervals_free(&all->sums[r]);
    MEM_FREE(x->slices, x->intervals, all->starts, all->parts, all->sums);
    *x = (Exchange){0};
}

const Intervals *exchange_slice(const Exchange *x) { return x && x->shard ? &x->slices[x->rank] : NULL; }
