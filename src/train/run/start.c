#include "train/run/start.h"

#include "state/models/import.h"
#include "train/keep/resume.h"
#include "train/planner/planner.h"
#include "train/ranks/signals.h"

/* ---- text ---- */

/* The text options in the manifest.json of `cairn shards`. */
typedef struct {
    bool there, lower_case;
    bool python;       /* made by the Python tokenizer, as all shards whose manifest names no tokenizer */
    int strip_accents; /* as in TokenizerOptions */
    char vocab[33];    /* the vocabulary's digest */
    int64_t max_length;
} ShardsText;

static Status read_manifest(const char *folder, ShardsText *s)
{
    Json *doc = NULL;
    Status status = OK;
    char *path = file_join(folder, "manifest.json");
    *s = (ShardsText){0};
    if (file_exists(path)) TRY_DONE(js_read(path, &doc));
    s->there = js_int(js_get(doc, "cairn_shards"), 0) > 0;
    const char *strip = js_string(js_get(doc, "strip_accents"), "auto");
    s->lower_case = strcmp(js_string(js_get(doc, "do_lower_case"), "auto"), "no") != 0;
    s->strip_accents = strcmp(strip, "auto") == 0 ? -1 : strcmp(strip, "yes") == 0;
    s->python = s->there && strcmp(js_string(js_get(doc, "tokenizer"), "python"), "python") == 0;
    snprintf(s->vocab, sizeof s->vocab, "%s", js_string(js_get(doc, "vocab_xxh3_128"), ""));
    s->max_length = js_int(js_get(doc, "max_seq_length"), 0);
done:
    js_free(doc);
    free(path);
    return status;
}

Status start_shards_length(const char *folder, int64_t *length)
{
    ShardsText s;
    TRY(read_manifest(folder, &s));
    if (s.there && s.max_length >= 3) *length = s.max_length;
    return OK;
}

static bool strips(bool lower_case, int strip_accents) { return strip_accents < 0 ? lower_case : strip_accents != 0; }

/* What the manifest does not say, the tokenizer's files beside newer shards do. */
static Status check_files(const TokenizerFiles *t, const char *folder)
{
    TokenizerFiles s = {0};
    Status status = OK;
    if (!tokenizer_files_say(folder)) return OK;
    TRY_DONE(tokenizer_files_read(NULL, folder, signals_stop(), &s));
    const TokenizerOptions *x = &s.options, *y = &t->options;
    const char *key = x->split_chinese != y->split_chinese   ? "tokenize_chinese_chars"
                      : x->split_special != y->split_special ? "split_special_tokens"
                      : x->clean_text != y->clean_text       ? "clean_text"
                      : x->split_words != y->split_words     ? "do_basic_tokenize"
                                                             : NULL;
    if (key)
        status = fail(E_USAGE,
                      "%s: its text was made with another '%s' than the model's files say. Training and use of the "
                      "model would then differ: make the shards again",
                      folder, key);
done:
    tokenizer_files_free(&s);
    return status;
}

Status start_check_shards(const TokenizerFiles *t, const char *folder)
{
    ShardsText s;
    const TokenizerOptions *o = &t->options;
    TRY(read_manifest(folder, &s));
    if (!s.there) return OK;
    if (*s.vocab && strcmp(s.vocab, DIGEST_TEXT(vocab_digest(t->vocab))) != 0)
        return fail(E_USAGE,
                    "%s: according to its manifest.json, its shards use another vocabulary than %s; give their "
                    "vocabulary as --vocab",
                    folder, t->path);
    bool shards_strip = strips(s.lower_case, s.strip_accents), strip = strips(o->lower_case, o->strip_accents);
    if (s.lower_case == o->lower_case && shards_strip == strip) return check_files(t, folder);
    return fail(E_USAGE,
                "%s: its manifest.json says that its text was made with --do-lower-case %s --strip-accents %s; the "
                "flags or the model's tokenizer_config.json say %s and %s. Training and use of the model would then "
                "differ: give flags that agree, or make the shards again",
                folder, s.lower_case ? "yes" : "no", shards_strip ? "yes" : "no", o->lower_case ? "yes" : "no",
                strip ? "yes" : "no");
}

/* Whose files say how text is read: the model's, else the shards'; a vocabulary alone says less. NULL: nobody's. */
static const char *choose_place(const Config *c, const char *folder)
{
    const char *places[] = {*c->model ? c->model : NULL, folder && file_is_directory(folder) ? folder : NULL};
    for (int i = 0; i < 2; i++)
        if (places[i] && tokenizer_files_say(places[i])) return places[i];
    for (int i = 0; i < 2; i++) {
        char *found = places[i] ? tokenizer_files_find(places[i]) : NULL;
        bool has_pieces = found != NULL;
        free(found);
        if (has_pieces) return places[i];
    }
    return NULL;
}

/* What the files leave open, the manifest of the shards says. */
static Status adopt_manifest(const char *folder, TokenizerFiles *t)
{
    ShardsText s;
    TRY(read_manifest(folder, &s));
    if (!s.there) return OK;
    if (!t->says_case) t->options.lower_case = s.lower_case;
    if (!t->says_accents) t->options.strip_accents = s.strip_accents;
    t->says_case = t->says_accents = true;
    if (s.python) t->options.kind = TOKENIZER_PYTHON;
    if (!s.python && t->options.kind == TOKENIZER_PYTHON)
        log_warn(
            "%s: its shards were made with the fast tokenizer, and the model's files ask for the Python one; a few "
            "texts have other pieces there",
            folder);
    return OK;
}

static bool is_python(const char *checkpoint)
{
    return file_exists_in(checkpoint, "tokenizer_config.json") && !file_exists_in(checkpoint, "tokenizer.json");
}

bool start_resumes_python(const char *dir, const char *resume)
{
    FileList list = {0};
    bool found = false;
    if (strcmp(resume, "never") == 0) return false;
    if (strcmp(resume, "auto") != 0) return is_python(resume);
    if (file_list(dir, &list) != OK) return false;
    for (int i = 0; i < list.count && !found; i++)
        found = str_starts_with(file_basename(list.paths[i]), "checkpoint-") && is_python(list.paths[i]);
    file_list_free(&list);
    return found;
}

Status start_text(const Config *c, const char *folder, TokenizerFiles *t)
{
    const char *vocab = *c->vocab ? c->vocab : NULL, *place = choose_place(c, folder);
    bool python = t->options.kind == TOKENIZER_PYTHON;
    *t = (TokenizerFiles){0};
    if (!vocab && !place && *c->model)
        return fail(E_USAGE,
                    "--model %s has no vocab.txt and no tokenizer.json beside it; give the folder of a model, or "
                    "--vocab FILE",
                    c->model);
    if (!vocab && !place && folder && !file_is_directory(folder))
        return fail(E_USAGE, "%s: there is no such folder; expected shards, as `cairn shards` makes them", folder);
    if (!vocab && !place && folder)
        return fail(E_USAGE, "no vocabulary: %s holds no vocab.txt; give --vocab FILE", folder);
    if (!vocab && !place) return fail(E_USAGE, "no vocabulary: give --model DIR, which has one, or --vocab FILE");
    TRY(tokenizer_files_read(vocab, place, signals_stop(), t));
    if (python) t->options.kind = TOKENIZER_PYTHON;
    if (folder) TRY(adopt_manifest(folder, t));
    tokenizer_files_choose(t, c->do_lower_case, c->strip_accents);
    return folder ? start_check_shards(t, folder) : OK;
}

/* ---- the model ---- */

/* The model must have one embedding per piece; some trainers pad the number to a multiple of 8 or 64. */
static Status check_vocabulary(const char *vocab_path, int pieces, int rows, const char *config_path)
{
    if (pieces == rows) return OK;
    if (rows != (pieces + 7) / 8 * 8 && rows != (pieces + 63) / 64 * 64)
        return fail(
            E_USAGE,
            "%s has %d pieces, but 'vocab_size' in %s is %d: expected the same. Give the model's own vocabulary "
            "as --vocab",
            vocab_path, pieces, config_path, rows);
    log_warn("%s has %d pieces, %s has embeddings for %d: the rest counts as padding", vocab_path, pieces, config_path,
             rows);
    return OK;
}

Status start_model(const Config *c, const TokenizerFiles *t, Head head, int64_t max_length, Model *m, char **path)
{
    return start_model_sized(c, t->path, vocab_size(t->vocab), head, max_length, m, path);
}

Status start_model_sized(const Config *c, const char *vocab_path, int pieces, Head head, int64_t max_length, Model *m,
                         char **path_out)
{
    ModelConfig config;
    Policy policy;
    char *path = *c->model_config ? mem_strdup(c->model_config) : *c->model ? import_find_config(c->model) : NULL;
    if (!path)
        return fail(E_USAGE,
                    *c->model ? "--model %s has no config.json or bert_config.json; give --model-config FILE"
                              : "no model%s: give --model DIR (weights), or --model-config FILE for random weights",
                    c->model);
    Status status = OK;
    if (file_exists(path) || !model_config_named(path, pieces, &config)) TRY_DONE(model_config_read(path, &config));
    model_config_set_dropout(&config, (float)c->dropout);
    TRY_DONE(model_init(m, config, head));
    if (max_length > m->config.positions)
        TRY_DONE(fail(E_USAGE,
                      "--max-seq-length %lld is more than the %d positions ('max_position_embeddings') of %s; give at "
                      "most these",
                      (long long)max_length, m->config.positions, path));
    m->longest = (int32_t)max_length;
    TRY_DONE(check_vocabulary(vocab_path, pieces, m->config.vocab_size, path));
    TRY_DONE(planner_policy(c, NULL, m->config.layers, &policy)); /* before data is read or made */
done:
    if (path_out && status == OK)
        *path_out = path;
    else
        free(path);
    return status;
}

/* Whether the state is of a run that began with this model. */
static bool is_of_model(const Config *c, const Model *m, const Resume *resume)
{
    const char *origin = js_string(js_get(js_get(resume->state, "fingerprint"), "origin"), "");
    return strcmp(origin, DIGEST_TEXT(resume_origin(m, c->model))) == 0;
}

static Status find_forms(const Config *c, const Model *m, const Resume *resume, uint8_t *forms)
{
    int n = 2 * m->config.layers + 1;
    float *norms = NULL;
    if (resume_found(resume)) {
        const Json *saved = js_get(resume->state, "norm_forms");
        if (js_size(saved) != (size_t)n && is_of_model(c, m, resume))
            return fail(E_CORRUPT,
                        "%s: state.json: 'norm_forms' has %zu values; expected %d for %d layers: damaged or edited. "
                        "--resume FOLDER takes another checkpoint",
                        resume->name, js_size(saved), n, m->config.layers);
        if (js_size(saved) != (size_t)n)
            return fail(E_FORMAT, "%s: was saved from another model with %d layers; this one has %d", resume->name,
                        (int)js_size(saved) / 2, m->config.layers);
        for (int i = 0; i < n; i++) forms[i] = (uint8_t)js_int(js_at(saved, (size_t)i), 0);
        return OK;
    }
    if (!*c->model) return OK;
    TRY(import_check(c->model, m, NULL));
    Status status = import_check(c->model, m, &norms);
    if (status == OK) model_norm_forms(m, norms, forms);
    free(norms);
    return status;
}

Status start_norm_forms(const Config *c, const Model *m, const Resume *resume, Ranks *ranks, uint8_t **forms)
{
    size_t n = (size_t)(2 * m->config.layers + 1);
    *forms = mem_alloc(n); /* NORM_FORM_Y is 0 */
    TRY(ranks_all(ranks, ranks_first(ranks) ? find_forms(c, m, resume, *forms) : OK));
    return ranks_broadcast(ranks, *forms, n);
}
