/* A folder's tokenizer: which of its files says what, and where they differ. */
#include "text/tokenizer_files.h"

#include "text/characters.h"
#include "text/normalize.h"
#include "text/tokenizer_internal.h"

/* ---- the files ---- */

typedef struct {
    char *pieces, *json, *config, *special, *added, *model; /* paths; NULL: there is none */
    char *theirs;                /* the vocab.txt of these files, where --vocab names another one */
    bool other_pieces;           /* --vocab has other pieces than theirs, to which their tokens belong */
    Json *json_doc, *config_doc; /* NULL: there is none */
    TokenizerConfig said;
    TokenizerJson from_json;
    bool vocab_given;
} Source;

char *tokenizer_files_find(const char *path)
{
    char *found = file_find_beside(path, "tokenizer.json");
    return found ? found : file_find_beside(path, "vocab.txt");
}

bool tokenizer_files_say(const char *path)
{
    char *config = file_find_beside(path, "tokenizer_config.json"), *json = file_find_beside(path, "tokenizer.json");
    bool has = config || json;
    MEM_FREE(config, json);
    return has;
}

static bool is_json(const char *path) { return str_ends_with(path, ".json"); }

static void find_files(const char *vocab, const char *beside, Source *s)
{
    bool own = vocab && (is_json(vocab) || tokenizer_files_say(vocab) || !beside);
    const char *place = own ? vocab : beside;
    s->vocab_given = vocab != NULL;
    s->json = vocab && is_json(vocab) ? mem_strdup(vocab) : file_find_beside(place, "tokenizer.json");
    s->pieces = !vocab ? file_find_beside(place, "vocab.txt") : is_json(vocab) ? NULL : mem_strdup(vocab);
    s->theirs = vocab && !own ? file_find_beside(place, "vocab.txt") : NULL;
    s->config = file_find_beside(place, "tokenizer_config.json");
    s->special = file_find_beside(place, "special_tokens_map.json");
    s->added = file_find_beside(place, "added_tokens.json");
    s->model = file_find_beside(place, "config.json");
}

static void source_free(Source *s)
{
    MEM_FREE(s->theirs, s->pieces, s->json, s->config, s->special, s->added, s->model);
    js_free(s->json_doc);
    js_free(s->config_doc);
    tokenizer_config_free(&s->said);
    tokenizer_json_free(&s->from_json);
}

/* `path` NULL: *doc stays NULL. */
static Status read_object(const char *path, Json **doc)
{
    if (!path) return OK;
    TRY(js_read(path, doc));
    return js_kind(*doc) == JSON_KIND_OBJECT ? OK : fail(E_FORMAT, "%s: is an array; expected an object", path);
}

Status tokenizer_files_length(const char *path, int64_t *length)
{
    char *file = file_find_beside(path, "tokenizer_config.json");
    Json *doc = NULL;
    Status status = read_object(file, &doc);
    if (status == OK) status = tokenizer_length_read(file, doc, length);
    js_free(doc);
    free(file);
    return status;
}

static Status read_config(Source *s)
{
    Json *doc = NULL;
    Status status = OK;
    s->said = tokenizer_config_new();
    TRY_DONE(read_object(s->config, &s->config_doc));
    if (s->config) TRY_DONE(tokenizer_config_read(s->config, s->config_doc, s->vocab_given, &s->said));
    if (s->said.class == CLASS_UNSAID) TRY_DONE(read_object(s->model, &doc));
    TRY_DONE(tokenizer_class_read(s->model, js_get(doc, "tokenizer_class"), s->vocab_given, &s->said));
done:
    js_free(doc);
    return status;
}

static bool same_tokens(const Json *a, const Json *b)
{
    const char *x = tokenizer_token_text(a), *y = tokenizer_token_text(b);
    bool same = js_size(a) == js_size(b) || x || y;
    for (size_t i = 0; i < js_size(a) && js_kind(a) == JSON_KIND_ARRAY && same; i++)
        same = same_tokens(js_at(a, i), js_at(b, i));
    return same && strcmp(x ? x : "", y ? y : "") == 0;
}

/* Transformers takes one file's word on a key, and drops the other's tokens. */
static Status check_special(const Source *s, const Json *special)
{
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    for (void *it = js_first(special); it; it = js_next(special, it)) {
        const char *key = js_key(it);
        const Json *mine = js_get(s->config_doc, key);
        for (int i = 0; i < 2 && !mine; i++)
            if (strcmp(key, lists[i]) == 0) mine = js_get(s->config_doc, lists[1 - i]);
        if (js_kind(mine) != JSON_KIND_NULL && js_kind(js_value(it)) != JSON_KIND_NULL &&
            !same_tokens(mine, js_value(it)))
            return fail(E_FORMAT, "%s and %s differ in '%s'; make them agree", s->special, s->config, key);
    }
    return OK;
}

static bool is_python(const TokenizerConfig *c)
{
    return c->basic_tokenize == 0 || c->n_never_split > 0 || c->use_fast == 0;
}

/* The older places of tokens, which Transformers reads where tokenizer_config.json has no added_tokens_decoder. */
static Status read_older(Source *s, TokenList *added)
{
    Json *special = NULL, *doc = NULL;
    TokenList *known = &s->said.special, list = {0};
    Status status = OK;
    TRY_DONE(read_object(s->special, &special));
    TRY_DONE(check_special(s, special));
    TRY_DONE(tokenizer_special_map_read(s->special, special, known, is_python(&s->said) ? known : &list));
    TRY_DONE(read_object(s->added, &doc));
    /* In Transformers 5 the map's additional_special_tokens make no token of added_tokens.json special. */
    TRY_DONE(tokenizer_added_read(s->added, doc, known, added));
    for (int i = 0; i < list.n; i++)
        if (!token_list_find(known, list.tokens[i].text)) token_list_add(known, &list.tokens[i]);
done:
    token_list_free(&list);
    js_free(special);
    js_free(doc);
    return status;
}

/* ---- what they say together ---- */

/* tokenizer_config.json's word, else tokenizer.json's; of a general class the other way round. `usual` is what
   Transformers takes where the first says nothing. */
static int choose(const Source *s, const char *key, int config, const char *json_key, int json, int usual)
{
    bool general = s->said.class == CLASS_GENERAL;
    if (config == UNSAID || json == UNSAID) {
        if (config == UNSAID && json != UNSAID && json != usual && !general)
            log_warn(
                "%s: '%s' counts here, since tokenizer_config.json is silent; Transformers' BertTokenizer would take "
                "its own default",
                s->json, json_key);
        return config != UNSAID ? config : json;
    }
    if (config != json)
        log_warn("%s ('%s') and %s ('%s') differ: the %s counts, as in Transformers 5", s->config, key, s->json,
                 json_key, general ? "second" : "first");
    return general ? json : config;
}

static int stripping(int strip, int lower) { return strip == -1 ? lower : strip; }

static void choose_options(const Source *s, TokenizerFiles *f)
{
    const TokenizerConfig *c = &s->said;
    const TokenizerWords *w = &s->from_json.words, unsaid = {UNSAID, UNSAID, UNSAID, UNSAID};
    if (!s->json) w = &unsaid;
    int lower = choose(s, "do_lower_case", c->words.lower_case, "lowercase", w->lower_case, 1);
    int chinese =
        choose(s, "tokenize_chinese_chars", c->words.split_chinese, "handle_chinese_chars", w->split_chinese, 1);
    int config_strip = c->words.strip_accents, json_strip = w->strip_accents, known = lower == UNSAID ? 1 : lower;
    if (config_strip != UNSAID && json_strip != UNSAID &&
        stripping(config_strip, known) == stripping(json_strip, known))
        json_strip = config_strip; /* null and a value may mean the same */
    bool usual = json_strip == UNSAID || stripping(json_strip, known) == known;
    int strip = choose(s, "strip_accents", config_strip, "strip_accents", json_strip, usual ? json_strip : -1);
    bool python = is_python(c);
    f->says_case = lower != UNSAID;
    f->says_accents = strip != UNSAID;
    f->options = tokenizer_options(lower != 0);
    if (strip != UNSAID) f->options.strip_accents = strip;
    f->options.kind = python ? TOKENIZER_PYTHON : TOKENIZER_FAST;
    f->options.split_chinese = chinese != 0;
    f->options.split_special = c->split_special == 1;
    f->options.split_words = c->basic_tokenize != 0;
    f->options.clean_text = python || choose(s, "clean_text", UNSAID, "clean_text", w->clean_text, 1) != 0;
    f->options.one_type = c->one_type > 0;
    if (c->one_type == ONE_TYPE_BY_CLASS)
        log_info("%s: by its class and without 'model_input_names', both texts of a pair have the token type 0, as in "
                 "Transformers 5",
                 s->config ? s->config : s->model);
}

static bool is_special_piece(const char *text)
{
    bool is = false;
    for (int i = 0; i < N_SPECIAL; i++) is |= strcmp(special_tokens[i].text, text) == 0;
    return is;
}

/* Adds tokens of another file. One of another id, or one that a complete first file lacks, is an error; but every
   tokenizer has the special pieces. */
static Status merge_tokens(const char *file, const TokenList *more, const char *first, bool complete, TokenList *all)
{
    for (int i = 0; i < more->n; i++) {
        const AddedToken *t = &more->tokens[i], *there = token_list_find(all, t->text);
        if (there && there->id != t->id)
            return fail(E_FORMAT, "the added token '%s' has id %d in %s and %d in %s; make them agree", t->text,
                        (int)there->id, first, (int)t->id, file);
        if (there || (complete && is_special_piece(t->text))) continue;
        if (complete)
            return fail(
                E_FORMAT,
                "%s has the added token '%s', and 'added_tokens_decoder' in %s, which alone Transformers reads, "
                "lacks it; make them agree",
                file, t->text, first);
        token_list_add(all, t);
    }
    return OK;
}

/* *first: the file whose word on a token counts. */
static Status gather_tokens(Source *s, const char **first, TokenList *all)
{
    TokenizerConfig *c = &s->said;
    TokenList older = {0};
    Status status = OK;
    bool complete = c->lists_added && c->class != CLASS_GENERAL;
    bool json_first = s->json && !complete;
    *first = json_first ? s->json : c->lists_added ? s->config : s->added ? s->added : s->config;
    TRY_DONE(c->lists_added ? OK : read_older(s, &older));
    if (json_first) TRY_DONE(merge_tokens(s->json, &s->from_json.added, s->json, false, all));
    if (c->lists_added) TRY_DONE(merge_tokens(s->config, &c->added, *first, false, all));
    if (s->json && !json_first) TRY_DONE(merge_tokens(s->json, &s->from_json.added, *first, complete, all));
    TRY_DONE(merge_tokens(s->added, &older, *first, false, all));
done:
    token_list_free(&older);
    return status;
}

/* A token with a role but no id is its piece, or the next one beyond all. */
static Status set_tokens(Source *s, Vocab *vocab)
{
    TokenList all = {0};
    const char *first;
    Status status = OK;
    TRY_DONE(gather_tokens(s, &first, &all));
    int32_t next = vocab_pieces(vocab);
    for (int i = 0; i < all.n; i++)
        if (all.tokens[i].id >= next) next = all.tokens[i].id + 1;
    for (int i = 0; i < s->said.special.n; i++) {
        AddedToken t = s->said.special.tokens[i];
        if (token_list_find(&all, t.text)) continue;
        t.id = vocab_find(vocab, t.text, strlen(t.text));
        if (t.id < 0) t.id = next++;
        token_list_add(&all, &t);
    }
    for (int i = 0; i < N_SPECIAL && s->json && s->said.class == CLASS_GENERAL; i++)
        if (!token_list_find(&all, special_tokens[i].text))
            log_warn(
                "%s: 'added_tokens' lacks %s: where a text has it, Cairn takes that piece, and Transformers cuts it; "
                "add it there",
                s->json, special_tokens[i].text);
    if (all.n) TRY_DONE(status_context(vocab_set_added(vocab, all.tokens, all.n), "%s", first ? first : s->special));
    if (s->said.n_never_split)
        TRY_DONE(vocab_set_never_split(vocab, (const char *const *)s->said.never_split, s->said.n_never_split));
done:
    token_list_free(&all);
    return status;
}

/* ---- the pieces ---- */

/* vocab.txt beside tokenizer.json should have the same pieces; the Python tokenizer reads it, the fast one does not. */
static Status read_pieces(Source *s, const volatile sig_atomic_t *stop, TokenizerFiles *f)
{
    Vocab *lines = NULL, *other = NULL;
    const Buf *json = &s->from_json.pieces;
    bool use_lines = s->pieces && (!s->json || s->vocab_given || f->options.kind == TOKENIZER_PYTHON);
    Status status = OK;
    if (s->pieces) TRY_DONE(vocab_read(s->pieces, stop, &lines));
    if (s->json)
        TRY_DONE(vocab_parse(s->json, json->data ? json->data : "", json->len, stop, &other));
    else if (s->theirs)
        TRY_DONE(vocab_read(s->theirs, stop, &other));
    f->path = mem_strdup(use_lines ? s->pieces : s->json);
    f->vocab = use_lines ? lines : other;
    if (lines && other && !digest_equal(vocab_digest(lines), vocab_digest(other))) {
        s->other_pieces = s->theirs != NULL || (s->vocab_given && use_lines);
        log_warn("%s and %s have other pieces: %s counts%s", s->pieces, s->json ? s->json : s->theirs, f->path,
                 s->other_pieces ? ", as --vocab says, without the added tokens of the other" : ", as in Transformers");
    }
    if (use_lines)
        lines = NULL;
    else
        other = NULL;
done:
    vocab_free(lines);
    vocab_free(other);
    return status;
}

/* ---- case ---- */

/* Special pieces are in capitals everywhere: [PAD], [unused1], <S>. */
static bool is_marker(const char *piece, size_t len)
{
    return (piece[0] == '[' && piece[len - 1] == ']') || (piece[0] == '<' && piece[len - 1] == '>');
}

/* Whether lower-casing would keep some pieces from every text. */
static bool has_capitals(const Vocab *vocab)
{
    Buf lower = {0};
    bool found = false;
    int n;
    const AddedToken *added = vocab_added(vocab, &n);
    for (int32_t i = 0; i < vocab_pieces(vocab) && !found; i++) {
        const char *piece = vocab_piece(vocab, i);
        size_t len = strlen(piece);
        lower.len = 0;
        characters_lower(piece, len, &lower);
        found = !is_marker(piece, len) && (lower.len != len || memcmp(lower.data, piece, len) != 0);
        for (int k = 0; k < n && found; k++) found = added[k].id != i;
    }
    buf_free(&lower);
    return found;
}

/* ---- together ---- */

/* A tokenizer.json of another tokenizer does not count beside a vocab.txt that --vocab names. */
static Status read_json(Source *s)
{
    if (!s->json) return OK;
    TRY(js_read(s->json, &s->json_doc));
    Status status = tokenizer_json_read(s->json, s->json_doc, s->said.class == CLASS_GENERAL, &s->from_json);
    if (status == OK || !s->vocab_given || !s->pieces) return status;
    log_warn("%s", status_message());
    log_warn("--vocab is given, so BERT's own tokenizer is used");
    tokenizer_json_free(&s->from_json);
    free(s->json);
    s->json = NULL;
    return OK;
}

static Status read_source(Source *s, const volatile sig_atomic_t *stop, TokenizerFiles *f)
{
    TRY(read_config(s));
    TRY(read_json(s));
    choose_options(s, f);
    TRY(read_pieces(s, stop, f));
    TRY(s->other_pieces ? OK : set_tokens(s, f->vocab));
    if (!f->says_case) f->options.lower_case = !has_capitals(f->vocab);
    return OK;
}

Status tokenizer_files_read(const char *vocab, const char *beside, const volatile sig_atomic_t *stop,
                            TokenizerFiles *files)
{
    Source s = {0};
    *files = (TokenizerFiles){0};
    if (!vocab && !beside) return fail(E_USAGE, "no vocabulary: give --vocab FILE");
    find_files(vocab, beside, &s);
    Status status = s.pieces || s.json ? read_source(&s, stop, files)
                                       : fail(E_USAGE, "%s has no vocab.txt and no tokenizer.json beside it", beside);
    source_free(&s);
    if (status != OK) tokenizer_files_free(files);
    return status;
}

void tokenizer_files_free(TokenizerFiles *files)
{
    free(files->path);
    vocab_free(files->vocab);
    *files = (TokenizerFiles){0};
}

void tokenizer_files_choose(TokenizerFiles *files, const char *do_lower_case, const char *strip_accents)
{
    TokenizerOptions *o = &files->options;
    if (strcmp(do_lower_case, "auto") != 0)
        o->lower_case = strcmp(do_lower_case, "yes") == 0;
    else if (!files->says_case && !o->lower_case)
        log_info("%s has pieces with capital letters, and no file says whether to lower-case: text keeps its case. "
                 "--do-lower-case yes lower-cases it",
                 files->path);
    if (strcmp(strip_accents, "auto") != 0) o->strip_accents = strcmp(strip_accents, "yes") == 0;
}
