/* What the files of checkpoint*.c share. Private to state/. */
#ifndef CAIRN_STATE_CHECKPOINT_INTERNAL_H
#define CAIRN_STATE_CHECKPOINT_INTERNAL_H

#include "state/checkpoint.h"

#define CHECKPOINT_FORMAT    1
#define CHECKPOINT_MODEL     "model.safetensors"
#define CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define CHECKPOINT_STATE     "state.json"
#define CHECKPOINT_MANIFEST  "manifest.json"
#define CHECKPOINT_MAX_STATE ((uint64_t)64 << 20)

/* ---- manifest (checkpoint_manifest.c) ---- */

typedef struct {
    char name[128];
    uint64_t size;
    Digest digest;
} ManifestFile;

typedef struct {
    int64_t step;
    ManifestFile *files;
    int count, cap;
} Manifest;

bool manifest_name_valid(const char *name);
void manifest_add(Manifest *m, const char *name, uint64_t size, Digest digest);
const ManifestFile *manifest_find(const Manifest *m, const char *name); /* NULL if absent */
/* The one text of a manifest. Reading accepts exactly this, so every changed byte is noticed. */
void manifest_render(const Manifest *m, Buf *out);
/* `path` is for messages. E_CORRUPT for everything that manifest_render would not have written. */
Status manifest_parse(const char *path, const char *text, size_t len, Manifest *m);
void manifest_free(Manifest *m); /* takes a zeroed one */

/* ---- names (checkpoint.c) ---- */

char *checkpoint_path(const char *out, int64_t step, const char *suffix); /* caller frees */
/* "checkpoint-120" and "checkpoint-120.old"; `suffix` points into `name`. */
bool checkpoint_parse_name(const char *name, int64_t *step, const char **suffix);
/* Durably takes away the name, then the manifest, then the rest. */
Status checkpoint_remove(const char *out, const CheckpointInfo *c);

/* ---- reading (checkpoint_read.c) ---- */

/* The manifest of the checkpoint at `path`, checked against the folder's name. */
Status checkpoint_read_manifest(const char *path, Manifest *m);

/* ---- writing (checkpoint_write.c) ---- */

/* Makes `t` durable in `out` and removes what is older. `bytes` (adds) is what was written. `note` gets a text for
   people (caller frees) where something beside the save itself went wrong. */
Status checkpoint_write(const char *out, const TrainingState *t, int keep, uint64_t *bytes, char **note);

#endif
