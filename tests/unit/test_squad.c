/* SQuAD's windows, answers and scores against tests/golden/squad, which Transformers made; refusals of the reader. */
#include "testing.h"

#include <math.h>

#include "tasks/squad/squad.h"

#define FOLDER "tests/golden/squad/"

typedef struct {
    Json *expected;
    Vocab *vocab;
    Tokenizer *tokenizer;
} Golden;

static int set_up(void **state)
{
    static Golden g;
    assert_ok(js_read(FOLDER "expected.json", &g.expected));
    assert_ok(vocab_read(FOLDER "vocab.txt", NULL, &g.vocab));
    g.tokenizer = tokenizer_new(g.vocab, tokenizer_options(true));
    *state = &g;
    return 0;
}

static int tear_down(void **state)
{
    Golden *g = *state;
    js_free(g->expected);
    tokenizer_free(g->tokenizer);
    vocab_free(g->vocab);
    return 0;
}

static const Json *case_at(const Golden *g, size_t i) { return js_at(js_get(g->expected, "cases"), i); }
static size_t n_cases(const Golden *g) { return js_size(js_get(g->expected, "cases")); }

static SquadCut cut_of(const Golden *g, const Json *c, bool training)
{
    const Json *cut = js_get(c, "cut");
    return (SquadCut){.max_length = (int)js_int(js_at(cut, 0), 0),
                      .stride = (int)js_int(js_at(cut, 1), 0),
                      .max_query = (int)js_int(js_at(cut, 2), 0),
                      .training = training,
                      .special = vocab_special(g->vocab)};
}

static void open_case(const Golden *g, const Json *c, bool training, SquadFile *file, SquadWindows *w)
{
    bool version_2 = js_bool(js_get(c, "version_2"), false);
    const char *path = training    ? version_2 ? FOLDER "train-v2.0.json" : FOLDER "train-v1.1.json"
                       : version_2 ? FOLDER "dev-v2.0.json"
                                   : FOLDER "dev-v1.1.json";
    assert_ok(squad_read(path, version_2, training ? SQUAD_TRAIN : SQUAD_DEV, file));
    assert_ok(squad_windows(file, g->tokenizer, cut_of(g, c, training), NULL, w));
}

/* ---- windows ---- */

static void add(uint64_t *h, int64_t x) { *h = *h * 1000003 + (uint64_t)(x + 1); }

static void expect_checksum(const char *what, const Json *wanted, uint64_t found)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)found);
    if (strcmp(text, js_string(wanted, "")) != 0) fail_msg("%s: other numbers", what);
}

static void compare_window(const SquadFile *file, const SquadWindows *w, int64_t i, const Json *wanted, bool training)
{
    const SquadWindow *window = &w->windows[i];
    const SquadQuestion *q = &file->questions[window->question];
    const SquadParagraph *p = &file->paragraphs[q->paragraph];
    const Examples *e = &w->examples;
    int64_t length = example_length(e, i);
    uint64_t ids = 0, words = 0;
    assert_int_equal(window->question, js_int(js_at(wanted, 0), -1));
    assert_int_equal(length, js_int(js_at(wanted, 1), -1));
    for (int k = 0; k < 2; k++)
        assert_int_equal(e->label[2 * i + k], training ? js_int(js_at(wanted, 2 + (size_t)k), -2) : -1);
    for (int64_t k = e->offset[i]; k < e->offset[i + 1]; k++) {
        add(&ids, e->ids[k]);
        assert_int_equal(e->types[k], k - e->offset[i] >= window->query + 2);
    }
    for (int32_t k = 0; k < window->length; k++) {
        int32_t piece = window->start + k;
        add(&words, window->query + 2 + k);
        add(&words, p->piece_word[piece]);
        add(&words, squad_most_context(&w->windows[q->window], q->n_windows, i - q->window, piece));
    }
    expect_checksum("ids", js_at(wanted, 4), ids);
    expect_checksum("words", js_at(wanted, 5), words);
}

static void windows_are_the_scripts(void **state)
{
    const Golden *g = *state;
    int64_t skipped = 0;
    for (size_t i = 0; i < n_cases(g); i++)
        for (int training = 0; training < 2; training++) {
            const Json *wanted = js_get(case_at(g, i), training ? "train" : "dev");
            SquadFile file;
            SquadWindows w;
            open_case(g, case_at(g, i), training, &file, &w);
            assert_int_equal(w.examples.count, js_size(wanted));
            assert_int_equal(w.examples.label_width, 2);
            for (int64_t k = 0; k < w.examples.count; k++)
                compare_window(&file, &w, k, js_at(wanted, (size_t)k), training);
            skipped += w.skipped;
            squad_windows_free(&w);
            squad_file_free(&file);
        }
    assert_int_equal(skipped, 6); /* a no-break space in an answer, once in each training file and cut */
}

/* ---- answers ---- */

static float logit(int64_t window, int64_t row, int64_t column)
{
    uint64_t x = (uint64_t)(window * 1000003 + row * 7919 + column * 104729) * 2654435761u;
    return (float)((uint32_t)x >> 22) / 64 - 8;
}

static void expect_near(const char *what, double found, double wanted)
{
    if (!(fabs(found - wanted) <= 1e-12 * (1 + fabs(wanted))))
        fail_msg("%s: %.17g, expected %.17g", what, found, wanted);
}

static void compare_figures(const double figures[N_SQUAD_METRICS], const Json *wanted, bool version_2)
{
    for (int m = 0; m < squad_metrics(version_2); m++) {
        const char *name = squad_metric_name((SquadMetric)m, version_2);
        expect_near(name, figures[m], js_real(js_get(wanted, name), NAN));
    }
}

static void compare_choice(const Golden *g, const Json *wanted, const SquadFile *file, const SquadWindows *w,
                           const float *logits, bool version_2)
{
    const Json *numbers = js_get(wanted, "choice");
    SquadChoice choice = {.n_best = (int)js_int(js_at(numbers, 0), 0),
                          .max_length = (int)js_int(js_at(numbers, 1), 0),
                          .version_2 = version_2,
                          .null_threshold = js_real(js_at(numbers, 2), NAN)};
    SquadScore *scores = mem_array((size_t)file->n_questions, sizeof *scores);
    double *odds = mem_array((size_t)file->n_questions, sizeof *odds), figures[N_SQUAD_METRICS];
    bool *answered = mem_array((size_t)file->n_questions, sizeof *answered);
    for (int64_t i = 0; i < file->n_questions; i++) {
        const SquadQuestion *q = &file->questions[i];
        const Json *list = js_get(js_get(wanted, "nbest"), q->id);
        SquadPrediction p;
        squad_predict(file, w, q, logits, g->vocab, g->tokenizer, &choice, &p);
        assert_string_equal(p.text, js_string(js_get(js_get(wanted, "answers"), q->id), "?"));
        assert_int_equal(p.n, js_size(list));
        for (int k = 0; k < p.n; k++) {
            const Json *c = js_at(list, (size_t)k);
            assert_string_equal(p.best[k].text, js_string(js_at(c, 0), "?"));
            expect_near("probability", p.best[k].probability, js_real(js_at(c, 1), NAN));
            assert_true(p.best[k].start == js_real(js_at(c, 2), NAN) && p.best[k].end == js_real(js_at(c, 3), NAN));
        }
        if (version_2) expect_near("odds", p.null_odds, js_real(js_get(js_get(wanted, "odds"), q->id), NAN));
        scores[i] = squad_score(q, p.text, version_2);
        odds[i] = p.null_odds;
        answered[i] = *p.text != '\0';
        squad_prediction_free(&p);
    }
    squad_figures(file, scores, odds, answered, figures);
    compare_figures(figures, js_get(wanted, "figures"), version_2);
    free(scores);
    free(odds);
    free(answered);
}

static void answers_are_the_scripts(void **state)
{
    const Golden *g = *state;
    for (size_t i = 0; i < n_cases(g); i++) {
        const Json *choices = js_get(case_at(g, i), "choices");
        SquadFile file;
        SquadWindows w;
        open_case(g, case_at(g, i), false, &file, &w);
        const Examples *e = &w.examples;
        float *logits = mem_array(2 * (size_t)e->offset[e->count], sizeof *logits);
        for (int64_t k = 0; k < e->count; k++)
            for (int64_t row = e->offset[k]; row < e->offset[k + 1]; row++)
                for (int64_t column = 0; column < 2; column++)
                    logits[2 * row + column] = logit(k, row - e->offset[k], column);
        for (size_t k = 0; k < js_size(choices); k++)
            compare_choice(g, js_at(choices, k), &file, &w, logits, js_bool(js_get(case_at(g, i), "version_2"), false));
        free(logits);
        squad_windows_free(&w);
        squad_file_free(&file);
    }
}

/* ---- scores ---- */

static void scores_are_the_scripts(void **state)
{
    const Golden *g = *state;
    const Json *texts = js_get(g->expected, "normalised");
    for (size_t i = 0; i < js_size(texts); i++) {
        Buf found = {0};
        squad_normalise(js_string(js_at(js_at(texts, i), 0), "?"), &found);
        assert_string_equal(found.data, js_string(js_at(js_at(texts, i), 1), "?"));
        buf_free(&found);
    }
    for (size_t i = 0; i < n_cases(g); i++) {
        bool version_2 = js_bool(js_get(case_at(g, i), "version_2"), false);
        const Json *wanted = js_get(case_at(g, i), "altered");
        SquadFile file;
        SquadWindows w;
        SquadScore scores[64];
        double odds[64], figures[N_SQUAD_METRICS];
        bool answered[64];
        open_case(g, case_at(g, i), false, &file, &w);
        assert_true(file.n_questions <= 64);
        for (int64_t k = 0; k < file.n_questions; k++) {
            const char *id = file.questions[k].id, *answer = js_string(js_get(js_get(wanted, "answers"), id), "?");
            scores[k] = squad_score(&file.questions[k], answer, version_2);
            odds[k] = js_real(js_get(js_get(wanted, "odds"), id), 0);
            answered[k] = *answer != '\0';
        }
        squad_figures(&file, scores, odds, answered, figures);
        compare_figures(figures, js_get(wanted, "figures"), version_2);
        squad_windows_free(&w);
        squad_file_free(&file);
    }
}

/* ---- the parts of words, and what has no answer ---- */

static void expect_final(const Golden *g, const char *predicted, const char *original, const char *wanted)
{
    Buf found = {0};
    squad_final_text(g->tokenizer, predicted, original, &found);
    assert_string_equal(found.data, wanted);
    buf_free(&found);
}

static void answers_keep_the_case_of_the_text(void **state)
{
    const Golden *g = *state;
    expect_final(g, "steve smith", "Steve Smith's", "Steve Smith");
    expect_final(g, "ornskoldsvik", "(Örnsköldsvik),", "Örnsköldsvik");
    expect_final(g, "[UNK] smith", "Steve Smith's", "Steve Smith's"); /* not found */
    expect_final(g, "", "Steve", "Steve");
    expect_final(g, "京", "東京に", "京");
}

/* A paragraph without words has no window: no answer of 2.0, and the word "empty" of 1.1. */
static void an_empty_paragraph_has_no_answer(void **state)
{
    const Golden *g = *state;
    static const char text[] =
        "{\"data\": [{\"paragraphs\": [{\"context\": \" \", \"qas\": [{\"id\": \"a\", \"question\": "
        "\"?\", \"answers\": []}]}, {\"context\": \"gas\", \"qas\": [{\"id\": \"b\", \"question\": "
        "\"\"}]}]}]}";
    for (int version_2 = 0; version_2 < 2; version_2++) {
        SquadFile file;
        SquadWindows w;
        SquadPrediction p;
        float logits[16] = {0};
        SquadCut cut = {.max_length = 16, .stride = 8, .max_query = 8, .special = vocab_special(g->vocab)};
        SquadChoice choice = {.n_best = 2, .max_length = 4, .version_2 = version_2};
        assert_ok(squad_parse("f", text, sizeof text - 1, version_2, SQUAD_TEST, &file));
        assert_ok(squad_windows(&file, g->tokenizer, cut, NULL, &w));
        assert_int_equal(w.examples.count, 1);
        squad_predict(&file, &w, &file.questions[0], logits, g->vocab, g->tokenizer, &choice, &p);
        assert_string_equal(p.text, version_2 ? "" : "empty");
        squad_prediction_free(&p);
        squad_windows_free(&w);
        squad_file_free(&file);
    }
}

/* ---- refusals ---- */

static void expect_refused(const char *questions, bool version_2, SquadUse use, const char *message)
{
    char *text = mem_printf("{\"data\": [{\"paragraphs\": [{\"context\": \"gas\", \"qas\": [%s]}]}]}", questions);
    SquadFile file;
    assert_status(squad_parse("dir/train.json", text, strlen(text), version_2, use, &file), E_FORMAT);
    assert_message("dir/train.json");
    assert_message(message);
    assert_null(file.questions);
    free(text);
}

static void bad_files_are_named(void **state)
{
    (void)state;
    SquadFile file;
#define Q "\"question\": \"what\""
    expect_refused("{" Q "}", false, SQUAD_TRAIN, "data[0].paragraphs[0]: no 'id'; expected a text or a number");
    expect_refused("{\"id\": \"x\"}", false, SQUAD_TRAIN, "question x: no 'question'; expected a text");
    expect_refused("{\"id\": \"x\", " Q ", \"answers\": []}", false, SQUAD_TRAIN, "--version-2");
    expect_refused("{\"id\": \"x\", " Q ", \"answers\": []}", false, SQUAD_DEV, "--version-2");
    expect_refused("{\"id\": \"x\", " Q ", \"answers\": []}", true, SQUAD_TRAIN, "not marked 'is_impossible'");
    expect_refused("{\"id\": \"x\", " Q ", \"answers\": [{}]}", false, SQUAD_DEV, "x: no 'text'; expected a text");
    expect_refused("{\"id\": \"x\", " Q ", \"answers\": [{\"text\": \"gas\"}]}", false, SQUAD_TRAIN,
                   "question x: no 'answer_start'; expected a whole number from 0, which training needs");
    static const struct {
        const char *question, *message;
    } kinds[] = {
        {"{\"id\": [7], " Q "}", "'id' is an array; expected a text or a number"},
        {"{\"id\": null, " Q "}", "'id' is null; expected a text or a number"},
        {"{\"id\": 7, \"question\": 1984}", "question 7: 'question' is 1984; expected a text"},
        {"{\"id\": 7.50, " Q ", \"answers\": [\"gas\"]}",
         "question 7.50: 'answers' is a text; expected a list of objects"},
        {"{\"id\": true, " Q ", \"answers\": 5}", "question true: 'answers' is 5; expected a list"},
        {"{\"id\": 7, " Q ", \"answers\": {\"text\": \"gas\", \"answer_start\": 0}}",
         "'answers' is an object; expected a list"},
        {"{\"id\": 7, " Q ", \"answers\": [{\"text\": 5, \"answer_start\": 0}]}", "'text' is 5; expected a text"},
        {"{\"id\": 7, " Q ", \"answers\": [{\"text\": \"gas\", \"answer_start\": \"0\"}]}",
         "'answer_start' is a text; expected a whole number from 0"},
        {"{\"id\": 7, " Q ", \"answers\": [{\"text\": \"gas\", \"answer_start\": 0.0}]}",
         "'answer_start' is 0.0; expected a whole number from 0"},
        {"{\"id\": 7, " Q ", \"answers\": [{\"text\": \"gas\", \"answer_start\": -1}]}",
         "'answer_start' is -1; expected a whole number from 0"},
        {"{\"id\": 7, " Q ", \"answers\": {\"text\": [\"gas\"], \"answer_start\": [\"0\"]}}",
         "'answer_start' is a text"},
        {"{\"id\": 7, " Q ", \"answers\": [], \"is_impossible\": \"true\"}",
         "'is_impossible' is a text; expected true or false"},
        {"{\"id\": 7, " Q ", \"answers\": [], \"is_impossible\": 1}", "'is_impossible' is 1; expected true or false"},
        {"{\"id\": 7, " Q "}, {\"id\": \"7\", " Q "}", "it has no answer"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        expect_refused(kinds[i].question, i + 1 < sizeof kinds / sizeof *kinds, SQUAD_TRAIN, kinds[i].message);
    expect_refused("{\"id\": 7, " Q
                   ", \"answers\": [{\"text\": \"gas\", \"answer_start\": 0}], \"is_impossible\": true}",
                   false, SQUAD_TRAIN, "it is marked 'is_impossible'; files of SQuAD 2.0 need --version-2");
    expect_refused("{\"id\": 7, " Q "}, {\"id\": \"7\", " Q "}", false, SQUAD_TEST, "two questions have the id 7");
    expect_refused("{\"id\": \"x\", " Q "}, {\"id\": \"x\", " Q "}", false, SQUAD_TEST, "two questions have the id x");
    expect_refused("", false, SQUAD_TEST, "no questions");
#undef Q
    assert_status(squad_parse("f", "[]", 2, false, SQUAD_TEST, &file), E_FORMAT);
    assert_message("a list 'data' of articles");
    assert_status(squad_parse("f", "{\"data\": [{}]}", 14, false, SQUAD_TEST, &file), E_FORMAT);
    assert_message("data[0] has no list 'paragraphs'");
    static const char number[] = "{\"data\": [{\"paragraphs\": [{\"context\": 5, \"qas\": []}]}]}";
    assert_status(squad_parse("f", number, strlen(number), false, SQUAD_TEST, &file), E_FORMAT);
    assert_message("f: data[0].paragraphs[0]: 'context' is 5; expected a text");
}

/* Rows of Hugging Face's datasets: a question each, answers as lists; no answer is an impossible question. */
static void rows_are_read(void **state)
{
    (void)state;
    static const char text[] =
        "{\"data\": [{\"id\": 7, \"context\": \"gas and oil\", \"question\": \"a\", "
        "\"answers\": {\"text\": [\"gas\", \"oil\"], "
        "\"answer_start\": [0, 8]}}, {\"id\": \"b\", \"context\": \"gas and oil\", "
        "\"question\": \"b\", \"answers\": {\"text\": "
        "[], \"answer_start\": []}}, {\"id\": \"c\", \"context\": \"wood\", \"question\": "
        "\"c\", \"answers\": [{\"text\": \"wood\", "
        "\"answer_start\": 0}], \"is_impossible\": null}, {\"id\": \"d\", \"context\": \"wood\", "
        "\"question\": \"d\", \"is_impossible\": true, \"answers\": [{\"text\": \"\", "
        "\"answer_start\": -1}]}]}";
    SquadFile file;
    assert_ok(squad_parse("f", text, strlen(text), true, SQUAD_TRAIN, &file));
    assert_int_equal(file.n_questions, 4);
    assert_int_equal(file.n_paragraphs, 2);
    assert_true(file.questions[3].impossible);
    assert_string_equal(file.questions[0].id, "7");
    assert_int_equal(file.questions[0].n_answers, 2);
    assert_int_equal(file.questions[0].answers[1].start, 8);
    assert_true(!file.questions[0].impossible && file.questions[1].impossible && !file.questions[2].impossible);
    assert_int_equal(file.questions[2].paragraph, 1);
    squad_file_free(&file);
    assert_status(squad_parse("f", text, strlen(text), false, SQUAD_TRAIN, &file), E_FORMAT);
    assert_message("question b: it has no answer; files of SQuAD 2.0 need --version-2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_the_scripts),
        cmocka_unit_test(answers_are_the_scripts),
        cmocka_unit_test(scores_are_the_scripts),
        cmocka_unit_test(answers_keep_the_case_of_the_text),
        cmocka_unit_test(an_empty_paragraph_has_no_answer),
        cmocka_unit_test(bad_files_are_named),
        cmocka_unit_test(rows_are_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
