/* Chooses the newest generation of which every slice is complete. */

#include "state/snapshot/snapshot.h"

SnapshotPiece *snapshot_pieces(const SnapshotList *list, Digest run, int rank, int *count)
{
    SnapshotPiece *pieces = NULL;
    int cap = 0;
    *count = 0;
    for (int i = 0; i < list->count; i++) {
        const SnapshotFile *f = &list->files[i];
        if (f->why || !digest_equal(f->run, run)) continue;
        for (int s = 0; s < SNAPSHOT_SLOTS; s++) {
            if (!f->slots[s].whole) continue;
            MEM_GROW(pieces, *count, cap);
            SnapshotPiece *p = &pieces[(*count)++];
            memset(p, 0, sizeof *p);
            p->generation = f->slots[s].generation;
            p->step = f->slots[s].step;
            p->params = f->params;
            p->world = f->world;
            p->slice = f->slice;
            p->rank = rank;
            p->file = i;
            p->slot = s;
            p->copy = f->holder != f->slice;
        }
    }
    return pieces;
}

static bool same_generation(const SnapshotPiece *a, const SnapshotPiece *b)
{
    return a->generation == b->generation && a->step == b->step && a->world == b->world &&
           digest_equal(a->params, b->params);
}

/* Newest generation first. Compares steps before numbers: a run that resumed from an older state, or without the host
   that held the newest numbers, restarts the count below them, so a larger number may be older. Pieces of one
   generation keep their order in the array. */
static int newest_first(const void *a, const void *b)
{
    const SnapshotPiece *x = *(const SnapshotPiece *const *)a, *y = *(const SnapshotPiece *const *)b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    if (x->generation != y->generation) return x->generation > y->generation ? -1 : 1;
    if (x->world != y->world) return x->world > y->world ? -1 : 1;
    int order = memcmp(&x->params, &y->params, sizeof x->params);
    return order ? order : x < y ? -1 : x > y;
}

/* Fills `set` if these pieces of one generation include all slices, else appends the missing ones to `missing`. Takes
   the first of several copies. */
static void collect_slices(const SnapshotPiece *const *pieces, int count, SnapshotSet *set, Buf *missing)
{
    const SnapshotPiece *first = pieces[0];
    int found = 0;
    if (first->world < 1) return;
    SnapshotPiece *slices = mem_array((size_t)first->world, sizeof *slices); /* generation 0: missing */
    for (int i = 0; i < count; i++) {
        int s = pieces[i]->slice;
        if (s < 0 || s >= first->world || slices[s].generation != 0) continue;
        slices[s] = *pieces[i];
        found++;
    }
    if (found == first->world) {
        set->generation = first->generation;
        set->step = first->step;
        set->world = first->world;
        set->pieces = slices;
        return;
    }
    if (missing) {
        buf_printf(missing, "%sgeneration %" PRId64 " (step %" PRId64 ") of %d slices lacks", missing->len ? "; " : "",
                   first->generation, first->step, first->world);
        for (int s = 0, shown = 0; s < first->world && shown < 8; s++)
            if (slices[s].generation == 0) buf_printf(missing, "%s %d", shown++ ? "," : " number", s);
    }
    free(slices);
}

void snapshot_choose(const SnapshotPiece *pieces, int count, SnapshotSet *set, Buf *missing)
{
    const SnapshotPiece **order = mem_array((size_t)count, sizeof *order);
    *set = (SnapshotSet){0};
    for (int i = 0; i < count; i++) {
        order[i] = &pieces[i];
        if (pieces[i].generation > set->newest) set->newest = pieces[i].generation;
    }
    if (count > 0) qsort(order, (size_t)count, sizeof *order, newest_first);
    for (int begin = 0, end = 0; begin < count && set->generation == 0; begin = end) {
        while (end < count && same_generation(order[begin], order[end])) end++;
        collect_slices(order + begin, end - begin, set, missing);
    }
    free(order);
}

/* Whether `a` is the better copy of a slice: at the rank with less to do, then at the rank that wrote it. */
static bool is_better(const SnapshotPiece *a, const SnapshotPiece *b, const int *slices)
{
    if (slices[a->rank] != slices[b->rank]) return slices[a->rank] < slices[b->rank];
    return a->rank == a->slice && b->rank != b->slice;
}

void snapshot_share(const SnapshotPiece *pieces, int count, int first, SnapshotSet *set)
{
    int ranks = first + 1, its = -1; /* its: the slice of rank `first` */
    for (int i = 0; i < count; i++)
        if (pieces[i].rank >= ranks) ranks = pieces[i].rank + 1;
    int *slices = mem_array((size_t)ranks, sizeof *slices);
    const SnapshotPiece as = set->pieces[0];
    for (int s = -1; s < set->world; s++) {
        const SnapshotPiece *best = NULL;
        for (int i = 0; i < count; i++) {
            const SnapshotPiece *p = &pieces[i];
            bool fits = s < 0 ? p->rank == first && p->slice >= 0 && p->slice < set->world : p->slice == s;
            if (fits && same_generation(p, &as) && (!best || is_better(p, best, slices))) best = p;
        }
        if (!best || (s >= 0 && s == its)) continue;
        if (s < 0) its = best->slice;
        set->pieces[best->slice] = *best;
        slices[best->rank]++;
    }
    free(slices);
}

void snapshot_choose_in(const SnapshotList *list, Digest run, SnapshotSet *set, Buf *missing)
{
    int count;
    SnapshotPiece *pieces = snapshot_pieces(list, run, 0, &count);
    snapshot_choose(pieces, count, set, missing);
    free(pieces);
}

void snapshot_set_free(SnapshotSet *set)
{
    free(set->pieces);
    *set = (SnapshotSet){0};
}
