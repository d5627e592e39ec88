/* What a pipeline's ranks add up behind a step's works: gradients between holders, the two gradients of a tied word
   embedding, losses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/sum_tree.h"
#include "train/session/session_pipeline.h"

#define TIE_TAG 0xffff0000u /* of the word embedding's two gradients; those of boundaries are small numbers */

static int chunks_of(const SessionPipeline *p) { return place_chunks(p->place); }

static const Pipeline *shape(const SessionPipeline *p) { return &p->place->grid.shape; }

Comm *pipeline_group(const SessionPipeline *p, int stage)
{
    return p->groups[p->place->grid.directions == 2 && stage >= p->place->grid.stages / 2];
}

/* ---- sums between holders ---- */

static float *gradients(const SessionPipeline *p)
{
    return exec_data(p->train[0], p->session->plan.train_tensors.grads);
}

Status pipeline_exchange(const Session *s, Comm *group, float *x, Interval piece, const Intervals *parts,
                         Exchanging *how, Dtype wire)
{
    int64_t n = piece.end - piece.begin;
    float *here;
    TRY(pipeline_take(s, x + piece.begin, n, &here));
    TRY(how(group, here - piece.begin, parts, wire, s->memory.base[REGION_COMM]));
    return pipeline_put(s, x + piece.begin, n);
}

Intervals *pipeline_parts(Interval *cut, int n)
{
    Intervals *parts = mem_array((size_t)n, sizeof *parts);
    for (int q = 0; q < n; q++) {
        int64_t own = cut[q].end - cut[q].begin;
        parts[q] = (Intervals){.intervals = &cut[q], .count = own > 0, .size = own};
    }
    return parts;
}

/* The piece of an array `x` like the held space, between the holders of its stage. */
static Status exchange_piece(const SessionPipeline *p, const PlacePiece *piece, float *x, Exchanging *how, Dtype wire)
{
    Comm *group = pipeline_group(p, piece->stage);
    Interval *cut = mem_array((size_t)group->size, sizeof *cut), whole = {0, piece->end - piece->begin};
    place_cut(p->place, piece, cut);
    Intervals *parts = pipeline_parts(cut, group->size);
    Status status = pipeline_exchange(p->session, group, x + piece->begin, whole, parts, how, wire);
    MEM_FREE(cut, parts);
    return status;
}

static Status exchange_stage(const SessionPipeline *p, int stage, float *x, Exchanging *how, Dtype wire)
{
    for (int i = 0; i < p->place->n_pieces; i++)
        if (p->place->pieces[i].stage == stage) TRY(exchange_piece(p, &p->place->pieces[i], x, how, wire));
    return OK;
}

static Status sum_on_devices(const SessionPipeline *p, int stage)
{
    Intervals list = {0};
    for (int i = 0; i < p->place->n_pieces; i++)
        if (p->place->pieces[i].stage == stage)
            intervals_add(&list, p->place->pieces[i].begin, p->place->pieces[i].end);
    const Session *s = p->session;
    Status status = list.count ? pipeline_sum_on_devices(s, s->options.devices->holders, gradients(p), &list,
                                                         s->plan.input.virtual_ranks > 0)
                               : OK;
    intervals_free(&list);
    return status;
}

Status pipeline_sum_stages(const SessionPipeline *p)
{
    const PipelinePlace *at = p->place;
    if (place_replicas(at) == 1) return OK;
    for (int stage = 0; stage < at->grid.stages; stage++)
        TRY(p->session->options.devices
                ? sum_on_devices(p, stage)
                : exchange_stage(p, stage, gradients(p), at->shard ? comm_reduce_scatter : comm_allreduce, at->wire));
    return OK;
}

Status pipeline_share_weights(const SessionPipeline *p)
{
    float *weights = exec_data(p->train[0], p->session->plan.train_tensors.weights);
    for (int stage = 0; stage < p->place->grid.stages; stage++)
        TRY(exchange_stage(p, stage, weights, comm_gather_parts, F32));
    return OK;
}

/* ---- the two gradients of a tied word embedding, of one replica ---- */

static Status swap_uses(const SessionPipeline *p, int peer, float *own, float *other, size_t bytes)
{
    CommTicket *in = NULL, *out = NULL;
    Status status = comm_post(p->link, peer, TIE_TAG, false, other, bytes, &in);
    if (status == OK) status = comm_post(p->link, peer, TIE_TAG, true, own, bytes, &out);
    Status received = comm_wait(p->link, in, "the other gradient of the word embedding"),
           sent = comm_wait(p->link, out, "the gradient of the word embedding");
    TRY(status);
    TRY(received);
    return sent;
}

/* Adds the other use's gradient to `x`. `y` is what the place `peer` gets, and sends in return; without a peer (−1) it
   is that gradient. Two terms: their order does not matter. */
static Status add_other_use(const SessionPipeline *p, int peer, float *x, float *y, int64_t count)
{
    const Session *s = p->session;
    const Backend *b = s->options.backend;
    float *received = s->memory.base[REGION_COMM], *copy = peer < 0 ? received : received + p->place->bucket;
    for (int64_t at = 0; at < count; at += p->place->bucket) {
        int64_t n = count - at < p->place->bucket ? count - at : p->place->bucket;
        size_t bytes = (size_t)n * sizeof *x;
        float *own, *sent = y + at;
        TRY(pipeline_take(s, x + at, n, &own));
        if (y == x)
            sent = own;
        else if (b->device)
            TRY(backend_download(b, sent = copy, y + at, bytes));
        if (peer >= 0) TRY(swap_uses(p, peer, sent, received, bytes));
        const float *other = peer < 0 ? sent : received;
        for (int64_t i = 0; i < n; i++) own[i] += other[i];
        TRY(pipeline_put(s, x + at, n));
    }
    return OK;
}

/* The place with the other use of the replica whose first stage lies here, or its last one; −1: this place has both. */
static int other_place(const SessionPipeline *p)
{
    const PipelinePlace *at = p->place;
    int peer, chunk, stage = at->grid.stages - 1, direction = 0;
    for (int k = 0; k < chunks_of(p); k++)
        if (stage_is_last(at->whole, place_stage(at, k))) stage = 0;
    for (int k = 0; k < chunks_of(p); k++)
        if (stage_is_first(place_stage(at, k))) stage = at->grid.stages - 1, direction = place_direction(at, k);
    pipeline_home(shape(p), stage, direction, &peer, &chunk);
    return peer == at->number ? -1 : peer;
}

/* Where a place has both uses, the second one lies behind the space: in chimera it is the other direction's, and goes
   to the place that has that direction's first stage. */
Status pipeline_tie(const SessionPipeline *p)
{
    const PipelinePlace *at = p->place;
    const Param *tied = model_tied(at->whole);
    int i = tied ? params_find(&at->held.params, tied->name) : -1;
    if (i < 0 || (at->grid.stages == 1 && !at->both_uses)) return OK;
    float *x = gradients(p) + at->held.params.params[i].offset;
    const PlaceDevices *devices = p->session->options.devices;
    if (devices && devices->uses) {
        Interval all = {0, param_held(tied)};
        const Intervals list = {.intervals = &all, .count = 1, .size = all.end};
        return pipeline_sum_on_devices(p->session, devices->uses, x, &list, false);
    }
    return add_other_use(p, other_place(p), x, at->both_uses ? gradients(p) + at->held.params.size : x,
                         param_held(tied));
}

/* ---- losses ---- */

int pipeline_last_chunk(const PipelinePlace *at, int direction)
{
    for (int k = 0; k < place_chunks(at); k++)
        if (stage_is_last(at->whole, place_stage(at, k)) && place_direction(at, k) == direction) return k;
    return -1;
}

typedef struct {
    double loss[2], correct[2];
    double works, busy, filled; /* seconds until the rank's last work; with a work; with K-FAC's in a gap */
} Row;

/* In the order of replicas, or with virtual ranks as a tree. */
static void add_replicas(SessionPipeline *p, const Row *all) // (ranks)
{
    const PipelinePlace *at = p->place;
    int64_t terms = p->session->plan.input.virtual_ranks;
    Stats branches[1 + MOST_WAITING];
    int held = 0;
    for (int q = 0; q < place_replicas(at); q++) {
        int number, chunk;
        pipeline_home(shape(p), at->grid.stages - 1, q % at->grid.directions, &number, &chunk);
        const Row *row = &all[number * at->grid.replicas + q / at->grid.directions];
        Stats *last = &branches[held++];
        *last = (Stats){.loss = {row->loss[0], row->loss[1]},
                        .correct = {(int64_t)row->correct[0], (int64_t)row->correct[1]}};
        for (int added = terms ? sum_tree_added(terms, 0, q, q + 1) : q > 0; added > 0; added--, held--, last--)
            for (int slot = 0; slot < 2; slot++) {
                last[-1].loss[slot] += last->loss[slot];
                last[-1].correct[slot] += last->correct[slot];
            }
    }
    p->sums = branches[0];
}

Status pipeline_sum_losses(SessionPipeline *p)
{
    const PipelinePlace *at = p->place;
    Ranks *ranks = p->session->options.ranks;
    const double *kfac = p->kfac.seconds;
    Row mine = {.works = p->times.works, .busy = p->times.works - p->times.idle - kfac[0] - kfac[1], .filled = kfac[1]};
    Row *all = mem_array((size_t)p->ranks, sizeof *all);
    double longest = 0, busy = 0, filled = 0;
    Status status = OK;
    for (int d = 0; d < at->grid.directions; d++) {
        Stats stats;
        int k = pipeline_last_chunk(at, d);
        if (k < 0) continue;
        TRY_DONE(exec_download(p->train[k], run_plan_tensors(&p->session->plan, k, true)->stats, &stats, sizeof stats));
        for (int slot = 0; slot < 2; slot++) {
            mine.loss[slot] = stats.loss[slot];
            mine.correct[slot] = (double)stats.correct[slot];
        }
    }
    all[0] = mine;
    if (ranks) TRY_DONE(comm_allgather(ranks_comm(ranks), &mine, sizeof mine, all));
    for (int r = 0; r < p->ranks; r++) {
        if (all[r].works > longest) longest = all[r].works;
        busy += all[r].busy;
        filled += all[r].filled;
    }
    double bubble = p->ranks * longest - busy;
    p->times.bubble = longest > 0 ? bubble / (p->ranks * longest) : 0;
    p->times.filled = bubble > 0 ? filled / bubble : 0;
    add_replicas(p, all);
done:
    free(all);
    return status;
}

Status pipeline_longest(const SessionPipeline *p, double *seconds)
{
    Ranks *ranks = p->session->options.ranks;
    if (!ranks) return OK;
    double *all = mem_array((size_t)p->ranks, sizeof *all);
    Status status = comm_allgather(ranks_comm(ranks), seconds, sizeof *seconds, all);
    for (int r = 0; r < p->ranks && status == OK; r++) *seconds = fmax(*seconds, all[r]);
    free(all);
    return status;
}

void pipeline_take_sums(const Session *s, Stats *stats)
{
    memcpy(stats->loss, s->pipeline->sums.loss, sizeof stats->loss);
    memcpy(stats->correct, s->pipeline->sums.correct, sizeof stats->correct);
}
