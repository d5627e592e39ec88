#include "train/start.h"

#include <stdlib.h>
#include <string.h>

#include "state/import.h"

/* ---- text ---- */

static char *find_vocabulary(const Config *c, const char *folder)
{
    if (*c->vocab) return mem_strdup(c->vocab);
    if (folder) {
        char *path = file_join(folder, "vocab.txt");
        if (file_exists(path)) return path;
        free(path);
    }
    return *c->model ? import_find_vocab(c->model) : NULL;
}

Status start_text(const Config *c, const char *folder, StartText *t)
{
    *t = (StartText){.options = {.lower_case = true, .strip_accents = -1, .split_chinese = true}};
    t->path = find_vocabulary(c, folder);
    if (!t->path && *c->model)
        return fail(E_USAGE, "--model %s: no vocab.txt is beside it; give the folder of a model, or --vocab FILE",
                    c->model);
    if (!t->path) return fail(E_USAGE, "there is no vocabulary: give --vocab FILE");
    if (*c->model) TRY(import_tokenizer_options(c->model, &t->options.lower_case, &t->options.strip_accents));
    if (strcmp(c->do_lower_case, "auto") != 0) t->options.lower_case = strcmp(c->do_lower_case, "yes") == 0;
    if (strcmp(c->strip_accents, "auto") != 0) t->options.strip_accents = strcmp(c->strip_accents, "yes") == 0;
    TRY(vocab_read(t->path, &t->vocab));
    return file_read(t->path, (size_t)256 << 20, &t->file);
}

void start_text_free(StartText *t)
{
    vocab_free(t->vocab);
    buf_free(&t->file);
    free(t->path);
    *t = (StartText){0};
}

/* ---- the model ---- */

/* A vocabulary belongs to a model that has an embedding for each piece; some trainers pad to a multiple of 8 or 64. */
static Status check_vocabulary(const StartText *t, int rows, const char *config_path)
{
    int pieces = vocab_size(t->vocab);
    if (pieces == rows) return OK;
    if (rows != (pieces + 7) / 8 * 8 && rows != (pieces + 63) / 64 * 64)
        return fail(E_USAGE,
                    "%s has %d pieces, but 'vocab_size' in %s is %d: they do not belong together. Give the vocabulary "
                    "that the model was made with, as --vocab",
                    t->path, pieces, config_path, rows);
    log_warn("%s has %d pieces, %s embeddings for %d: taken for padding", t->path, pieces, config_path, rows);
    return OK;
}

Status start_model(const Config *c, const StartText *t, Head head, int64_t max_length, Model *m, char **path_out)
{
    ModelConfig config;
    char *path = *c->model_config ? mem_strdup(c->model_config) : *c->model ? import_find_config(c->model) : NULL;
    if (!path)
        return fail(E_USAGE,
                    *c->model
                        ? "'%s' has no config.json or bert_config.json beside it; give --model-config FILE"
                        : "there is no model%s: give --model DIR (weights), or --model-config FILE for random weights",
                    c->model);
    Status status = OK;
    if (file_exists(path) || !model_config_named(path, vocab_size(t->vocab), &config))
        TRY_DONE(model_config_read(path, &config));
    if (c->dropout >= 0)
        config.hidden_dropout = config.attention_dropout = config.classifier_dropout = (float)c->dropout;
    TRY_DONE(model_init(m, config, head));
    if (max_length > m->config.positions)
        TRY_DONE(fail(E_USAGE,
                      "--max-seq-length %lld is more than the %d positions ('max_position_embeddings') of %s; give at "
                      "most these",
                      (long long)max_length, m->config.positions, path));
    TRY_DONE(check_vocabulary(t, m->config.vocab_size, path));
done:
    if (path_out && status == OK)
        *path_out = path;
    else
        free(path);
    return status;
}

Status start_norm_forms(const Config *c, const Model *m, const TrainResume *resume, uint8_t **forms)
{
    int n = 2 * m->config.layers + 1, kept = 0;
    float *norms = NULL;
    *forms = mem_alloc((size_t)n); /* NORM_FORM_Y is 0 */
    if (resume->dir && resume->n_forms != n)
        return fail(E_FORMAT, "%s: was saved from another model, of %d layers; this one has %d", resume->dir,
                    resume->n_forms / 2, m->config.layers);
    if (resume->dir) {
        memcpy(*forms, resume->norm_forms, (size_t)n);
        return OK;
    }
    if (!*c->model) return OK;
    TRY(import_check(c->model, m, NULL));
    Status status = import_check(c->model, m, &norms);
    if (status == OK) model_norm_forms(m, norms, *forms);
    free(norms);
    for (int i = 0; i < n; i++) kept += (*forms)[i] == NORM_FORM_XHAT;
    if (kept) log_info("%d LayerNorms keep their normalised input instead of their output (small γ)", kept);
    return status;
}

Status start_clean(const char *output_dir)
{
    char *best = file_join(output_dir, "best");
    Status status = file_remove_temporaries(output_dir);
    if (status == OK) status = file_remove_temporaries(best);
    free(best);
    return status;
}
