/* The tokenizer by example and property: each option, special pieces in text, hostile bytes, pairs. Equality with
   Hugging Face is tested in test_text_golden.c. */
#include "testing.h"

#include "data/masking.h"
#include "text/text.h"

static const char pieces[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
                             "un\n##aff\n##able\n##a\na\nb\n##b\ncafe\ncaf\xC3\xA9\nCaf\xC3\xA9\nCafe\n,\n.\n[\n]\n"
                             "cls\nCLS\n\xE4\xB8\xAD\n##\xE4\xB8\xAD\n\xCF\x83\n##\xCF\x83\ni\n##i\n\xE2\x89\xA0\n=\n";

static Vocab *vocab;

static int make_vocab(void **state)
{
    (void)state;
    return vocab_parse("test", pieces, sizeof pieces - 1, NULL, &vocab) != OK;
}

static int free_vocab(void **state)
{
    (void)state;
    vocab_free(vocab);
    return 0;
}

/* The pieces of `text` with a space between them. */
static char *pieces_of(TokenizerOptions options, const char *text, size_t len)
{
    Tokenizer *t = tokenizer_new(vocab, options);
    TokenIds ids = {0};
    Buf out = {0};
    char *copy = mem_alloc(len); /* of exact size, so that sanitizers detect reads beyond its end */
    memcpy(copy, text, len);
    tokenizer_encode(t, copy, len, &ids);
    free(copy);
    buf_puts(&out, "");
    for (size_t i = 0; i < ids.count; i++) buf_printf(&out, "%s%s", i ? " " : "", vocab_piece(vocab, ids.ids[i]));
    token_ids_free(&ids);
    tokenizer_free(t);
    return out.data ? out.data : mem_strdup("");
}

/* The Python tokenizer's. */
#define OPTIONS(lower, strip, chinese, special)                                                                        \
    {                                                                                                                  \
        TOKENIZER_PYTHON, lower, strip, chinese, special, .clean_text = true, .split_words = true                      \
    }
static const TokenizerOptions uncased = OPTIONS(true, -1, true, false), cased = OPTIONS(false, -1, true, false);

static void check(TokenizerOptions options, const char *text, size_t len, const char *expected)
{
    char *found = pieces_of(options, text, len);
    if (strcmp(found, expected) != 0) fail_msg("\"%s\": expected \"%s\", found \"%s\"", text, expected, found);
    free(found);
}

#define CHECK_PIECES(options, text, expected) check(options, text, sizeof text - 1, expected)

static void test_wordpiece(void **state)
{
    (void)state;
    CHECK_PIECES(uncased, "", "");
    CHECK_PIECES(uncased, " \t\r\n ", "");
    CHECK_PIECES(uncased, "Unaffable", "un ##aff ##able");
    CHECK_PIECES(uncased, "unaffablex", "[UNK]");
    CHECK_PIECES(uncased, "un,a.b", "un , a . b");
    CHECK_PIECES(uncased, "ab ba", "a ##b b ##a");
    CHECK_PIECES(cased, "Unaffable", "[UNK]");
}

static void test_accents(void **state)
{
    (void)state;
    static const char composed[] = "Caf\xC3\xA9", apart[] = "Cafe\xCC\x81";
    TokenizerOptions keep = OPTIONS(true, 0, true, false), strip = OPTIONS(false, 1, true, false);
    CHECK_PIECES(uncased, composed, "cafe");
    CHECK_PIECES(uncased, apart, "cafe");
    CHECK_PIECES(cased, composed, "Caf\xC3\xA9");
    CHECK_PIECES(cased, apart, "Caf\xC3\xA9");
    CHECK_PIECES(keep, composed, "caf\xC3\xA9");
    CHECK_PIECES(strip, apart, "Cafe");
}

/* Lower case is Hugging Face's: character by character, so a word's last sigma is like any other; İ becomes i and a
 * dot. */
static void test_lower_case(void **state)
{
    (void)state;
    CHECK_PIECES(uncased, "\xCE\xA3\xCE\xA3", "\xCF\x83 ##\xCF\x83");
    CHECK_PIECES(uncased, "\xC4\xB0\xC4\xB0", "i ##i");
}

static void test_ideographs(void **state)
{
    (void)state;
    TokenizerOptions whole = OPTIONS(true, -1, false, false);
    CHECK_PIECES(uncased,
                 "a\xE4\xB8\xAD"
                 "b",
                 "a \xE4\xB8\xAD b");
    CHECK_PIECES(whole,
                 "a\xE4\xB8\xAD"
                 "b",
                 "a ##\xE4\xB8\xAD ##b");
}

static void test_special_pieces(void **state)
{
    (void)state;
    TokenizerOptions split = OPTIONS(false, -1, true, true), split_lower = OPTIONS(true, -1, true, true);
    CHECK_PIECES(uncased, "a[SEP]b [MASK] [PAD][UNK][CLS]", "a [SEP] b [MASK] [PAD] [UNK] [CLS]");
    CHECK_PIECES(cased, "[[SEP]]", "[ [SEP] ]");
    CHECK_PIECES(uncased, "[cls]", "[ cls ]");
    CHECK_PIECES(uncased, "[CLS", "[ cls");
    CHECK_PIECES(cased, "[CLS [C\0LS]", "[ CLS [CLS]"); /* a word that becomes special by cleaning stays whole */
    CHECK_PIECES(uncased, "[CLS [C\0LS]", "[ cls [ cls ]");
    CHECK_PIECES(split, "a [CLS] b[CLS]", "a [CLS] b [ CLS ]"); /* a word that is a special piece is not split */
    CHECK_PIECES(split_lower, "a [CLS] b[CLS]", "a [CLS] b [ cls ]");
}

static void test_dropped_and_spaces(void **state)
{
    (void)state;
    CHECK_PIECES(uncased, "a\0b", "a ##b");
    CHECK_PIECES(uncased,
                 "a\x7F\x1C\x0B\x0C"
                 "b",
                 "a ##b");
    CHECK_PIECES(uncased,
                 "a\xE2\x80\x8B"
                 "b",
                 "a ##b"); /* U+200B, category Cf */
    CHECK_PIECES(uncased,
                 "a\xEF\xBF\xBD"
                 "b",
                 "a ##b"); /* U+FFFD */
    CHECK_PIECES(uncased,
                 "a\xC2\xA0"
                 "b\xE3\x80\x80"
                 "a",
                 "a b a"); /* category Zs */
    CHECK_PIECES(uncased,
                 "a\xE2\x80\xA8"
                 "b\xE2\x80\xA9"
                 "a",
                 "a b a");                   /* line and paragraph separator */
    CHECK_PIECES(uncased, "=\xCC\xB8", "="); /* composes to U+2260 before punctuation is cut, then stripped */
    CHECK_PIECES(cased, "=\xCC\xB8", "\xE2\x89\xA0");
}

static void test_not_utf8(void **state)
{
    (void)state;
    CHECK_PIECES(uncased,
                 "a\xFF"
                 "b",
                 "a ##b");
    CHECK_PIECES(uncased,
                 "a\xE2\x82"
                 "b",
                 "a ##b");
    CHECK_PIECES(uncased,
                 "a\xED\xA0\x80"
                 "b \xC3",
                 "a ##b");
    CHECK_PIECES(uncased, "\xF0\x9F\x98", "");
}

static void test_long_words(void **state)
{
    (void)state;
    char text[103], expected[1000] = "a";
    memset(text, 'a', sizeof text);
    for (int i = 1; i < 100; i++) strcat(expected, " ##a");
    check(uncased, text, 100, expected);
    check(uncased, text, 101, "[UNK]");
    text[50] = '.'; /* the word's parts count, not the run between spaces */
    char *found = pieces_of(uncased, text, 103);
    assert_null(strstr(found, "[UNK]"));
    free(found);
}

/* A million characters without white space: marks that must be reordered, and letters. */
static void test_hostile_length(void **state)
{
    (void)state;
    Buf text = {0};
    for (int i = 0; i < 300000; i++) buf_puts(&text, i % 2 ? "\xCC\x80" : "\xCC\xA7"); /* classes 230 and 202 */
    for (int i = 0; i < 400000; i++) buf_puts(&text, "A");
    double start = clock_thread();
    char *found = pieces_of(uncased, text.data, text.len);
    assert_string_equal(found, "[UNK]");
    free(found);
    found = pieces_of(cased, text.data, text.len);
    assert_string_equal(found, "[UNK]");
    free(found);
    assert_true(clock_thread() - start < 10); /* sorting by insertion would take minutes */
    buf_free(&text);
}

/* Text cut at a space gives the same ids as the whole. */
static void test_appends(void **state)
{
    (void)state;
    Tokenizer *t = tokenizer_new(vocab, uncased);
    TokenIds whole = {0}, parts = {0};
    tokenizer_encode(t, "un a, b Caf\xC3\xA9", 13, &whole);
    tokenizer_encode(t, "un a,", 5, &parts);
    tokenizer_encode(t, "b Caf\xC3\xA9", 7, &parts);
    assert_int_equal(whole.count, 5);
    assert_int_equal(parts.count, 5);
    assert_memory_equal(whole.ids, parts.ids, 5 * sizeof *whole.ids);
    token_ids_free(&whole);
    token_ids_free(&parts);
    tokenizer_free(t);
    tokenizer_free(NULL);
}

/* What longest-first leaves of a and b: the Python tokenizer removes one token at a time, the tokenizers library gives
   the shorter text half of the room. */
static void cut_pair(TokenizerKind kind, int room, int *a, int *b)
{
    if (kind == TOKENIZER_PYTHON) {
        while (*a + *b > room) --*(*a > *b ? a : b);
    } else if (*a + *b > room) {
        int *shorter = *a > *b ? b : a, *longer = *a > *b ? a : b;
        *longer = room - *shorter > *shorter ? room - *shorter : *shorter;
        if (*a + *b > room) {
            *shorter = room / 2;
            *longer = room - room / 2;
        }
    }
}

/* Every pair of lengths to 12 and every max_len. */
static void check_pairs(TokenizerKind kind)
{
    TokenizerOptions options = uncased;
    options.kind = kind;
    Tokenizer *t = tokenizer_new(vocab, options);
    SpecialIds s = vocab_special(vocab);
    int32_t many[2][12], ids[32];
    uint8_t types[32];
    for (int i = 0; i < 12; i++) {
        many[0][i] = 100 + i;
        many[1][i] = 200 + i;
    }
    for (int na = 0; na <= 12; na++) {
        for (int nb = -1; nb <= 12; nb++) { /* −1: no b */
            for (int max = nb < 0 ? 2 : 3; max < 30; max++) {
                TokenIds a = {many[0], (size_t)na, 12}, b = {many[1], (size_t)(nb < 0 ? 0 : nb), 12};
                int left_a = na, left_b = nb < 0 ? 0 : nb, framing = nb < 0 ? 2 : 3;
                if (nb >= 0)
                    cut_pair(kind, max - framing, &left_a, &left_b);
                else if (left_a > max - framing)
                    left_a = max - framing;
                memset(ids, -1, sizeof ids);
                memset(types, 9, sizeof types);
                int n = tokenizer_pair(t, &a, nb < 0 ? NULL : &b, max, ids, types);
                assert_int_equal(n, left_a + left_b + framing);
                assert_int_equal(ids[0], s.cls);
                assert_memory_equal(ids + 1, many[0], (size_t)left_a * sizeof *ids);
                assert_int_equal(ids[1 + left_a], s.sep);
                for (int i = 0; i < left_a + 2; i++) assert_int_equal(types[i], 0);
                if (nb >= 0) {
                    assert_memory_equal(ids + left_a + 2, many[1], (size_t)left_b * sizeof *ids);
                    assert_int_equal(ids[n - 1], s.sep);
                    for (int i = left_a + 2; i < n; i++) assert_int_equal(types[i], 1);
                }
                assert_int_equal(ids[n], -1);
                assert_int_equal(types[n], 9);
            }
        }
    }
    tokenizer_free(t);
}

static void test_pairs(void **state)
{
    (void)state;
    check_pairs(TOKENIZER_PYTHON);
    check_pairs(TOKENIZER_FAST);
}

/* The beginning of a text gives the ids of the whole text's beginning, and no long text is read to its end for them. */
static void test_beginning(void **state)
{
    (void)state;
    enum { WORDS = 30000 };
    static const char *const words[] = {"unaffable", "a,b",    "caf\xC3\xA9",  " ", "\t",
                                        "[SEP]",     "ab\nba", "\xE4\xB8\xAD", "."};
    static const size_t most[] = {0, 1, 8, 512, 5000, SIZE_MAX};
    Tokenizer *t = tokenizer_new(vocab, uncased);
    Buf text = {0};
    TokenIds whole = {0};
    for (int i = 0; i < WORDS; i++) buf_printf(&text, "%s%s", words[i * 7 % 9], i % 5 ? " " : "");
    tokenizer_encode(t, text.data, text.len, &whole);
    for (size_t k = 0; k < sizeof most / sizeof *most; k++) {
        TokenIds ids = {0};
        tokenizer_encode_first(t, text.data, text.len, most[k], &ids);
        assert_true(ids.count >= (most[k] < whole.count ? most[k] : whole.count));
        assert_true(ids.count <= whole.count && (most[k] > 5000 || ids.count < most[k] + 20000));
        if (ids.count) assert_memory_equal(ids.ids, whole.ids, ids.count * sizeof *ids.ids);
        token_ids_free(&ids);
    }
    assert_true(whole.count > 40000);
    buf_free(&text);
    token_ids_free(&whole);
    tokenizer_free(t);
}

/* Every word of up to four letters a and b, as a word's first piece and as a later one. */
static Vocab *letters_vocab(void)
{
    Vocab *v;
    Buf text = {0};
    buf_puts(&text, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n,\n");
    for (int later = 0; later < 2; later++)
        for (unsigned len = 1; len <= 4; len++)
            for (unsigned bits = 0; bits < 1u << len; bits++) {
                buf_puts(&text, later ? "##" : "");
                for (unsigned k = 0; k < len; k++) buf_puts(&text, bits >> k & 1 ? "b" : "a");
                buf_puts(&text, "\n");
            }
    assert_int_equal(vocab_parse("letters", text.data, text.len, NULL, &v), OK);
    buf_free(&text);
    return v;
}

/* Ids of such a word: pieces of four letters, then the rest. */
static void cut_by_hand(const Vocab *v, const char *word, size_t len, TokenIds *out)
{
    for (size_t at = 0; at < len; at += 4) {
        char piece[8] = "##";
        size_t mark = at ? 2 : 0, used = len - at < 4 ? len - at : 4;
        memcpy(piece + mark, word + at, used);
        MEM_GROW(out->ids, out->count, out->cap);
        out->ids[out->count++] = vocab_find(v, piece, mark + used);
    }
}

/* More different words than the tokenizer keeps, of all lengths that it keeps and longer, in runs of up to 3000 bytes:
   each has its pieces, the first time and when it comes again. */
static void test_words_again(void **state)
{
    (void)state;
    enum { WORDS = 60000 };
    Vocab *v = letters_vocab();
    Tokenizer *t = tokenizer_new(v, uncased);
    Buf text = {0};
    TokenIds expected = {0}, ids = {0};
    Draws draw = draws(7, 0, 0, 0);
    for (int i = 0; i < WORDS; i++) {
        char word[24];
        size_t len = 1 + draw_below(&draw, 20);
        for (size_t k = 0; k < len; k++) word[k] = (char)("ab"[draw_below(&draw, 2)]);
        cut_by_hand(v, word, len, &expected);
        for (size_t k = 0; k < len; k++) word[k] = (char)(word[k] & ~(draw_below(&draw, 2) << 5)); /* some upper-case */
        buf_append(&text, word, len);
        if (i % 100 < 40) {
            buf_puts(&text, ",");
            cut_by_hand(v, ",", 1, &expected);
        } else {
            buf_puts(&text, i % 7 ? " " : "\n");
        }
    }
    for (int round = 0; round < 2; round++) {
        ids.count = 0;
        tokenizer_encode(t, text.data, text.len, &ids);
        assert_int_equal(ids.count, expected.count);
        assert_memory_equal(ids.ids, expected.ids, ids.count * sizeof *ids.ids);
    }
    tokenizer_free(t);
    vocab_free(v);
    buf_free(&text);
    token_ids_free(&expected);
    token_ids_free(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wordpiece),      cmocka_unit_test(test_accents),
        cmocka_unit_test(test_lower_case),     cmocka_unit_test(test_ideographs),
        cmocka_unit_test(test_special_pieces), cmocka_unit_test(test_dropped_and_spaces),
        cmocka_unit_test(test_not_utf8),       cmocka_unit_test(test_long_words),
        cmocka_unit_test(test_hostile_length), cmocka_unit_test(test_appends),
        cmocka_unit_test(test_pairs),          cmocka_unit_test(test_beginning),
        cmocka_unit_test(test_words_again),
    };
    return cmocka_run_group_tests(tests, make_vocab, free_vocab);
}
