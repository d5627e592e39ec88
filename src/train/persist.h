/* An ordinary checkpoint out of slices that lie in memory: what survivors write where none of them holds the whole
   state, and `cairn snapshot persist`. */
#ifndef CAIRN_TRAIN_PERSIST_H
#define CAIRN_TRAIN_PERSIST_H

#include "state/snapshot.h"

/* What one folder of memory holds of a run. */
typedef struct {
    SnapshotList list;
    SnapshotSet set; /* generation 0: none is whole */
    Buf missing;     /* what newer generations lack: "generation 7 (step 21) lacks of 4 slices number 0, 1" */
} Persist;

/* `output`: of the run, as its ranks know it. Files that others still write into do no harm: a generation that is whole
   stays until all ranks have agreed on the next. */
Status persist_find(const char *dir, const char *output, Digest run, Persist *p);
void persist_free(Persist *p); /* takes a zeroed one */

/* Writes it into `folder`, under whose lock the caller is; `keep` checkpoints are kept, all if 0. E_MEMORY where the
   machine has no room to put it together: 12 bytes a parameter. */
Status persist_write(const SnapshotList *list, const SnapshotSet *set, const char *folder, int keep);

#endif
