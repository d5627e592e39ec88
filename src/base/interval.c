#include "base/interval.h"

#include "base/mem.h"

void intervals_add(Intervals *list, int64_t begin, int64_t end)
{
    if (begin >= end) return;
    list->size += end - begin;
    if (list->count > 0 && list->intervals[list->count - 1].end == begin) {
        list->intervals[list->count - 1].end = end;
        return;
    }
    MEM_PUSH(list->intervals, list->count, list->cap, (Interval){begin, end});
}

int64_t intervals_before(const Intervals *list, int64_t element)
{
    int64_t before = 0;
    for (int i = 0; i < list->count && list->intervals[i].begin < element; i++) {
        int64_t end = list->intervals[i].end < element ? list->intervals[i].end : element;
        before += end - list->intervals[i].begin;
    }
    return before;
}

bool intervals_next(const Intervals *list, int64_t end, Interval *v)
{
    int64_t from = v->end;
    *v = (Interval){from, end};
    if (!list || from >= end) return from < end;
    for (int i = 0; i < list->count && list->intervals[i].begin < end; i++) {
        Interval x = list->intervals[i];
        if (x.end <= from) continue;
        *v = (Interval){x.begin > from ? x.begin : from, x.end < end ? x.end : end};
        return true;
    }
    return false;
}

bool interval_meets(const Interval *list, int n, Interval v)
{
    for (int i = 0; i < n; i++)
        if (list[i].begin < v.end && v.begin < list[i].end) return true;
    return false;
}

int interval_order(const void *a, const void *b)
{
    const Interval *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

Intervals intervals_joined(const Intervals *lists, const bool *chosen, int n)
{
    Intervals joined = {0};
    Interval *all = NULL;
    int count = 0, cap = 0;
    int64_t done = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; (!chosen || chosen[i]) && k < lists[i].count; k++)
            MEM_PUSH(all, count, cap, lists[i].intervals[k]);
    if (count > 0) qsort(all, (size_t)count, sizeof *all, interval_order);
    for (int i = 0; i < count; i++) {
        intervals_add(&joined, all[i].begin > done ? all[i].begin : done, all[i].end);
        if (all[i].end > done) done = all[i].end;
    }
    free(all);
    return joined;
}

void intervals_free(Intervals *list)
{
    free(list->intervals);
    *list = (Intervals){0};
}

void intervals_free_all(Intervals *lists, int n)
{
    for (int i = 0; lists && i < n; i++) intervals_free(&lists[i]);
    free(lists);
}
