/* A folder's tokenizer: which file counts where they differ, case without a file that says it, added tokens, and the
   files that are written (tests/golden/tokenizer_files is by Transformers). Single keys: test_borders.c. */
#include "testing.h"

#include "text/tokenizer_files.h"

#define GOLDEN "tests/golden/tokenizer_files"

static const char pieces[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\nboat\n";

/* A tokenizer.json; `vocab` is further pieces, `added` its added_tokens. */
static char *json_of(const char *normalizer, const char *vocab, const char *added)
{
    return mem_printf(
        "{\"added_tokens\": [%s], \"normalizer\": {\"type\": \"BertNormalizer\", %s}, \"pre_tokenizer\": "
        "{\"type\": \"BertPreTokenizer\"}, \"post_processor\": {\"type\": \"BertProcessing\", \"sep\": "
        "[\"[SEP]\", 3], \"cls\": [\"[CLS]\", 2]}, \"model\": {\"type\": \"WordPiece\", \"vocab\": "
        "{\"[PAD]\": 0, \"[UNK]\": 1, \"[CLS]\": 2, \"[SEP]\": 3, \"[MASK]\": 4, \"red\": 5, \"boat\": 6%s}}}",
        added, normalizer, vocab);
}

/* Reads a folder with the files that are not NULL. */
static Status read_folder(const char *vocab, const char *json, const char *config, const char *added, TokenizerFiles *t)
{
    char *folder = testing_directory();
    log_set_level(LOG_ERROR);
    if (vocab) testing_write(folder, "vocab.txt", vocab);
    if (json) testing_write(folder, "tokenizer.json", json);
    if (config) testing_write(folder, "tokenizer_config.json", config);
    if (added) testing_write(folder, "added_tokens.json", added);
    Status status = tokenizer_files_read(NULL, folder, NULL, t);
    assert_ok(file_remove_tree(folder));
    free(folder);
    return status;
}

#define BERT    "\"tokenizer_class\": \"BertTokenizer\""
#define GENERAL "\"tokenizer_class\": \"PreTrainedTokenizerFast\""

static void test_which_file_counts(void **state)
{
    (void)state;
    static const struct {
        const char *config, *normalizer;
        bool lower;
        int strip;
    } cases[] = {
        {"{" BERT ", \"do_lower_case\": true}", "\"lowercase\": false", true, -1}, /* the class reads its own keys */
        {"{" BERT ", \"do_lower_case\": false}", "\"lowercase\": true", false, -1},
        {"{" GENERAL ", \"do_lower_case\": true}", "\"lowercase\": false", false, -1}, /* tokenizer.json is all */
        {"{" BERT "}", "\"lowercase\": false, \"strip_accents\": true", false, 1},     /* the one file that says it */
        {"{" BERT ", \"strip_accents\": false}", "\"lowercase\": true, \"strip_accents\": true", true, 0},
        {NULL, "\"lowercase\": false, \"strip_accents\": false", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TokenizerFiles t;
        char *json = json_of(cases[i].normalizer, "", "");
        assert_ok(read_folder(pieces, json, cases[i].config, NULL, &t));
        assert_true(t.says_case && t.options.lower_case == cases[i].lower);
        assert_int_equal(t.options.strip_accents, cases[i].strip);
        assert_int_equal(t.options.kind, TOKENIZER_FAST);
        assert_true(str_ends_with(t.path, "tokenizer.json"));
        tokenizer_files_free(&t);
        free(json);
    }
}

static void test_which_pieces_count(void **state)
{
    (void)state;
    TokenizerFiles t;
    char *json = json_of("\"lowercase\": true", ", \"sail\": 7", "");
    assert_ok(read_folder(pieces, json, NULL, NULL, &t)); /* Transformers does not open vocab.txt then */
    assert_int_equal(vocab_pieces(t.vocab), 8);
    tokenizer_files_free(&t);
    assert_ok(read_folder(pieces, json, "{\"do_basic_tokenize\": false}", NULL, &t)); /* the Python tokenizer does */
    assert_int_equal(vocab_pieces(t.vocab), 7);
    assert_true(t.options.kind == TOKENIZER_PYTHON && !t.options.split_words && str_ends_with(t.path, "vocab.txt"));
    tokenizer_files_free(&t);
    free(json);
    assert_status(read_folder(NULL, NULL, "{}", NULL, &t), E_USAGE);
    assert_message("no vocab.txt and no tokenizer.json");
    tokenizer_files_free(&t);
}

/* --vocab: the files beside it count, and those of the model where it has none. */
static void test_a_given_vocabulary(void **state)
{
    (void)state;
    char *model = testing_directory(), *other = testing_directory(), *vocab = file_join(other, "v.txt"),
         *json_path = file_join(other, "tokenizer.json"), *json = json_of("\"lowercase\": false", "", "");
    TokenizerFiles t;
    log_set_level(LOG_ERROR);
    testing_write(model, "vocab.txt", pieces);
    testing_write(model, "tokenizer_config.json",
                  "{\"tokenizer_class\": \"BertJapaneseTokenizer\", \"do_lower_case\": false}");
    testing_write(other, "v.txt", pieces);
    assert_status(tokenizer_files_read(NULL, model, NULL, &t), E_FORMAT);
    assert_message("'tokenizer_class' is BertJapaneseTokenizer");
    assert_message("--vocab FILE");
    tokenizer_files_free(&t);
    assert_ok(tokenizer_files_read(vocab, model, NULL, &t));
    assert_true(t.says_case && !t.options.lower_case);
    tokenizer_files_free(&t);
    assert_ok(tokenizer_files_read(vocab, NULL, NULL, &t)); /* nobody says it, and no piece has capitals */
    assert_true(!t.says_case && t.options.lower_case);
    tokenizer_files_free(&t);
    testing_write(other, "tokenizer.json", json);
    assert_ok(tokenizer_files_read(vocab, model, NULL, &t));
    assert_true(t.says_case && !t.options.lower_case && str_ends_with(t.path, "v.txt"));
    tokenizer_files_free(&t);
    assert_ok(tokenizer_files_read(json_path, NULL, NULL, &t));
    assert_true(t.says_case && !t.options.lower_case && vocab_pieces(t.vocab) == 7);
    tokenizer_files_free(&t);
    memcpy(strstr(json, "BertPreTokenizer"), "WhitespaceSplit_", 16); /* of another tokenizer */
    testing_write(other, "tokenizer.json", json);
    assert_status(tokenizer_files_read(NULL, other, NULL, &t), E_FORMAT);
    assert_message("--vocab FILE");
    tokenizer_files_free(&t);
    assert_ok(tokenizer_files_read(vocab, NULL, NULL, &t));
    assert_true(!t.says_case && t.options.lower_case);
    tokenizer_files_free(&t);
    assert_ok(file_remove_tree(model));
    assert_ok(file_remove_tree(other));
    MEM_FREE(model, other, vocab, json_path, json);
}

static void test_capitals_decide_where_no_file_does(void **state)
{
    (void)state;
    static const struct {
        const char *more, *config;
        bool lower;
    } cases[] = {
        {"Rot\n", NULL, false},
        {"##S\n", "{}", false},
        {"\xc3\x84\n", NULL, false},                  /* Ä */
        {"[unused1]\n<S>\n[NAME]\n", NULL, true},     /* markers */
        {"r\xc3\xb6t\n\xe6\xb0\xb4\n", NULL, true},   /* nothing has capitals */
        {"Rot\n", "{\"do_lower_case\": true}", true}, /* the file's word */
        {"URL\n", "{\"extra_special_tokens\": [\"URL\"]}", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TokenizerFiles t;
        char *vocab = mem_printf("%s%s", pieces, cases[i].more);
        assert_ok(read_folder(vocab, NULL, cases[i].config, NULL, &t));
        if (t.options.lower_case != cases[i].lower) fail_msg("case %zu", i);
        tokenizer_files_choose(&t, "auto", "auto");
        assert_true(t.options.lower_case == cases[i].lower);
        tokenizer_files_choose(&t, cases[i].lower ? "no" : "yes", "yes");
        assert_true(t.options.lower_case != cases[i].lower && t.options.strip_accents == 1);
        tokenizer_files_free(&t);
        free(vocab);
    }
}

/* model_input_names without token_type_ids, or a class that has none. */
static void test_token_types_of_a_pair(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int type;
    } cases[] = {{"{}", 1},
                 {"{\"model_input_names\": [\"input_ids\", \"attention_mask\"]}", 0},
                 {"{\"tokenizer_class\": \"DistilBertTokenizerFast\"}", 0},
                 {"{\"tokenizer_class\": \"DistilBertTokenizer\", \"model_input_names\": [\"token_type_ids\"]}", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TokenizerFiles t;
        TokenIds a = {0};
        int32_t ids[8];
        uint8_t types[8];
        assert_ok(read_folder(pieces, NULL, cases[i].config, NULL, &t));
        Tokenizer *tokenizer = tokenizer_new(t.vocab, t.options);
        tokenizer_encode(tokenizer, "red boat", 8, &a);
        assert_int_equal(tokenizer_pair(tokenizer, &a, &a, 8, ids, types), 7);
        assert_int_equal(types[3], 0);
        for (int k = 4; k < 7; k++) assert_int_equal(types[k], cases[i].type);
        token_ids_free(&a);
        tokenizer_free(tokenizer);
        tokenizer_files_free(&t);
    }
}

/* ---- added tokens ---- */

static void test_tokens_of_all_places(void **state)
{
    (void)state;
    static const char decoder[] =
        "{\"added_tokens_decoder\": {\"7\": {\"content\": \"<a>\"}, \"8\": {\"content\": \"<b>\"}}, "
        "\"extra_special_tokens\": [\"<c>\", \"red\"]}";
    TokenizerFiles t;
    int n;
    assert_ok(read_folder(pieces, NULL, decoder, "{\"<b>\": 8}", &t));
    assert_int_equal(vocab_size(t.vocab), 10);
    const AddedToken *added = vocab_added(t.vocab, &n);
    assert_int_equal(n, 5 + 4);
    assert_string_equal(added[5].text, "red");
    assert_true(added[5].id == 5 && added[5].special && !added[5].normalized);
    assert_true(strcmp(added[6].text, "<a>") == 0 && added[6].id == 7 && !added[6].special && added[6].normalized);
    assert_true(strcmp(added[8].text, "<c>") == 0 && added[8].id == 9 && added[8].special);
    tokenizer_files_free(&t);
    /* Older places, in the order of their ids. */
    assert_ok(read_folder(pieces, NULL, "{\"bos_token\": \"<c>\"}", "{\"<b>\": 8, \"<a>\": 7}", &t));
    assert_int_equal(vocab_size(t.vocab), 10);
    assert_string_equal(vocab_piece(t.vocab, 8), "<b>");
    tokenizer_files_free(&t);
}

/* A list of tokens need not have the special pieces. */
static void test_special_pieces_in_one_place(void **state)
{
    (void)state;
    static const char config[] = "{\"added_tokens_decoder\": {\"7\": {\"content\": \"<a>\", \"lstrip\": true}}}";
    char *json = json_of("\"lowercase\": true", "",
                         "{\"id\": 4, \"content\": \"[MASK]\", \"special\": true}, {\"id\": 7, \"content\": \"<a>\"}");
    TokenizerFiles t;
    int n;
    assert_ok(read_folder(pieces, json, config, NULL, &t));
    const AddedToken *added = vocab_added(t.vocab, &n);
    assert_int_equal(n, 5 + 1);
    assert_true(added[5].lstrip);
    tokenizer_files_free(&t);
    free(json);
}

static void test_places_that_differ(void **state)
{
    (void)state;
    static const char a[] = "{\"added_tokens_decoder\": {\"7\": {\"content\": \"<a>\"}}}";
    TokenizerFiles t;
    char *json =
        json_of("\"lowercase\": true", "", "{\"id\": 7, \"content\": \"<a>\"}, {\"id\": 8, \"content\": \"<b>\"}");
    assert_status(read_folder(pieces, json, a, NULL, &t), E_FORMAT);
    assert_message("tokenizer.json has the added token '<b>'");
    assert_message("'added_tokens_decoder' in ");
    tokenizer_files_free(&t);
    assert_status(read_folder(pieces, json, NULL, "{\"<a>\": 8}", &t), E_FORMAT);
    assert_message("the added token '<a>' has id 7 in ");
    assert_message("and 8 in ");
    tokenizer_files_free(&t);
    assert_status(read_folder(pieces, NULL,
                              "{\"extra_special_tokens\": [\"<a>\"], \"additional_special_tokens\": [\"<b>\"]}", NULL,
                              &t),
                  E_FORMAT);
    assert_message("both given");
    tokenizer_files_free(&t);
    free(json);
    json = json_of("\"lowercase\": true", "", "{\"id\": 7, \"content\": \"<a>\"}, {\"id\": 8, \"content\": \"<a>\"}");
    assert_status(read_folder(pieces, json, NULL, NULL, &t), E_FORMAT);
    assert_message("tokenizer.json and 8 in ");
    free(json);
    json = json_of("\"lowercase\": true", "", "{\"id\": 8, \"content\": \"<a>\"}, {\"id\": 7, \"content\": \"<b>\"}");
    assert_ok(read_folder(pieces, json, NULL, NULL, &t)); /* the class takes the ids */
    tokenizer_files_free(&t);
    assert_status(read_folder(pieces, json, "{" GENERAL "}", NULL, &t), E_FORMAT);
    assert_message("'<b>' has the id 7 and is listed after a higher one");
    free(json);
}

/* special_tokens_map.json beside tokenizer_config.json. */
static void test_special_maps(void **state)
{
    (void)state;
    static const struct {
        const char *config, *map;
        int size; /* 0: refused */
    } cases[] = {
        {"{\"additional_special_tokens\": [\"<a>\"]}", "{\"additional_special_tokens\": [{\"content\": \"<a>\"}]}", 8},
        {"{\"cls_token\": \"[CLS]\"}", "{\"additional_special_tokens\": [\"<a>\", \"<b>\"]}", 9},
        {"{\"bos_token\": \"<a>\"}", "{\"bos_token\": {\"content\": \"<a>\"}, \"eos_token\": \"<b>\"}", 9},
        {"{\"additional_special_tokens\": [\"<a>\"]}", "{\"additional_special_tokens\": [\"<b>\"]}", 0},
        {"{\"extra_special_tokens\": [\"<a>\"]}", "{\"additional_special_tokens\": [\"<a>\", \"<b>\"]}", 0},
        {"{\"bos_token\": \"<a>\"}", "{\"bos_token\": \"<b>\"}", 0},
        {"{\"bos_token\": \"<a>\", \"added_tokens_decoder\": {}}", "{\"bos_token\": \"<b>\"}", 8}, /* not read */
        {"{}", "[1]", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TokenizerFiles t;
        char *folder = testing_directory();
        testing_write(folder, "vocab.txt", pieces);
        testing_write(folder, "tokenizer_config.json", cases[i].config);
        testing_write(folder, "special_tokens_map.json", cases[i].map);
        assert_status(tokenizer_files_read(NULL, folder, NULL, &t), cases[i].size ? OK : E_FORMAT);
        if (!cases[i].size) assert_message("special_tokens_map.json");
        if (cases[i].size) assert_int_equal(vocab_size(t.vocab), cases[i].size);
        tokenizer_files_free(&t);
        assert_ok(file_remove_tree(folder));
        free(folder);
    }
}

/* A token of added_tokens.json that special_tokens_map.json alone lists: the Python tokenizer takes it as special. */
static void test_map_and_added(void **state)
{
    (void)state;
    static const struct {
        const char *config, *map;
        bool found; /* in the text <A> */
    } cases[] = {
        {"{}", "{\"additional_special_tokens\": [\"<a>\"]}", true}, /* normalised, as in Transformers 5 */
        {"{}", "{\"extra_special_tokens\": [\"<a>\"]}", false},
        {"{\"additional_special_tokens\": [\"<a>\"]}", "{\"additional_special_tokens\": [\"<a>\"]}", false},
        {"{}", "{\"bos_token\": \"<a>\"}", false},
        {"{\"use_fast\": false}", "{\"additional_special_tokens\": [\"<a>\"]}", true}, /* lower-cased first */
        {"{\"use_fast\": false, \"do_lower_case\": false}", "{\"additional_special_tokens\": [\"<a>\"]}", false},
        {"{\"use_fast\": false}", "{}", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        TokenizerFiles t;
        TokenIds ids = {0};
        char *folder = testing_directory();
        testing_write(folder, "vocab.txt", pieces);
        testing_write(folder, "tokenizer_config.json", cases[i].config);
        testing_write(folder, "special_tokens_map.json", cases[i].map);
        testing_write(folder, "added_tokens.json", "{\"<a>\": 7}");
        assert_ok(tokenizer_files_read(NULL, folder, NULL, &t));
        Tokenizer *tokenizer = tokenizer_new(t.vocab, t.options);
        tokenizer_encode(tokenizer, "<A>", 3, &ids);
        assert_int_equal(ids.count == 1 && ids.ids[0] == 7, cases[i].found);
        tokenizer_free(tokenizer);
        token_ids_free(&ids);
        tokenizer_files_free(&t);
        assert_ok(file_remove_tree(folder));
        free(folder);
    }
}

/* ---- writing ---- */

/* Reads the files back from a folder: they are written the same once more. */
static void check_written(const TokenizerFiles *t, int64_t length)
{
    TokenizerText texts[TOKENIZER_MAX_TEXTS], second[TOKENIZER_MAX_TEXTS];
    char *folder = testing_directory();
    TokenizerFiles again;
    int64_t read;
    int n = tokenizer_files_write(t->vocab, &t->options, length, texts);
    assert_int_equal(n, t->options.kind == TOKENIZER_FAST ? 4 : 3);
    for (int i = 0; i < n; i++) testing_write(folder, texts[i].name, texts[i].text.data);
    assert_ok(tokenizer_files_read(NULL, folder, NULL, &again));
    assert_ok(tokenizer_files_length(folder, &read));
    assert_true(digest_equal(vocab_digest(t->vocab), vocab_digest(again.vocab)));
    assert_int_equal(read, length);
    assert_int_equal(tokenizer_files_write(again.vocab, &again.options, length, second), n);
    for (int i = 0; i < n; i++) {
        assert_string_equal(texts[i].text.data, second[i].text.data);
        BUF_FREE(&texts[i].text, &second[i].text);
    }
    tokenizer_files_free(&again);
    assert_ok(file_remove_tree(folder));
    free(folder);
}

/* Transformers' own file comes back byte for byte. */
static void test_as_transformers_writes_it(void **state)
{
    (void)state;
    TokenizerFiles t;
    TokenizerText texts[TOKENIZER_MAX_TEXTS];
    Buf golden = {0};
    int64_t length;
    assert_ok(tokenizer_files_read(NULL, GOLDEN, NULL, &t));
    assert_ok(tokenizer_files_length(GOLDEN, &length));
    assert_true(length == 64 && t.options.lower_case && t.options.strip_accents == 0);
    assert_int_equal(vocab_size(t.vocab), 18);
    int n = tokenizer_files_write(t.vocab, &t.options, 64, texts);
    assert_ok(file_read(GOLDEN "/tokenizer.json", 1 << 20, &golden));
    assert_string_equal(texts[1].name, "tokenizer.json");
    assert_string_equal(texts[1].text.data, golden.data);
    for (int i = 0; i < n; i++) buf_free(&texts[i].text);
    buf_free(&golden);
    check_written(&t, 64);
    tokenizer_files_free(&t);
}

static void test_what_is_written_is_read_back(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"do_lower_case\": false, \"strip_accents\": true, \"tokenize_chinese_chars\": false}",
        "{\"do_basic_tokenize\": false, \"never_split\": [\"red\", \"a\\\"b\"], \"do_lower_case\": true}",
        "{\"use_fast\": false, \"split_special_tokens\": true, \"do_lower_case\": true}",
        "{\"model_input_names\": [\"input_ids\"], \"extra_special_tokens\": [\"<x>\", \"boat\"], \"do_lower_case\": "
        "true}",
        "{\"mask_token\": {\"content\": \"[MASK]\", \"normalized\": true}, \"do_lower_case\": true}",
    };
    TokenizerFiles t;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        assert_ok(read_folder(pieces, NULL, configs[i], NULL, &t));
        check_written(&t, 32 + (int64_t)i);
        tokenizer_files_free(&t);
    }
    char *json = json_of("\"lowercase\": true, \"clean_text\": false", "", "{\"id\": 7, \"content\": \"<a>\"}");
    assert_ok(read_folder(NULL, json, "{" GENERAL "}", NULL, &t));
    assert_false(t.options.clean_text);
    check_written(&t, 512);
    tokenizer_files_free(&t);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_file_counts),
        cmocka_unit_test(test_which_pieces_count),
        cmocka_unit_test(test_a_given_vocabulary),
        cmocka_unit_test(test_capitals_decide_where_no_file_does),
        cmocka_unit_test(test_token_types_of_a_pair),
        cmocka_unit_test(test_tokens_of_all_places),
        cmocka_unit_test(test_special_pieces_in_one_place),
        cmocka_unit_test(test_places_that_differ),
        cmocka_unit_test(test_special_maps),
        cmocka_unit_test(test_map_and_added),
        cmocka_unit_test(test_as_transformers_writes_it),
        cmocka_unit_test(test_what_is_written_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
