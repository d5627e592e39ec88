/* Where a run resumes: the newest checkpoint, or a newer snapshot in memory. */
#pragma once

#include "train/job/job.h"
#include "train/keep/suspects.h"

/* Resuming, in three parts. resume_find searches the output folder or --resume for a checkpoint, and memory for a newer
   snapshot; it reads progress and LayerNorm forms, which plans need. resume_compare, once the plan is made, refuses a
   flag or fingerprint that alters the run (E_USAGE, unless --override; always where the run found is `finished`).
   resume_load reads the tensors. With nothing found the run starts from the beginning. resume_find and resume_load are
   Collective: rank 0 searches and verifies, and each rank reads its part of the tensors. */
Status resume_find(const Config *config, const char *output_dir, Ranks *ranks, Resume *resume);
Status resume_compare(const Config *config, const char *fingerprint, const Resume *resume, bool finished);
Status resume_load(Resume *resume, Session *session);
void resume_free(Resume *resume);

/* Digest of the sizes and rates of `model`, and of the names, shapes and small tensors in the file `weights_path`
   (reading all of it would take as long as loading it). An unreadable file has a digest of its own. "": random weights.
 */
Digest resume_origin(const Model *model, const char *weights_path);

/* A JSON object of strings: the facts beside the flags that a run's bits depend on. `data` digests all training data. A
   change of data, origin or precision alters the run, a change of the others only its last bits. */
void resume_fingerprint(const Run *run, Digest data, Buf *out);

/* ---- from a checkpoint on disk (load.c) ---- */

/* Collective. Each rank reads the elements that it owns of the checkpoint at `dir`, and they come to all that have
   them. Rank 0, which verified it (`seen`), reads for ranks that do not see the same files, or read other bytes than
   those that were verified. `sets`: K-FAC's too; those that the checkpoint lacks become 0. The session is ready then.
   E_CORRUPT: rank 0 read other bytes, or a weight is not finite. */
Status load_checkpoint(const char *dir, CheckpointSeen *seen, Session *s, bool sets);

/* ---- from memory: snapshots of killed processes in --snapshot-dir, on all hosts (recover.c) ---- */

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
