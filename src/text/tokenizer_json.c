/* tokenizer.json, the file of Hugging Face's tokenizers library. */

#include "text/normalize.h"
#include "text/tokenizer_internal.h"
#include "text/vocab.h"

/* ---- values ---- */

void token_list_add(TokenList *list, const AddedToken *token)
{
    MEM_PUSH(list->tokens, list->n, list->cap, *token);
    list->tokens[list->n - 1].text = mem_strdup(token->text);
}

const AddedToken *token_list_find(const TokenList *list, const char *text)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->tokens[i].text, text) == 0) return &list->tokens[i];
    return NULL;
}

void token_list_free(TokenList *list)
{
    for (int i = 0; i < list->n; i++) free(list->tokens[i].text);
    free(list->tokens);
    *list = (TokenList){0};
}

/* What a message calls a value: itself, or its kind. */
static void describe(Buf *out, const Json *value)
{
    if (!value)
        buf_puts(out, "missing");
    else if (!js_put_scalar(out, value))
        buf_puts(out, js_kind(value) == JSON_KIND_ARRAY ? "an array" : "an object");
}

Status tokenizer_refuse(const char *file, const char *key, const Json *value, const char *expected)
{
    Buf found = {0};
    describe(&found, value);
    Status status = fail(E_FORMAT, "%s: '%s' is %s; expected %s", file, key, found.data, expected);
    buf_free(&found);
    return status;
}

Status tokenizer_bool(const char *file, const char *context, const Json *object, const char *key, int *value)
{
    const Json *v = js_get(object, key);
    if (!v) return OK;
    if (js_kind(v) == JSON_KIND_BOOL) {
        *value = js_bool(v, false);
        return OK;
    }
    char *name = mem_printf("%s%s", context, key);
    Status status = tokenizer_refuse(file, name, v, "true or false");
    free(name);
    return status;
}

Status tokenizer_bool_or_null(const char *file, const char *context, const Json *object, const char *key, int *value)
{
    const Json *v = js_get(object, key);
    if (v && js_kind(v) == JSON_KIND_NULL) {
        *value = -1;
        return OK;
    }
    return tokenizer_bool(file, context, object, key, value);
}

const char *tokenizer_token_text(const Json *value)
{
    return js_string(js_kind(value) == JSON_KIND_OBJECT ? js_get(value, "content") : value, NULL);
}

Status tokenizer_token(const char *file, const char *key, const Json *value, bool special, AddedToken *token)
{
    const char *text = tokenizer_token_text(value);
    *token = (AddedToken){.id = -1};
    if (!text || !*text) return tokenizer_refuse(file, key, value, "a token: a text, or an object with its 'content'");
    int flags[] = {special, UNSAID, 0, 0, 0};
    static const char *const names[] = {"special", "normalized", "single_word", "lstrip", "rstrip"};
    char *context = mem_printf("%s.", key);
    Status status = OK;
    for (int i = 0; i < 5 && status == OK; i++) status = tokenizer_bool(file, context, value, names[i], &flags[i]);
    free(context);
    token->text = (char *)(uintptr_t)text;
    token->special = flags[0] > 0;
    token->normalized = flags[1] == UNSAID ? !token->special : flags[1] > 0;
    token->single_word = flags[2] > 0;
    token->lstrip = flags[3] > 0;
    token->rstrip = flags[4] > 0;
    return status;
}

/* ---- the pieces ---- */

static Status check_piece(const char *name, const char *piece)
{
    if (!*piece) return fail(E_FORMAT, "%s: 'model.vocab' has an empty piece; expected a text", name);
    if (strlen(piece) > PIECE_MAX)
        return fail(E_FORMAT, "%s: 'model.vocab': a piece has %zu bytes; expected at most %d", name, strlen(piece),
                    PIECE_MAX);
    if (strpbrk(piece, "\r\n"))
        return fail(E_FORMAT, "%s: 'model.vocab': a piece has a line end in it, which no text gives; remove it", name);
    return OK;
}

static Status read_pieces(const char *name, const Json *vocab, Buf *out)
{
    size_t n = js_size(vocab);
    Status status = OK;
    if (js_kind(vocab) != JSON_KIND_OBJECT)
        return tokenizer_refuse(name, "model.vocab", vocab, "an object of pieces and their ids");
    const char **pieces = mem_array(n + 1, sizeof *pieces);
    for (void *it = js_first(vocab); it; it = js_next(vocab, it)) {
        const char *piece = js_key(it);
        int64_t id = js_int(js_value(it), -1);
        if (id < 0 || (uint64_t)id >= n || pieces[id])
            TRY_DONE(fail(E_FORMAT,
                          "%s: 'model.vocab' has %zu pieces, and '%s' has the id %lld; expected the ids 0 to %zu, each "
                          "once",
                          name, n, piece, (long long)id, n - 1));
        TRY_DONE(check_piece(name, piece));
        pieces[id] = piece;
    }
    for (size_t i = 0; i < n; i++) buf_printf(out, "%s\n", pieces[i]);
done:
    free(pieces);
    return status;
}

/* Some files of old versions do not name the model's type. */
static Status check_model_type(const char *name, const Json *model)
{
    const Json *type = js_get(model, "type"), *longest = js_get(model, "max_input_chars_per_word");
    if (!type && (js_get(model, "merges") || !longest))
        return fail(E_FORMAT, "%s: 'model' has no type; expected WordPiece, which BERT's tokenizer is", name);
    if (type && strcmp(js_string(type, ""), "WordPiece") != 0)
        return tokenizer_refuse(name, "model.type", type, "\"WordPiece\": only BERT's tokenizer can be used");
    const Json *unknown = js_get(model, "unk_token"), *prefix = js_get(model, "continuing_subword_prefix");
    if (unknown && strcmp(js_string(unknown, ""), "[UNK]") != 0)
        return tokenizer_refuse(name, "model.unk_token", unknown, "\"[UNK]\"; give the piece that name in the files");
    if (prefix && strcmp(js_string(prefix, ""), "##") != 0)
        return tokenizer_refuse(name, "model.continuing_subword_prefix", prefix, "\"##\", as all BERTs have it");
    if (longest && js_int(longest, -1) != WORD_MAX)
        return tokenizer_refuse(name, "model.max_input_chars_per_word", longest, "100, as all BERTs have it");
    return OK;
}

/* ---- the components ---- */

/* The component itself, or the only one of a Sequence. */
static const Json *only(const Json *component, const char *list)
{
    const Json *parts = js_get(component, list);
    bool one = strcmp(js_string(js_get(component, "type"), ""), "Sequence") == 0 && js_size(parts) == 1;
    return one ? js_at(parts, 0) : component;
}

static bool is_null(const Json *v) { return js_kind(v) == JSON_KIND_NULL; }

static Status refuse_component(const char *name, const char *component, const Json *value, const char *expected)
{
    Buf types = {0};
    const Json *type = js_get(value, "type");
    if (type) describe(&types, type);
    for (void *it = js_first(value); it; it = js_next(value, it)) { /* of a Sequence: the types of its parts */
        for (size_t i = 0; i < js_size(js_value(it)) && js_kind(js_value(it)) == JSON_KIND_ARRAY; i++) {
            const Json *part = js_get(js_at(js_value(it), i), "type");
            if (!part) continue;
            buf_puts(&types, i ? ", " : " of ");
            describe(&types, part);
        }
    }
    Status status = fail(E_FORMAT,
                         "%s: '%s' is %s; expected %s. Cairn has BERT's tokenizer alone: split the text with your own "
                         "first (a blank between two pieces), and give its pieces as --vocab FILE, a vocab.txt",
                         name, component,
                         is_null(value) ? "null"
                         : types.data   ? types.data
                                        : "of no type",
                         expected);
    buf_free(&types);
    return status;
}

static Status read_normalizer(const char *name, const Json *value, bool general, TokenizerWords *w)
{
    const Json *n = only(value, "normalizers");
    if (is_null(n)) {
        int said = general ? 0 : UNSAID;
        *w = (TokenizerWords){said, said, said, said};
        return OK;
    }
    if (strcmp(js_string(js_get(n, "type"), ""), "BertNormalizer") != 0)
        return refuse_component(name, "normalizer", value, "BertNormalizer");
    *w = (TokenizerWords){1, -1, 1, 1};
    TRY(tokenizer_bool(name, "normalizer.", n, "lowercase", &w->lower_case));
    TRY(tokenizer_bool_or_null(name, "normalizer.", n, "strip_accents", &w->strip_accents));
    TRY(tokenizer_bool(name, "normalizer.", n, "handle_chinese_chars", &w->split_chinese));
    return tokenizer_bool(name, "normalizer.", n, "clean_text", &w->clean_text);
}

static Status check_splitting(const char *name, const Json *doc, bool general)
{
    const Json *value = js_get(doc, "pre_tokenizer");
    bool given = general || !is_null(value);
    if (given && strcmp(js_string(js_get(only(value, "pretokenizers"), "type"), ""), "BertPreTokenizer") != 0)
        return refuse_component(name, "pre_tokenizer", value, "BertPreTokenizer");
    const Json *cut = js_get(js_get(doc, "truncation"), "direction");
    if (cut && strcmp(js_string(cut, ""), "Right") != 0)
        return tokenizer_refuse(name, "truncation.direction", cut,
                                "\"Right\": Cairn cuts texts at their end; cut them yourself, and remove the key");
    return OK;
}

typedef struct {
    const char *kind, *id;
    int type;
} TemplatePart;

static bool is_template(const Json *parts, const TemplatePart *expected, size_t n)
{
    if (js_size(parts) != n) return false;
    for (size_t i = 0; i < n; i++) {
        const Json *part = js_get(js_at(parts, i), expected[i].kind);
        if (strcmp(js_string(js_get(part, "id"), ""), expected[i].id) != 0) return false;
        if (js_int(js_get(part, "type_id"), -1) != expected[i].type) return false;
    }
    return true;
}

static bool has_ids(const Json *post, const Json *vocab, const char *piece)
{
    const Json *ids = js_get(js_get(js_get(post, "special_tokens"), piece), "ids");
    return js_size(ids) == 1 && js_int(js_at(ids, 0), -1) == js_int(js_get(vocab, piece), -2);
}

static bool is_pair(const Json *pair, const Json *vocab, const char *piece)
{
    return strcmp(js_string(js_at(pair, 0), ""), piece) == 0 &&
           js_int(js_at(pair, 1), -1) == js_int(js_get(vocab, piece), -2);
}

/* [CLS] a [SEP] with type 0, b [SEP] with type 1. */
static Status check_frame(const char *name, const Json *doc, bool general)
{
    static const TemplatePart parts[] = {{"SpecialToken", "[CLS]", 0},
                                         {"Sequence", "A", 0},
                                         {"SpecialToken", "[SEP]", 0},
                                         {"Sequence", "B", 1},
                                         {"SpecialToken", "[SEP]", 1}};
    const Json *value = js_get(doc, "post_processor"), *post = only(value, "processors");
    const Json *vocab = js_get(js_get(doc, "model"), "vocab");
    const char *type = js_string(js_get(post, "type"), "");
    bool good = !general && is_null(post);
    if (strcmp(type, "TemplateProcessing") == 0)
        good = is_template(js_get(post, "single"), parts, 3) && is_template(js_get(post, "pair"), parts, 5) &&
               has_ids(post, vocab, "[CLS]") && has_ids(post, vocab, "[SEP]");
    if (strcmp(type, "BertProcessing") == 0)
        good = is_pair(js_get(post, "cls"), vocab, "[CLS]") && is_pair(js_get(post, "sep"), vocab, "[SEP]");
    if (good) return OK;
    return refuse_component(name, "post_processor", value, "BERT's own, [CLS] A [SEP] and [CLS] A [SEP] B [SEP]");
}

static Status read_added(const char *name, const Json *list, bool general, TokenList *added)
{
    if (!is_null(list) && js_kind(list) != JSON_KIND_ARRAY)
        return tokenizer_refuse(name, "added_tokens", list, "an array of tokens");
    for (size_t i = 0; i < js_size(list); i++) {
        AddedToken token;
        const Json *id = js_get(js_at(list, i), "id");
        TRY(tokenizer_token(name, "added_tokens", js_at(list, i), false, &token));
        int64_t number = js_int(id, -1);
        if (number < 0 || number > INT32_MAX) return tokenizer_refuse(name, "added_tokens.id", id, "a token's id");
        token.id = (int32_t)number;
        if (general && i && token.id < added->tokens[i - 1].id)
            return fail(E_FORMAT,
                        "%s: 'added_tokens': '%s' has the id %d and is listed after a higher one, and Transformers "
                        "gives ids by the order; list the tokens by their ids",
                        name, token.text, (int)token.id);
        token_list_add(added, &token);
    }
    return OK;
}

Status tokenizer_json_read(const char *name, const Json *doc, bool general, TokenizerJson *out)
{
    const Json *model = js_get(doc, "model");
    *out = (TokenizerJson){0};
    if (js_kind(model) != JSON_KIND_OBJECT)
        return tokenizer_refuse(name, "model", model, "an object; is this a tokenizer.json of Hugging Face?");
    TRY(check_model_type(name, model));
    TRY(read_pieces(name, js_get(model, "vocab"), &out->pieces));
    TRY(read_normalizer(name, js_get(doc, "normalizer"), general, &out->words));
    TRY(check_splitting(name, doc, general));
    TRY(check_frame(name, doc, general));
    return read_added(name, js_get(doc, "added_tokens"), general, &out->added);
}

void tokenizer_json_free(TokenizerJson *json)
{
    buf_free(&json->pieces);
    token_list_free(&json->added);
    *json = (TokenizerJson){0};
}
