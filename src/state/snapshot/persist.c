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

static Status fill_alone(void *context, const TrainingState *t, CheckpointFilled *filled)
{
    const Alone *a = context;
    Status status = OK;
    size_t world = (size_t)a->set->world;
    Intervals *parts[N_SPACES]; /* the list owns them */
    for (int space = 0; space < N_SPACES; space++) parts[space] = mem_array(world, sizeof **parts);
    Digest *digests = mem_array(world, sizeof *digests);
    bool *wrong = mem_array(world, sizeof *wrong);
    for (size_t s = 0; s < world; s++) {
        const SnapshotPiece *p = &a->set->pieces[s];
        PersistPiece piece = {&a->list->files[p->file], p->slot};
        HeldPart part = persist_part(&piece);
        TRY_DONE(checkpoint_write_part(a->folder, t->step, &part, persist_read, &piece, &digests[s]));
        for (int space = 0; space < N_SPACES; space++) parts[space][s] = *part.part[space];
    }
    status = checkpoint_check_parts(a->folder, t, (const Intervals *const *)parts, digests, (int)world, wrong, filled);
done:
    for (int space = 0; space < N_SPACES; space++) free(parts[space]);
    MEM_FREE(digests, wrong);
    return status;
}

Status persist_write(const SnapshotList *list, const SnapshotSet *set, int rank, const char *folder, int keep,
                     CheckpointFill *fill, void *context)
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
    if (status == OK) status = saver_wait(&saver);
    saver_free(&saver);
    return status;
}
