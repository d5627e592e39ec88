/* tokenizer_config.json, special_tokens_map.json and added_tokens.json of Transformers. */

#include "text/tokenizer_internal.h"

/* ---- the class ---- */

/* Transformers' classes, each with Fast at its end or not. */
static const struct {
    const char *name;
    TokenizerClass class;
    bool one_type; /* Transformers 5 gives both texts of a pair the token type 0 */
} classes[] = {
    {"BertTokenizer", CLASS_BERT, false},
    {"ConvBertTokenizer", CLASS_BERT, false},
    {"DPRContextEncoderTokenizer", CLASS_BERT, false},
    {"DPRQuestionEncoderTokenizer", CLASS_BERT, false},
    {"DistilBertTokenizer", CLASS_BERT, true},
    {"ElectraTokenizer", CLASS_BERT, false},
    {"LayoutLMTokenizer", CLASS_BERT, false},
    {"LxmertTokenizer", CLASS_BERT, false},
    {"MobileBertTokenizer", CLASS_BERT, false},
    {"SqueezeBertTokenizer", CLASS_BERT, false},
    {"PreTrainedTokenizer", CLASS_GENERAL, true},
    {"PythonBackend", CLASS_GENERAL, true},
    {"RealmTokenizer", CLASS_GENERAL, true},
    {"RetriBertTokenizer", CLASS_GENERAL, true},
    {"TokenizersBackend", CLASS_GENERAL, true},
};

Status tokenizer_class_read(const char *file, const Json *value, bool class_given, TokenizerConfig *config)
{
    const char *name = js_string(value, NULL);
    if (js_kind(value) == JSON_KIND_NULL) return OK;
    if (!name) return tokenizer_refuse(file, "tokenizer_class", value, "a class's name");
    size_t len = strlen(name), fast = strlen("Fast");
    if (len > fast && strcmp(name + len - fast, "Fast") == 0) len -= fast;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strlen(classes[i].name) != len || strncmp(classes[i].name, name, len) != 0) continue;
        config->class = classes[i].class;
        config->one_type = classes[i].one_type ? ONE_TYPE_BY_CLASS : 0;
        return OK;
    }
    if (class_given) {
        log_warn(
            "%s: 'tokenizer_class' is %s, which Cairn does not have; --vocab is given, so BERT's own tokenizer is used",
            file, name);
        config->class = CLASS_BERT;
        return OK;
    }
    return fail(
        E_FORMAT,
        "%s: 'tokenizer_class' is %s, which Cairn does not have; expected BertTokenizer, or a class equal to it. "
        "--vocab FILE (its vocab.txt) uses BERT's own tokenizer: split the text into words with %s's first, a "
        "blank between two",
        file, name, name);
}

/* ---- tokens ---- */

/* The five that BERT's own pieces must be. */
static const struct {
    const char *key, *piece;
} roles[] = {{"unk_token", "[UNK]"},
             {"sep_token", "[SEP]"},
             {"pad_token", "[PAD]"},
             {"cls_token", "[CLS]"},
             {"mask_token", "[MASK]"}};

/* The last word on a token counts. */
static void set_token(TokenList *list, const AddedToken *token)
{
    AddedToken *there = (AddedToken *)(uintptr_t)token_list_find(list, token->text);
    if (!there) {
        token_list_add(list, token);
        return;
    }
    char *text = there->text;
    *there = *token;
    there->text = text;
}

static Status add_special(const char *file, const char *key, const Json *value, TokenList *special)
{
    AddedToken token;
    TRY(tokenizer_token(file, key, value, true, &token));
    token.special = true;
    set_token(special, &token);
    return OK;
}

/* A token with a role: "cls_token" and the like. */
static Status read_role(const char *file, const char *key, const Json *value, TokenList *special)
{
    const char *text = tokenizer_token_text(value);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(key, roles[i].key) != 0 || strcmp(text ? text : "", roles[i].piece) == 0) continue;
        char *expected =
            mem_printf("\"%s\"; give the piece that name in the vocabulary and in the files beside it", roles[i].piece);
        Status status = tokenizer_refuse(file, key, value, expected);
        free(expected);
        return status;
    }
    bool token = js_kind(value) == JSON_KIND_STRING || js_kind(value) == JSON_KIND_OBJECT;
    return token ? add_special(file, key, value, special) : OK;
}

/* An array of tokens, or an object of roles and tokens. */
static Status read_more(const char *file, const char *key, const Json *value, TokenList *special)
{
    for (size_t i = 0; js_kind(value) == JSON_KIND_ARRAY && i < js_size(value); i++)
        TRY(add_special(file, key, js_at(value, i), special));
    for (void *it = js_first(value); it; it = js_next(value, it)) TRY(add_special(file, key, js_value(it), special));
    if (!value || js_kind(value) == JSON_KIND_NULL || js_kind(value) == JSON_KIND_ARRAY ||
        js_kind(value) == JSON_KIND_OBJECT)
        return OK;
    return tokenizer_refuse(file, key, value, "an array of tokens");
}

Status tokenizer_special_map_read(const char *file, const Json *doc, TokenList *special, TokenList *list)
{
    const Json *more = js_get(doc, "extra_special_tokens"), *older = js_get(doc, "additional_special_tokens");
    /* Tokens without ids get theirs in Transformers' order. */
    TRY(read_role(file, "bos_token", js_get(doc, "bos_token"), special));
    TRY(read_role(file, "eos_token", js_get(doc, "eos_token"), special));
    for (void *it = js_first(doc); it; it = js_next(doc, it))
        if (str_ends_with(js_key(it), "_token")) TRY(read_role(file, js_key(it), js_value(it), special));
    if (js_size(more) && js_size(older))
        return fail(E_FORMAT,
                    "%s: 'extra_special_tokens' and 'additional_special_tokens' are both given, and Transformers 5 "
                    "reads the first alone; put all tokens there, and remove the second",
                    file);
    TRY(read_more(file, "additional_special_tokens", older, list));
    return read_more(file, "extra_special_tokens", more, special);
}

static Status check_id(const char *file, const char *key, const char *text, int64_t id)
{
    if (id >= 0 && id <= INT32_MAX) return OK;
    return fail(E_FORMAT, "%s: '%s': %s has no id; expected a whole number from 0", file, key, text);
}

Status tokenizer_added_read(const char *file, const Json *doc, const TokenList *special, TokenList *added)
{
    for (void *it = js_first(doc); it; it = js_next(doc, it)) {
        const char *text = js_key(it);
        bool is_special = token_list_find(special, text) != NULL;
        int64_t id = js_int(js_value(it), -1);
        if (!*text) return fail(E_FORMAT, "%s: a token is empty; expected a text", file);
        TRY(check_id(file, "id", text, id));
        set_token(added, &(AddedToken){.text = (char *)(uintptr_t)text,
                                       .id = (int32_t)id,
                                       .special = is_special,
                                       .normalized = !is_special});
    }
    return OK;
}

static Status read_decoder(const char *file, const Json *doc, TokenizerConfig *c)
{
    static const char key[] = "added_tokens_decoder";
    const Json *list = js_get(doc, key);
    if (!list) return OK;
    c->lists_added = true;
    if (js_kind(list) != JSON_KIND_OBJECT) return tokenizer_refuse(file, key, list, "an object of ids and tokens");
    for (void *it = js_first(list); it; it = js_next(list, it)) {
        AddedToken token;
        char *end;
        long long id = strtoll(js_key(it), &end, 10);
        TRY(tokenizer_token(file, key, js_value(it), false, &token));
        TRY(check_id(file, key, token.text, *end || end == js_key(it) ? -1 : id));
        token.id = (int32_t)id;
        if (token_list_find(&c->added, token.text))
            return fail(E_FORMAT, "%s: '%s' has %s twice; expected one id for each token", file, key, token.text);
        token_list_add(&c->added, &token);
    }
    return OK;
}

/* ---- the other keys ---- */

static Status read_never_split(const char *file, const Json *doc, TokenizerConfig *c)
{
    const Json *words = js_get(doc, "never_split");
    if (js_kind(words) != JSON_KIND_NULL && js_kind(words) != JSON_KIND_ARRAY)
        return tokenizer_refuse(file, "never_split", words, "an array of words");
    c->never_split = mem_array(js_size(words) + 1, sizeof *c->never_split);
    for (size_t i = 0; i < js_size(words); i++) {
        const char *word = js_string(js_at(words, i), "");
        if (!*word) return tokenizer_refuse(file, "never_split", js_at(words, i), "words");
        c->never_split[c->n_never_split++] = mem_strdup(word);
    }
    return OK;
}

Status tokenizer_length_read(const char *file, const Json *doc, int64_t *max_length)
{
    const Json *longest = js_get(doc, "model_max_length");
    if (js_kind(longest) == JSON_KIND_NULL) longest = js_get(doc, "max_len");
    double length = js_real(longest, 0);
    if (js_kind(longest) != JSON_KIND_NULL && !(length >= 1))
        return tokenizer_refuse(file, "model_max_length", longest, "a number of tokens");
    *max_length = length < INT32_MAX ? (int64_t)length : 0; /* Transformers writes 1e30 for none */
    return OK;
}

static Status check_cutting(const char *file, const Json *doc)
{
    const Json *side = js_get(doc, "truncation_side");
    int64_t length;
    TRY(tokenizer_length_read(file, doc, &length));
    if (side && js_kind(side) != JSON_KIND_NULL && strcmp(js_string(side, ""), "right") != 0)
        return tokenizer_refuse(file, "truncation_side", side,
                                "\"right\": Cairn cuts texts at their end; cut them yourself, and remove the key");
    return OK;
}

static Status read_inputs(const char *file, const Json *doc, TokenizerConfig *c)
{
    const Json *names = js_get(doc, "model_input_names");
    if (js_kind(names) == JSON_KIND_NULL) return OK;
    if (js_kind(names) != JSON_KIND_ARRAY)
        return tokenizer_refuse(file, "model_input_names", names, "an array of names");
    c->one_type = 1;
    for (size_t i = 0; i < js_size(names); i++)
        if (strcmp(js_string(js_at(names, i), ""), "token_type_ids") == 0) c->one_type = 0;
    return OK;
}

/* Keys by which Transformers would take another tokenizer than that of the files. */
static Status check_rest(const char *file, const Json *doc)
{
    static const char *const others[] = {"vocab", "gguf_file", "init_inputs"};
    const Json *files = js_get(doc, "fast_tokenizer_files");
    for (size_t i = 0; i < js_size(files); i++)
        if (strcmp(js_string(js_at(files, i), ""), "tokenizer.json") != 0)
            return tokenizer_refuse(
                file, "fast_tokenizer_files", js_at(files, i),
                "\"tokenizer.json\" alone; give the file that counts this name, and remove the key");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const Json *value = js_get(doc, others[i]);
        bool empty = js_kind(value) == JSON_KIND_NULL || (js_kind(value) == JSON_KIND_ARRAY && !js_size(value));
        if (!empty)
            return tokenizer_refuse(file, others[i], value,
                                    "none: vocab.txt or tokenizer.json says it; remove the key");
    }
    return OK;
}

TokenizerConfig tokenizer_config_new(void)
{
    return (TokenizerConfig){.one_type = UNSAID,
                             .words = {UNSAID, UNSAID, UNSAID, UNSAID},
                             .basic_tokenize = UNSAID,
                             .use_fast = UNSAID,
                             .split_special = UNSAID};
}

Status tokenizer_config_read(const char *file, const Json *doc, bool class_given, TokenizerConfig *c)
{
    TokenizerWords *w = &c->words;
    TRY(tokenizer_class_read(file, js_get(doc, "tokenizer_class"), class_given, c));
    TRY(tokenizer_bool(file, "", doc, "do_lower_case", &w->lower_case));
    TRY(tokenizer_bool_or_null(file, "", doc, "strip_accents", &w->strip_accents));
    TRY(tokenizer_bool(file, "", doc, "tokenize_chinese_chars", &w->split_chinese));
    TRY(tokenizer_bool(file, "", doc, "do_basic_tokenize", &c->basic_tokenize));
    TRY(tokenizer_bool(file, "", doc, "use_fast", &c->use_fast));
    TRY(tokenizer_bool(file, "", doc, "split_special_tokens", &c->split_special));
    TRY(read_never_split(file, doc, c));
    TRY(check_cutting(file, doc));
    TRY(read_inputs(file, doc, c));
    TRY(check_rest(file, doc));
    TRY(tokenizer_special_map_read(file, doc, &c->special, &c->special));
    TRY(read_more(file, "model_specific_special_tokens", js_get(doc, "model_specific_special_tokens"), &c->special));
    return read_decoder(file, doc, c);
}

void tokenizer_config_free(TokenizerConfig *c)
{
    token_list_free(&c->added);
    token_list_free(&c->special);
    mem_free_texts(c->never_split, c->n_never_split);
    *c = (TokenizerConfig){0};
}
