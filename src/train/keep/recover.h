/* Resuming from memory: snapshots that killed processes of this run left in --snapshot-dir, on all hosts. */
#pragma once

#include "train/job/job.h"
#include "train/keep/suspects.h"

/* Collective. Finds the newest whole generation of the run in `output_dir` on all ranks that is not in `suspects`, and
   names damaged ones in warnings. memory->set.generation is 0 where none is newer than `disk`, rank 0's newest
   checkpoint step (−1: none). The list is of this rank alone; it is empty where another rank of its host reads the same
   folder. Removes snapshots that the disk has too. Logs the step that the run resumes from, and the number of lost
   steps. */
Status recover_find(const Config *config, const char *output_dir, Ranks *ranks, const Suspects *suspects, int64_t disk,
                    RunSnapshots *memory);
/* Collective. The text of its state.json, on all ranks. */
Status recover_state(const RunSnapshots *memory, Ranks *ranks, Buf *text);
/* Collective. Weights, moments and K-FAC's sets, to the ranks that have them; the session is ready then. */
Status recover_load(const RunSnapshots *memory, Session *s);
