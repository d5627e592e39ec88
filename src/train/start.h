/* The start of a run of any task: the vocabulary, the model's sizes, the forms of its LayerNorms. */
#ifndef CAIRN_TRAIN_START_H
#define CAIRN_TRAIN_START_H

#include "config/config.h"
#include "model/model.h"
#include "text/text.h"
#include "train/train.h"

typedef struct {
    char *path; /* of the vocabulary */
    Vocab *vocab;
    Buf file; /* its bytes, to be exported again */
    TokenizerOptions options;
} StartText;

/* --vocab, else vocab.txt in `folder` of shards (NULL: none), else the one beside --model; the tokenizer's options from
   flags, else from what lies beside --model, else from the shards' manifest.json. E_USAGE as start_check_shards. */
Status start_text(const Config *c, const char *folder, StartText *t);
/* E_USAGE if the shards in `folder` were made with another vocabulary, or with other case or accents, according to
   manifest.json. Folders without one pass. */
Status start_check_shards(const StartText *t, const char *folder);
/* --max-seq-length of its manifest.json; folders without one leave *length. */
Status start_shards_length(const char *folder, int64_t *length);
void start_text_free(StartText *t); /* takes a zeroed one */

/* Sizes from --model-config, else from beside --model, with --dropout; E_USAGE if they do not fit the vocabulary
   or sequences of `max_length`. `path` (may be NULL) gets the file's name, which the caller frees. */
Status start_model(const Config *c, const StartText *t, Head head, int64_t max_length, Model *m, char **path);
/* The same for a vocabulary of so many pieces, which need not exist yet. */
Status start_model_sized(const Config *c, const char *vocab_path, int pieces, Head head, int64_t max_length, Model *m,
                         char **path);

/* (2·layers + 1) forms, before anything is planned (contracts.md 5): the checkpoint's, or those that --model's weights
   ask for. Newly allocated. Collective: rank 0 reads them. */
Status start_norm_forms(const Config *c, const Model *m, const TrainResume *resume, Ranks *ranks, uint8_t **forms);

#endif
