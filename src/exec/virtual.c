/* Sums over the virtual ranks of one rank, in the tree of base/sum_tree.h, of gradients and of K-FAC's statistics:
   those of the one that runs are in `x` of their SumSpace; branches that wait for others are in `waiting`, in the order
   of their terms. What this rank cannot add by itself stays: the last branch in `x`, those before it in `waiting`. */
#include "base/parallel.h"
#include "base/sum_tree.h"
#include "exec/exec_internal.h"

#define PARALLEL_GRAIN ((size_t)1 << 16) /* elements of a thread, at least */

static SumSpace space_of(const Exec *e, const char *name, const char *behind)
{
    TensorId x = plan_find(e->plan, name), waiting = plan_find(e->plan, behind);
    SumSpace s = {0};
    if (x == NONE) return s;
    s.x = exec_data(e, x);
    s.size = e->plan->tensors[x].rows.extra;
    if (waiting != NONE) s.waiting = exec_data(e, waiting);
    return s;
}

void exec_open_virtual(Exec *e)
{
    const Plan *p = e->plan;
    VirtualSums *v = &e->sums;
    TensorId apart = plan_find(p, PLAN_APART), stats = plan_find(p, "stats");
    v->terms = e->options.virtual_ranks ? e->options.virtual_ranks : 1;
    v->complete = p->slots[SLOT_ACTIVATION] > 0; /* a pipeline's replica is one, and the two uses of a tensor are added
                                                    behind its works */
    v->grads = space_of(e, "grads", PLAN_WAITING);
    v->factors = space_of(e, PLAN_FACTORS, PLAN_FACTORS_WAITING);
    if (!v->grads.x) return;
    if (stats != NONE) v->stats = exec_data(e, stats);
    if (apart == NONE) return;
    const Tensor *word = &p->tensors[plan_find(p, PLAN_WORD)];
    v->apart = exec_data(e, apart);
    v->word.begin = (int64_t)(word->offset / sizeof(float));
    v->word.end = v->word.begin + word->rows.extra * word->cols;
}

void exec_virtual_begin(Exec *e, int64_t first)
{
    e->sums.first = e->sums.at = first;
    e->sums.held = 0;
    e->sums.complete = false;
}

/* Branches that wait and are added to the virtual rank that runs. */
static int added(const VirtualSums *v) { return sum_tree_added(v->terms, v->first, v->at, v->at + 1); }

/* Adds what can be added, and where `place` is not negative leaves the branch there, among those that wait. */
static Status add_range(const Exec *e, const SumSpace *s, int64_t begin, int64_t end, int place)
{
    const VirtualSums *v = &e->sums;
    const Backend *b = e->memory->backend;
    float *x = s->x + begin;
    int64_t n = end - begin, from = begin > v->word.begin ? begin : v->word.begin,
            to = end < v->word.end ? end : v->word.end;
    if (s == &v->grads && v->apart && from < to)
        TRY(backend_add(b, s->x + from, s->x + from, v->apart + (from - v->word.begin), to - from));
    for (int k = v->held - 1; k >= v->held - added(v); k--)
        TRY(backend_add(b, x, x, s->waiting + k * s->size + begin, n));
    return place < 0 ? OK : backend_add(b, s->waiting + place * s->size + begin, x, NULL, n);
}

typedef struct {
    const Exec *e;
    const SumSpace *space;
    int place;
} Sum;

/* Adds a part on a host backend, whose ADD does not fail. */
static void add_part(void *arg, size_t begin, size_t end)
{
    const Sum *sum = arg;
    CHECK(add_range(sum->e, sum->space, (int64_t)begin, (int64_t)end, sum->place) == OK, "%s", status_message());
}

static Status add_all(const Exec *e, const SumSpace *s, int place)
{
    Device *d = e->memory->backend->device;
    if (!d) {
        parallel_ranges((size_t)s->size, PARALLEL_GRAIN, add_part, &(Sum){e, s, place});
        return OK;
    }
    return add_range(e, s, 0, s->size, place);
}

/* Only a step that gathers statistics has any. */
static Status add_factors(const Exec *e, int place)
{
    const VirtualSums *v = &e->sums;
    bool due = v->factors.x && e->gathers && (place >= 0 || added(v));
    return due ? add_all(e, &v->factors, place) : OK;
}

Status exec_virtual_add(const Exec *e, int64_t begin, int64_t end)
{
    return e->sums.complete ? OK : add_range(e, &e->sums.grads, begin, end, -1);
}

int exec_virtual_waiting(const Exec *e) { return e->sums.held - (e->sums.complete ? 0 : added(&e->sums)); }

const float *exec_virtual_gradients(const Exec *e, int k)
{
    const SumSpace *s = &e->sums.grads;
    return k < exec_virtual_waiting(e) ? s->waiting + k * s->size : s->x;
}

Status exec_virtual_stats(const Exec *e, Stats *stats)
{
    const VirtualSums *v = &e->sums;
    int waiting = exec_virtual_waiting(e);
    Stats *last = stats + waiting;
    memcpy(stats, v->stats_waiting, (size_t)waiting * sizeof *stats);
    TRY(backend_download(e->memory->backend, last, v->stats, sizeof *last));
    for (int k = v->held - 1; k >= waiting; k--)
        for (int slot = 0; slot < 2; slot++) {
            last->loss[slot] += v->stats_waiting[k].loss[slot];
            last->correct[slot] += v->stats_waiting[k].correct[slot];
        }
    return OK;
}

Status exec_virtual_complete(Exec *e)
{
    VirtualSums *v = &e->sums;
    if (v->complete) return OK;
    TRY(add_factors(e, -1));
    v->held -= added(v);
    v->at++;
    v->complete = true;
    return OK;
}

Status exec_virtual_end(Exec *e, bool last)
{
    VirtualSums *v = &e->sums;
    Stats stats[1 + MOST_WAITING];
    int place = exec_virtual_waiting(e);
    TRY(exec_complete(e));
    if (v->complete || !v->stats) return OK;
    TRY(exec_virtual_stats(e, stats));
    if (last) {
        if (v->apart || added(v)) TRY(add_all(e, &v->grads, -1));
        TRY(exec_virtual_complete(e));
        return backend_upload(e->memory->backend, v->stats, &stats[place], sizeof *stats);
    }
    CHECK(place < e->plan->waiting, "a virtual rank too many: %d sums wait", v->held);
    TRY(add_all(e, &v->grads, place));
    TRY(add_factors(e, place));
    v->stats_waiting[place] = stats[place];
    v->held = place + 1;
    v->at++;
    return OK;
}
