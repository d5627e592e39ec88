/* A file to be written beside a model's weights: config.json, vocab.txt … Exports, checkpoints and snapshots take the
   same ones. */
#ifndef CAIRN_STATE_MODEL_FILE_H
#define CAIRN_STATE_MODEL_FILE_H

#include <stddef.h>

/* Names are letters, digits, '.', '_', '-', at most 127 of them, and begin with no dot. */
typedef struct {
    const char *name;
    const void *data; // (size)
    size_t size;
} ModelFile;

#endif
