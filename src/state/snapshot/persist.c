#include "state/snapshot/persist.h"

Status run_snapshots_find(const char *dir, const char *output, Digest run, RunSnapshots *p)
{
    *p = (RunSnapshots){0};
    TRY(snapshot_find(dir, output, &p->list));
    snapshot_choose_in(&p->list, run, &p->set, &p->missing);
    return OK;
}

void run_snapshots_free(RunSnapshots *p)
{
    snapshot_set_free(&p->set);
    snapshot_list_free(&p->list);
    buf_free(&p->missing);
    *p = (RunSnapshots){0};
}

Intervals held_pieces_part(const HeldPieces *h, int space)
{
    Intervals *parts = mem_array((size_t)h->n, sizeof *parts); /* the list owns them */
    int n = 0;
    for (int i = 0; i < h->n; i++)
        if (h->pieces[i].rank == h->rank) parts[n++] = h->list->files[h->pieces[i].file].fixed.part[space];
    Intervals part = intervals_joined(parts, NULL, n);
    free(parts);
    return part;
}

/* Elements from `begin` on that lie in one piece. *to: the element behind them. */
static Status read_piece(const HeldPieces *h, int array, int64_t begin, int64_t end, float *values, int64_t *to)
{
    for (int i = 0; i < h->n; i++) {
        const SnapshotPiece *p = &h->pieces[i];
        Interval v = {begin, begin};
        if (p->rank != h->rank) continue;
        const SnapshotFile *f = &h->list->files[p->file];
        if (!intervals_next(&f->fixed.part[snapshot_space(array)], end, &v) || v.begin > begin) continue;
        *to = v.end;
        return snapshot_read_range(f, p->slot, array, begin, v.end, values);
    }
    return fail(E_CORRUPT, "no slice of the state has element %lld of array %d", (long long)begin, array);
}

Status held_pieces_read(void *held, int array, int64_t begin, int64_t end, float *to)
{
    for (int64_t at = begin; at < end;) TRY(read_piece(held, array, at, end, to + (at - begin), &at));
    return OK;
}

Status persist_write(const SnapshotList *list, const SnapshotSet *set, int rank, const char *folder, int keep,
                     CheckpointFill *fill, void *context)
{
    Saver saver = {0};
    const SnapshotPiece *first = NULL;
    HeldPieces held = {list, set->pieces, set->world, rank};
    for (int s = set->world - 1; s >= 0; s--)
        if (set->pieces[s].rank == rank) first = &set->pieces[s];
    if (!first) return fail(E_FAIL, "this rank has no slice of generation %lld", (long long)set->generation);
    const SnapshotFile *file = &list->files[first->file];
    const ParamTable *params = file->fixed.params;
    TrainingState state = {.params = &params[0],
                           .kfac = params[1].count ? &params[1] : NULL,
                           .step = set->step,
                           .files = file->fixed.files,
                           .n_files = file->fixed.n_files,
                           .read = fill ? NULL : held_pieces_read,
                           .read_context = &held,
                           .fill = fill,
                           .fill_context = context};
    state.state = snapshot_state(file, first->slot, &state.state_size);
    Status status = saver_init(&saver, folder, keep);
    if (status == OK) status = saver_begin(&saver, &state);
    saver_free(&saver);
    return status;
}
