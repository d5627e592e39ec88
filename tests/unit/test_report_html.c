/* run.json written and read back, report.html, and `cairn report` over runs made here. */
#include <math.h>

#include "markup.h"
#include "report/page.h"
#include "report/record.h"

static const double memory[] = {787968, 3179008, 50331648, 1e10, 12};
static const char config[] = "{\n  \"task\": \"MNLI\",\n  \"data-dir\": \"a<b> & \\\"c\\\"\"\n }";

static RunSummary summary_of(const char *recompute)
{
    RunSummary s = {.task = "MNLI",
                    .recompute = recompute,
                    .precision = "f32",
                    .backend = "oneDNN 2.6.3, \"avx2\" <2 threads> & more",
                    .version = "9.8.7",
                    .started = "2026-11-21T03:40:36Z",
                    .hosts = "node<1> (2 ranks)",
                    .waited_for = "rank 1 on node<1>: slow",
                    .folder = "/home/me/a&b",
                    .command = "cairn glue --data-dir 'a<b> & c'",
                    .again = "cairn glue --config out/run.json --output-dir OTHER",
                    .ranks = 2,
                    .threads = 2,
                    .steps = (int64_t)1 << 40,
                    .final_loss = 0.1 + 0.2,
                    .seq_per_s = 1.0 / 3,
                    .tokens_per_s = 1234.5,
                    .wall_s = 5e-324,
                    .save_stall_s = 0.25,
                    .planned_peak_bytes = (size_t)5 << 30,
                    .measured_peak_bytes = ((size_t)5 << 30) - 7,
                    .memory_series = memory,
                    .n_memory = 5,
                    .config_json = config};
    summary_add_region(&s, "weights", 3406080);
    summary_add_region(&s, "activations", (size_t)1 << 33);
    summary_add_region(&s, "const", 1792);
    summary_add_eval(&s, "dev_matched", "accuracy", 0.49333333333333335);
    summary_add_eval(&s, "dev \"x\"", "f<1>&", 2.0 / 3);
    return s;
}

static void write_steps(const char *dir, int n, int bad)
{
    Metrics *m;
    assert_ok(metrics_open(&m, dir, 0, 0));
    for (int i = 1; i <= n; i++) {
        StepRecord r = {.step = i,
                        .seq_per_s = 10,
                        .peak_bytes = (size_t)i << 20,
                        .loss = i == bad ? NAN : 1.0 / i,
                        .lr = 1e-5 * i};
        assert_ok(metrics_step(m, &r));
    }
    metrics_close(m);
}

/* ---- run.json ---- */

static void assert_values(const SummaryValue *a, int n, const SummaryValue *b, int m)
{
    assert_int_equal(n, m);
    for (int i = 0; i < n; i++) {
        assert_string_equal(a[i].name, b[i].name);
        assert_true(a[i].value == b[i].value);
    }
}

static void test_summary_there_and_back(void **state)
{
    const char *dir = *state;
    RunSummary s = summary_of("auto (none×4, full×8)");
    RunRecord r;
    write_steps(dir, 30, 4);
    assert_ok(summary_write(dir, &s));
    assert_ok(run_record_read(dir, &r));
    assert_string_equal(r.s.task, s.task);
    assert_string_equal(r.s.recompute, s.recompute);
    assert_string_equal(r.s.precision, s.precision);
    assert_string_equal(r.s.backend, s.backend);
    assert_string_equal(r.s.version, s.version);
    assert_string_equal(r.s.started, s.started);
    assert_string_equal(r.s.hosts, s.hosts);
    assert_string_equal(r.s.folder, s.folder);
    assert_string_equal(r.s.command, s.command);
    assert_int_equal(r.s.ranks, s.ranks);
    assert_int_equal(r.s.threads, s.threads);
    assert_int_equal(r.s.steps, s.steps);
    const double given[] = {s.final_loss, s.seq_per_s, s.tokens_per_s, s.wall_s, s.save_stall_s},
                 back[] = {r.s.final_loss, r.s.seq_per_s, r.s.tokens_per_s, r.s.wall_s, r.s.save_stall_s};
    assert_memory_equal(given, back, sizeof given);
    assert_int_equal(r.s.planned_peak_bytes, s.planned_peak_bytes);
    assert_int_equal(r.s.measured_peak_bytes, s.measured_peak_bytes);
    assert_values(r.s.regions, r.s.n_regions, s.regions, s.n_regions);
    assert_values(r.s.evals, r.s.n_evals, s.evals, s.n_evals);
    assert_int_equal(r.s.n_memory, 5);
    assert_memory_equal(r.s.memory_series, memory, sizeof memory);
    assert_string_equal(js_string(js_get(js_get(r.doc, "config"), "data-dir"), ""), "a<b> & \"c\"");

    assert_int_equal(r.n_steps, 30);
    for (int i = 0; i < 30; i++) {
        assert_int_equal(r.column[STEP_NUMBER][i], i + 1);
        assert_true(i == 3 ? isnan(r.column[STEP_LOSS][i]) : r.column[STEP_LOSS][i] == 1.0 / (i + 1));
        assert_true(r.column[STEP_RATE][i] == 1e-5 * (i + 1));
    }
    assert_string_equal(r.loss_texts[1], "0.5");
    assert_string_equal(r.loss_texts[3], "null");
    run_record_free(&r);
    run_record_free(&(RunRecord){0});
}

static void test_summary_is_removed(void **state)
{
    const char *dir = *state;
    RunSummary s = summary_of("none");
    char *path = file_join(dir, "run.json");
    assert_ok(summary_remove(dir)); /* without a file */
    assert_ok(summary_write(dir, &s));
    assert_true(file_exists(path));
    assert_ok(summary_remove(dir));
    assert_false(file_exists(path));
    free(path);
}

static void test_bad_records(void **state)
{
    const char *dir = *state;
    static const char *const bad[] = {"{\"step\": 1, \"loss\": 1, \"lr\": 1}\n\n",
                                      "{\"step\": 1, \"loss\": 1, \"lr\": 1}\nstep 2\n",
                                      "{\"step\": 1, \"loss\": 1, \"lr\": 1}\n{\"step\": 2, \"lr\": 1}\n",
                                      "{\"step\": 1, \"loss\": 1, \"lr\": 1}\n{\"step\": 2, \"loss\": 1}\n"};
    RunSummary s = summary_of("none");
    RunRecord r;
    assert_status(run_record_read(dir, &r), E_IO);
    assert_message("run.json");
    assert_ok(summary_write(dir, &s));
    assert_ok(run_record_read(dir, &r)); /* a run that only evaluated has no steps */
    assert_int_equal(r.n_steps, 0);
    run_record_free(&r);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        testing_write(dir, "metrics.jsonl", bad[i]);
        assert_status(run_record_read(dir, &r), E_FORMAT);
        assert_message("metrics.jsonl: line 2");
    }
    testing_write(dir, "run.json", "{\"format\": 1,");
    assert_status(run_record_read(dir, &r), E_FORMAT);
    assert_message("run.json");
}

/* ---- report.html ---- */

typedef struct {
    Buf text;
    Markup m;
} Page;

static Page report_of(const char *dir, const RunSummary *s)
{
    Page p = {0};
    char *path = file_join(dir, "report.html");
    assert_ok(summary_write(dir, s));
    assert_ok(report_write(dir, s));
    assert_ok(file_read(path, 1 << 20, &p.text));
    assert_int_equal(strncmp(p.text.data, "<!DOCTYPE html>\n", 16), 0);
    markup_expect(p.text.data, &p.m);
    assert_string_equal(p.m.elements[0].name, "html");
    markup_expect_self_contained(&p.m);
    int addresses = 0, charset = markup_find(&p.m, 0, "meta", NULL);
    for (const char *at = p.text.data; (at = strstr(at, "http")); at++) addresses++;
    assert_int_equal(addresses, markup_count(&p.m, "svg")); /* the name of the SVG namespace */
    assert_string_equal(markup_attribute(&p.m.elements[charset], "charset"), "utf-8");
    free(path);
    return p;
}

static void page_free(Page *p)
{
    buf_free(&p->text);
    markup_free(&p->m);
}

/* Each name once, with its value in the next cell. */
static void assert_row(const Page *p, const char *name, const char *value)
{
    int at = markup_find(&p->m, 0, "td", name);
    if (at < 0) fail_msg("no row \"%s\"", name);
    assert_int_equal(markup_find(&p->m, at + 1, "td", name), -1);
    assert_string_equal(p->m.elements[at + 1].text, value);
    assert_int_equal(p->m.elements[at].parent, p->m.elements[at + 1].parent);
}

static bool shows(const Page *p, const char *text) { return markup_find(&p->m, 0, "text", text) >= 0; }

static void test_report(void **state)
{
    const char *dir = *state;
    RunSummary s = summary_of("half-attention");
    s.steps = 30;
    write_steps(dir, 30, 4);
    Page p = report_of(dir, &s);
    assert_true(markup_find(&p.m, 0, "title", "Cairn: MNLI") >= 0);
    assert_row(&p, "dev_matched accuracy", "0.4933");
    assert_row(&p, "dev \"x\" f<1>&", "0.6667");
    assert_row(&p, "steps", "30");
    assert_row(&p, "loss of the last step", "0.3");
    assert_row(&p, "sequences/s", "0.3");
    assert_row(&p, "tokens/s", "1234");
    assert_row(&p, "weights", "3.2 MiB");
    assert_row(&p, "activations", "8192.0 MiB");
    assert_row(&p, "const", "1.8 KiB");
    assert_row(&p, "peak of the process, planned", "5120.0 MiB");
    assert_row(&p, "recompute", "half-attention");
    assert_row(&p, "backend", s.backend);
    assert_row(&p, "version", "9.8.7");
    assert_row(&p, "hosts", s.hosts);
    assert_row(&p, "waited_for", s.waited_for);
    assert_row(&p, "command", s.command);
    assert_row(&p, "the same run again", s.again);
    int pre = markup_find(&p.m, 0, "pre", NULL);
    assert_string_equal(p.m.elements[pre].text, config);

    assert_int_equal(markup_count(&p.m, "svg"), 2 * 5); /* in two widths */
    assert_true(shows(&p, "Throughput") && shows(&p, "Peak memory so far, against the plan"));
    assert_true(shows(&p, "Training loss") && shows(&p, "Learning rate") && shows(&p, "recompute half-attention"));
    assert_true(shows(&p, "peak, 9536.7 MiB")); /* 1e10 bytes, the largest of the series */
    assert_false(shows(&p, "no data"));
    page_free(&p);
}

/* The smoothed loss continues after a step whose loss is not a number: one line from the first step to the last.
 */
static void test_report_smooths_over_gaps(void **state)
{
    const char *dir = *state;
    RunSummary s = summary_of("none");
    write_steps(dir, 30, 4);
    Page p = report_of(dir, &s);
    int lines[3], n = 0, svg = markup_find(&p.m, 0, "svg", NULL), next = markup_find(&p.m, svg + 1, "svg", NULL);
    for (int i = svg; i < next; i++)
        if (markup_attribute(&p.m.elements[i], "stroke-linejoin")) {
            assert_true(n < 3);
            lines[n++] = i;
        }
    assert_int_equal(n, 3); /* the loss in two pieces, and the smoothed one */
    const char *d = markup_attribute(&p.m.elements[lines[2]], "d");
    int points = 0;
    for (; *d; d++) points += *d == 'M' || *d == 'L';
    assert_int_equal(points, 30);
    page_free(&p);
}

static void test_report_of_little(void **state)
{
    const char *dir = *state;
    RunSummary s = summary_of("none");
    s.n_memory = 0;
    s.n_evals = s.n_regions = 0;
    Page p = report_of(dir, &s); /* no metrics.jsonl */
    assert_int_equal(markup_count(&p.m, "svg"), 2 * 3);
    assert_true(shows(&p, "no data"));
    page_free(&p);

    write_steps(dir, 0, 0);
    p = report_of(dir, &s);
    assert_true(shows(&p, "no data"));
    page_free(&p);

    write_steps(dir, 1, 0);
    s.n_memory = 1;
    p = report_of(dir, &s);
    assert_int_equal(markup_count(&p.m, "svg"), 2 * 4);
    assert_int_equal(markup_count(&p.m, "circle"), 2 * 6); /* loss and speed with their means, rate, memory */
    assert_false(shows(&p, "no data"));
    page_free(&p);

    write_steps(dir, 1, 1); /* NaN at the only step */
    p = report_of(dir, &s);
    assert_true(shows(&p, "no data"));
    page_free(&p);
}

static void test_report_escapes(void **state)
{
    const char *dir = *state;
    static const char odd[] = "</title><script>alert(\"1\")</script>&amp;";
    RunSummary s = summary_of(odd);
    s.task = odd;
    write_steps(dir, 3, 0);
    Page p = report_of(dir, &s); /* which fails where there is a <script> */
    assert_true(markup_find(&p.m, 0, "h1", odd) >= 0);
    assert_row(&p, "recompute", odd);
    page_free(&p);
}

/* ---- cairn report ---- */

/* One blank for each run of them. */
static void squeeze(Buf *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->len; i++)
        if (n == 0 || b->data[i] != ' ' || b->data[n - 1] != ' ') b->data[n++] = b->data[i];
    b->data[b->len = n] = '\0';
}

/* Ends with its exit code; `out` is what it printed on stdout and stderr, squeezed. */
static int cairn_report(const char *dir, const char *names, Buf *out)
{
    const char *cairn = getenv("CAIRN_BINARY");
    if (!cairn) {
        print_message("skipped: CAIRN_BINARY is not set\n");
        skip();
    }
    char piece[1024], *command = mem_printf("cd '%s' && '%s' report %s --output-dir out 2>&1", dir, cairn, names);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;) buf_append(out, piece, n);
    int wait_status = pclose(f);
    assert_true(WIFEXITED(wait_status));
    squeeze(out);
    free(command);
    return WEXITSTATUS(wait_status);
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
    EXPECT_TEXT(text, "losses: differ from step 2 on: 0.25 in x/a, 0.125 in y/a; the runs differ in --batch-size\n");
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
    EXPECT_TEXT(csv.data, ",task,recompute,precision,--batch-size,steps,final loss,");
    EXPECT_TEXT(csv.data, "\r\ny/a,MNLI,none,f32,48,1099511627776,");
    buf_free(&csv);
    free(path);

    /* Of files their digests count, not their paths. */
    const char *const here = "{\"data-dir\": \"here\", \"vocab\": \"v\"}", *const there = "{\"data-dir\": \"there\"}";
    const char *const facts = "{\"data\": \"1\", \"origin\": \"2\"}";
    make_recorded(dir, "one", here, facts, two);
    make_recorded(dir, "copy", there, facts, others);
    make_recorded(dir, "changed", here, "{\"data\": \"3\", \"origin\": \"2\"}", others);
    make_recorded(dir, "grown", here, "{\"data\": \"1\", \"origin\": \"4\"}", others);
    make_recorded(dir, "old", there, "{}", others);
    EXPECT_TEXT(said(dir, "one copy", 1), "0.25 in one, 0.125 in copy. Their configurations promise equal losses");
    EXPECT_TEXT(said(dir, "one changed", 0), "in changed; the runs differ in the data\n");
    EXPECT_TEXT(said(dir, "one grown", 0), "in grown; the runs differ in the model or its first weights\n");
    EXPECT_TEXT(said(dir, "one old", 0), "in old; the runs differ in --data-dir, --vocab\n");

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
    RunSummary s = summary_of("none");
    Buf page = {0};
    assert_ok(report_write(run, &s));
    char *html = file_join(run, "report.html");
    assert_ok(file_read(html, 1 << 20, &page));
    EXPECT_TEXT(page.data, "<h2>Faults</h2>\n<p>2 faults: rank 1 on n&lt;1&gt; (2). Effective share of time");
    buf_free(&page);
    free(html);
    free(run);
}

/* "#5b6" or "#5b6cff" as numbers. */
static void read_colour(const char *hash, int rgb[3])
{
    size_t digits = strspn(hash + 1, "0123456789abcdefABCDEF");
    assert_true(*hash == '#' && (digits == 3 || digits == 6));
    for (size_t i = 0; i < 3; i++) {
        char one[3] = {hash[1 + i * digits / 3], hash[i * digits / 3 + digits / 3], 0};
        rgb[i] = (int)strtol(one, NULL, 16);
    }
}

/* Series can be told apart, on a light page and on a dark one, which replaces the darkest. */
static void test_colours_differ(void **state)
{
    (void)state;
    enum { N = 9, LEAST = 40 };
    static const double y[] = {1, 2};
    ChartSeries series[N];
    char name[N][2];
    int rgb[N][3];
    Buf page = {0}, chart = {0};
    for (int i = 0; i < N; i++) {
        name[i][0] = (char)('a' + i), name[i][1] = 0;
        series[i] = (ChartSeries){.name = name[i], .y = y, .n = 2};
    }
    chart_svg(&(Chart){.title = "t", .x_label = "step", .y_label = "loss", .series = series, .n_series = N}, &chart);
    page_begin(&page, "t", "");
    const char *dark = strstr(page.data, "prefers-color-scheme:dark");
    assert_non_null(dark);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < N; i++) {
            char own[32], rule[32];
            snprintf(own, sizeof own, "class=\"c%d\" stroke=\"#", i);
            snprintf(rule, sizeof rule, ".c%d{stroke:#", i);
            const char *at = strstr(chart.data, own), *other = pass ? strstr(dark, rule) : NULL;
            assert_non_null(at);
            read_colour(other ? strchr(other, '#') : strchr(at, '#'), rgb[i]);
        }
        for (int i = 1; i < N; i++)
            for (int k = 0; k < i; k++) {
                double r = rgb[i][0] - rgb[k][0], g = rgb[i][1] - rgb[k][1], b = rgb[i][2] - rgb[k][2];
                if (sqrt(r * r + g * g + b * b) < LEAST)
                    fail_msg("series %d and %d have nearly one colour%s", k, i, pass ? " on a dark page" : "");
            }
    }
    buf_free(&page);
    buf_free(&chart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_summary_there_and_back, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_summary_is_removed, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_bad_records, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_report, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_report_smooths_over_gaps, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_report_of_little, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_report_escapes, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_command, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_command_on_purpose, testing_set_up, testing_tear_down),
        cmocka_unit_test_setup_teardown(test_command_faults, testing_set_up, testing_tear_down),
        cmocka_unit_test(test_colours_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
