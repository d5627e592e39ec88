/* Every key of a tokenizer's files that Transformers knows for BERT, as tests/borders.tsv lists them: a key is honoured
   (the tokenizer differs from that of a plain folder), irrelevant (it does not) or refused by name. */
#include "testing.h"

#include "base/json.h"
#include "text/tokenizer_files.h"

#define TABLE "tests/borders.tsv"

static const char pieces[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\nboat\n";
static const char config[] = "{\"do_lower_case\": true}";
static const char config_of_json[] =
    "{\"tokenizer_class\": \"TokenizersBackend\", \"model_input_names\": [\"input_ids\", \"token_type_ids\"]}";
static const char json[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": {\"type\": "
    "\"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true, \"strip_accents\": null, \"lowercase\": "
    "true}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"post_processor\": {\"type\": "
    "\"TemplateProcessing\", "
    "\"single\": [{\"SpecialToken\": {\"id\": \"[CLS]\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": "
    "0}}, {\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 0}}], \"pair\": [{\"SpecialToken\": {\"id\": \"[CLS]\", "
    "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"SpecialToken\": {\"id\": \"[SEP]\", "
    "\"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}, {\"SpecialToken\": {\"id\": \"[SEP]\", "
    "\"type_id\": 1}}], \"special_tokens\": {\"[CLS]\": {\"id\": \"[CLS]\", \"ids\": [2], \"tokens\": [\"[CLS]\"]}, "
    "\"[SEP]\": {\"id\": \"[SEP]\", \"ids\": [3], \"tokens\": [\"[SEP]\"]}}}, \"decoder\": null, \"model\": {\"type\": "
    "\"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": "
    "100, "
    "\"vocab\": {\"[PAD]\": 0, \"[UNK]\": 1, \"[CLS]\": 2, \"[SEP]\": 3, \"[MASK]\": 4, \"red\": 5, \"boat\": 6}}}";

/* Writes a value with the member at `path` ("normalizer.lowercase"; NULL: none) replaced, or added. */
static void put(Buf *out, const Json *v, const char *path, const char *value)
{
    JsonKind kind = js_kind(v);
    if (js_put_scalar(out, v)) return;
    if (kind == JSON_KIND_ARRAY) {
        buf_puts(out, "[");
        for (size_t i = 0; i < js_size(v); i++) {
            if (i) buf_puts(out, ", ");
            put(out, js_at(v, i), NULL, value);
        }
        buf_puts(out, "]");
        return;
    }
    size_t len = path ? strcspn(path, ".") : 0;
    bool found = false;
    buf_puts(out, "{");
    for (void *it = js_first(v); it; it = js_next(v, it)) {
        const char *key = js_key(it);
        bool here = path && strlen(key) == len && strncmp(key, path, len) == 0;
        buf_puts(out, it == js_first(v) ? "" : ", ");
        buf_json(out, key);
        buf_puts(out, ": ");
        if (here && !path[len])
            buf_puts(out, value);
        else
            put(out, js_value(it), here ? path + len + 1 : NULL, value);
        found |= here;
    }
    if (path && !found) buf_printf(out, "%s\"%s\": %s", js_size(v) ? ", " : "", path, value);
    buf_puts(out, "}");
}

/* Without the wait for the disk of testing_write. */
static void write_file(const char *folder, const char *name, const char *text)
{
    char *path = file_join(folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
    free(path);
}

static void write_with(const char *folder, const char *name, const char *base, const char *path, const char *value)
{
    Buf out = {0};
    Json *doc;
    assert_ok(js_parse(name, base, strlen(base), &doc));
    put(&out, doc, path, value);
    write_file(folder, name, out.data);
    buf_free(&out);
    js_free(doc);
}

typedef struct {
    TokenizerFiles files;
    int64_t length;
} Found;

/* A folder with the key in `file`; "" for the plain one, of which `like` has the key. */
static Status read_folder(const char *like, const char *file, const char *key, const char *value, Found *f)
{
    char *folder = testing_directory();
    bool of_json = strcmp(like, "tokenizer.json") == 0;
    bool in_config = strcmp(file, "tokenizer_config.json") == 0;
    if (!of_json) write_file(folder, "vocab.txt", pieces);
    write_with(folder, "tokenizer_config.json", of_json ? config_of_json : config, in_config ? key : NULL, value);
    /* A general class needs tokenizer.json. */
    if (of_json || strstr(value, "Backend") || strstr(value, "PreTrained"))
        write_with(folder, "tokenizer.json", json, strcmp(file, "tokenizer.json") == 0 ? key : NULL, value);
    if (*file && !in_config && strcmp(file, "tokenizer.json") != 0) write_with(folder, file, "{}", key, value);
    Status status = tokenizer_files_read(NULL, folder, NULL, &f->files);
    if (status == OK) status = tokenizer_files_length(folder, &f->length);
    assert_ok(file_remove_tree(folder));
    free(folder);
    return status;
}

static bool same(const Found *a, const Found *b)
{
    const TokenizerOptions *x = &a->files.options, *y = &b->files.options;
    return x->kind == y->kind && x->lower_case == y->lower_case && x->strip_accents == y->strip_accents &&
           x->split_chinese == y->split_chinese && x->split_special == y->split_special &&
           x->clean_text == y->clean_text && x->split_words == y->split_words && x->one_type == y->one_type &&
           a->length == b->length && digest_equal(vocab_digest(a->files.vocab), vocab_digest(b->files.vocab));
}

static void check_row(char *line, int number)
{
    char *field[5] = {NULL};
    for (int i = 0; i < 5; i++) field[i] = strsep(&line, "\t");
    if (!field[4] || line) fail_msg(TABLE ":%d: expected five columns", number);
    const char *file = field[0], *key = field[1], *value = field[2], *kind = field[3];
    Found plain, found;
    log_set_level(LOG_ERROR);
    assert_ok(read_folder(file, "", NULL, "", &plain));
    Status status = read_folder(file, file, key, value, &found);
    const char *last = strrchr(key, '.') ? strrchr(key, '.') + 1 : key;
    char *first = mem_strndup(key, strcspn(key, "."));
    if (strcmp(kind, "refused") == 0) {
        if (status != E_FORMAT) fail_msg(TABLE ":%d: '%s' %s is not refused", number, key, value);
        bool names = strstr(status_message(), last) || strstr(status_message(), first) ||
                     strstr(status_message(), "the added token");
        if (!names || !strstr(status_message(), file)) fail_msg(TABLE ":%d: says: %s", number, status_message());
    } else {
        if (status != OK) fail_msg(TABLE ":%d: '%s' %s is refused: %s", number, key, value, status_message());
        bool honoured = strcmp(kind, "honoured") == 0;
        if (!honoured && strcmp(kind, "irrelevant") != 0) fail_msg(TABLE ":%d: '%s' is no kind", number, kind);
        if (same(&plain, &found) == honoured) fail_msg(TABLE ":%d: '%s' %s is not %s", number, key, value, kind);
    }
    tokenizer_files_free(&plain.files);
    tokenizer_files_free(&found.files);
    free(first);
}

static void test_every_key(void **state)
{
    (void)state;
    FILE *f = fopen(TABLE, "r");
    char *line = NULL;
    size_t cap = 0;
    int number = 0;
    assert_non_null(f);
    while (getline(&line, &cap, f) > 0) {
        line[strcspn(line, "\n")] = 0;
        if (number++) check_row(line, number); /* behind the header */
    }
    assert_true(number > 100);
    free(line);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
