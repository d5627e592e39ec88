/* Where a run resumes: the newest checkpoint, or a newer snapshot in memory. */
#pragma once

#include "train/job/job.h"

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
