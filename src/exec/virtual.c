/* Sums over the virtual ranks of one rank, in the tree of base/sum_tree.h: the gradients of the one that runs are in
   `grads`; sums that wait for others lie behind them, one for each level of the tree. */
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
    if (grads == NONE || e->memory->backend->device) return;
    v->grads = exec_data(e, grads);
    v->size = p->tensors[grads].rows.extra;
    if (stats != NONE) v->stats = exec_data(e, stats);
    if (waiting != NONE) v->waiting = exec_data(e, waiting);
    v->levels = waiting == NONE ? 0 : (int)(p->tensors[waiting].rows.extra / v->size);
    if (apart == NONE) return;
    const Tensor *word = &p->tensors[plan_find(p, PLAN_WORD)];
    v->apart = exec_data(e, apart);
    v->word.begin = (int64_t)(word->offset / sizeof(float));
    v->word.end = v->word.begin + word->rows.extra * word->cols;
}

void exec_virtual_begin(Exec *e)
{
    e->sums.held = 0;
    e->sums.complete = false;
}

/* The first level at which none waits. */
static int first_free(const VirtualSums *v)
{
    int level = 0;
    while (v->held >> level & 1) level++;
    return level;
}

/* Whether the sum of this level is added now: the last virtual rank takes all that wait, another one those below
   first_free. */
static bool takes(const VirtualSums *v, int level, bool last)
{
    return (v->held >> level & 1) && (last || level < first_free(v));
}

static void add(float *restrict x, const float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] += y[i];
}

static void add_range(const VirtualSums *v, int64_t begin, int64_t end, bool last)
{
    int64_t from = begin > v->word.begin ? begin : v->word.begin, to = end < v->word.end ? end : v->word.end;
    if (v->apart && from < to) add(v->grads + from, v->apart + (from - v->word.begin), to - from);
    for (int level = 0; level < v->levels; level++)
        if (takes(v, level, last)) add(v->grads + begin, v->waiting + level * v->size + begin, end - begin);
}

void exec_virtual_add(const Exec *e, int64_t begin, int64_t end)
{
    if (!e->sums.complete) add_range(&e->sums, begin, end, true);
}

static void add_losses(VirtualSums *v, bool last)
{
    for (int level = 0; level < v->levels; level++) {
        if (!takes(v, level, last)) continue;
        for (int slot = 0; slot < 2; slot++) {
            v->stats->loss[slot] += v->stats_waiting[level].loss[slot];
            v->stats->correct[slot] += v->stats_waiting[level].correct[slot];
        }
    }
}

void exec_virtual_add_losses(Exec *e)
{
    if (!e->sums.complete) add_losses(&e->sums, true);
}

static void add_last(void *arg, size_t begin, size_t end) { add_range(arg, (int64_t)begin, (int64_t)end, true); }

/* Adds what is complete, and leaves the sum at first_free. */
static void add_and_leave(void *arg, size_t begin, size_t end)
{
    const VirtualSums *v = arg;
    add_range(v, (int64_t)begin, (int64_t)end, false);
    memcpy(v->waiting + first_free(v) * v->size + begin, v->grads + begin, (end - begin) * sizeof *v->grads);
}

void exec_virtual_end(Exec *e, bool last)
{
    VirtualSums *v = &e->sums;
    if (v->complete) return;
    if (last) {
        if (v->apart || v->held) parallel_ranges((size_t)v->size, PARALLEL_GRAIN, add_last, v);
        add_losses(v, true);
        v->complete = true;
        return;
    }
    int level = first_free(v);
    CHECK(level < v->levels, "a virtual rank too many: %d sums wait", v->levels);
    parallel_ranges((size_t)v->size, PARALLEL_GRAIN, add_and_leave, v);
    add_losses(v, false);
    v->stats_waiting[level] = *v->stats;
    v->held++; /* its digits are the levels that wait */
}
