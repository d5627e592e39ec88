/* A model as a directory that Hugging Face's from_pretrained loads as it is: config.json, the tokenizer
   (text/tokenizer_files.h), model.safetensors (fp32, metadata format "pt", Hugging Face's names, those of
   a BertModel without `bert.`, vocabulary without pad rows, the tied decoder not repeated). The same model gives the
   same bytes: no time, host or path is in them. */
#pragma once

#include "base/base.h"
#include "model/model.h"
#include "state/models/model_file.h"
#include "text/tokenizer_files.h"

/* Inputs for the files beside the weights. The caller owns everything. */
typedef struct {
    const Vocab *vocab; /* NULL: no tokenizer is written */
    TokenizerOptions tokenizer;
    const char *const *labels; // (n_labels) names of the classes; NULL: those of the config's source, or LABEL_0 …
    int n_labels;              /* the head's, where `labels` is given */
    ModelUse use;              /* max_length 0: the positions */
    bool embedding;            /* with what sentence-transformers reads: m->pooling, m->normalized */
    const ModelFile *files;    // (n_files) what export_files made of this text; 0: export_model makes them
    int n_files;
    const ModelFile *note; /* one file more; NULL: none */
    int64_t step;          /* whose weights these are, for the manifest; 0: not known */
} ExportText;

#define EXPORT_MAX_FILES (1 + TOKENIZER_MAX_TEXTS + 4)

/* config.json, with a vocabulary the files of the tokenizer, and of an embedding those of sentence-transformers. Keeps
   the keys of the model's source config, except paths and another head's labels. E_FORMAT: the source config is not
   valid JSON; E_FAIL: two classes have one name. */
Status export_files(const Model *m, const ExportText *text, ModelFile files[EXPORT_MAX_FILES], int *count);
void export_files_free(ModelFile *files, int count); /* takes zeroed ones */

ArrayRead export_read_values; /* the context is the array, (params->size) */

/* A safetensors file of arrays of one space. */
typedef struct {
    const ParamTable *params;
    const char *prefixes[2]; // (n) of the tensors' names
    int n, first;            /* arrays, and the number of the first */
    bool bare;               /* names without their first part, the encoder's: `bert.` or `distilbert.` */
    bool by_name;            /* tensors in the order of their names in files, not of the table */
    ArrayRead *read;         /* of elements of one tensor at a time */
    void *context;
} ExportTensors;

/* Writes it durably. `digest` may be NULL. */
Status export_tensors(const char *path, const ExportTensors *t, Digest *digest);
/* Writes the file with zeros as data; nothing is read. */
Status export_reserve(const char *path, const ExportTensors *t);

/* Writes all files into `directory`, which it creates if needed; each file durably, then the weights, array 0, and a
   manifest of these files last. Other files stay. */
Status export_model(const char *directory, const Model *m, ArrayRead *read, void *context, const ExportText *text);
