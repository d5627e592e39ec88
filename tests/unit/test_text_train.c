/* Vocabulary training: a case done by hand, comparison with a plain trainer that recounts everything, and the promises
   of text.h: the order of the input does not matter, sizes are kept, no word of the text becomes [UNK]. */
#include "testing.h"

#include "text/text.h"

static const TokenizerOptions uncased = {
    .lower_case = true, .strip_accents = -1, .split_chinese = true, .clean_text = true, .split_words = true};

static Vocab *train(VocabTraining options, const char *text)
{
    Vocab *v = NULL;
    options.normalisation = uncased;
    VocabTrainer *t = vocab_trainer_new(options);
    vocab_trainer_add(t, text, strlen(text));
    assert_ok(vocab_trainer_finish(t, &v));
    vocab_trainer_free(t);
    return v;
}

static void expect_pieces(const Vocab *v, const char *expected)
{
    Buf found = {0};
    for (int32_t i = 0; i < vocab_size(v); i++) buf_printf(&found, "%s ", vocab_piece(v, i));
    assert_string_equal(found.data, expected);
    buf_free(&found);
}

#define SPECIAL "[PAD] [UNK] [CLS] [SEP] [MASK] "

/* hug 10, hugs 5, pug 5, pun 12, bun 4. Pairs: ##u+##g 20, p+##u 17, ##u+##n 16, h+##u 15, ##g+##s 5, b+##u 4. First
   ##ug; that leaves p+##u 12, so next ##un 16; then h+##ug 15; p+##un 12; p+##ug 5, which ties with hug+##s and has the
   older piece; that; and b+##un 4. With pug nothing uses ##ug any more: in a vocabulary of 22 hugs takes its place. */
static void test_by_hand(void **state)
{
    (void)state;
    Buf text = {0};
    for (int i = 0; i < 10; i++) buf_puts(&text, "hug ");
    for (int i = 0; i < 5; i++) buf_puts(&text, "pug Hugs, ");
    for (int i = 0; i < 12; i++) buf_puts(&text, "pun ");
    for (int i = 0; i < 4; i++) buf_puts(&text, "bun [MASK] ");
    log_set_level(LOG_ERROR);
    static const struct {
        VocabTraining options;
        const char *pieces;
    } cases[] = {
        {{.size = 100}, SPECIAL ", b g h n p s u ##g ##n ##s ##u ##ug ##un hug pun pug hugs bun "},
        {{.size = 22}, SPECIAL ", b g h n p s u ##g ##n ##s ##u ##un hug pun pug hugs "},
        {{.size = 20}, SPECIAL ", b g h n p s u ##g ##n ##s ##u ##ug ##un hug "},
        {{.size = 17}, SPECIAL ", b g h n p s u ##g ##n ##s ##u "},
        {{.size = 100, .min_count = 13}, SPECIAL ", b g h n p s u ##g ##n ##s ##u ##ug ##un hug "},
        {{.size = 100, .max_piece = 2}, SPECIAL ", b g h n p s u ##g ##n ##s ##u ##ug ##un "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Vocab *v = train(cases[i].options, text.data);
        expect_pieces(v, cases[i].pieces);
        vocab_free(v);
    }
    log_set_level(LOG_INFO);
    buf_free(&text);
}

/* a 8 times, the others once: by count, then by code point, as far as there is room. Those that continue no word need
 * no
 * ##. */
static void test_limits(void **state)
{
    (void)state;
    static const char text[] = "aaa aaa aab \xE4\xB8\xAD . q";
    static const struct {
        VocabTraining options;
        const char *pieces;
    } cases[] = {
        {{.size = 100}, SPECIAL ". a b q \xE4\xB8\xAD ##a ##b aa aaa "},
        {{.size = 9}, SPECIAL ". a ##a aa "}, /* b would need two lines; aab, unknown now, does not count */
        {{.size = 8}, SPECIAL ". a ##a "},
        {{.size = 7}, SPECIAL "a ##a "},
        {{.size = 100, .alphabet = 2}, SPECIAL ". a ##a aa aaa "},
        {{.size = 100, .min_count = 9}, SPECIAL ". a b q \xE4\xB8\xAD ##a ##b "},
    };
    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Vocab *v = train(cases[i].options, text);
        expect_pieces(v, cases[i].pieces);
        vocab_free(v);
    }
    log_set_level(LOG_INFO);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        int32_t size;
        const char *text;
        Status status;
        const char *message;
    } cases[] = {
        {100, "", E_FORMAT, "no words"},
        {100, " \n [SEP][CLS] \xFF", E_FORMAT, "no words"},
        {6, "aa", E_USAGE, "size 6"},
        {-1, "a", E_USAGE, "size -1"},
    };
    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Vocab *v = (Vocab *)&v;
        VocabTrainer *t = vocab_trainer_new((VocabTraining){.size = cases[i].size, .normalisation = uncased});
        vocab_trainer_add(t, cases[i].text, strlen(cases[i].text));
        assert_status(vocab_trainer_finish(t, &v), cases[i].status);
        assert_null(v);
        assert_message(cases[i].message);
        vocab_trainer_free(t);
    }
    vocab_trainer_free(NULL);
    log_set_level(LOG_INFO);
}

/* ---- Comparison with a trainer that recounts all pairs for every merge ---- */

enum { WORDS = 60, MOST = 12, PIECE = 32 };

typedef struct {
    char symbols[MOST][PIECE];
    int n, count;
} Word;

/* Where a piece stands in the list of all, with blanks around each: older pieces come first. */
static const char *place_of(const Buf *all, const char *piece)
{
    char delimited[4 * PIECE];
    snprintf(delimited, sizeof delimited, " %.*s ", 3 * PIECE, piece);
    return strstr(all->data, delimited);
}

static void naive_best(const Word *words, const Buf *all, int min_count, char best_a[PIECE], char best_b[PIECE])
{
    int best = 0;
    best_a[0] = 0;
    for (int w = 0; w < WORDS; w++) {
        for (int i = 0; i + 1 < words[w].n; i++) {
            const char *a = words[w].symbols[i], *b = words[w].symbols[i + 1];
            int count = 0;
            for (int u = 0; u < WORDS; u++) {
                for (int j = 0; j + 1 < words[u].n; j++) {
                    bool same = strcmp(words[u].symbols[j], a) == 0 && strcmp(words[u].symbols[j + 1], b) == 0;
                    if (same) count += words[u].count;
                }
            }
            if (count < min_count || count < best) continue;
            if (count == best && (strcmp(a, best_a) ? place_of(all, a) > place_of(all, best_a)
                                                    : place_of(all, b) >= place_of(all, best_b)))
                continue;
            best = count;
            strcpy(best_a, a);
            strcpy(best_b, b);
        }
    }
}

static void naive_merge(Word *word, const char *a, const char *b, const char *merged)
{
    int kept = 0;
    for (int i = 0; i < word->n; i++) {
        bool here = i + 1 < word->n && strcmp(word->symbols[i], a) == 0 && strcmp(word->symbols[i + 1], b) == 0;
        if (here)
            strcpy(word->symbols[kept++], merged);
        else if (kept == i)
            kept++;
        else
            strcpy(word->symbols[kept++], word->symbols[i]);
        i += here;
    }
    word->n = kept;
}

static int pieces_in(const Buf *all)
{
    int n = -1; /* the list begins with a blank */
    for (const char *p = all->data; *p; p++) n += *p == ' ';
    return n;
}

/* Cuts a word again, the longest piece first, and puts its pieces into `used`. */
static void naive_cut(Word *word, const Buf *all, Buf *used)
{
    char text[MOST + 1] = "", piece[PIECE];
    for (int i = 0; i < word->n; i++) strcat(text, word->symbols[i] + (i ? 2 : 0));
    word->n = 0;
    for (size_t at = 0, len; at < strlen(text); at += len) {
        for (len = strlen(text) - at;; len--) {
            snprintf(piece, sizeof piece, "%s%.*s", at ? "##" : "", (int)len, text + at);
            if (place_of(all, piece)) break;
        }
        strcpy(word->symbols[word->n++], piece);
        if (!place_of(used, piece)) buf_printf(used, "%s ", piece);
    }
}

/* Makes `all` a vocabulary of `size` pieces; it has the special ones and characters. */
static void naive_train(Word *words, int size, int min_count, Buf *all)
{
    char a[PIECE], b[PIECE], merged[2 * PIECE];
    Buf chosen = {0}, used = {0};
    size_t characters = all->len;
    for (int wanted = size, kept = 0, before = -1; kept < size && before < pieces_in(all);) {
        before = pieces_in(all);
        while (pieces_in(all) < wanted) {
            naive_best(words, all, min_count, a, b);
            if (!a[0]) break;
            snprintf(merged, sizeof merged, "%s%s", a, b + 2);
            for (int w = 0; w < WORDS; w++) naive_merge(&words[w], a, b, merged);
            if (!place_of(all, merged)) buf_printf(all, "%s ", merged); /* else two ways to the same piece */
        }
        buf_free(&used);
        buf_append(&used, all->data, characters); /* kept in any case */
        for (int w = 0; w < WORDS; w++) naive_cut(&words[w], all, &used);
        kept = pieces_in(&used);
        wanted = pieces_in(all) + size - kept;
    }
    int room = size - pieces_in(&used), n = 0;
    buf_puts(&chosen, " ");
    for (char *rest = all->data + 1, *piece; n < size && (piece = strsep(&rest, " ")) && *piece;) {
        if (!place_of(&used, piece) && room-- <= 0) continue;
        buf_printf(&chosen, "%s ", piece);
        n++;
    }
    buf_free(&used);
    buf_free(all);
    *all = chosen;
}

static void test_against_recounting(void **state)
{
    (void)state;
    uint64_t random = 99;
    log_set_level(LOG_ERROR);
    for (int round = 0; round < 40; round++) {
        Word words[WORDS];
        Buf text = {0}, reverse = {0}, expected = {0};
        int letters = 2 + round % 4, min_count = 1 + round % 3;
        memset(words, 0, sizeof words);
        for (int w = 0; w < WORDS; w++) {
            char word[MOST + 1] = {0};
            words[w].n = 1 + (int)(testing_random(&random) % MOST);
            words[w].count = 1 + (int)(testing_random(&random) % 4);
            for (int i = 0; i < words[w].n; i++) {
                word[i] =
                    i == 0 && w < letters ? (char)('a' + w) : (char)('a' + testing_random(&random) % (unsigned)letters);
                sprintf(words[w].symbols[i], "%s%c", i ? "##" : "", word[i]);
            }
            for (int k = 0; k < words[w].count; k++) buf_printf(&text, "%s%c", word, k % 2 ? '\n' : ' ');
        }
        for (int w = WORDS - 1; w >= 0; w--) {
            for (int k = 0; k < words[w].count; k++) {
                for (int i = 0; i < words[w].n; i++) buf_puts(&reverse, words[w].symbols[i] + (i ? 2 : 0));
                buf_puts(&reverse, "\n");
            }
        }
        int size = 5 + 2 * letters + (round % 2 ? 30 : 1000);
        buf_puts(&expected, " " SPECIAL);
        for (int i = 0; i < letters; i++) buf_printf(&expected, "%c ", 'a' + i);
        for (int i = 0; i < letters; i++) buf_printf(&expected, "##%c ", 'a' + i);
        naive_train(words, size, min_count, &expected);

        VocabTraining options = {.size = size, .min_count = min_count};
        Vocab *v = train(options, text.data);
        expect_pieces(v, expected.data + 1);
        vocab_free(v);
        v = train(options, reverse.data); /* another order */
        expect_pieces(v, expected.data + 1);
        vocab_free(v);
        options.normalisation = uncased;
        VocabTrainer *t = vocab_trainer_new(options); /* line by line */
        for (const char *p = text.data, *end = p + text.len; p < end;) {
            const char *stop = memchr(p, '\n', (size_t)(end - p));
            stop = stop ? stop + 1 : end;
            vocab_trainer_add(t, p, (size_t)(stop - p));
            p = stop;
        }
        assert_ok(vocab_trainer_finish(t, &v));
        expect_pieces(v, expected.data + 1);
        vocab_trainer_free(t);
        vocab_free(v);
        buf_free(&text);
        buf_free(&reverse);
        buf_free(&expected);
    }
    log_set_level(LOG_INFO);
}

/* Real text: none of its words becomes [UNK], the sizes are exact where the text gives enough pieces, and the text has
   no more pieces than with a vocabulary of Hugging Face's trainer (tests/golden/make_vocab_pieces.py). */
static void test_real_text(void **state)
{
    (void)state;
    const char *data = getenv("CAIRN_TEST_DATA");
    char *path = file_join(data && *data ? data : "../shared/data", "wikipedia/wikitext-2-valid.txt");
    if (!file_exists(path)) {
        printf("skipped: %s is absent (CAIRN_TEST_DATA names the folder)\n", path);
        free(path);
        skip();
    }
    FileMap map;
    assert_ok(file_map(&map, path));
    FILE *golden = fopen("tests/golden/vocab_pieces.txt", "r");
    int size, cases = 0;
    size_t theirs;
    assert_non_null(golden);
    while (fgetc(golden) != '\n') assert_false(feof(golden));
    log_set_level(LOG_ERROR);
    for (; fscanf(golden, "%d %zu", &size, &theirs) == 2; cases++) {
        Vocab *v = NULL;
        VocabTrainer *t = vocab_trainer_new((VocabTraining){.size = size, .normalisation = uncased});
        vocab_trainer_add(t, (const char *)map.data, map.size);
        assert_ok(vocab_trainer_finish(t, &v));
        vocab_trainer_free(t);
        assert_true(size > 8000 ? vocab_size(v) < size : vocab_size(v) == size);
        Tokenizer *tokenizer = tokenizer_new(v, uncased);
        TokenIds ids = {0};
        size_t unknown = 0;
        tokenizer_encode(tokenizer, (const char *)map.data, map.size, &ids);
        for (size_t i = 0; i < ids.count; i++) unknown += ids.ids[i] == vocab_special(v).unk;
        assert_int_equal(unknown, 0);
        assert_true(ids.count <= theirs);
        token_ids_free(&ids);
        tokenizer_free(tokenizer);
        vocab_free(v);
    }
    log_set_level(LOG_INFO);
    assert_int_equal(cases, 3);
    fclose(golden);
    file_unmap(&map);
    free(path);
}

/* Words counted in parts, and added, give the vocabulary of the whole. */
static void test_merged_counts(void **state)
{
    (void)state;
    static const char first[] = "hug hug hug pug pun [SEP] bun.", second[] = "pun pun bun hugs hugs, mug mug mug";
    VocabTraining options = {.size = 40, .normalisation = uncased};
    VocabTrainer *whole = vocab_trainer_new(options), *a = vocab_trainer_new(options), *b = vocab_trainer_new(options);
    Vocab *expected, *found;
    log_set_level(LOG_ERROR);
    vocab_trainer_add(whole, first, sizeof first - 1);
    vocab_trainer_add(whole, second, sizeof second - 1);
    vocab_trainer_add(a, first, sizeof first - 1);
    vocab_trainer_add(b, second, sizeof second - 1);
    vocab_trainer_merge(b, a);
    assert_ok(vocab_trainer_finish(whole, &expected));
    assert_ok(vocab_trainer_finish(b, &found));
    log_set_level(LOG_INFO);
    Digest x = vocab_digest(expected), y = vocab_digest(found);
    assert_memory_equal(&x, &y, sizeof x);
    vocab_free(expected);
    vocab_free(found);
    vocab_trainer_free(whole);
    vocab_trainer_free(a);
    vocab_trainer_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_merged_counts),      cmocka_unit_test(test_limits),
        cmocka_unit_test(test_errors),  cmocka_unit_test(test_against_recounting), cmocka_unit_test(test_real_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
