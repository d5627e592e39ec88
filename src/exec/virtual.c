/* Sums over the virtual ranks of one rank, in the tree of base/sum_tree.h: the gradients of the one that runs are in
   `grads`; branches that wait for others lie behind them, in the order of their terms. What this rank cannot add by
   itself stays: the last branch in `grads`, those before it behind. */
#include "base/parallel.h"
#include "base/sum_tree.h"
#include "exec/exec_internal.h"

#define PARALLEL_GRAIN ((size_t)1 << 16) /* elements of a thread, at least */

void exec_open_virtual(Exec *e)
{
    const Plan *p = e->plan;
    VirtualSums *v = &e->sums;
    TensorId grads = plan_find(p, "grads"), waiting = plan_find(p, PLAN_WAITING), apart = plan_find(p, PLAN_APART),
             stats = plan_find(p, "stats");
    v->terms = e->options.virtual_ranks ? e->options.virtual_ranks : 1;
    if (grads == NONE || e->memory->backend->device) return;
    v->grads = exec_data(e, grads);
    v->size = p->tensors[grads].rows.extra;
    if (stats != NONE) v->stats = exec_data(e, stats);
    if (waiting != NONE) v->waiting = exec_data(e, waiting);
    v->most = waiting == NONE ? 0 : (int)(p->tensors[waiting].rows.extra / v->size);
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

static void add(float *restrict x, const float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

static void add_range(const VirtualSums *v, int64_t begin, int64_t end)
{
    int64_t from = begin > v->word.begin ? begin : v->word.begin, to = end < v->word.end ? end : v->word.end;
    if (v->apart && from < to) add(v->grads + from, v->apart + (from - v->word.begin), to - from);
    for (int k = v->held - 1, n = added(v); n > 0; k--, n--)
        add(v->grads + begin, v->waiting + k * v->size + begin, end - begin);
}

void exec_virtual_add(const Exec *e, int64_t begin, int64_t end)
{
    if (!e->sums.complete) add_range(&e->sums, begin, end);
}

static void add_losses(VirtualSums *v)
{
    for (int k = v->held - 1, n = added(v); n > 0; k--, n--)
        for (int slot = 0; slot < 2; slot++) {
            v->stats->loss[slot] += v->stats_waiting[k].loss[slot];
            v->stats->correct[slot] += v->stats_waiting[k].correct[slot];
        }
}

void exec_virtual_add_losses(Exec *e)
{
    if (!e->sums.complete) add_losses(&e->sums);
}

void exec_virtual_complete(Exec *e)
{
    VirtualSums *v = &e->sums;
    if (v->complete) return;
    v->held -= added(v);
    v->at++;
    v->complete = true;
}

static void add_all(void *arg, size_t begin, size_t end) { add_range(arg, (int64_t)begin, (int64_t)end); }

/* Adds what can be added, and leaves the branch behind those that wait. */
static void add_and_leave(void *arg, size_t begin, size_t end)
{
    const VirtualSums *v = arg;
    add_range(v, (int64_t)begin, (int64_t)end);
    memcpy(v->waiting + (v->held - added(v)) * v->size + begin, v->grads + begin, (end - begin) * sizeof *v->grads);
}

void exec_virtual_end(Exec *e, bool last)
{
    VirtualSums *v = &e->sums;
    if (v->complete) return;
    if (last) {
        if (v->apart || added(v)) parallel_ranges((size_t)v->size, PARALLEL_GRAIN, add_all, v);
        add_losses(v);
        exec_virtual_complete(e);
        return;
    }
    int place = v->held - added(v);
    CHECK(place < v->most, "a virtual rank too many: %d sums wait", v->held);
    parallel_ranges((size_t)v->size, PARALLEL_GRAIN, add_and_leave, v);
    add_losses(v);
    v->stats_waiting[place] = *v->stats;
    v->held = place + 1;
    v->at++;
}

int exec_virtual_waiting(const Exec *e) { return e->sums.complete ? e->sums.held : e->sums.held - added(&e->sums); }

const float *exec_virtual_gradients(const Exec *e, int k) { return e->sums.waiting + k * e->sums.size; }
const Stats *exec_virtual_stats(const Exec *e, int k) { return &e->sums.stats_waiting[k]; }
