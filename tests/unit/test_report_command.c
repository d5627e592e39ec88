/* `cairn report` over runs made here: what it prints, its exit code, and what it writes. */
#include "report_testing.h"

/* One blank for each run of them. */
static void squeeze(Buf *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->len; i++)
        if (n == 0 || b->data[i] != ' ' || b->data[n - 1] != ' ') b->data[n++] = b->data[i];
    b->data[b->len = n] = '\0';
}

/* Ends with its exit code; `out` is what it printed on stdout and stderr, squeezed. */
static int cairn_report_plain(const char *dir, const char *arguments, Buf *out)
{
    const char *cairn = getenv("CAIRN_BINARY");
    if (!cairn) {
        print_message("skipped: CAIRN_BINARY is not set\n");
        skip();
    }
    char piece[1024], *command = mem_printf("cd '%s' && '%s' report %s 2>&1", dir, cairn, arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) buf_append(out, piece, n);
    int wait_status = pclose(f);
    assert_true(WIFEXITED(wait_status));
    squeeze(out);
    free(command);
    return WEXITSTATUS(wait_status);
}

static int cairn_report(const char *dir, const char *names, Buf *out)
{
    return cairn_report_plain(dir, SHORT_TEXT("%s --output-dir out", names), out);
}

static void make_summary(const char *dir, const char *name, const RunSummary *s, const char *metrics)
{
    char *run = file_join(dir, name);
    assert_ok(file_make_directories(run));
    assert_ok(summary_write(run, s));
    testing_write(run, "metrics.jsonl", metrics);
    free(run);
}

static void make_run(const char *dir, const char *name, const char *recompute, const char *metrics)
{
    RunSummary s = summary_of(recompute);
    make_summary(dir, name, &s, metrics);
}

static Page chart_of(const char *dir, const char *name)
{
    Page p = {0};
    char *path = mem_printf("%s/out/%s", dir, name);
    assert_ok(file_read(path, 1 << 20, &p.text));
    markup_expect(p.text.data, &p.m);
    markup_expect_self_contained(&p.m);
    assert_ok(file_remove_tree(path));
    free(path);
    return p;
}

#define LINE(step, loss) "{\"step\": " step ", \"epoch\": 0, \"loss\": " loss ", \"lr\": 1e-05}\n"

static void test_command(void **state)
{
    const char *dir = *state;
    static const struct {
        const char *metrics, *said;
        int code;
    } second[] = {{LINE("1", "0.5") LINE("2", "0.30000000000000004"), "losses: equal, bit for bit, over 2 steps", 0},
                  {LINE("1", "0.5") LINE("2", "0.30000000000000003"),
                   "the losses differ from step 2 on: 0.30000000000000004 in a, 0.30000000000000003 in b", 1},
                  {LINE("1", "0.5") LINE("3", "0.30000000000000004"), "the losses differ from step 2 on", 1},
                  {LINE("1", "0.5"), "a has 2 steps, b has 1", 1}};
    make_run(dir, "a", "none", LINE("1", "0.5") LINE("2", "0.30000000000000004"));
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        Buf out = {0};
        make_run(dir, "b", "full & \"more\"", second[i].metrics);
        assert_int_equal(cairn_report(dir, "a b", &out), second[i].code);
        if (!strstr(out.data, second[i].said)) fail_msg("\"%s\" is not in: %s", second[i].said, out.data);
        assert_non_null(strstr(out.data, "activations (MiB) 8192.0 8192.0\n"));
        Page loss = chart_of(dir, "loss.svg"), peaks = chart_of(dir, "memory.svg"); /* in either case */
        assert_true(shows(&loss, "a") && shows(&loss, "b"));
        assert_int_equal(shows(&loss, "equal, bit for bit"), second[i].code == 0);
        assert_true(shows(&loss, "1") && !shows(&loss, "0")); /* steps begin with 1 */
        assert_true(shows(&peaks, "a: peak 9536.7 MiB") && shows(&peaks, "b: peak 9536.7 MiB"));
        page_free(&loss);
        page_free(&peaks);
        buf_free(&out);
    }
    Buf out = {0};
    assert_int_equal(cairn_report(dir, "a", &out), 0);
    assert_null(strstr(out.data, "equal"));
    Page loss = chart_of(dir, "loss.svg");
    assert_false(shows(&loss, "equal, bit for bit"));
    page_free(&loss);
    out.len = 0;
    assert_int_equal(cairn_report(dir, "a nowhere", &out), 1);
    assert_non_null(strstr(out.data, "nowhere: expected the output folder of a training run"));
    buf_free(&out);
}

static const char *said(const char *dir, const char *arguments, int code)
{
    static Buf out;
    out.len = 0;
    assert_int_equal(cairn_report(dir, arguments, &out), code);
    return out.data;
}

#define EXPECT_TEXT(text, part)                                                                                        \
    do {                                                                                                               \
        if (!strstr(text, part)) fail_msg("\"%s\" is not in: %s", part, text);                                         \
    } while (0)

/* A run with a configuration of its own. */
static void make_other(const char *dir, const char *name, const char *task, const char *options, const char *metrics)
{
    RunSummary s = summary_of("none");
    s.task = task;
    s.config_json = options;
    make_summary(dir, name, &s, metrics);
}

/* A run with a fingerprint of its own. */
static void make_recorded(const char *dir, const char *name, const char *options, const char *facts,
                          const char *metrics)
{
    RunSummary s = summary_of("none");
    s.config_json = options;
    s.fingerprint = facts;
    make_summary(dir, name, &s, metrics);
}

/* Runs that differ on purpose, of other tasks, and one that has not ended. */
static void test_command_on_purpose(void **state)
{
    const char *dir = *state, *text;
    const char *const two = LINE("1", "0.5") LINE("2", "0.25"), *const others = LINE("1", "0.5") LINE("2", "0.125");
    make_other(dir, "x/a", "MNLI", "{\"batch-size\": 24, \"seed\": 1, \"keep\": 1}", two);
    make_other(dir, "y/a", "MNLI", "{\"batch-size\": 48, \"seed\": 1, \"keep\": 2}", others);
    make_other(dir, "rte", "RTE", "{\"batch-size\": 24, \"seed\": 1, \"keep\": 1}", two);
    text = said(dir, "x/a y/a rte --csv t.csv", 0);
    EXPECT_TEXT(text, "x/a"); /* the same last part */
    EXPECT_TEXT(text,
                "losses: differ from step 2 on: 0.25 in x/a, 0.125 in y/a; the largest difference is 0.5 of the loss, "
                "at step 2; the runs differ in --batch-size\n");
    EXPECT_TEXT(text, "losses: x/a is MNLI, rte is RTE: not compared\n");
    EXPECT_TEXT(text, "--batch-size 24 48 24\n");
    assert_null(strstr(text, "--seed"));
    assert_null(strstr(text, "--keep")); /* saving and logging are no difference */
    Page curve = chart_of(dir, "loss-sequences.svg");
    assert_true(shows(&curve, "sequences") && shows(&curve, "y/a"));
    page_free(&curve);
    Buf csv = {0};
    char *path = file_join(dir, "t.csv");
    assert_ok(file_read(path, 1 << 20, &csv));
    EXPECT_TEXT(csv.data,
                ",task,recompute,precision,ranks,hosts,processor or GPU,micro-batches of a step,--batch-size,steps,");
    EXPECT_TEXT(csv.data, "\r\ny/a,MNLI,none,f32,2,node<1> (2 ranks),a <GPU>,2,48,1099511627776,");
    buf_free(&csv);
    free(path);

    /* Digests of files count, not their paths. */
    const char *const here = "{\"data-dir\": \"here\", \"vocab\": \"v\"}", *const there = "{\"data-dir\": \"there\"}";
    const char *const facts = "{\"data\": \"1\", \"origin\": \"2\"}";
    make_recorded(dir, "one", here, facts, two);
    make_recorded(dir, "copy", there, facts, others);
    make_recorded(dir, "changed", here, "{\"data\": \"3\", \"origin\": \"2\"}", others);
    make_recorded(dir, "grown", here, "{\"data\": \"1\", \"origin\": \"4\"}", others);
    make_recorded(dir, "old", there, "{}", others);
    EXPECT_TEXT(said(dir, "one copy", 1), "0.25 in one, 0.125 in copy; the largest difference is 0.5 of the loss, at "
                                          "step 2. Their configurations promise equal losses");
    EXPECT_TEXT(said(dir, "one changed", 0),
                "in changed; the largest difference is 0.5 of the loss, at step 2; the runs "
                "differ in the data\n");
    EXPECT_TEXT(said(dir, "one grown", 0), "in grown; the largest difference is 0.5 of the loss, at step 2; the runs "
                                           "differ in the model or its first weights\n");
    EXPECT_TEXT(said(dir, "one old", 0), "at step 2; the runs differ in --data-dir, --vocab\n");

    char *unfinished = file_join(dir, "u/checkpoint-2");
    assert_ok(file_make_directories(unfinished));
    testing_write(unfinished, "state.json", "{\"config\": {\"batch-size\": 24, \"seed\": 1}}");
    char *run = file_join(dir, "u");
    testing_write(run, "metrics.jsonl", LINE("1", "0.5") "{\"step\": 2, \"ep");
    text = said(dir, "x/a u", 0);
    EXPECT_TEXT(text, "finished not finished\n");
    EXPECT_TEXT(text, "losses: are equal over 1 steps; a has 2 steps, u has 1\n");
    testing_write(run, "metrics.jsonl", LINE("1", "0.75"));
    text = said(dir, "x/a u", 1);
    EXPECT_TEXT(text, "the losses differ from step 1 on: 0.5 in a, 0.75 in u");
    EXPECT_TEXT(text, "contracts.md");
    free(run);
    free(unfinished);
}

/* Runs with equal losses are named together, and each promise is checked: that of runs of later groups, too. */
static void test_groups(void **state)
{
    const char *dir = *state, *text;
    const char *const here = LINE("1", "0.5") LINE("2", "0.25"), *const there = LINE("1", "0.5") LINE("2", "0.2500001"),
                      *const late = LINE("2", "0.25");
    make_other(dir, "a", "MNLI", "{\"batch-size\": 24}", here);
    make_other(dir, "b", "MNLI", "{\"batch-size\": 48}", there);
    make_other(dir, "c", "MNLI", "{\"batch-size\": 24}", here);
    make_other(dir, "d", "MNLI", "{\"batch-size\": 48}", there);
    make_other(dir, "e", "MNLI", "{\"batch-size\": 24}", late); /* from a checkpoint of another folder */
    text = said(dir, "a b c d e", 0);
    EXPECT_TEXT(text,
                "losses: equal, bit for bit, over 1 steps: a = c = e\nlosses: equal, bit for bit, over 2 steps: b = d\n"
                "losses: differ from step 2 on: 0.25 in a, 0.2500001 in b; the largest difference is 4e-07 of the "
                "loss, at step 2; the runs differ in --batch-size\n");
    Page loss = chart_of(dir, "loss.svg");
    assert_false(shows(&loss, "equal, bit for bit"));
    page_free(&loss);
    make_other(dir, "d", "MNLI", "{\"batch-size\": 48}", here); /* equal to a and c, but to b it should be */
    text = said(dir, "a b c d", 1);
    EXPECT_TEXT(text, "over 2 steps: a = c = d\n");
    EXPECT_TEXT(text, "error: the losses differ from step 2 on: 0.2500001 in b, 0.25 in d;");
    make_other(dir, "d", "MNLI", "{\"batch-size\": 48, \"override\": true}", here);
    EXPECT_TEXT(said(dir, "b d", 0), "; the runs differ in other flags of earlier steps (--override)\n");
    make_other(dir, "d", "MNLI", "{\"batch-size\": 48}", "");
    EXPECT_TEXT(said(dir, "b d", 0), "losses: b and d have no step in common\n");
    make_other(dir, "d", "MNLI", "{\"batch-size\": 48, \"stop-after\": \"1s\"}", LINE("1", "0.5"));
    EXPECT_TEXT(said(dir, "b d", 0), "losses: are equal over 1 steps; b has 2 steps, d has 1\n");
}

/* Without --output-dir there is the table alone. */
static void test_writes_nothing_unasked(void **state)
{
    const char *dir = *state;
    Buf out = {0};
    char *file = file_join(dir, "results"), *csv = file_join(dir, "t.csv");
    make_run(dir, "a", "none", LINE("1", "0.5"));
    assert_int_equal(cairn_report_plain(dir, "a", &out), 0);
    assert_null(strstr(out.data, "written"));
    assert_false(file_exists(file));
    assert_int_equal(cairn_report_plain(dir, "a --csv t.csv", &out), 0);
    EXPECT_TEXT(out.data, "written: t.csv\n");
    assert_true(file_exists(csv) && !file_exists(file));
    assert_int_equal(cairn_report_plain(dir, "a --proof", &out), 2);
    EXPECT_TEXT(out.data, "--proof writes proof.html and proof.txt: give their folder with --output-dir DIR");
    assert_int_equal(cairn_report_plain(dir, "a --output-dir a", &out), 2);
    buf_free(&out);
    MEM_FREE(file, csv);
}

#define DIGESTS(step, loss, grads, weights)                                                                            \
    "{\"step\": " step ", \"epoch\": 0, \"loss\": " loss ", \"lr\": 1e-05, \"grads_digest\": \"" grads                 \
    "\", \"weights_digest\": \"" weights "\"}\n"

static void make_seed(const char *dir, const char *name, const char *recompute, const char *options, double accuracy,
                      const char *metrics)
{
    RunSummary s = summary_of(recompute);
    s.n_evals = 0;
    s.config_json = options;
    summary_add_eval(&s, "dev", "accuracy", accuracy);
    make_summary(dir, name, &s, metrics);
}

static void test_proof(void **state)
{
    const char *dir = *state;
    const char *const first = DIGESTS("1", "0.5", "aa", "01") DIGESTS("2", "0.25", "bb", "02"),
                      *const wrong = DIGESTS("1", "0.5", "aa", "01") DIGESTS("2", "0.25", "bb", "03"),
                      *const seeded = LINE("1", "0.75") LINE("2", "0.125");
    make_seed(dir, "base", "none", "{\"seed\": 1}", 0.5, first);
    make_seed(dir, "full", "full", "{\"seed\": 1}", 0.5, first);
    make_seed(dir, "base2", "none", "{\"seed\": 2}", 0.7, seeded);
    Buf text = {0};
    EXPECT_TEXT(said(dir, "base full base2 --proof", 0), "written to out: proof.html, proof.txt\n");
    Page page = chart_of(dir, "proof.html");
    assert_true(shows(&page, "Training loss"));
    page_free(&page);
    char *path = file_join(dir, "out/proof.txt");
    assert_ok(file_read(path, 1 << 20, &text));
    EXPECT_TEXT(text.data, "full against base: recompute none → full\nbase2 against base: --seed 1 → 2\n");
    EXPECT_TEXT(text.data, "losses: equal, bit for bit, over 2 steps: base = full\n");
    EXPECT_TEXT(text.data, "the largest difference is 0.5 of the loss, at step 2; the runs differ in --seed\n");
    EXPECT_TEXT(text.data, "digests of the summed gradients: equal at 2 of 2 steps, up to step 2: base = full\n"
                           "digests of the weights: equal at 2 of 2 steps, up to step 2: base = full\n");
    EXPECT_TEXT(text.data, "base, base2:\ndev accuracy: 0.6000 ± 0.1414 over 2 seeds");
    EXPECT_TEXT(text.data, "speed, first = 1");
    EXPECT_TEXT(text.data, "base: a <GPU>; node<1> (2 ranks); oneDNN 2.6.3");
    EXPECT_TEXT(text.data,
                "full: each of 2 ranks, by cairn launch or another launcher: cairn glue --data-dir 'a<b> & c'\n");
    make_seed(dir, "full", "full", "{\"seed\": 1}", 0.5, wrong);
    said(dir, "base full --proof", 0);
    text.len = 0;
    assert_ok(file_read(path, 1 << 20, &text));
    EXPECT_TEXT(text.data, "digests of the weights: equal at 1 of 2 steps, they differ from step 2 on, up to step 2");
    make_run(dir, "a", "none", LINE("1", "0.5"));
    make_run(dir, "b", "none", LINE("1", "0.5"));
    said(dir, "a b --proof", 0);
    text.len = 0;
    assert_ok(file_read(path, 1 << 20, &text));
    EXPECT_TEXT(text.data, "b against a: nothing of this table\n");
    EXPECT_TEXT(text.data, "--digest-steps N of a run records digests");
    EXPECT_TEXT(text.data, "sum: planned peak memory (MiB)");
    said(dir, "base base2 --proof", 0);
    text.len = 0;
    assert_ok(file_read(path, 1 << 20, &text));
    EXPECT_TEXT(text.data, "No two runs have equal losses.\n");
    buf_free(&text);
    free(path);
}

/* Who had faults, and the share of time, also by lines of older versions; a run without faults beside it. */
static void test_command_faults(void **state)
{
    const char *dir = *state, *text;
    make_run(dir, "a", "none", LINE("1", "0.5"));
    make_run(dir, "b", "none", LINE("1", "0.5"));
    assert_null(strstr(said(dir, "a b", 0), "fault"));
    char *run = file_join(dir, "a");
    testing_write(run, "faults.jsonl",
                  "{\"time\": 1, \"start\": 0, \"rank\": 1, \"host\": \"n<1>\"}\n"
                  "{\"time\": 2, \"start\": 1, \"rank\": -1, \"host\": \"n2\"}\n");
    text = said(dir, "a b", 0);
    EXPECT_TEXT(text, "faults 2 0\nshare of time that counts (%) – –\n");
    EXPECT_TEXT(text, "faults of a: 2 faults: rank 1 on n<1> (1), host n2 (1). No `cairn launch` has summed up yet");
    assert_null(strstr(text, "faults of b"));
    testing_write(run, "faults.jsonl",
                  "{\"time\": 1, \"start\": 0, \"rank\": 1, \"host\": \"n<1>\"}\n"
                  "[]\n"
                  "{\"time\": 2, \"start\": 1, \"rank\": 1, \"host\": \"n<1>\"}\n"
                  "{\"time\": 3, \"ran");
    testing_write(
        run, "launches.jsonl",
        "{\"time\": 4, \"faults\": 2, \"launch_s\": 60, \"trained_s\": 45, \"ending_s\": 5, \"pause_s\": 1}\n"
        "{\"time\": 5, \"job\": \"x\", \"killed\": true, \"launch_s\": 30, \"trained_s\": 30, \"start_s\": 3}\n"
        "{\"time\": 6, \"job\": \"y\", \"faults\": 0, \"launch_s\": 10, \"trained_s\": 5}\n"
        "{\"time\": 7, \"job\": \"z\", \"faults\": 0, \"launch_s\": 10}\n"
        "{\"time\": 8, \"job\": \"z\", \"faults\": 0, \"launch_s\": 10, \"trained_s\": -5}\n");
    text = said(dir, "a b", 0);
    EXPECT_TEXT(text, "faults 2 0\nshare of time that counts (%) 80.0 –\n");
    EXPECT_TEXT(text, "faults of a: 2 faults: rank 1 on n<1> (2). Effective share of time (ETTR): 80.0 % of 1m 40s. "
                      "4 damaged lines are left out\n");
    Buf page = {0};
    assert_ok(report_write(run));
    char *html = file_join(run, "report.html");
    assert_ok(file_read(html, 1 << 20, &page));
    EXPECT_TEXT(page.data, "<h2>Faults</h2>\n<p>2 faults: rank 1 on n&lt;1&gt; (2). Effective share of time");
    buf_free(&page);
    free(html);
    free(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_command, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_command_on_purpose, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_command_faults, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_groups, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_writes_nothing_unasked, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_proof, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
