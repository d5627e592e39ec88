#include "state/snapshot/persist.h"

#include <stdlib.h>

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

Status persist_read(void *piece, int array, int64_t begin, int64_t end, float *to)
{
    const PersistPiece *p = piece;
    return snapshot_read_range(p->file, p->slot, array, begin, end, to);
}

HeldPart persist_part(const PersistPiece *p)
{
    const SnapshotFixed *f = &p->file->fixed;
    return (HeldPart){.params = {&f->params[0], &f->params[1]}, .part = {&f->part[0], &f->part[1]}};
}

typedef struct {
    const SnapshotList *list;
    const SnapshotSet *set;
    const char *folder;
} Alone;

static Status fill_alone(void *context, const TrainingState *t)
{
    const Alone *a = context;
    Status status = OK;
    int world = a->set->world;
    Intervals *parts[2]; /* of both spaces; the list owns them */
    for (int space = 0; space < 2; space++) parts[space] = mem_array((size_t)world, sizeof **parts);
    for (int s = 0; s < world; s++) {
        const SnapshotPiece *p = &a->set->pieces[s];
        PersistPiece piece = {&a->list->files[p->file], p->slot};
        Digest digest;
        HeldPart part = persist_part(&piece);
        TRY_DONE(checkpoint_write_part(a->folder, t->step, &part, persist_read, &piece, &digest));
        TRY_DONE(checkpoint_check_part(a->folder, t->step, &part, digest));
        for (int space = 0; space < 2; space++) parts[space][s] = *part.part[space];
    }
    TRY_DONE(checkpoint_check_whole(t->params, parts[0], world));
    if (t->kfac) TRY_DONE(checkpoint_check_whole(t->kfac, parts[1], world));
done:
    for (int space = 0; space < 2; space++) free(parts[space]);
    return status;
}

Status persist_write(const SnapshotList *list, const SnapshotSet *set, int rank, const char *folder, int keep,
                     Status (*fill)(void *context, const TrainingState *t), void *context)
{
    Saver saver = {0};
    const SnapshotPiece *first = NULL;
    Alone alone = {list, set, folder};
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
                           .fill = fill ? fill : fill_alone,
                           .fill_context = fill ? context : &alone};
    state.state = snapshot_state(file, first->slot, &state.state_size);
    Status status = saver_init(&saver, folder, keep, NULL);
    if (status == OK) status = saver_begin(&saver, &state);
    saver_free(&saver);
    return status;
}
