/* Added tokens and never_split: equality with Hugging Face's tokenizers (the lines of kind added in
   tests/golden/tokenizer.txt, written by make_tokenizer_golden.py), and what a Vocab refuses. */
#include "text_golden.h"

#include "text/parts.h"

static const char *const first[] = {"<", "Ab", "#", "\xE4\xB8\xAD", "[E", "\xC3\x89"};
static const char *const atoms[] = {"a",
                                    "b",
                                    "A",
                                    "B",
                                    "e",
                                    "e\xCC\x81",
                                    "\xC3\xA9",
                                    "中",
                                    "文",
                                    "\xC4\xB0",
                                    "ß",
                                    "#",
                                    "@",
                                    "_",
                                    "-",
                                    ">",
                                    "1]",
                                    "\xCC\x81",
                                    "\xE2\x80\x8B",
                                    "\xE0\xA4\x84",
                                    "\xE0\xA4\xBE",
                                    "²",
                                    "[SEP]",
                                    "[MASK]",
                                    "[CLS",
                                    "foo",
                                    "foo-bar",
                                    "Foo",
                                    "C++"};
static const char *const spaces[] = {" ", " ", "  ", "\t", "\xE3\x80\x80"};
static const char *const never_split[] = {"foo-bar", "c++", "Foo", "zz"};
#define COUNT(array) (sizeof array / sizeof *array)
#define PICK(array)  array[below(random, COUNT(array))]

/* ---- The generator of make_tokenizer_golden.py ---- */

static void add_characters(Buf *all, const char *text)
{
    for (const char *p = text, *end = p + strlen(p); p < end;) {
        char one[5] = {0};
        one[utf8_encode(utf8_decode(&p, end), one)] = '\0';
        if (!all->data || !strstr(all->data, one)) buf_puts(all, one);
    }
}

static Vocab *characters_vocab(void)
{
    Buf all = {0}, lines = {0};
    Vocab *v;
    for (int lower = 0; lower < 2; lower++)
        for (size_t i = 0; i < COUNT(first) + COUNT(atoms); i++) {
            const char *text = i < COUNT(first) ? first[i] : atoms[i - COUNT(first)];
            Buf lowered = {0};
            if (lower) text_lowered(&(Lookup){0}, text, text + strlen(text), &lowered);
            add_characters(&all, lower ? lowered.data : text);
            buf_free(&lowered);
        }
    buf_puts(&lines, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfoo\nc++\n");
    for (int later = 0; later < 2; later++)
        for (const char *p = all.data, *end = p + all.len, *at = p; p < end; at = p) {
            utf8_decode(&p, end);
            buf_printf(&lines, "%s%.*s\n", later ? "##" : "", (int)(p - at), at);
        }
    assert_ok(vocab_parse("made", lines.data, lines.len, NULL, &v));
    BUF_FREE(&all, &lines);
    return v;
}

static void add_case(Digester *d, uint64_t seed, TokenizerOptions options, bool never)
{
    uint64_t state = seed, *random = &state;
    AddedToken tokens[COUNT(first)];
    char *texts[COUNT(first)];
    int n = 0;
    Vocab *v = characters_vocab();
    int32_t next = vocab_size(v);
    for (size_t i = 0; i < COUNT(first); i++) {
        Buf text = {0}, lowered = {0};
        bool flag[5];
        buf_puts(&text, first[i]);
        for (uint32_t more = below(random, 3); more > 0; more--) buf_puts(&text, PICK(atoms));
        if (below(random, 4) == 0) {
            buf_puts(&text, PICK(spaces));
            buf_puts(&text, atoms[below(random, 5)]);
        }
        for (int k = 0; k < 5; k++) flag[k] = below(random, 3) == 0;
        if (flag[2]) flag[3] = flag[4] = false;
        if (below(random, 4)) {
            texts[n] = mem_strdup(text.data);
            if (options.kind == TOKENIZER_PYTHON && options.split_words && options.lower_case && !flag[0] && flag[1]) {
                text_lowered(&(Lookup){0}, text.data, text.data + text.len, &lowered);
                text.len = 0;
                buf_append(&text, lowered.data, lowered.len);
            }
            int32_t id = vocab_find(v, text.data, text.len);
            tokens[n] =
                (AddedToken){mem_strdup(text.data), id < 0 ? next++ : id, flag[0], flag[1], flag[2], flag[3], flag[4]};
            n++;
        }
        BUF_FREE(&text, &lowered);
    }
    assert_ok(vocab_set_added(v, tokens, n));
    if (never) assert_ok(vocab_set_never_split(v, never_split, COUNT(never_split)));
    d->tokenizer = tokenizer_new(v, options);
    for (int i = 0; i < 40; i++) {
        Buf text = {0};
        for (uint32_t parts = 1 + below(random, 8); parts > 0; parts--) {
            uint32_t kind = below(random, 10);
            buf_puts(&text, kind < 4 && n ? texts[below(random, (size_t)n)] : kind < 6 ? PICK(spaces) : PICK(atoms));
        }
        add_text(d, text.data, text.len);
        buf_free(&text);
    }
    for (int i = 0; i < n; i++) MEM_FREE(texts[i], tokens[i].text);
    tokenizer_free(d->tokenizer);
    vocab_free(v);
}

static void test_golden(void **state)
{
    (void)state;
    enum { TOGETHER = 10 };
    Buf golden = {0};
    Line line;
    Digester d = {0};
    read_golden(&golden);
    for (const char *at = golden.data; next_line(&at, &line);) {
        if (strcmp(line.kind, "added") != 0) continue;
        uint64_t seed = (uint64_t)atoi(line.what);
        for (uint64_t i = seed; i < seed + TOGETHER; i++)
            add_case(&d, i, options_of(line.options), strchr(line.options, 'n') != NULL);
        compare(&d, &line);
    }
    assert_int_equal(checked, 11 * 10);
    assert_int_equal(differing, 0);
    free_digester(&d);
    buf_free(&golden);
}

/* ---- A Vocab's tokens ---- */

static const char lines[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfoo\nc\n+\n";

static Vocab *small_vocab(void)
{
    Vocab *v;
    assert_ok(vocab_parse("made", lines, sizeof lines - 1, NULL, &v));
    return v;
}

static void test_ids(void **state)
{
    (void)state;
    Vocab *v = small_vocab(), *plain = small_vocab();
    AddedToken added[] = {{"<b>", 9, .normalized = true},
                          {"foo", 5, .special = false},
                          {"<a>", 8, .special = true},
                          {"[SEP]", 3, .special = true}};
    int n;
    assert_ok(vocab_set_added(v, added, COUNT(added)));
    assert_int_equal(vocab_pieces(v), 8);
    assert_int_equal(vocab_size(v), 10);
    assert_string_equal(vocab_piece(v, 8), "<a>");
    assert_string_equal(vocab_piece(v, 9), "<b>");
    const AddedToken *all = vocab_added(v, &n);
    assert_int_equal(n, 8);
    for (int i = 1; i < n; i++) assert_true(all[i - 1].id < all[i].id);
    assert_false(digest_equal(vocab_digest(v), vocab_digest(plain)));
    /* the special pieces as they always are change nothing */
    Digest before = vocab_digest(plain);
    assert_ok(vocab_set_added(plain, &added[3], 1));
    assert_true(digest_equal(vocab_digest(plain), before));
    assert_int_equal(vocab_size(plain), 8);
    assert_ok(vocab_set_never_split(plain, never_split, 1));
    assert_false(digest_equal(vocab_digest(plain), before));
    vocab_free(v);
    vocab_free(plain);
}

static void test_refused(void **state)
{
    (void)state;
#define TOKEN(text, id)                                                                                                \
    {                                                                                                                  \
        text, id, .special = false                                                                                     \
    }
    static const struct {
        AddedToken added[2];
        const char *message;
    } cases[] = {
        {{TOKEN("<a>", 8), TOKEN("<b>", 10)}, "the added token '<b>' has id 10; expected 9"},
        {{TOKEN("foo", 8), TOKEN("<b>", 9)}, "the added token 'foo' has id 8; expected 5"},
        {{TOKEN("<a>", 8), TOKEN("<a>", 9)}, "the added token '<a>' appears twice"},
        {{TOKEN("", 8), TOKEN("<b>", 9)}, "the added token with id 8 is empty"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        Vocab *v = small_vocab();
        assert_int_equal(vocab_set_added(v, cases[i].added, 2), E_FORMAT);
        assert_non_null(strstr(status_message(), cases[i].message));
        vocab_free(v);
    }
}

/* A token that is written in a text, in a text's first bytes, and long before its end. */
static void test_beginning(void **state)
{
    (void)state;
    Vocab *v = small_vocab();
    Buf text = {0};
    TokenIds ids = {0};
    AddedToken added = {"foo c", 8, .special = true};
    assert_ok(vocab_set_added(v, &added, 1));
    Tokenizer *t = tokenizer_new(v, tokenizer_options(true));
    while (text.len < 100000) buf_puts(&text, "foo c+ ");
    tokenizer_encode_first(t, text.data, text.len, 9, &ids);
    for (size_t i = 0; i < ids.count; i++) assert_int_equal(ids.ids[i], i % 2 ? 7 : 8);
    tokenizer_free(t);
    token_ids_free(&ids);
    buf_free(&text);
    vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_ids),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_beginning)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
