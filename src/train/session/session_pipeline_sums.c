/* What a pipeline's ranks add up behind a step's works: the two gradients of a tied word embedding, and losses. */

#include "base/sum_tree.h"
#include "train/session/session_pipeline.h"

#define TIE_TAG 0xffff0000u /* of the word embedding's two gradients; those of boundaries are small numbers */

static const Pipeline *shape(const SessionPipeline *p) { return &p->place->grid.shape; }

/* Room for `n` elements of a device's memory that the host exchanges. */
static float *host_copy(const Session *s, int64_t n)
{
    CHECK(n <= s->plan.input.place->room.largest, "%lld elements at once", (long long)n);
    return (float *)(void *)((char *)s->memory[0].base[REGION_COMM] + s->plan.input.place->room.scratch);
}

/* ---- the two gradients of a tied word embedding, of one replica ---- */

static Status swap_uses(const SessionPipeline *p, int peer, float *own, float *other, size_t bytes)
{
    CommTicket *in = NULL, *out = NULL;
    Status status = comm_post(p->session->pipeline_comm, peer, TIE_TAG, false, other, bytes, &in);
    if (status == OK) status = comm_post(p->session->pipeline_comm, peer, TIE_TAG, true, own, bytes, &out);
    Status received = comm_wait(p->session->pipeline_comm, in, "the other gradient of the word embedding"),
           sent = comm_wait(p->session->pipeline_comm, out, "the gradient of the word embedding");
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
    int64_t most = p->place->holding.mine.most;
    float *received = s->memory[0].base[REGION_COMM];
    for (int64_t at = 0; at < count; at += most) {
        int64_t n = count - at < most ? count - at : most;
        size_t bytes = (size_t)n * sizeof *x;
        float *own = b->device ? host_copy(s, n) : x + at, *sent = y == x ? own : b->device ? received + n : y + at;
        if (b->device) TRY(backend_download(b, own, x + at, bytes));
        if (b->device && y != x) TRY(backend_download(b, sent, y + at, bytes));
        if (peer >= 0) TRY(swap_uses(p, peer, sent, received, bytes));
        const float *other = peer < 0 ? sent : received;
        for (int64_t i = 0; i < n; i++) own[i] += other[i];
        if (b->device) TRY(backend_upload(b, x + at, own, bytes));
    }
    return OK;
}

/* The place with the other use of the replica whose first stage lies here, or its last one; −1: this place has both. */
static int other_place(const SessionPipeline *p)
{
    const RankPlace *at = p->place;
    int peer, chunk, stage = at->grid.stages - 1, direction = 0;
    for (int k = 0; k < place_chunks(at); k++)
        if (stage_is_last(at->whole, place_stage(at, k))) stage = 0;
    for (int k = 0; k < place_chunks(at); k++)
        if (stage_is_first(place_stage(at, k)))
            stage = at->grid.stages - 1, direction = pipeline_direction(shape(p), k);
    pipeline_home(shape(p), stage, direction, &peer, &chunk);
    return peer == at->number ? -1 : peer;
}

/* Where a place has both uses, the second one lies behind the space: in chimera it is the other direction's, and goes
   to the place that has that direction's first stage. */
Status pipeline_tie(const SessionPipeline *p)
{
    const RankPlace *at = p->place;
    const PlaceDevices *devices = p->session->options.devices;
    Interval v = place_tied(at);
    float *x = session_gradients(p->session) + v.begin;
    int64_t n = v.end - v.begin;
    if (n == 0) return OK;
    if (devices && devices->uses) {
        Device *d = p->session->options.backend->device;
        TRY(devices_enter(p->session));
        return devices_join(p->session, devices->uses, comm_device_sum(devices->uses, x, (size_t)n, F32, d->stream(d)));
    }
    return add_other_use(p, other_place(p), x, at->both_uses ? session_gradients(p->session) + at->held.params.size : x,
                         n);
}

/* ---- losses ---- */

typedef struct {
    double loss[2], correct[2];
    double works, busy, filled; /* seconds until the rank's last work; with a work; with K-FAC's in a gap */
} Row;

/* In the order of replicas, or with virtual ranks as a tree. */
static void add_replicas(const SessionPipeline *p, const Row *all, Stats *sum) // (ranks)
{
    const RankPlace *at = p->place;
    int64_t terms = p->session->plan.input.virtual.ranks;
    Stats branches[1 + MOST_WAITING];
    int held = 0;
    for (int q = 0; q < grid_holders(&at->grid); q++) {
        const Row *row = &all[grid_holder(&at->grid, at->grid.stages - 1, q)];
        Stats *last = &branches[held++];
        *last = (Stats){.loss = {row->loss[0], row->loss[1]},
                        .correct = {(int64_t)row->correct[0], (int64_t)row->correct[1]}};
        for (int added = terms ? sum_tree_added(terms, 0, q, q + 1) : q > 0; added > 0; added--, held--, last--)
            for (int slot = 0; slot < 2; slot++) {
                last[-1].loss[slot] += last->loss[slot];
                last[-1].correct[slot] += last->correct[slot];
            }
    }
    *sum = branches[0];
}

Status pipeline_sum_losses(SessionPipeline *p)
{
    const RankPlace *at = p->place;
    Ranks *ranks = p->session->options.ranks;
    const double *kfac = p->kfac.seconds;
    Row mine = {.works = p->session->times.works,
                .busy = p->session->times.works - p->session->times.idle - kfac[0] - kfac[1],
                .filled = kfac[1]};
    Row *all = mem_array((size_t)p->ranks, sizeof *all);
    double longest = 0, busy = 0, filled = 0;
    Status status = OK;
    for (int d = 0; d < at->grid.directions; d++) {
        Stats stats;
        int k = place_last_chunk(at, d);
        if (k < 0) continue;
        TRY_DONE(
            exec_download(p->session->train[k], p->session->plan.chunk[k].train_tensors.stats, &stats, sizeof stats));
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
    p->session->times.bubble = longest > 0 ? bubble / (p->ranks * longest) : 0;
    p->session->times.filled = bubble > 0 ? filled / bubble : 0;
    Stats sum;
    add_replicas(p, all, &sum);
    status = exec_upload(p->session->train[0], p->session->plan.chunk->train_tensors.stats, &sum,
                         offsetof(Stats, correct) + sizeof sum.correct);
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
