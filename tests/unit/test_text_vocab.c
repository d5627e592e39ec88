/* Vocabulary files in their usual forms, the message of each error, and the trie compared with a plain list. */
#include "testing.h"

#include "text/text.h"
#include "text/vocab.h"

#define SPECIAL "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

static Vocab *parse(const char *text, size_t len)
{
    char *copy = mem_alloc(len); /* of exact size, so that sanitizers detect reads beyond its end */
    memcpy(copy, text, len);
    Vocab *v = NULL;
    assert_ok(vocab_parse("v.txt", copy, len, NULL, &v));
    free(copy);
    return v;
}

static void test_line_ends(void **state)
{
    (void)state;
    static const char *const texts[] = {
        SPECIAL "a\n##b\n",
        SPECIAL "a\n##b",
        SPECIAL "a\n##b\n\n\n",
        "\xEF\xBB\xBF" SPECIAL "a\n##b\n",
        "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\na\r\n##b\r\n",
        "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\na\r\n##b",
        "[PAD]\r[UNK]\r[CLS]\r[SEP]\r[MASK]\ra\r##b\r",
    };
    Digest first = {0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Vocab *v = parse(texts[i], strlen(texts[i]));
        assert_int_equal(vocab_size(v), 7);
        assert_string_equal(vocab_piece(v, 0), "[PAD]");
        assert_string_equal(vocab_piece(v, 5), "a");
        assert_string_equal(vocab_piece(v, 6), "##b");
        assert_int_equal(vocab_find(v, "a", 1), 5);
        assert_int_equal(vocab_find(v, "##b", 3), 6);
        assert_int_equal(vocab_find(v, "##", 2), -1);
        assert_int_equal(vocab_find(v, "b", 1), -1);
        assert_int_equal(vocab_find(v, "", 0), -1);
        assert_int_equal(vocab_find(v, "\0", 1), -1);
        assert_int_equal(vocab_find(v, "\0\0", 2), -1);
        SpecialIds s = vocab_special(v);
        assert_true(s.pad == 0 && s.unk == 1 && s.cls == 2 && s.sep == 3 && s.mask == 4);
        if (i == 0) first = vocab_digest(v);
        assert_true(digest_equal(vocab_digest(v), first));
        vocab_free(v);
    }
    Digest expected = digest_of(texts[0], strlen(texts[0]));
    assert_true(digest_equal(first, expected));
    vocab_free(NULL);
}

static void test_errors(void **state)
{
    (void)state;
    char *lengthy = mem_alloc(2000);
    memset(lengthy, 'x', 1200);
    struct {
        const char *text;
        size_t len; /* 0: strlen */
        const char *messages[2];
    } cases[] = {
        {"", 0, {"v.txt", "empty"}},
        {"\n\r\n", 0, {"v.txt", "empty"}},
        {"\xEF\xBB\xBF", 0, {"v.txt", "empty"}},
        {SPECIAL "a\n\nb\n", 0, {"line 7 is blank", "v.txt"}},
        {"\n" SPECIAL, 0, {"line 1 is blank", "v.txt"}},
        {SPECIAL "a\nb\na\n", 0, {"line 8 repeats line 6", "'a'"}},
        {SPECIAL "[SEP]\n", 0, {"line 6 repeats line 4", "[SEP]"}},
        {SPECIAL "ok\n##caf\xE9\n", 0, {"line 7, byte 6 (0xe9)", "UTF-8"}},
        {SPECIAL "a\0b\n", sizeof SPECIAL - 1 + 4, {"line 6", "NUL"}},
        {"[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", 0, {"[MASK]", "no line"}},
        {"[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n", 0, {"[PAD]", "no line"}},
        {lengthy, 0, {"line 1 has 1200 bytes", "is this a vocabulary"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Vocab *v = (Vocab *)&v;
        size_t len = cases[i].len ? cases[i].len : strlen(cases[i].text);
        assert_status(vocab_parse("v.txt", cases[i].text, len, NULL, &v), E_FORMAT);
        assert_null(v);
        assert_message(cases[i].messages[0]);
        assert_message(cases[i].messages[1]);
    }
    free(lengthy);
}

static void test_files(void **state)
{
    (void)state;
    char *dir = testing_directory(), *path = file_join(dir, "vocab.txt"), *copy = file_join(dir, "copy.txt");
    Vocab *v = NULL, *w = NULL;
    assert_status(vocab_read(path, NULL, &v), E_IO);
    assert_message(path);
    assert_ok(file_write_durable(path, "", 0));
    assert_status(vocab_read(path, NULL, &v), E_FORMAT);
    assert_message(path);
    const char *text = SPECIAL "caf\xC3\xA9\n##\xE6\x97\xA5";
    assert_ok(file_write_durable(path, text, strlen(text)));
    assert_ok(vocab_read(path, NULL, &v));
    assert_ok(vocab_write(v, copy));
    assert_ok(vocab_read(copy, NULL, &w));
    assert_int_equal(vocab_size(w), vocab_size(v));
    for (int32_t i = 0; i < vocab_size(v); i++) assert_string_equal(vocab_piece(w, i), vocab_piece(v, i));
    assert_true(digest_equal(vocab_digest(v), vocab_digest(w)));
    Digest file;
    assert_ok(file_digest(copy, &file, NULL));
    assert_true(digest_equal(file, vocab_digest(v)));
    vocab_free(v);
    vocab_free(w);
    assert_ok(file_remove_tree(dir));
    free(dir);
    free(path);
    free(copy);
}

/* Random pieces over few letters, so that many are prefixes of others: every one is found under its id, nothing else
   is, and the longest match is that of a search through the list. */
static void test_trie_against_list(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int round = 0; round < 20; round++) {
        Buf text = {0};
        char pieces[400][16];
        int n = 0, letters = round < 10 ? 3 : 200;
        buf_puts(&text, SPECIAL);
        while (n < 400) {
            char *p = pieces[n];
            int len = 1 + (int)(testing_random(&random) % 8), at = 0;
            if (testing_random(&random) % 2) at = sprintf(p, "##");
            for (int i = 0; i < len; i++) {
                unsigned c = (unsigned)(testing_random(&random) % (unsigned)letters);
                if (letters == 3)
                    p[at++] = (char)('a' + c);
                else { /* two bytes, U+00A0 and on */
                    p[at++] = (char)(0xC0 | (0xA0 + c) >> 6);
                    p[at++] = (char)(0x80 | ((0xA0 + c) & 63));
                    if (at > 12) break;
                }
            }
            p[at] = 0;
            bool known = false;
            for (int i = 0; i < n; i++) known = known || strcmp(pieces[i], p) == 0;
            if (known) continue;
            buf_printf(&text, "%s\n", p);
            n++;
        }
        Vocab *v = parse(text.data, text.len);
        for (int i = 0; i < n; i++) {
            assert_int_equal(vocab_find(v, pieces[i], strlen(pieces[i])), 5 + i);
            assert_string_equal(vocab_piece(v, 5 + i), pieces[i]);
            for (size_t len = 1; len < strlen(pieces[i]); len++) { /* a prefix is found only if it is a piece */
                int32_t expected = -1;
                for (int j = 0; j < n; j++) {
                    if (strlen(pieces[j]) == len && memcmp(pieces[j], pieces[i], len) == 0) expected = 5 + j;
                }
                assert_int_equal(vocab_find(v, pieces[i], len), expected);
            }
            /* longest match of two consecutive pieces, as a word's beginning and as its continuation */
            char word[40];
            int other = (int)(testing_random(&random) % (unsigned)n);
            size_t skip = strncmp(pieces[i], "##", 2) == 0 ? 2 : 0;
            size_t len = (size_t)sprintf(word, "%s%s", pieces[i] + skip, pieces[other]);
            for (int go_on = 0; go_on < 2; go_on++) {
                int32_t expected = -1;
                size_t best = 0, used = 0;
                for (int j = 0; j < n; j++) {
                    const char *p = pieces[j];
                    if (go_on && strncmp(p, "##", 2) != 0) continue;
                    if (go_on) p += 2;
                    if (strlen(p) > best && strncmp(word, p, strlen(p)) == 0) {
                        best = strlen(p);
                        expected = 5 + j;
                    }
                }
                assert_int_equal(trie_longest(v->nodes, go_on ? v->continuation : 0, word, len, &used), expected);
                if (expected >= 0) assert_int_equal(used, best);
            }
        }
        vocab_free(v);
        buf_free(&text);
    }
}

/* Regular pieces fill blocks of the trie without a gap; each search for room must skip them, or this
   takes an hour. Reading looks at `stop`. */
static void test_many_regular_pieces(void **state)
{
    enum { PIECES = 3000000 };
    volatile sig_atomic_t stop = 0;
    Buf text = {0};
    Vocab *v;
    (void)state;
    buf_puts(&text, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n");
    for (int i = 5; i < PIECES; i++) buf_printf(&text, "w%d\n", i);
    assert_ok(vocab_parse("v.txt", text.data, text.len, &stop, &v));
    assert_int_equal(vocab_find(v, "w2999999", 8), PIECES - 1);
    assert_int_equal(vocab_find(v, "w3000000", 8), -1);
    vocab_free(v);
    stop = SIGTERM;
    assert_status(vocab_parse("v.txt", text.data, text.len, &stop, &v), E_STOPPED);
    assert_null(v);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_ends),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_trie_against_list),
        cmocka_unit_test(test_many_regular_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
