/* GLUE's metrics against scikit-learn and SciPy (tests/golden/glue_metrics.txt), and their undefined cases. */
#include "testing.h"

#include <inttypes.h>
#include <math.h>

#include "tasks/glue/glue.h"

#define GOLDEN "tests/golden/glue_metrics.txt"

static const GlueTask *task_named(const char *name)
{
    const GlueTask *task = NULL;
    assert_ok(glue_task_find(name, &task));
    return task;
}

static void assert_near(const char *what, double found, double expected)
{
    if (isnan(expected) ? isnan(found) : fabs(found - expected) <= 1e-12) return;
    fail_msg("%s: expected %.17g, found %.17g", what, expected, found);
}

static void add_label(GlueScores *s, const GlueTask *task, int predicted, int truth)
{
    glue_scores_add(s, task, (float[]){predicted == 0, predicted == 1}, &(GlueExample){.label = truth});
}

static void golden_labels(const char *name, FILE *f, int n)
{
    GlueScores s = {0};
    double accuracy, f1, matthews;
    for (int i = 0; i < n; i++) {
        int predicted, truth;
        assert_int_equal(fscanf(f, "%d %d", &predicted, &truth), 2);
        add_label(&s, task_named("MRPC"), predicted, truth);
    }
    assert_int_equal(fscanf(f, "%lf %lf %lf", &accuracy, &f1, &matthews), 3);
    assert_near(name, glue_scores_value(&s, task_named("MRPC"), GLUE_ACCURACY), accuracy);
    assert_near(name, glue_scores_value(&s, task_named("MRPC"), GLUE_F1), f1);
    assert_near(name, glue_scores_value(&s, task_named("CoLA"), GLUE_MATTHEWS), matthews);
    assert_near(name, glue_scores_value(&s, task_named("MRPC"), GLUE_COMBINED), (accuracy + f1) / 2);
    glue_scores_free(&s);
}

static void golden_scores(const char *name, FILE *f, int n)
{
    GlueScores s = {0};
    const GlueTask *task = task_named("sts-b");
    double pearson, spearman;
    for (int i = 0; i < n; i++) {
        double predicted, truth;
        assert_int_equal(fscanf(f, "%lf %lf", &predicted, &truth), 2);
        glue_scores_add_score(&s, predicted, truth);
    }
    assert_int_equal(fscanf(f, "%lf %lf", &pearson, &spearman), 2);
    assert_near(name, glue_scores_value(&s, task, GLUE_PEARSON), pearson);
    assert_near(name, glue_scores_value(&s, task, GLUE_SPEARMAN), spearman);
    assert_near(name, glue_scores_value(&s, task, GLUE_COMBINED), (pearson + spearman) / 2);
    glue_scores_free(&s);
}

static void golden_score(const char *name, FILE *f, GlueLabelScore found)
{
    double expected[3];
    assert_int_equal(fscanf(f, "%lf %lf %lf", &expected[0], &expected[1], &expected[2]), 3);
    assert_near(name, found.precision, expected[0]);
    assert_near(name, found.recall, expected[1]);
    assert_near(name, found.f1, expected[2]);
}

static void golden_each_label(const char *name, FILE *f, int n, bool several)
{
    enum { MOST = 20 };
    GlueScores s = {0};
    GlueTask task = {.multi = several};
    assert_int_equal(fscanf(f, "%d", &task.n_labels), 1);
    assert_true(task.n_labels <= MOST);
    int64_t cells[MOST][MOST] = {0}, rows;
    for (int i = 0; i < n; i++) {
        float values[2][MOST] = {0}; /* of the prediction, then of the truth */
        int label[2];
        for (int side = 0; side < 2; side++)
            for (int k = 0; k < (several ? task.n_labels : 1); k++) {
                assert_int_equal(fscanf(f, "%d", &label[side]), 1);
                values[side][several ? k : label[side]] = several ? (float)label[side] : 1;
            }
        glue_scores_add(&s, &task, values[0], &(GlueExample){.label = label[1], .targets = values[1]});
        if (!several) cells[label[1]][label[0]]++;
    }
    for (int k = 0; k < task.n_labels; k++) {
        golden_score(name, f, glue_label_score(&s.labels[k]));
        assert_int_equal(fscanf(f, "%" SCNd64, &rows), 1);
        assert_int_equal(s.labels[k].rows, rows);
        for (int j = 0; j < task.n_labels && !several; j++)
            assert_int_equal(s.matrix[k * task.n_labels + j], cells[k][j]);
    }
    golden_score(name, f, glue_label_means(&s, &task, false));
    golden_score(name, f, glue_label_means(&s, &task, true));
    assert_true(several == !s.matrix);
    assert_near(name, glue_scores_value(&s, &task, GLUE_MACRO_F1), glue_label_means(&s, &task, false).f1);
    assert_near(name, glue_scores_value(&s, &task, GLUE_WEIGHTED_F1), glue_label_means(&s, &task, true).f1);
    glue_scores_free(&s);
}

static void equal_to_scikit_learn_and_scipy(void **state)
{
    (void)state;
    FILE *f = fopen(GOLDEN, "r");
    if (!f) fail_msg("%s: %s", GOLDEN, strerror(errno));
    char kind[16], name[64];
    int n, cases = 0;
    while (fgetc(f) != '\n') assert_false(feof(f));
    while (fscanf(f, "%15s %63s %d", kind, name, &n) == 3) {
        cases++;
        if (!strcmp(kind, "labels"))
            golden_labels(name, f, n);
        else if (!strcmp(kind, "classes") || !strcmp(kind, "several"))
            golden_each_label(name, f, n, *kind == 's');
        else
            golden_scores(name, f, n);
    }
    assert_true(feof(f));
    assert_int_equal(cases, 29);
    fclose(f);
}

static const char *reason(const GlueScores *s, const GlueTask *task)
{
    static char why[160];
    glue_scores_undefined(s, task, why, sizeof why);
    return why;
}

static void undefined_is_nan(void **state)
{
    (void)state;
    GlueScores s = {0};
    const GlueTask *sts = task_named("STSB");
    for (int m = 0; m < N_GLUE_METRICS; m++) assert_true(isnan(glue_scores_value(&s, sts, (GlueMetric)m)));
    glue_scores_add_score(&s, 1, 2);
    assert_string_equal(reason(&s, sts), "a correlation needs two rows or more, and there are 1");
    assert_true(isnan(glue_scores_value(&s, sts, GLUE_PEARSON)));
    assert_true(isnan(glue_scores_value(&s, sts, GLUE_SPEARMAN)));
    assert_true(isnan(glue_scores_value(&s, sts, GLUE_COMBINED)));
    glue_scores_add_score(&s, 2, 3);
    assert_near("two", glue_scores_value(&s, sts, GLUE_COMBINED), 1);
    assert_string_equal(reason(&s, sts), "");
    glue_scores_add_score(&s, NAN, 3);
    assert_true(isnan(glue_scores_value(&s, sts, GLUE_PEARSON)));
    assert_true(isnan(glue_scores_value(&s, sts, GLUE_SPEARMAN)));
    glue_scores_free(&s);
    for (int i = 0; i < 3; i++) glue_scores_add_score(&s, i, 3.5);
    assert_string_equal(reason(&s, sts), "the correlation is undefined where every label is the same, here 3.5");
    glue_scores_free(&s);
    for (int i = 0; i < 3; i++) glue_scores_add_score(&s, 0.25, i);
    assert_string_equal(reason(&s, sts), "the correlation is undefined where every prediction is the same, here 0.25");
    glue_scores_free(&s);
}

/* A case too large for a golden file, with a known answer: of each thousand, 10 tp, 20 fp, 30 fn, 940 tn. */
static void many_examples(void **state)
{
    (void)state;
    GlueScores s = {0};
    const GlueTask *cola = task_named("cola");
    for (int i = 0; i < 400000; i++) {
        int k = i % 1000;
        add_label(&s, cola, k < 30, k < 10 || k >= 970);
    }
    assert_near("accuracy", glue_scores_value(&s, cola, GLUE_ACCURACY), 0.95);
    assert_near("f1", glue_scores_value(&s, cola, GLUE_F1), 2.0 * 10 / (2.0 * 10 + 20 + 30));
    assert_near("matthews", glue_scores_value(&s, cola, GLUE_MATTHEWS),
                (10.0 * 940 - 20.0 * 30) / sqrt(30.0 * 40.0 * 970.0 * 960.0));
    glue_scores_free(&s);
}

static void examples_with_model_output(void **state)
{
    (void)state;
    const GlueTask *mnli = task_named("MNLI"), *sts = task_named("sts_b");
    GlueScores s = {0};
    GlueExample e = {.label = 2};
    glue_scores_add(&s, mnli, (float[]){0.1f, -3, 0.2f}, &e);
    glue_scores_add(&s, mnli, (float[]){0.2f, -3, 0.2f}, &e); /* the first of equals: 0 */
    assert_near("accuracy", glue_scores_value(&s, mnli, GLUE_ACCURACY), 0.5);
    glue_scores_free(&s);

    for (int i = 0; i < 5000; i++) {
        e.score = (float)(i % 50) / 10;
        glue_scores_add(&s, sts, (float[]){-2 * e.score}, &e);
    }
    assert_int_equal(s.n, 5000);
    assert_near("pearson", glue_scores_value(&s, sts, GLUE_PEARSON), -1);
    assert_near("spearmanr", glue_scores_value(&s, sts, GLUE_SPEARMAN), -1);
    glue_scores_free(&s);
    assert_int_equal(glue_argmax((float[]){3}, 1), 0);
    assert_int_equal(glue_argmax((float[]){1, 5, 5, 4}, 4), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_to_scikit_learn_and_scipy),
        cmocka_unit_test(undefined_is_nan),
        cmocka_unit_test(many_examples),
        cmocka_unit_test(examples_with_model_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
