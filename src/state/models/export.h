/* A model as a directory that Hugging Face's from_pretrained loads as it is: config.json, the tokenizer
   (text/tokenizer_files.h), model.safetensors (fp32, metadata format "pt", Hugging Face's names, vocabulary without pad
   rows, the tied decoder not repeated). The same model gives the same bytes: no time, host or path is in them. */
#ifndef CAIRN_STATE_MODELS_EXPORT_H
#define CAIRN_STATE_MODELS_EXPORT_H

#include <stdbool.h>

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
} ExportText;

#define EXPORT_MAX_FILES (1 + TOKENIZER_MAX_TEXTS)

/* config.json and, with a vocabulary, the files of the tokenizer. Keeps the keys of the model's source config,
   except paths and another head's labels. E_FORMAT: the source config is not valid JSON; E_FAIL: two classes have one
   name. */
Status export_files(const Model *m, const ExportText *text, ModelFile files[EXPORT_MAX_FILES], int *count);
void export_files_free(ModelFile *files, int count); /* takes zeroed ones */

/* One array of the flat space, and the prefix of its tensors' names. */
typedef struct {
    const char *prefix;
    const float *values; // (params->size); NULL: from `read`, elements [begin, end) of one tensor
    Status (*read)(void *context, int64_t begin, int64_t end, float *to);
    void *context;
} ExportArray;

/* A safetensors file of `n` arrays, durably; tensors in the table's order, or `by_name`. `digest` may be NULL. */
Status export_tensors(const char *path, const ParamTable *params, const ExportArray *arrays, int n, bool by_name,
                      Digest *digest);

/* The same file with zeros as data, in the table's order; `values` are not read. */
Status export_reserve(const char *path, const ParamTable *params, const ExportArray *arrays, int n);

/* Writes all files into `directory`, which it creates if needed; each file durably, the weights last. Other files stay.
 */
Status export_model(const char *directory, const Model *m, const ExportArray *weights, const ExportText *text);

#endif
