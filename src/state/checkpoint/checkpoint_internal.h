/* Shared by checkpoint*.c. */
#pragma once

#include "state/checkpoint/checkpoint.h"

#define CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define CHECKPOINT_KFAC      "kfac.safetensors"
#define CHECKPOINT_STATE     "state.json"
#define CHECKPOINT_MAX_STATE ((uint64_t)64 << 20)

enum { CHECKPOINT_FILES = 3, CHECKPOINT_ARRAYS = 4 };
extern const char *const checkpoint_files[CHECKPOINT_FILES]; /* those with tensors */
/* Where an array lies: the file, the flat space, how many arrays the file has before it, its tensors' prefix. */
extern const struct CheckpointArray {
    int file, space, before;
    const char *prefix;
} checkpoint_arrays[CHECKPOINT_ARRAYS];
int checkpoint_file_number(const char *name); /* among checkpoint_files; −1: it is none of them */

/* ---- names (checkpoint.c) ---- */

char *checkpoint_path(const char *out, int64_t step, const char *suffix); /* caller frees */
/* "checkpoint-120" and "checkpoint-120.old"; `suffix` points into `name`. */
bool checkpoint_parse_name(const char *name, int64_t *step, const char **suffix);
/* Durably removes the name, then the manifest, then the rest. */
Status checkpoint_remove(const char *out, const CheckpointInfo *c);

/* ---- reading (checkpoint_read.c) ---- */

/* The manifest of the checkpoint at `path`, checked against the folder's name. */
Status checkpoint_read_manifest(const char *path, Manifest *m);
Digest checkpoint_identity(const Manifest *m);
/* CheckpointSeen.files begins with this. Behind it are the digests of the blocks of each file, and behind those, after
   checkpoint_find_tensors, where each tensor of each array begins in its file (−1: the checkpoint lacks it). */
typedef struct {
    Digest manifest;
    uint64_t size[CHECKPOINT_FILES]; /* 0: no such file */
} SeenFiles;

/* ---- writing (checkpoint_write.c) ---- */

/* One save, in two steps. What may exist at the path of the new checkpoint: nothing, the same checkpoint, another one,
   a damaged one, or no checkpoint. */
typedef enum { ABSENT, SAME, OTHER, DAMAGED, FOREIGN } Existing;
typedef struct {
    const char *out;
    TrainingState state;
    Manifest small; /* of state.json and the caller's files */
    char *temporary, *path, *aside;
    Existing existing;
} CheckpointWriting;

/* Makes the new folder, and for a `fill` the files with tensors. Nothing where the same checkpoint exists. */
Status checkpoint_begin(CheckpointWriting *w, const char *out, const TrainingState *t);
/* After checkpoint_begin, with its status: makes the state durable, or removes what was begun, and keeps the newest
   `keep` checkpoints. `note` receives a text for the user (caller frees) if a step other than the save itself failed.
   Frees `w`. */
Status checkpoint_end(CheckpointWriting *w, Status status, int keep, char **note);
