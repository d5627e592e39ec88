/* What a model's folder says of the texts that it was trained with. */

#include "state/models/import.h"
#include "text/tokenizer_files.h"

char *import_find_config(const char *path)
{
    char *found = file_find_beside(path, "config.json");
    return found ? found : file_find_beside(path, "bert_config.json");
}

char *import_find_transformer(const char *path)
{
    static const char *const kinds[] = {"bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"};
    char *found = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !found; i++)
        found = file_find_beside(path, SHORT_TEXT("sentence_%s_config.json", kinds[i]));
    return found;
}

static Status read_count(const char *file, const Json *v, const char *key, int64_t *out)
{
    v = js_get(v, key);
    if (!v || js_kind(v) == JSON_KIND_NULL) return OK;
    if ((js_kind(v) != JSON_KIND_INT && js_kind(v) != JSON_KIND_REAL) || !(js_real(v, 0) >= 1))
        return fail(E_FORMAT, "%s: '%s' must be a number of tokens, from 1", file, key);
    if (js_real(v, 0) <= MODEL_USE_MOST && js_real(v, 0) != floor(js_real(v, 0)))
        return fail(E_FORMAT, "%s: '%s' is %g; expected a whole number of tokens", file, key, js_real(v, 0));
    *out = js_real(v, 0) > MODEL_USE_MOST ? 0 : (int64_t)js_real(v, 0);
    return OK;
}

static Status read_column(const char *file, const Json *v, const char *key, char **out)
{
    v = js_get(v, key);
    if (!v) return OK;
    if (js_kind(v) != JSON_KIND_STRING) return fail(E_FORMAT, "%s: '%s' must be a text", file, key);
    *out = mem_strdup(js_string(v, ""));
    return OK;
}

Status import_use(const char *path, ModelUse *use)
{
    Status status = OK;
    Json *config = NULL, *embedding = NULL;
    char *file = import_find_config(path), *embedder = import_find_transformer(path);
    *use = (ModelUse){0};
    if (file) TRY_DONE(js_read(file, &config));
    TRY_DONE(tokenizer_files_length(path, &use->max_length));
    if (embedder) TRY_DONE(js_read(embedder, &embedding));
    TRY_DONE(read_count(embedder, embedding, EMBEDDING_LENGTH, &use->max_length));
    const Json *own = js_get(config, MODEL_USE_KEY);
    if (js_kind(own) != JSON_KIND_NULL && js_kind(own) != JSON_KIND_OBJECT)
        TRY_DONE(fail(E_FORMAT, "%s: '%s' must be an object", file, MODEL_USE_KEY));
    TRY_DONE(read_count(file, own, "doc_stride", &use->doc_stride));
    TRY_DONE(read_count(file, own, "max_query_length", &use->max_query_length));
    TRY_DONE(read_column(file, own, "text_columns", &use->text_columns));
    TRY_DONE(read_column(file, own, "label_column", &use->label_column));
done:
    if (status != OK) import_use_free(use);
    js_free(config);
    js_free(embedding);
    MEM_FREE(file, embedder);
    return status;
}

void import_use_free(ModelUse *use)
{
    MEM_FREE(use->text_columns, use->label_column);
    *use = (ModelUse){0};
}
