/* Checkpoints: training state on disk, whole or absent (docs/design.md, idea 9; docs/contracts.md 7 and 8).

   OUT/checkpoint-<step>/ is a complete model folder:
     model.safetensors      weights, fp32, Hugging Face's names and shapes, without the vocabulary's pad rows
     optimizer.safetensors  "m.<name>" and "v.<name>", fp32, the same shapes
     kfac.safetensors       with K-FAC: its inverses in use, and with a lag the next ones as "next.<name>"; of
                            a matrix the lower triangle, row by row
     state.json             everything else; its text is the caller's
     …                      the caller's small files: config.json, vocab.txt …
     manifest.json          last: step, and every other file's name, size and XXH3-128 digest; ends with its own digest
   Tensors are in the order of the flat space, whole and by name, so a checkpoint does not depend on the world size.
   model.safetensors contains no time, host or path.

   Saving writes checkpoint-<step>.tmp, makes every file durable, the manifest last, renames the folder to its name,
   flushes OUT, and only then removes older ones. So after the first save OUT holds a good checkpoint at every moment.
   Removal first renames a checkpoint to .tmp, then deletes its manifest, then the rest. Readers ignore folders named
   .tmp. checkpoint-<step>.old is being replaced by another checkpoint of the same step; readers accept it until it is
   removed. One process per OUT (base/lock.h).

   Verifying goes once through each file and keeps a digest of each block. Then any process that sees the files reads
   elements of them, straight into its memory, and compares the blocks that it reads.

   Errors: E_CORRUPT for damage, missing files and unreadable media; E_FORMAT for an intact checkpoint of another model,
   with a list of the differences; E_IO for any refusal of the system. Every message names the path. */
#pragma once

#include <pthread.h>

#include "base/base.h"
#include "model/params.h"
#include "state/models/manifest.h"
#include "state/models/model_file.h"

/* ---- writing ---- */

/* What was read of the files that several processes filled: model, optimizer and K-FAC's sets. */
typedef struct {
    Digest digest[3];
    uint64_t size[3];
} CheckpointFilled;

typedef struct TrainingState TrainingState;
typedef Status CheckpointFill(void *context, const TrainingState *t, CheckpointFilled *filled);
struct TrainingState {
    const ParamTable *params;
    const ParamTable *kfac; /* of K-FAC's sets, those of the next one named "next.…"; NULL: none */
    int64_t step;
    const char *state; /* JSON text for state.json */
    size_t state_size;
    const ModelFile *files; // (n_files) they outlive the save
    int n_files;
    ArrayRead *read; /* of all elements, which this process has; NULL: it does not have them */
    void *read_context;
    /* NULL: this process writes all tensors. Else it is called once the files with tensors have their size, and returns
       when other processes and this one have written their parts and checkpoint_check_parts has read them. After its
       failure this process writes all tensors after all, or, without `read`, the save fails. */
    CheckpointFill *fill;
    void *fill_context;
    bool beside; /* `read` and `fill` may run in another thread, after saver_begin returned */
};

typedef struct {
    int saved, failed;   /* checkpoints */
    double background_s; /* writing beside training */
} SaverStats;

/* Saves into one folder, one save at a time. The caller reads `stats` between calls, and calls from one thread. */
typedef struct {
    SaverStats stats;
    bool filling; /* in the background: the files are made, and the save's `fill` is called */
    /* private */
    char *out;
    int keep;
    pthread_t thread;
    bool running; /* the thread exists */
    struct Save *save;
    Status last;
    char *last_message;
} Saver;

/* Creates `out` if it is missing, and removes leftovers of killed processes. Keeps the newest `keep` checkpoints, all
   if 0. */
Status saver_init(Saver *s, const char *out, int keep);
/* Waits for a save in progress. With `beside` a thread writes; saver_wait and a warning report a failure. Otherwise it
   returns when the checkpoint is durable, or with the error (and a warning). A failure leaves the earlier checkpoints
   in place. Writes nothing if the step is saved already with the same state.json and small files. Removes later steps,
   which can only belong to a run that took another course. */
Status saver_begin(Saver *s, const TrainingState *state);
/* True while a save is in progress. After a save has ended, updates `stats` and warns of a failure. */
bool saver_poll(Saver *s);
/* Waits; returns the status of the last save (OK without one), with its message. */
Status saver_wait(Saver *s);
void saver_free(Saver *s); /* waits; takes a zeroed one */

/* Bytes of one checkpoint on disk without the small files, rounded up a little; `kfac`: NULL: none. */
uint64_t checkpoint_bytes(const ParamTable *params, const ParamTable *kfac);
/* E_IO, with both figures, if the file system of `directory` (which need not exist yet) has fewer than `bytes` free. */
Status checkpoint_check_space(const char *directory, uint64_t bytes);
/* Removes leftovers of killed processes in `out`: checkpoint-*.tmp. A missing `out` is fine. */
Status checkpoint_remove_leftovers(const char *out);

/* ---- parts of one checkpoint, from several processes ---- */

/* Opens the files of the unfinished checkpoint of `step` in `out`, for a part of it (of its second space nothing, where
   that has no table), while another process is in its TrainingState.fill. What is written later goes into these files,
   also where others of these names replace them. */
typedef struct CheckpointPart CheckpointPart;
Status checkpoint_part_open(const char *out, int64_t step, const HeldPart *part, CheckpointPart **opened);
/* Writes the part to its places, durably; frees `opened` in any case. `digest` is that of all these elements. */
Status checkpoint_part_write(CheckpointPart *opened, ArrayRead *read, void *context, Digest *digest);
/* Both. */
Status checkpoint_write_part(const char *out, int64_t step, const HeldPart *part, ArrayRead *read, void *context,
                             Digest *digest);
/* The digest that checkpoint_write_part gives; nothing is written. */
Status checkpoint_part_digest(const HeldPart *part, ArrayRead *read, void *context, Digest *digest);
/* Reads the files of the unfinished checkpoint of `t` once, for their digests and those of the parts (n). E_CORRUPT:
   elements are in no part, or wrong[p]: the files hold others than those of part `p` whose digest is given. */
Status checkpoint_check_parts(const char *out, const TrainingState *t, const Intervals *const parts[N_SPACES],
                              const Digest *digests, int n, bool *wrong, CheckpointFilled *filled);
/* E_CORRUPT: elements of the tensors are in none of these parts (n) of a state, which may overlap. */
Status checkpoint_check_whole(const ParamTable *params, const Intervals *parts, int n);

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

/* All folders in `out` with a checkpoint's name, whole or not. A missing `out` gives none. */
Status checkpoint_find(const char *out, CheckpointList *list);
void checkpoint_list_free(CheckpointList *list); /* takes a zeroed one */
/* Renames the checkpoints of steps from … before `to` to checkpoint-<step>.damaged, which no reader takes for one, and
   logs it; not that in the folder `except`, where there is one of this name. */
Status checkpoint_set_aside(const char *out, int64_t from, int64_t to, const char *except);
/* Moves a checkpoint from another folder into `out`, unless that has a whole one of the same step, or has a damaged one
   and this one is damaged too. */
Status checkpoint_move(const CheckpointInfo *from, const char *out, bool *moved);

/* A checkpoint as it was when all its bytes were read. The caller frees it; a zeroed one is empty. */
typedef struct {
    int64_t step;
    Buf state; /* state.json's text */
    Buf files; /* sizes and digests for checkpoint_open, the same on every machine of the run */
} CheckpointSeen;
void checkpoint_seen_free(CheckpointSeen *seen);

/* Reads every byte and compares digests. `seen` may be NULL. */
Status checkpoint_verify(const char *path, CheckpointSeen *seen);

/* The newest checkpoint in `out` whose digests are all right (`seen` may be NULL). Steps from … before `to` do not
   count (to 0: all do). Warns of each damaged one and tries the one before it. `*path`, which the caller frees, is NULL
   (and the Status OK) if `out` holds no checkpoint. E_CORRUPT if all are damaged. Any other error (no permission) ends
   the search. */
Status checkpoint_newest(const char *out, int64_t from, int64_t to, CheckpointSeen *seen, char **path);

/* ---- elements of a checkpoint, by several processes ---- */

/* One process, which has verified it, finds the tensors of these tables (the second of K-FAC's sets) and adds their
   places to `files`. E_FORMAT: they are another model's, or a next set of K-FAC has no place in the table. Sets that
   the checkpoint lacks have none. */
Status checkpoint_find_tensors(const char *path, const ParamTable *const params[N_SPACES], Buf *files, bool *sets);
/* Opens it for reading, in any process. `params` and `files` outlive the reader. An error: this process does not see
   the checkpoint that was verified. */
typedef struct CheckpointReader CheckpointReader;
Status checkpoint_open(const char *path, const ParamTable *const params[N_SPACES], const Buf *files,
                       CheckpointReader **reader);
void checkpoint_close(CheckpointReader *r); /* takes NULL */
/* What no file has is 0: gaps, the vocabulary's pad rows, absent sets. E_CORRUPT: bytes of these blocks are not those
   that were verified. */
ArrayRead checkpoint_read; /* the context is a CheckpointReader */
/* After checkpoint_verify, which gave `files`: E_DIFFERS names the first element whose bits are not those of `read`. */
Status checkpoint_compare(const char *path, const ParamTable *const params[N_SPACES], Buf *files, ArrayRead *read,
                          void *context);
