/* Equality with Hugging Face's BertTokenizers: the digests in tests/golden/tokenizer.txt (written from them by
   make_tokenizer_golden.py, which says what each line means) and the published vectors in shared data. Lines of kind
   words and random need nothing else; ids and file need shared data. */
#include "text_golden.h"

#include "text/compose.h"

#define BLOCK 4096

static char *data_path(const char *name)
{
    const char *data = getenv("CAIRN_TEST_DATA");
    return file_join(data && *data ? data : "../shared/data", name);
}

/* ---- The digested output ---- */

static void add_joined(Digester *d, const char *before, const char *one, size_t len, const char *after,
                       size_t after_len)
{
    char text[16];
    size_t at = strlen(before);
    memcpy(text, before, at);
    memcpy(text + at, one, len);
    memcpy(text + at + len, after, after_len);
    add_text(d, text, at + len + after_len);
}

static void add_block(Digester *d, uint32_t block)
{
    for (uint32_t c = block * BLOCK; c < (block + 1) * BLOCK; c++) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        char one[4];
        size_t len = (size_t)utf8_encode(c, one);
        add_joined(d, "", one, len, "", 0);
        add_joined(d, "a", one, len, "b", 1);
        add_joined(d, "A", one, len, "", 0);
        add_joined(d, "", one, len, one, len);
    }
}

static void add_lines(Digester *d, const FileMap *map)
{
    const char *p = (const char *)map->data, *end = p + map->size;
    for (;;) { /* as split("\n") does: a final line end is followed by an empty text */
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        add_text(d, p, (size_t)((stop ? stop : end) - p));
        if (!stop) return;
        p = stop + 1;
    }
}

/* The generator of make_tokenizer_golden.py. */
static const uint32_t ranges[][2] = {{0, 128},
                                     {32, 96},
                                     {97, 26},
                                     {0xC0, 0x190},
                                     {0x300, 0x70},
                                     {0x370, 0x90},
                                     {0x400, 0x100},
                                     {0x590, 0x70},
                                     {0x900, 0x100},
                                     {0x1100, 0x100},
                                     {0x1E00, 0x200},
                                     {0x2000, 0x70},
                                     {0x3040, 0xC0},
                                     {0x4E00, 0x80},
                                     {0xAC00, 0x2BA4},
                                     {0xF900, 0x200},
                                     {0xFE00, 0x30},
                                     {0x11080, 0x60},
                                     {0x1D15E, 0x62},
                                     {0x2F800, 0x21E},
                                     {0, 0x110000},
                                     /* more */
                                     {0xE80, 0x280},
                                     {0x13A0, 0x60},
                                     {0x1AB0, 0x50},
                                     {0x2C00, 0x80},
                                     {0x2E00, 0x80},
                                     {0xA640, 0x200},
                                     {0xD7C0, 0x40},
                                     {0xDFF0, 0x30},
                                     {0xFB00, 0x50},
                                     {0xFF00, 0x100},
                                     {0x10400, 0x50},
                                     {0x1E900, 0x60},
                                     {0x1F300, 0x400},
                                     {0xE0000, 0x200},
                                     {0xF8F0, 0x20}};
#define N_RANGES    21
#define MORE_RANGES (sizeof ranges / sizeof *ranges)

#define TEXT(s)                                                                                                        \
    {                                                                                                                  \
        s, sizeof s - 1, 1                                                                                             \
    }
#define REPEATED(s, times)                                                                                             \
    {                                                                                                                  \
        s, sizeof s - 1, times                                                                                         \
    }
static const struct {
    const char *text;
    size_t len;
    int times;
} strings[] = {TEXT("[UNK]"), TEXT("[SEP]"), TEXT("[PAD]"), TEXT("[CLS]"), TEXT("[MASK]"), TEXT("[unk]"),
               TEXT("[UN\xE2\x84\xAA]"), TEXT("[M\0ASK]"), TEXT("[SEP]\xCC\x81"), TEXT("[CLS"), TEXT("]"), TEXT(" "),
               TEXT("\t"), TEXT("\r\n"), TEXT("\xE2\x80\xA8"), TEXT("\xC2\x85"), TEXT("\xC2\xA0"), TEXT("\xE3\x80\x80"),
               TEXT("\xE2\x80\x8B"), TEXT("\xEF\xBB\xBF"), TEXT("\xEF\xBF\xBD"), TEXT("\xC4\xB0"), TEXT("\xCE\xA3"),
               TEXT("<\xCC\xB8"), TEXT("\xCD\x84"), TEXT("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"),
               /* more */
               REPEATED("x", 99), REPEATED("y", 100), REPEATED("z", 101), REPEATED("e\xCC\x81", 60),
               REPEATED("\xE1\xBB\x87", 100), TEXT("\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7"),
               TEXT("\xF0\x9F\x87\xA9"), TEXT("\xCE\x91\xCE\xA3"), TEXT("\xCE\x91\xCE\xA3."), TEXT("\xC4\xB1"),
               TEXT("I\xCC\x87"), TEXT("\xEF\xAC\x83"), TEXT("\xEF\xBC\xA1"), TEXT("\xE0\xAE\x95\xE0\xAF\x8D"),
               TEXT("o\xCC\xA3\xCC\x82"), TEXT("o\xCC\x82\xCC\xA3"), TEXT("\xEA\xB0\x80\xE1\x86\xA8"),
               TEXT("\xE3\x80\xAA\xCC\x81"),
               TEXT("\xE1\xB4\x96"
                    "D\xE1\xB4\x96"
                    "5"),
               TEXT("##ing"), TEXT("can't"), TEXT("\x0B"), TEXT("\x1C"), TEXT("\xE2\x80\xA9"), TEXT("\0")};
#define N_STRINGS    26
#define MORE_STRINGS (sizeof strings / sizeof *strings)

static void random_text(uint64_t *random, bool more, Buf *text)
{
    uint32_t pools[3], n_ranges = more ? MORE_RANGES : N_RANGES;
    for (int i = 0; i < 3; i++) pools[i] = below(random, n_ranges + 6);
    text->len = 0;
    for (uint32_t n = 1 + below(random, 20); n > 0; n--) {
        uint32_t pool = pools[below(random, 3)];
        if (pool >= n_ranges) {
            uint32_t i = below(random, more ? MORE_STRINGS : N_STRINGS);
            for (int k = 0; k < strings[i].times; k++) buf_append(text, strings[i].text, strings[i].len);
        } else {
            char one[4];
            uint32_t c = ranges[pool][0] + below(random, ranges[pool][1]);
            int len = utf8_encode(c >= 0xD800 && c <= 0xDFFF ? '?' : c, one);
            buf_append(text, one, (size_t)len);
        }
    }
}

static void add_random(Digester *d, int count)
{
    uint64_t random = 20221121;
    Buf text = {0};
    while (count-- > 0) {
        random_text(&random, false, &text);
        add_text(d, text.data, text.len);
    }
    buf_free(&text);
}

/* NASTY_TEXTS texts, from number `start` on. They are made once: the lines of each group of options follow each other.
 */
static void add_nasty(Digester *d, int start)
{
    enum { NASTY_TEXTS = 250 };
    static uint64_t random;
    static int made;
    Buf text = {0};
    if (start < made) made = 0;
    if (made == 0) random = 20261128;
    for (int end = start + NASTY_TEXTS; made < end; made++) {
        random_text(&random, true, &text);
        if (made >= start) add_text(d, text.data, text.len);
    }
    buf_free(&text);
}

/* ---- The lines ---- */

/* With a sanitizer every 15th block is enough. A group of options has 272 or 54 blocks, so that each has others. */
static int blocks_every(void) { return testing_brief() ? 15 : 1; }

static void test_words_of_every_scalar(void **state)
{
    (void)state;
    Buf golden = {0};
    Line line;
    Digester d = {0};
    int words = 0;
    read_golden(&golden);
    for (const char *at = golden.data; next_line(&at, &line);) {
        text_rules_free(&d.rules);
        text_rules_init(&d.rules, options_of(line.options), NULL);
        if (strcmp(line.kind, "words") == 0) {
            if (words++ % blocks_every()) continue;
            add_block(&d, (uint32_t)strtoul(line.what, NULL, 16));
        } else if (strcmp(line.kind, "random") == 0)
            add_random(&d, atoi(line.what));
        else if (strcmp(line.kind, "nasty") == 0)
            add_nasty(&d, atoi(line.what));
        else
            continue;
        compare(&d, &line);
    }
    assert_true(words >= 4 * 272 && checked >= words / blocks_every() + 2 * (7 + 7 * 20));
    assert_int_equal(differing, 0);
    free_digester(&d);
    buf_free(&golden);
}

static Vocab *published_vocab(bool cased)
{
    char *path = data_path(cased ? "vocab/bert-base-cased-vocab.txt" : "vocab/bert-base-uncased-vocab.txt");
    Vocab *v = NULL;
    if (file_exists(path))
        assert_ok(vocab_read(path, NULL, &v));
    else
        printf("skipped: %s is absent (CAIRN_TEST_DATA names the folder)\n", path);
    free(path);
    return v;
}

static void test_ids_of_everything(void **state)
{
    (void)state;
    Buf golden = {0};
    Line line;
    Digester d = {0};
    int absent = 0, blocks = 0;
    Vocab *vocabs[2] = {published_vocab(false), published_vocab(true)};
    if (!vocabs[0] || !vocabs[1]) {
        vocab_free(vocabs[0]);
        vocab_free(vocabs[1]);
        skip();
    }
    read_golden(&golden);
    for (const char *at = golden.data; next_line(&at, &line);) {
        bool file = strcmp(line.kind, "file") == 0;
        if (!file && (strcmp(line.kind, "ids") != 0 || blocks++ % blocks_every())) continue;
        TokenizerOptions options = options_of(line.options);
        d.tokenizer = tokenizer_new(vocabs[!options.lower_case], options);
        if (file) {
            FileMap map;
            char *path = data_path(line.what);
            if (file_exists(path)) {
                assert_ok(file_map(&map, path));
                add_lines(&d, &map);
                file_unmap(&map);
                compare(&d, &line);
            } else {
                printf("skipped: %s is absent\n", path);
                absent++;
            }
            free(path);
        } else {
            add_block(&d, (uint32_t)strtoul(line.what, NULL, 16));
            compare(&d, &line);
        }
        tokenizer_free(d.tokenizer);
    }
    assert_true(blocks >= 2 * 272 && checked + absent >= blocks / blocks_every() + 2);
    assert_int_equal(differing, 0);
    free_digester(&d);
    buf_free(&golden);
    vocab_free(vocabs[0]);
    vocab_free(vocabs[1]);
}

/* ---- Published vectors ---- */

enum { MAX_FIELDS = 16 };

/* Cuts a line of a TSV in place. */
static int cut_fields(char *line, char *fields[MAX_FIELDS])
{
    int n = 0;
    for (char *p = line; p && n < MAX_FIELDS; n++) {
        fields[n] = p;
        p = strchr(p, '\t');
        if (p) *p++ = 0;
    }
    return n;
}

/* Calls check(fields, n, number) for the rows of a TSV after its header; false, with a message, if the file is absent.
 */
static bool each_row(const char *name, int min_fields, void (*check)(char **fields, int number), int *rows)
{
    char *path = data_path(name);
    Buf text = {0};
    *rows = 0;
    if (!file_exists(path)) {
        printf("skipped: %s is absent\n", path);
        free(path);
        return false;
    }
    assert_ok(file_read(path, (size_t)1 << 24, &text));
    int number = 1;
    for (char *line = text.data, *next; line && *line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *fields[MAX_FIELDS] = {0};
        if (number == 1) continue;
        assert_true(cut_fields(line, fields) >= min_fields);
        check(fields, number);
        ++*rows;
    }
    buf_free(&text);
    free(path);
    return true;
}

static Json *parse_array(const char *text)
{
    char *wrapped = mem_printf("[%s]", text);
    Json *doc = NULL;
    assert_ok(js_parse("vector", wrapped, strlen(wrapped), &doc));
    free(wrapped);
    return doc;
}

/* Decodes a field's JSON string. The JSON reader refuses NUL in strings, so it is replaced by U+E000 meanwhile. */
static void json_text(const char *field, Buf *out)
{
    char *safe = mem_strdup(field);
    for (char *p = safe; (p = strstr(p, "\\u0000")) != NULL;) memcpy(p, "\\ue000", 6);
    Json *doc = parse_array(safe);
    const char *text = js_string(js_at(doc, 0), NULL);
    assert_non_null(text);
    const char *end = text + strlen(text);
    buf_puts(out, "");
    while (text < end) {
        bool nul = end - text >= 3 && memcmp(text, "\xEE\x80\x80", 3) == 0;
        buf_append(out, nul ? "\0" : text, 1);
        text += nul ? 3 : 1;
    }
    js_free(doc);
    free(safe);
}

static Vocab *vector_vocabs[4]; /* uncased, cased, mini_vocab_google, mini_vocab_hf */

static const char *const vector_vocab_names[4] = {"bert-base-uncased-vocab.txt", "bert-base-cased-vocab.txt",
                                                  "mini_vocab_google.txt", "mini_vocab_hf.txt"};

/* Google's small vocabulary lacks two special pieces; they are appended, as Hugging Face does. */
static bool read_vector_vocabs(void)
{
    for (int i = 0; i < 4; i++) {
        char *name = mem_printf("%s/%s", i < 2 ? "vocab" : "tokenizer", vector_vocab_names[i]), *path = data_path(name);
        Buf text = {0};
        bool there = file_exists(path);
        if (there) {
            assert_ok(file_read(path, (size_t)1 << 24, &text));
            if (i == 2) buf_puts(&text, &"\n[PAD]\n[MASK]\n"[text.data[text.len - 1] == '\n']);
            assert_ok(vocab_parse(path, text.data, text.len, NULL, &vector_vocabs[i]));
        } else {
            printf("skipped: %s is absent\n", path);
        }
        buf_free(&text);
        free(name);
        free(path);
        if (!there) return false;
    }
    return true;
}

static void free_vector_vocabs(void)
{
    for (int i = 0; i < 4; i++) {
        vocab_free(vector_vocabs[i]);
        vector_vocabs[i] = NULL;
    }
}

static void check_ids(const TokenIds *found, const char *json, const char *name)
{
    Json *expected = parse_array(json);
    const Json *list = js_at(expected, 0);
    if (js_size(list) != found->count) fail_msg("%s: expected %zu ids, found %zu", name, js_size(list), found->count);
    for (size_t i = 0; i < found->count; i++) assert_int_equal(found->ids[i], js_int(js_at(list, i), -1));
    js_free(expected);
}

/* id kind vocab do_lower_case text_json text_pair_json tokens_json ids_json source */
static void check_vector(char **f, int number)
{
    (void)number;
    Buf text = {0};
    json_text(f[4], &text);
    Json *tokens = *f[6] ? parse_array(f[6]) : NULL;
    const Json *list = tokens ? js_at(tokens, 0) : NULL;
    TokenizerOptions options = tokenizer_options(f[3][0] == '1');
    if (strcmp(f[1], "basic") == 0) {
        Buf words = {0}, expected = {0};
        buf_puts(&words, "");
        buf_puts(&expected, "");
        TextRules rules;
        text_rules_init(&rules, options, NULL);
        text_words(&rules, text.data, text.len, &(WordSink){&words, add_words, add_token});
        text_rules_free(&rules);
        for (size_t i = 0; i < js_size(list); i++) buf_printf(&expected, "%s ", js_string(js_at(list, i), "?"));
        assert_int_equal(words.len, expected.len);
        if (words.len) assert_memory_equal(words.data, expected.data, words.len);
        buf_free(&words);
        buf_free(&expected);
    } else {
        const Vocab *v = NULL;
        for (int i = 0; i < 4; i++) {
            if (strcmp(f[2], vector_vocab_names[i]) == 0) v = vector_vocabs[i];
        }
        assert_non_null(v);
        Tokenizer *tokenizer = tokenizer_new(v, options);
        TokenIds ids = {0}, pair = {0};
        tokenizer_encode(tokenizer, text.data, text.len, &ids);
        if (list) {
            assert_int_equal(ids.count, js_size(list));
            for (size_t i = 0; i < ids.count; i++) {
                assert_string_equal(vocab_piece(v, ids.ids[i]), js_string(js_at(list, i), "?"));
            }
        }
        if (strcmp(f[1], "encode") == 0) {
            int32_t framed[512];
            uint8_t types[512];
            if (*f[5]) {
                Buf second = {0};
                json_text(f[5], &second);
                tokenizer_encode(tokenizer, second.data, second.len, &pair);
                buf_free(&second);
            }
            int n = tokenizer_pair(tokenizer, &ids, *f[5] ? &pair : NULL, 512, framed, types);
            check_ids(&(TokenIds){framed, (size_t)n, 512}, f[7], f[0]);
        } else if (*f[7]) {
            check_ids(&ids, f[7], f[0]);
        }
        token_ids_free(&ids);
        token_ids_free(&pair);
        tokenizer_free(tokenizer);
    }
    js_free(tokens);
    buf_free(&text);
}

/* text_json wordpieces ids */
static void check_question(char **f, int number)
{
    (void)number;
    Buf text = {0};
    json_text(f[0], &text);
    Tokenizer *tokenizer = tokenizer_new(vector_vocabs[0], tokenizer_options(true));
    TokenIds ids = {0};
    tokenizer_encode(tokenizer, text.data, text.len, &ids);
    char *p = f[2], *word = f[1];
    for (size_t i = 0; i < ids.count; i++) {
        const char *piece = vocab_piece(vector_vocabs[0], ids.ids[i]);
        assert_int_equal(strtol(p, &p, 10), ids.ids[i]);
        assert_memory_equal(word, piece, strlen(piece));
        word += strlen(piece);
        word += *word == ' ';
    }
    assert_int_equal(strspn(p, " \r"), strlen(p));
    assert_int_equal(strspn(word, " "), strlen(word));
    token_ids_free(&ids);
    tokenizer_free(tokenizer);
    buf_free(&text);
}

static void test_vectors(void **state)
{
    (void)state;
    int rows;
    if (!read_vector_vocabs()) {
        free_vector_vocabs();
        skip();
    }
    if (each_row("tokenizer/tokenizer_vectors.tsv", 8, check_vector, &rows)) assert_int_equal(rows, 71);
    if (each_row("tokenizer/question_vectors.tsv", 3, check_question, &rows)) assert_int_equal(rows, 2000);
    free_vector_vocabs();
}

/* codepoint class expected source */
static void check_class(char **f, int number)
{
    unsigned long c = strtoul(f[0] + 2, NULL, 16);
    unsigned bits = unicode_record((uint32_t)c).bits;
    unsigned bit = strcmp(f[1], "whitespace") == 0 ? UC_SPACE : strcmp(f[1], "control") == 0 ? UC_DROP : UC_PUNCT;
    if (((bits & bit) != 0) != (f[2][0] == '1')) fail_msg("row %d: U+%04lX %s should be %s", number, c, f[1], f[2]);
}

static void test_character_classes(void **state)
{
    (void)state;
    int rows;
    if (!each_row("tokenizer/char_class_vectors.tsv", 3, check_class, &rows)) skip();
    assert_int_equal(rows, 19);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_of_every_scalar),
        cmocka_unit_test(test_ids_of_everything),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_character_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
