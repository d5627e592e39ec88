/* The start of a run of any task: the vocabulary, the model's sizes, the forms of its LayerNorms. */
#pragma once

#include "config/config.h"
#include "model/model.h"
#include "text/tokenizer_files.h"
#include "train/job/job.h"

/* The pieces are --vocab's, else those beside --model, else those in `folder` of shards (NULL: none). How text is read:
   from flags, else from the files beside them, else from the shards' manifest.json, else from the vocabulary's
   capitals. The Python tokenizer is taken where t->options.kind asks for it already: a run keeps the one that it began
   with. E_USAGE as start_check_shards. */
Status start_text(const Config *c, const char *folder, TokenizerFiles *t);
/* Rank 0: the checkpoint that --resume names, or one in `dir`, was written with the Python tokenizer, as all of
   versions that had no other; they have no tokenizer.json. */
bool start_resumes_python(const char *dir, const char *resume);
/* E_USAGE if the shards in `folder` were made with another vocabulary, or with other case or accents, according to
   manifest.json, or with another key of tokenizer_config.json. Folders without a manifest pass. */
Status start_check_shards(const TokenizerFiles *t, const char *folder);
/* --max-seq-length of its manifest.json; folders without one leave *length. */
Status start_shards_length(const char *folder, int64_t *length);

/* Sizes from --model-config, else from beside --model, with --dropout; E_USAGE if they do not fit the vocabulary
   or sequences of `max_length`. `path` (may be NULL) gets the file's name, which the caller frees. */
Status start_model(const Config *c, const TokenizerFiles *t, Head head, int64_t max_length, Model *m, char **path);
/* start_model for a vocabulary of so many pieces, which need not exist yet. */
Status start_model_sized(const Config *c, const char *vocab_path, int pieces, Head head, int64_t max_length, Model *m,
                         char **path);

/* (2·layers + 1) forms, before anything is planned (contracts.md 5): the checkpoint's, or those that --model's weights
   ask for. Newly allocated. Collective: rank 0 reads them. */
Status start_norm_forms(const Config *c, const Model *m, const Resume *resume, Ranks *ranks, uint8_t **forms);
