/* What a folder of sentence-transformers says of its vectors, beside the encoder in it. */

#include "state/models/import.h"
#include "state/models/manifest.h"

#define OR_ALONE "give another model, or copy its encoder into a folder without " EMBEDDING_MODULES

/* Reads one file's object, which is NULL where the file is absent. */
typedef struct {
    Embedding *e;
    bool prompts; /* some text is to be put before others */
} Found;
typedef Status PartReader(const char *file, const Json *doc, Found *found);

/* null, false, "", [] and {} are defaults everywhere. */
static bool is_empty(const Json *v)
{
    JsonKind kind = js_kind(v);
    if (kind == JSON_KIND_ARRAY || kind == JSON_KIND_OBJECT) return js_size(v) == 0;
    return kind == JSON_KIND_NULL || !js_bool(v, true) || !*js_string(v, "x");
}

/* A text, or null or nothing in its place. */
static bool is_text(const Json *v, const char *text)
{
    return js_kind(v) == JSON_KIND_NULL || strcmp(js_string(v, ""), text) == 0;
}

static Status refuse(const char *file, const char *key, const Json *v, const char *expected)
{
    Buf found = {0};
    js_put(&found, v);
    Status status = fail(E_FORMAT, "%s: '%s' is %s; expected %s", file, key, found.data, expected);
    buf_free(&found);
    return status;
}

/* Takes ownership of `file`, which may be NULL or absent. */
static Status read_part(char *file, PartReader *read, Found *found)
{
    Json *doc = NULL;
    Status status = file && file_exists(file) ? js_read(file, &doc) : OK;
    if (status == OK && js_kind(doc) == JSON_KIND_ARRAY)
        status = fail(E_FORMAT, "%s: is an array; expected an object", file);
    if (status == OK) status = read(file, doc, found);
    js_free(doc);
    free(file);
    return status;
}

/* ---- modules.json ---- */

enum { TRANSFORMER, POOLING, NORMALIZE, N_MODULES };

/* Each module's folder; NULL: there is no such module. */
static Status read_modules(const char *file, const char *folder, const Json *doc, char *places[N_MODULES])
{
    static const char *const modules[] = {".Transformer", ".Pooling", ".Normalize"};
    size_t n = js_size(doc);
    for (size_t i = 0; i < n; i++) {
        const char *type = js_string(js_get(js_at(doc, i), "type"), "");
        const char *path = js_string(js_get(js_at(doc, i), "path"), "/");
        if (i >= N_MODULES || !str_starts_with(type, "sentence_transformers.") || !str_ends_with(type, modules[i]))
            return fail(E_FORMAT,
                        "%s: module %zu has the 'type' '%s'; expected Transformer, Pooling and perhaps Normalize of "
                        "sentence_transformers, in this order: " OR_ALONE,
                        file, i, type);
        if (*path && !manifest_name_valid(path))
            return fail(E_FORMAT,
                        "%s: module %zu has the 'path' '%s'; expected \"\" for this folder itself, or the name of a "
                        "folder in it, as 1_Pooling",
                        file, i, path);
        places[i] = *path ? file_join(folder, path) : mem_strdup(folder);
    }
    if (n > POOLING) return OK;
    return fail(E_FORMAT, "%s: has %zu modules; expected Transformer and Pooling: " OR_ALONE, file, n);
}

/* Its text for an export; NULL: a default. */
static char *kept(const Json *v)
{
    Buf text = {0};
    if (!is_empty(v)) js_put_indented(&text, v, 1, false);
    return text.data;
}

/* The model as a whole. */
static Status read_whole(const char *file, const Json *doc, Found *found)
{
    const Json *texts = js_get(doc, "prompts"), *name = js_get(doc, "default_prompt_name"),
               *similarity = js_get(doc, "similarity_fn_name");
    const char *chosen = js_string(name, NULL);
    if (!is_text(js_get(doc, "model_type"), "SentenceTransformer"))
        return refuse(file, "model_type", js_get(doc, "model_type"), "SentenceTransformer: " OR_ALONE);
    if (!is_empty(js_get(doc, "truncate_dim")))
        return refuse(file, "truncate_dim", js_get(doc, "truncate_dim"),
                      "null, since Cairn gives whole vectors: cut them yourself, and remove the key");
    if (!is_empty(texts) && js_kind(texts) != JSON_KIND_OBJECT)
        return refuse(file, "prompts", texts, "an object from names to texts");
    if (!is_empty(name) && (!chosen || !js_get(texts, chosen)))
        return refuse(file, "default_prompt_name", name, "null, or a name of 'prompts'");
    if (!is_empty(name) && !is_empty(js_get(texts, chosen)))
        return refuse(file, "default_prompt_name", name,
                      "null: put that prompt before each text yourself, and remove the key");
    if (!is_empty(similarity) && js_kind(similarity) != JSON_KIND_STRING)
        return refuse(file, "similarity_fn_name", similarity, "a text, as \"cosine\"");
    for (void *it = js_first(texts); it; it = js_next(texts, it)) found->prompts |= !is_empty(js_value(it));
    found->e->prompts = kept(texts);
    found->e->similarity = kept(similarity);
    return OK;
}

/* ---- the modules ---- */

/* The text's way through the model. Ways of images and the like do not change it. */
static bool is_plain(const Json *ways)
{
    const Json *text = js_get(ways, "text");
    return strcmp(js_string(js_get(text, "method"), ""), "forward") == 0 &&
           strcmp(js_string(js_get(text, "method_output_name"), ""), "last_hidden_state") == 0;
}

static Status read_transformer(const char *file, const Json *doc, Found *found)
{
    static const char any[] = EMBEDDING_LENGTH " do_lower_case unpad_inputs";
    const Json *lower = js_get(doc, "do_lower_case");
    for (void *it = js_first(doc); it; it = js_next(doc, it)) {
        const char *key = js_key(it);
        const Json *v = js_value(it);
        bool good = is_empty(v) || str_list_has(any, ' ', key, strlen(key)) ||
                    (strcmp(key, "transformer_task") == 0 && is_text(v, "feature-extraction")) ||
                    (strcmp(key, "module_output_name") == 0 && is_text(v, "token_embeddings")) ||
                    (strcmp(key, "modality_config") == 0 && is_plain(v));
        if (!good) return refuse(file, key, v, "the default of an encoder that reads texts: " OR_ALONE);
    }
    if (js_kind(lower) != JSON_KIND_NULL && js_kind(lower) != JSON_KIND_BOOL)
        return refuse(file, "do_lower_case", lower, "true or false");
    found->e->lower_case = js_bool(lower, false);
    return OK;
}

/* Older keys, true or false, and their words of 'pooling_mode'. */
static const struct {
    const char *key, *mode;
} modes[] = {{"pooling_mode_cls_token", "cls"},
             {"pooling_mode_mean_tokens", "mean"},
             {"pooling_mode_max_tokens", "max"},
             {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
             {"pooling_mode_weightedmean_tokens", "weightedmean"},
             {"pooling_mode_lasttoken", "lasttoken"}};
enum { N_MODES = sizeof modes / sizeof *modes };

static int find_mode(const char *key)
{
    int i = 0;
    while (i < N_MODES && strcmp(key, modes[i].key) != 0) i++;
    return i;
}

static Status read_pooling(const char *file, const Json *doc, Found *found)
{
    static const char known[] = "pooling_mode include_prompt word_embedding_dimension embedding_dimension";
    const Json *word = js_get(doc, "pooling_mode");
    const char *key = "pooling_mode", *mode = js_string(js_size(word) == 1 ? js_at(word, 0) : word, word ? "" : NULL);
    if (!doc) return fail(E_FORMAT, "%s: is missing; expected the 'pooling_mode'", file);
    for (void *it = js_first(doc); it; it = js_next(doc, it)) {
        int i = find_mode(js_key(it));
        if (i == N_MODES && !str_list_has(known, ' ', js_key(it), strlen(js_key(it))))
            return refuse(file, js_key(it), js_value(it), "no such key: " OR_ALONE);
        if (i < N_MODES && js_kind(js_value(it)) != JSON_KIND_BOOL)
            return refuse(file, js_key(it), js_value(it), "true or false");
        if (i == N_MODES || word || !js_bool(js_value(it), false)) continue;
        if (mode)
            return fail(E_FORMAT, "%s: '%s' and '%s' are both true; expected one of them: " OR_ALONE, file, key,
                        modes[i].key);
        key = modes[i].key;
        mode = modes[i].mode;
    }
    found->e->pooling = mode && strcmp(mode, "cls") == 0 ? POOLING_CLS : POOLING_MEAN; /* with none it is the mean */
    if (mode && found->e->pooling == POOLING_MEAN && strcmp(mode, "mean") != 0)
        return refuse(file, key, js_get(doc, key), "the mode mean or cls: " OR_ALONE);
    if (found->prompts && !js_bool(js_get(doc, "include_prompt"), true))
        return refuse(file, "include_prompt", js_get(doc, "include_prompt"),
                      "true, since there are prompts: " OR_ALONE);
    return OK;
}

static Status read_normalize(const char *file, const Json *doc, Found *found)
{
    static const char *const keys[] = {"module_input_name", "module_output_name"};
    for (int i = 0; i < 2; i++)
        if (!is_text(js_get(doc, keys[i]), "sentence_embedding"))
            return refuse(file, keys[i], js_get(doc, keys[i]), "sentence_embedding: " OR_ALONE);
    found->e->normalized = true;
    return OK;
}

static Status read_all(const char *path, const char *file, Embedding *e)
{
    Status status = OK;
    Json *doc = NULL;
    Found found = {.e = e};
    char *folder = file_directory(file), *places[N_MODULES] = {NULL};
    TRY_DONE(js_read(file, &doc));
    TRY_DONE(read_modules(file, folder, doc, places));
    TRY_DONE(read_part(file_join(folder, EMBEDDING_MODEL), read_whole, &found));
    TRY_DONE(read_part(import_find_transformer(places[TRANSFORMER]), read_transformer, &found));
    TRY_DONE(read_part(file_join(places[POOLING], "config.json"), read_pooling, &found));
    if (places[NORMALIZE]) TRY_DONE(read_part(file_join(places[NORMALIZE], "config.json"), read_normalize, &found));
    e->model = mem_strdup(strcmp(places[TRANSFORMER], folder) == 0 ? path : places[TRANSFORMER]);
done:
    js_free(doc);
    MEM_FREE(folder, places[TRANSFORMER], places[POOLING], places[NORMALIZE]);
    return status;
}

Status import_embedding(const char *path, Embedding *e)
{
    char *file = file_find_beside(path, EMBEDDING_MODULES);
    *e = (Embedding){.said = file != NULL, .model = file ? NULL : mem_strdup(path)};
    Status status = file ? read_all(path, file, e) : OK;
    if (status != OK) import_embedding_free(e);
    free(file);
    return status;
}

void import_embedding_free(Embedding *e)
{
    MEM_FREE(e->model, e->prompts, e->similarity);
    *e = (Embedding){0};
}

Status import_check_folder(const char *path)
{
    Embedding e;
    Status status = OK;
    if (import_embedding(path, &e) == OK && strcmp(e.model, path) != 0)
        status = fail(E_USAGE, "--model %s: its " EMBEDDING_MODULES " has the BERT in a folder of it; give --model %s",
                      path, e.model);
    import_embedding_free(&e);
    return status;
}

void import_embedding_case(const Embedding *e, TokenizerOptions *o)
{
    if (!e->lower_case || o->lower_case) return;
    o->lower_case = true;
    if (o->strip_accents < 0) o->strip_accents = 0;
}
