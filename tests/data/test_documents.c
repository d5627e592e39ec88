/* Pairs of documents: every sentence is used; lengths, labels, masks; on random documents and on real text. */
#include "testing.h"

#include <math.h>

#include "data/documents.h"

static const PairOptions options = {.max_length = 64, .short_prob = 0.1, .seed = 42, .cls = 2, .sep = 3};

static void random_documents(Documents *d, int64_t count, int64_t sentences, int64_t length, uint64_t seed)
{
    uint64_t x = seed * 2 + 1;
    *d = (Documents){0};
    for (int64_t i = 0; i < count; i++) {
        documents_begin(d, (uint64_t)i * 3);
        int64_t n = 1 + (int64_t)(testing_random(&x) % (uint64_t)sentences);
        for (int64_t s = 0; s < n; s++) {
            int64_t tokens = 1 + (int64_t)(testing_random(&x) % (uint64_t)length);
            int32_t *ids = documents_sentence(d, tokens);
            for (int64_t k = 0; k < tokens; k++) ids[k] = 10 + (int32_t)(testing_random(&x) % 900);
        }
    }
}

typedef struct {
    const Documents *d;
    uint8_t *seen; // (sentences) as A or as the B that follows
    bool few;      /* a last sentence may be used twice: as the A of a lone B */
    int64_t pairs, label[2], last_document, last_end;
} Seen;

static void look(void *arg, const Pair *p)
{
    Seen *s = arg;
    const Documents *d = s->d;
    int64_t a = p->a_token_end - p->a_token, b = p->b_token_end - p->b_token;
    s->pairs++;
    s->label[p->label]++;
    assert_in_range(p->a, d->first[p->document], d->first[p->document + 1] - 1);
    assert_in_range(p->b, d->first[p->other], d->first[p->other + 1] - 1);
    assert_true(p->a < p->a_end && p->a_end <= d->first[p->document + 1]);
    assert_true(p->b < p->b_end && p->b_end <= d->first[p->other + 1]);
    assert_true(a >= 1 && b >= 1 && a + b + 3 <= options.max_length);
    assert_true(p->a_token >= d->token[p->a] && p->a_token_end <= d->token[p->a_end]);
    assert_true(p->b_token >= d->token[p->b] && p->b_token_end <= d->token[p->b_end]);
    /* It begins where the pair before it ended. */
    if (s->last_document == p->document)
        assert_true(p->a == s->last_end ||
                    (s->few && p->a == s->last_end - 1 && p->b_end == d->first[p->document + 1]));
    else
        assert_int_equal(p->a, d->first[p->document]);
    bool follows = p->label == 0 && p->other == p->document && p->b == p->a_end;
    assert_int_equal(p->label, p->other != p->document);
    if (p->label == 0) assert_int_equal(p->b, p->a_end);
    for (int64_t i = p->a; i < p->a_end; i++) s->seen[i]++;
    for (int64_t i = p->b; follows && i < p->b_end; i++) s->seen[i]++;
    s->last_document = p->document;
    s->last_end = follows ? p->b_end : p->a_end;
}

static void test_no_sentence_is_lost(void **state)
{
    (void)state;
    for (int64_t sentences = 1; sentences <= 40; sentences += 13) {
        Documents d;
        random_documents(&d, 500, sentences, 30, (uint64_t)sentences);
        Seen s = {.d = &d, .seen = mem_alloc((size_t)d.sentences), .last_document = -1};
        for (int64_t i = 0; i < d.count; i++) documents_pairs(&d, i, 0, &options, look, &s);
        for (int64_t i = 0; i < d.sentences; i++) assert_int_equal(s.seen[i], 1); /* once each, none twice */
        /* Where a document has one sentence, B is always random. */
        double share = (double)s.label[1] / (double)s.pairs;
        if (sentences == 1) assert_int_equal(s.label[0], 0);
        if (sentences > 30) assert_true(share > 0.45 && share < 0.62);
        free(s.seen);
        documents_free(&d);
    }
}

/* Without another document B follows A in every pair, no sentence is lost, and a lone sentence has no pair. With two,
   each random B is from the other, however many draws it takes. */
static void test_few_documents(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        Documents d;
        random_documents(&d, 1, 12, 40, seed);
        Seen s = {.d = &d, .seen = mem_alloc((size_t)d.sentences), .few = true, .last_document = -1};
        documents_pairs(&d, 0, 0, &options, look, &s);
        assert_int_equal(s.label[1], 0);
        assert_true(d.sentences == 1 ? s.pairs == 0 : s.pairs > 0);
        for (int64_t i = 0; i < d.sentences && d.sentences > 1; i++) assert_in_range(s.seen[i], 1, 2);
        free(s.seen);
        documents_free(&d);
    }
    for (uint64_t seed = 0; seed < 40; seed++) {
        Documents d;
        random_documents(&d, 2, 200, 60, seed);
        Seen s = {.d = &d, .seen = mem_alloc((size_t)d.sentences), .last_document = -1};
        for (uint32_t round = 0; round < 20; round++)
            for (int64_t i = 0; i < 2; i++) documents_pairs(&d, i, round, &options, look, &s), s.last_document = -1;
        free(s.seen);
        documents_free(&d);
    }
}

static void test_long_sentences_are_cut_on_both_ends(void **state)
{
    Documents d;
    (void)state;
    int64_t front = 0, back = 0;
    random_documents(&d, 200, 3, 3000, 5);
    Sequences out = {0};
    documents_sequences(&d, 0, &options, NULL, &out);
    for (int64_t i = 0; i < out.e.count; i++) {
        const int32_t *ids = out.e.ids + out.e.offset[i];
        int64_t n = example_length(&out.e, i), first = 0;
        assert_int_equal(ids[0], 2);
        assert_int_equal(ids[n - 1], 3);
        while (ids[first] != 3) first++;
        for (int64_t k = 0; k < n; k++) assert_int_equal(out.e.types[out.e.offset[i] + k], k > first);
        bool starts = false, ends = false;
        for (int64_t s = 0; s < d.sentences; s++) {
            starts |= d.ids[d.token[s]] == ids[1] && d.ids[d.token[s] + 1] == ids[2];
            ends |= d.ids[d.token[s + 1] - 1] == ids[n - 2] && d.ids[d.token[s + 1] - 2] == ids[n - 3];
        }
        front += !starts;
        back += !ends;
    }
    assert_true(front > out.e.count / 2 && back > out.e.count / 2);
    sequences_free(&out);
    documents_free(&d);
}

/* Without pairs every token is used once, in order, and no sequence crosses documents. */
static void test_texts_alone(void **state)
{
    Documents d;
    Sequences out = {0};
    PairOptions alone = options;
    int64_t at = 0, document = 0;
    (void)state;
    alone.alone = true;
    random_documents(&d, 50, 20, 300, 5);
    documents_sequences(&d, 0, &alone, NULL, &out);
    for (int64_t i = 0; i < out.e.count; i++) {
        const int32_t *ids = out.e.ids + out.e.offset[i];
        int64_t n = example_length(&out.e, i), last;
        assert_in_range(n, 3, alone.max_length);
        assert_true(ids[0] == 2 && ids[n - 1] == 3);
        assert_memory_equal(ids + 1, d.ids + at, (size_t)(n - 2) * sizeof *ids);
        at += n - 2;
        while ((last = d.token[d.first[document + 1]]) < at) document++;
        assert_true(at - (n - 2) >= d.token[d.first[document]]);
        if (at == last) document++;
        for (int64_t k = 0; k < n; k++) assert_int_equal(out.e.types[out.e.offset[i] + k], 0);
        assert_int_equal(out.e.label[i], -1);
    }
    assert_int_equal(at, d.tokens);
    sequences_free(&out);
    documents_free(&d);
}

static void test_rounds_and_seeds_differ_and_repeat(void **state)
{
    Documents d;
    Sequences s[4] = {0};
    (void)state;
    random_documents(&d, 100, 20, 20, 9);
    PairOptions other = options;
    other.seed = 43;
    documents_sequences(&d, 0, &options, NULL, &s[0]);
    documents_sequences(&d, 0, &options, NULL, &s[1]);
    documents_sequences(&d, 1, &options, NULL, &s[2]);
    documents_sequences(&d, 0, &other, NULL, &s[3]);
    assert_int_equal(s[0].e.count, s[1].e.count);
    assert_memory_equal(s[0].e.ids, s[1].e.ids, (size_t)s[0].e.offset[s[0].e.count] * sizeof(int32_t));
    for (int k = 2; k < 4; k++) {
        int64_t n = s[k].e.offset[s[k].e.count];
        assert_true(n != s[0].e.offset[s[0].e.count] ||
                    memcmp(s[0].e.ids, s[k].e.ids, (size_t)n * sizeof(int32_t)) != 0);
    }
    for (int k = 0; k < 4; k++) sequences_free(&s[k]);
    documents_free(&d);
}

/* ---- real text ---- */

static void test_real_text(void **state)
{
    const char *shared = getenv("CAIRN_TEST_DATA") ? getenv("CAIRN_TEST_DATA") : "../shared/data";
    char *text_path = mem_printf("%s/wikipedia/wikitext-2-valid.txt", shared),
         *vocab_path = mem_printf("%s/vocab/bert-base-uncased-vocab.txt", shared);
    (void)state;
    if (!file_exists(text_path) || !file_exists(vocab_path)) {
        print_message("skipped: %s is absent\n", text_path);
        free(text_path);
        free(vocab_path);
        skip();
    }
    Vocab *vocab;
    Buf text = {0};
    TokenIds ids = {0};
    Documents d = {0};
    Sequences out = {0};
    Masking m;
    assert_ok(vocab_read(vocab_path, NULL, &vocab));
    assert_ok(file_read(text_path, 1 << 24, &text));
    Tokenizer *t = tokenizer_new(vocab, tokenizer_options(true));
    uint64_t number = 0;
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) {
        bool title = strncmp(line, " = ", 3) == 0 && strncmp(line, " = = ", 5) != 0;
        ids.count = 0;
        tokenizer_encode(t, line, strlen(line), &ids);
        if (ids.count == 0 || (!title && number == 0)) continue;
        if (title) documents_begin(&d, number++);
        /* Lines are paragraphs: sentences end with a full stop. */
        int32_t stop = vocab_find(vocab, ".", 1);
        for (size_t i = 0, start = 0; i < ids.count; i++)
            if (ids.ids[i] == stop || i + 1 == ids.count) {
                memcpy(documents_sentence(&d, (int64_t)(i + 1 - start)), ids.ids + start,
                       (i + 1 - start) * sizeof(int32_t));
                start = i + 1;
            }
    }
    assert_int_equal(d.count, 60);
    PairOptions o = {.max_length = 128, .short_prob = 0.1, .seed = 12345, .cls = 101, .sep = 102};
    masking_init(&m, vocab, 12345, 0.15, 20, false);
    documents_sequences(&d, 0, &o, &m, &out);
    const Examples *e = &out.e;
    int64_t kinds[3] = {0}, random_next = 0, masked = 0, full = 0, expected = 0;
    for (int64_t i = 0; i < e->count; i++) {
        const int32_t *row = e->ids + e->offset[i];
        int64_t n = example_length(e, i), seps = 0;
        assert_in_range(n, 5, 128);
        full += n > 118;
        int32_t whole[128];
        memcpy(whole, row, (size_t)n * sizeof *row);
        for (int64_t k = e->masked_offset[i]; k < e->masked_offset[i + 1]; k++) {
            int32_t place = e->masked_place[k], word = e->masked_label[k];
            kinds[row[place] == 103 ? 0 : row[place] == word ? 1 : 2]++;
            whole[place] = word;
            assert_true(word != 101 && word != 102);
        }
        for (int64_t k = 0; k < n; k++) seps += whole[k] == 102;
        assert_int_equal(whole[0], 101);
        assert_int_equal(whole[n - 1], 102);
        assert_int_equal(seps, 2);
        int64_t wanted = (int64_t)rint((double)n * 0.15);
        wanted = wanted < 1 ? 1 : wanted > 20 ? 20 : wanted;
        assert_int_equal(example_masked(e, i), wanted);
        expected += wanted;
        masked += example_masked(e, i);
        random_next += e->label[i] == 1;
    }
    assert_int_equal(masked, expected);
    assert_true(e->count > 2000 && full > e->count * 8 / 10);
    double share = (double)random_next / (double)e->count, sigma = 0.5 / sqrt((double)e->count);
    assert_true(share > 0.5 - 4 * sigma &&
                share < 0.5 + 4 * sigma + 0.02); /* chunks of one sentence are always random */
    double all = (double)masked, wanted[3] = {0.8 * all, 0.1 * all, 0.1 * all}, chi = 0;
    for (int k = 0; k < 3; k++) chi += pow((double)kinds[k] - wanted[k], 2) / wanted[k];
    assert_true(chi < 13.8); /* 2 degrees of freedom, one in a thousand */
    masking_free(&m);
    sequences_free(&out);
    documents_free(&d);
    token_ids_free(&ids);
    tokenizer_free(t);
    vocab_free(vocab);
    buf_free(&text);
    free(text_path);
    free(vocab_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_sentence_is_lost),
        cmocka_unit_test(test_few_documents),
        cmocka_unit_test(test_long_sentences_are_cut_on_both_ends),
        cmocka_unit_test(test_texts_alone),
        cmocka_unit_test(test_rounds_and_seeds_differ_and_repeat),
        cmocka_unit_test(test_real_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
