/* A file beside a model's weights: config.json, vocab.txt … Exports, checkpoints and snapshots share the type. */
#ifndef CAIRN_STATE_MODEL_FILE_H
#define CAIRN_STATE_MODEL_FILE_H

#include <stddef.h>

/* Names are letters, digits, '.', '_', '-', at most 127 of them, and do not begin with a dot. */
typedef struct {
    const char *name;
    const void *data; // (size)
    size_t size;
} ModelFile;

#endif
