/* The bundled NLI sample. Its generator writes the committed files; they have MNLI's layout; no evaluated sentence is
   in the training set; no sentence alone, and no bag of words, determines the label. */
#include "testing.h"

#include <ctype.h>
#include <math.h>
#include <strings.h>

#include "tasks/glue/glue.h"

int make_sample_main(int argc, char **argv);
#define main make_sample_main
#include "tasks/glue/sample/make_sample.c"
#undef main

#define SAMPLE "tasks/glue/sample"

static const GlueTask *mnli;
static GlueExamples sets[5]; /* in the order of the task's splits */
static FileMap maps[5];      /* their files */

static int read_all(void **state)
{
    (void)state;
    if (glue_task_find("MNLI", &mnli) != OK) return 1;
    for (int i = 0; i < 5; i++) {
        if (glue_read(&sets[i], SAMPLE, mnli, &mnli->splits[i]) == OK && file_map(&maps[i], sets[i].path) == OK)
            continue;
        print_error("%s\n", status_message());
        return 1;
    }
    return 0;
}

static int free_all(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) glue_examples_free(&sets[i]), file_unmap(&maps[i]);
    return 0;
}

static void the_generator_writes_the_committed_files(void **state)
{
    (void)state;
    char *dir = testing_directory();
    assert_int_equal(make_sample_main(2, (char *[]){"make_sample", dir, NULL}), 0);
    for (int i = 0; i < 5; i++) {
        FileMap made = {0};
        char *path = file_join(dir, mnli->splits[i].file);
        assert_ok(file_map(&made, path));
        assert_int_equal(made.size, maps[i].size);
        assert_memory_equal(made.data, maps[i].data, made.size);
        file_unmap(&made);
        free(path);
    }
    assert_ok(file_remove_tree(dir));
    free(dir);
}

#define TEN                                                                                                            \
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"                \
    "sentence2_parse\tsentence1\tsentence2"
#define DEV_HEADER TEN "\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n"

static void mnli_s_layout_and_balance(void **state)
{
    (void)state;
    static const char *const columns[5] = {TEN "\tlabel1\tgold_label\n", DEV_HEADER, DEV_HEADER, TEN "\n", TEN "\n"};
    size_t total = 0;
    for (int i = 0; i < 5; i++) {
        size_t of_label[3] = {0}, n = sets[i].count;
        total += maps[i].size;
        assert_true(maps[i].size > strlen(columns[i]));
        assert_memory_equal(maps[i].data, columns[i], strlen(columns[i]));
        assert_int_equal(sets[i].labelled, i < 3);
        for (size_t k = 0; k < n; k++) {
            assert_true(sets[i].examples[k].a.len > 10 && sets[i].examples[k].b.len > 10);
            if (i < 3) of_label[sets[i].examples[k].label]++;
        }
        for (int l = 0; i < 3 && l < 3; l++) { /* a third each, within 10 % */
            if (of_label[l] * 3 < n * 9 / 10 || of_label[l] * 3 > n * 11 / 10)
                fail_msg("%s: %zu of %zu rows have label %d", sets[i].path, of_label[l], n, l);
        }
    }
    assert_true(total < 1500000);
}

/* ---- evaluated sentences are not in the training set ---- */

typedef struct {
    const char *p;
    size_t len;
} Text;

static int by_text(const void *a, const void *b)
{
    const Text *x = a, *y = b;
    int order = memcmp(x->p, y->p, x->len < y->len ? x->len : y->len);
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

static void no_evaluated_sentence_is_trained_on(void **state)
{
    (void)state;
    size_t n = 2 * sets[0].count;
    Text *seen = mem_array(n, sizeof *seen);
    for (size_t i = 0; i < sets[0].count; i++) {
        seen[2 * i] = (Text){sets[0].examples[i].a.p, sets[0].examples[i].a.len};
        seen[2 * i + 1] = (Text){sets[0].examples[i].b.p, sets[0].examples[i].b.len};
    }
    qsort(seen, n, sizeof *seen, by_text);
    assert_non_null(
        bsearch(&(Text){sets[0].examples[7].b.p, sets[0].examples[7].b.len}, seen, n, sizeof *seen, by_text));
    for (int s = 1; s < 5; s++) {
        for (size_t i = 0; i < sets[s].count; i++) {
            const GlueExample *e = &sets[s].examples[i];
            Text a = {e->a.p, e->a.len}, b = {e->b.p, e->b.len};
            if (bsearch(&a, seen, n, sizeof a, by_text) || bsearch(&b, seen, n, sizeof b, by_text))
                fail_msg("%s:%d: a sentence of training", sets[s].path, (int)e->line);
        }
    }
    free(seen);
}

/* ---- bags of words ---- */

enum { MAX_VOCABULARY = 512, LONGEST_WORD = 24 };

typedef struct {
    char word[LONGEST_WORD];
    double count[3];
} WordCount;

typedef struct {
    WordCount words[MAX_VOCABULARY];
    int n;
    double total[3];
} Bayes; /* naive Bayes over words, with one added to every count */

static WordCount *word_find(Bayes *m, const char *p, size_t len, bool add)
{
    for (int i = 0; i < m->n; i++) {
        if (strlen(m->words[i].word) == len && !strncasecmp(m->words[i].word, p, len)) return &m->words[i];
    }
    if (!add) return NULL;
    assert_true(m->n < MAX_VOCABULARY && len < LONGEST_WORD);
    memcpy(m->words[m->n].word, p, len);
    return &m->words[m->n++];
}

/* Counts the words of a text for a label, or (label −1) adds their log-likelihoods to `score`. */
static void bayes_text(Bayes *m, const char *p, size_t len, int label, double score[3])
{
    const char *end = p + len;
    while (p < end) {
        const char *start = p;
        while (p < end && isalpha((unsigned char)*p)) p++;
        size_t n = (size_t)(p - start);
        if (p < end) p++;
        if (!n) continue;
        WordCount *w = word_find(m, start, n, label >= 0);
        if (label >= 0) {
            w->count[label]++;
            m->total[label]++;
        }
        for (int l = 0; label < 0 && w && l < 3; l++) score[l] += log((w->count[l] + 1) / (m->total[l] + m->n));
    }
}

/* Accuracy on `dev` of a classifier that is shown the words of the premise (1), the hypothesis (2) or both (3). */
static double words_alone(const GlueExamples *dev, int shown)
{
    Bayes *m = mem_alloc(sizeof *m);
    size_t right = 0;
    for (size_t i = 0; i < sets[0].count; i++) {
        const GlueExample *e = &sets[0].examples[i];
        if (shown & 1) bayes_text(m, e->a.p, e->a.len, e->label, NULL);
        if (shown & 2) bayes_text(m, e->b.p, e->b.len, e->label, NULL);
    }
    for (size_t i = 0; i < dev->count; i++) {
        const GlueExample *e = &dev->examples[i];
        double score[3] = {0};
        if (shown & 1) bayes_text(m, e->a.p, e->a.len, -1, score);
        if (shown & 2) bayes_text(m, e->b.p, e->b.len, -1, score);
        int best = 0;
        for (int l = 1; l < 3; l++) best = score[l] > score[best] ? l : best;
        right += best == e->label;
    }
    free(m);
    return (double)right / (double)dev->count;
}

/* One sentence allows a guess and no more; the quickstart requires 0.90. */
static void words_alone_do_not_determine_the_label(void **state)
{
    (void)state;
    for (int s = 1; s < 3; s++) {
        for (int shown = 1; shown <= 3; shown++) {
            double accuracy = words_alone(&sets[s], shown);
            print_message("%s, %s: %.3f\n", mnli->splits[s].name,
                          shown == 1   ? "premise alone"
                          : shown == 2 ? "hypothesis alone"
                                       : "both as a bag of words",
                          accuracy);
            assert_true(accuracy < 0.60);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generator_writes_the_committed_files),
        cmocka_unit_test(mnli_s_layout_and_balance),
        cmocka_unit_test(no_evaluated_sentence_is_trained_on),
        cmocka_unit_test(words_alone_do_not_determine_the_label),
    };
    return cmocka_run_group_tests(tests, read_all, free_all);
}
