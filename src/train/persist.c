#include "train/persist.h"

#include <stdlib.h>

#include "base/machine_memory.h"
#include "state/checkpoint.h"

Status persist_find(const char *dir, const char *output, Digest run, Persist *p)
{
    *p = (Persist){0};
    TRY(snapshot_find(dir, output, &p->list));
    snapshot_choose_in(&p->list, run, &p->set, &p->missing);
    return OK;
}

void persist_free(Persist *p)
{
    snapshot_set_free(&p->set);
    snapshot_list_free(&p->list);
    buf_free(&p->missing);
    *p = (Persist){0};
}

Status persist_write(const SnapshotList *list, const SnapshotSet *set, const char *folder, int keep)
{
    Status status = OK;
    const SnapshotPiece *first = &set->pieces[0];
    const SnapshotFile *file = &list->files[first->file];
    const ParamTable *params = &file->fixed.params;
    size_t bytes = SNAPSHOT_ARRAYS * (size_t)params->size * sizeof(float), room = machine_free_bytes();
    float *arrays[SNAPSHOT_ARRAYS];
    Saver saver = {0};
    TrainingState state = {.params = params, .step = set->step};
    if (room < bytes)
        return fail(E_MEMORY, "assembling a checkpoint takes %.1f MiB of memory, %.1f MiB are free",
                    (double)bytes / (1 << 20), (double)room / (1 << 20));
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++) arrays[a] = mem_array((size_t)params->size, sizeof(float));
    TRY_DONE(snapshot_assemble(list, set, arrays));
    state.weights = arrays[0];
    state.m = arrays[1];
    state.v = arrays[2];
    state.state = snapshot_state(file, first->slot, &state.state_size);
    state.files = file->fixed.files;
    state.n_files = file->fixed.n_files;
    TRY_DONE(saver_init(&saver, folder, keep, NULL));
    TRY_DONE(saver_begin(&saver, &state));
done:
    saver_free(&saver);
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++) free(arrays[a]);
    return status;
}
