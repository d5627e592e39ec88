/* Output files: the leaderboard's, and predictions with probabilities. */
#include "testing.h"

#include "tasks/glue/glue.h"

static char *dir;

static int setup(void **state)
{
    (void)state;
    dir = testing_directory();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    Status status = file_remove_tree(dir);
    free(dir);
    return status != OK;
}

static void assert_file(const char *folder, const char *name, const char *expected)
{
    Buf text = {0};
    char *path = file_join(folder, name);
    assert_ok(file_read(path, 1 << 20, &text));
    assert_string_equal(text.data, expected);
    buf_free(&text);
    free(path);
}

typedef Status Writer(const char *dir, const GlueTask *, const GlueSplit *, const GlueExamples *, const float *);

/* Two examples with the indices 5 and 2. */
static Status write_two(Writer *writer, const char *folder, const char *task_name, const char *split_name,
                        const float *values)
{
    const GlueTask *task;
    const GlueSplit *split;
    GlueExample examples[] = {{.index = 5, .line = 2}, {.index = 2, .line = 3}};
    GlueExamples x = {.examples = examples, .count = 2, .path = (char[]){"test.tsv"}};
    assert_ok(glue_task_find(task_name, &task));
    assert_ok(glue_split_find(task, split_name, &split));
    return writer(folder, task, split, &x, values);
}

static void submissions_of_every_task(void **state)
{
    (void)state;
    static const float two[] = {0.9f, 0.1f, 0.4f, 0.6f}, three[] = {0.1f, 0.1f, 0.8f, 0.5f, 0.5f, 0};
    static const float scores[] = {5.2f, -0.0002f};
    const char *bits = "index\tprediction\n5\t0\n2\t1\n",
               *pair = "index\tprediction\n5\tentailment\n2\tnot_entailment\n";
    const char *triple = "index\tprediction\n5\tcontradiction\n2\tentailment\n";
    const struct {
        const char *task, *split, *file, *expected;
        const float *values;
    } cases[] = {
        {"CoLA", "test", "CoLA.tsv", bits, two},
        {"SST-2", "test", "SST-2.tsv", bits, two},
        {"MRPC", "test", "MRPC.tsv", bits, two},
        {"STS-B", "test", "STS-B.tsv", "index\tprediction\n5\t5.000\n2\t0.000\n", scores},
        {"QQP", "test", "QQP.tsv", bits, two},
        {"MNLI", "test_matched", "MNLI-m.tsv", triple, three},
        {"MNLI", "test_mismatched", "MNLI-mm.tsv", triple, three},
        {"QNLI", "test", "QNLI.tsv", pair, two},
        {"RTE", "test", "RTE.tsv", pair, two},
        {"WNLI", "test", "WNLI.tsv", bits, two},
        {"AX", "test", "AX.tsv", triple, three},
    };
    char *folder = file_join(dir, "new/submission");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_ok(write_two(glue_submission_write, folder, cases[i].task, cases[i].split, cases[i].values));
        assert_file(folder, cases[i].file, cases[i].expected);
    }
    assert_ok(write_two(glue_submission_write, folder, "STS-B", "test", (float[]){2.71828f, 4.9996f}));
    assert_file(folder, "STS-B.tsv", "index\tprediction\n5\t2.718\n2\t5.000\n");
    free(folder);
}

static void predictions_with_probabilities(void **state)
{
    (void)state;
    assert_ok(write_two(glue_predictions_write, dir, "MNLI", "dev_matched",
                        (float[]){0.1f, 0.2f, 0.7f, 1, 0, 1.17549435e-38f}));
    assert_file(dir, "predictions_dev_matched.tsv",
                "index\tprediction\tprobability_entailment\tprobability_neutral\tprobability_contradiction\n"
                "5\tcontradiction\t0.100000001\t0.200000003\t0.699999988\n2\tentailment\t1\t0\t1.17549435e-38\n");
    assert_ok(write_two(glue_predictions_write, dir, "STS-B", "dev", (float[]){5.25f, -0.1f}));
    assert_file(dir, "predictions_dev.tsv", "index\tprediction\n5\t5.25\n2\t-0.100000001\n");
}

static void errors(void **state)
{
    (void)state;
    static const float two[] = {1, 0, 1, 0};
    char *file = file_join(dir, "a_file"), *below = file_join(file, "below");
    assert_ok(file_write_durable(file, "x", 1));
    assert_status(write_two(glue_submission_write, below, "RTE", "test", two), E_IO);
    assert_message("a_file");
    assert_status(write_two(glue_predictions_write, below, "RTE", "test", two), E_IO);
    free(file);
    free(below);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(submissions_of_every_task),
        cmocka_unit_test(predictions_with_probabilities),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
