/* What exports, checkpoints and snapshots share. */
#pragma once

#include "base/status.h"

/* Elements [begin, end) of array 0 (weights), 1 (m), 2 (v), or 3 (K-FAC's sets, in their own space). */
typedef Status ArrayRead(void *context, int array, int64_t begin, int64_t end, float *to);

/* A file beside a model's weights: config.json, vocab.txt … Names are letters, digits, '.', '_', '-', at most 127 of
   them, and do not begin with a dot; a file of a folder has that folder's name and '/' in front. */
typedef struct {
    const char *name;
    const void *data; // (size)
    size_t size;
} ModelFile;

/* What a model's folder says of the texts that it was trained with: max_length is sentence_bert_config.json's
   max_seq_length, else tokenizer_config.json's model_max_length; the rest lies in config.json under MODEL_USE_KEY,
   which Transformers keeps. 0 and NULL: not said. Columns are as --text-columns and --label-column take them. */
typedef struct {
    int64_t max_length, doc_stride, max_query_length;
    char *text_columns, *label_column;
    char *prompts,
        *similarity; /* of embeddings: JSON of config_sentence_transformers.json, which vectors do not follow */
} ModelUse;

#define MODEL_WEIGHTS "model.safetensors"

#define MODEL_USE_KEY  "cairn"
#define MODEL_USE_MOST 1000000

/* Files that sentence-transformers has beside a BERT. */
#define EMBEDDING_MODULES     "modules.json"
#define EMBEDDING_MODEL       "config_sentence_transformers.json"
#define EMBEDDING_TRANSFORMER "sentence_bert_config.json"
#define EMBEDDING_LENGTH      "max_seq_length" /* a key of it */
