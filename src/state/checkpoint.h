/* Checkpoints: training state on disk, whole or not there (docs/design.md, idea 9; docs/contracts.md 7 and 8).

   OUT/checkpoint-<step>/ is a model folder of its own:
     model.safetensors      weights, fp32, Hugging Face's names and shapes, without the vocabulary's pad rows
     optimizer.safetensors  "m.<name>" and "v.<name>", fp32, the same shapes
     state.json             everything else; its text is the caller's
     …                      the caller's small files: config.json, vocab.txt …
     manifest.json          last: step, and every other file's name, size and XXH3-128 digest; ends with its own digest
   Tensors stand in the order of the flat space, whole and by name: no world size is in it. Nothing in the first file
   tells time, host or path.

   Saving writes checkpoint-<step>.tmp, makes every file durable, the manifest last, renames the folder to its name,
   flushes OUT, and only then removes older ones. So at every moment at least one good checkpoint is there, once there
   was one. A checkpoint that is removed loses its name first (it becomes .tmp), then its manifest. Folders named .tmp
   are never read. checkpoint-<step>.old is one that is being replaced by another of the same step; it counts as long as
   it is there. One process per OUT (state/lock.h).

   Reading verifies sizes and digests while it reads: once, straight into the caller's memory.

   Errors: E_CORRUPT damaged (also missing files, and media that cannot be read); E_FORMAT whole, but of another model,
   with a list of what differs; E_IO everything the system refuses. Every message names the path. */
#ifndef CAIRN_STATE_CHECKPOINT_H
#define CAIRN_STATE_CHECKPOINT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "model/params.h"
#include "state/model_file.h"

/* ---- writing ---- */

typedef struct {
    const ParamTable *params;
    int64_t step;
    const float *weights, *m, *v; // (params->size) each; they may lie in the saver's buffer already, in this order
    double stopped;               /* clock_monotonic when training stopped for this save; 0: now */
    const char *state;            /* JSON text for state.json */
    size_t state_size;
    const ModelFile *files;
    int n_files;
} TrainingState;

typedef struct {
    int saved, failed;      /* checkpoints */
    int64_t last_step;      /* of the newest durable one; −1: none yet */
    double stalled_s;       /* training waited, in all saves together: for the previous save, copying, … */
    double longest_stall_s; /* … and in the save where it waited longest */
    double background_s;    /* writing beside training */
    uint64_t bytes;         /* written, in all saves together */
} SaverStats;

/* Saves into one folder; one at a time. The caller owns `stats` (read it between calls) and calls from one thread. */
typedef struct {
    SaverStats stats;
    /* private */
    char *out;
    int keep;
    float *buffer; // (3, params->size)
    pthread_t thread;
    bool running, finished; /* a thread is there; its work is done (under `lock`) */
    pthread_mutex_t lock;
    struct Save *save;
    Status last;
    char *last_message;
} Saver;

/* Makes `out` if it is not there, and removes what killed processes left in it. `keep` checkpoints are kept, all if 0.
   `buffer` has room for 3 · params->size floats (the plan's SAVE region) and belongs to the saver until saver_free;
   NULL: saving streams from the state itself while training stands. */
Status saver_init(Saver *s, const char *out, int keep, float *buffer);
/* Waits for a save that is under way. With a buffer: copies everything and returns, a thread does the rest; a failure
   shows in saver_wait, and as a warning. Without: returns when it is durable, or why it is not (and warns, too). After
   a failure the checkpoints of before are still there. Where that step is saved already with the same state.json and
   small files, nothing is written; other steps beyond it, which can only be of a run that went another way, are
   removed. */
Status saver_begin(Saver *s, const TrainingState *state);
/* True while a save is under way. Takes notice of one that ended: figures, and the warning where it failed. */
bool saver_poll(Saver *s);
/* Waits; the outcome of the last save (OK if there was none), with its message. */
Status saver_wait(Saver *s);
void saver_free(Saver *s); /* waits; takes a zeroed one */

/* Bytes of one checkpoint on disk, without the small files (a few more than it takes). */
uint64_t checkpoint_bytes(const ParamTable *params);
/* E_IO, with both figures, if fewer than `bytes` are free where `directory` lies or would lie. */
Status checkpoint_check_space(const char *directory, uint64_t bytes);
/* Removes what killed processes left in `out`: checkpoint-*.tmp. A missing `out` is fine. */
Status checkpoint_remove_leftovers(const char *out);

/* ---- reading ---- */

typedef struct {
    int64_t step;
    bool aside; /* named .old */
    char *path;
} CheckpointInfo;

typedef struct {
    CheckpointInfo *items; /* newest first */
    int count, cap;
} CheckpointList;

/* Everything in `out` that has a checkpoint's name, whole or not. A missing `out` gives none. */
Status checkpoint_find(const char *out, CheckpointList *list);
void checkpoint_list_free(CheckpointList *list); /* takes a zeroed one */

/* One checkpoint into the flat space. `m` and `v` may both be NULL: optimizer.safetensors is then not opened. Gaps and
   the vocabulary's pad rows are 0. `state` (may be NULL) gets state.json's text. After a failure the arrays and `state`
   hold nothing of use. */
Status checkpoint_load(const char *path, const ParamTable *params, float *weights, float *m, float *v, Buf *state);
/* Reads every byte and compares digests; keeps state.json's text in `state` and the step (both may be NULL). */
Status checkpoint_verify(const char *path, Buf *state, int64_t *step);

/* The newest good one in `out`: damaged ones are named in warnings, and the one before is taken. `*path` is NULL (and
   the Status OK) where there is none at all; the caller frees it. Some there, none of them good: E_CORRUPT. Any other
   error (another model, no permission) ends the search. */
Status checkpoint_load_newest(const char *out, const ParamTable *params, float *weights, float *m, float *v, Buf *state,
                              char **path);
/* The same without tensors, for who must know the state before there is room for them: all digests are compared. */
Status checkpoint_newest(const char *out, Buf *state, char **path);

#endif
