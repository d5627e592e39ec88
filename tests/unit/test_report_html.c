/* run.json written and read back, and report.html. */
#include <math.h>

#include "report_testing.h"

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
    assert_string_equal(r.s.again, s.again);
    assert_string_equal(r.s.model, s.model);
    assert_string_equal(r.s.device, s.device);
    assert_true(r.s.micro_batches == 2);
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
    assert_string_equal(r.text[STEP_LOSS_TEXT][1], "0.5");
    assert_string_equal(r.text[STEP_LOSS_TEXT][3], "null");
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

static Page report_of(const char *dir, const RunSummary *s)
{
    Page p = {0};
    char *path = file_join(dir, "report.html");
    assert_ok(summary_write(dir, s));
    assert_ok(report_write(dir));
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

/* Each name once, with its value in the next cell. */
static void assert_row(const Page *p, const char *name, const char *value)
{
    int at = markup_find(&p->m, 0, "td", name);
    if (at < 0) fail_msg("no row \"%s\"", name);
    assert_int_equal(markup_find(&p->m, at + 1, "td", name), -1);
    assert_string_equal(p->m.elements[at + 1].text, value);
    assert_int_equal(p->m.elements[at].parent, p->m.elements[at + 1].parent);
}

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
    assert_row(&p, "beside the plan: program, libraries, data, snapshots", "1020.8 MiB"); /* the rest of the sum */
    assert_row(&p, "sum: peak of the process, planned", "9216.0 MiB");
    assert_true(markup_find(&p.m, 0, "td", "host: exchange") >
                markup_find(&p.m, 0, "td", "peak of the process, measured"));
    assert_true(markup_find(&p.m, 0, "p",
                            "BERT of 2 layers & more, a <GPU>, f32, 2 ranks. Cairn 9.8.7, recompute half-attention, "
                            "oneDNN 2.6.3, \"avx2\" <2 threads> & more") >= 0);
    assert_row(&p, "recompute", "half-attention");
    assert_row(&p, "backend", s.backend);
    assert_row(&p, "version", "9.8.7");
    assert_row(&p, "hosts", s.hosts);
    assert_row(&p, "waited_for", s.waited_for);
    assert_row(&p, "command", s.command);
    assert_row(&p, "the same run again", s.again);
    int pre = markup_find(&p.m, 0, "pre", NULL);
    assert_string_equal(p.m.elements[pre].text, "{\n  \"task\": \"MNLI\",\n  \"data-dir\": \"a<b> & \\\"c\\\"\"\n}");

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

/* A file on its own has the colours of a dark screen, and is as well-formed as in a page. */
static void test_file_is_dark_on_dark(void **state)
{
    static const double y[] = {1, 2};
    ChartSeries s = {.name = "a", .y = y, .n = 2};
    Buf svg = {0}, text = {0};
    Markup m;
    chart_svg(&(Chart){.title = "Title", .x_label = "step", .y_label = "loss", .series = &s, .n_series = 1}, &svg);
    assert_ok(svg_write(*state, "a.svg", &svg));
    char *path = file_join(*state, "a.svg");
    assert_ok(file_read(path, 1 << 20, &text));
    markup_expect(text.data, &m);
    markup_expect_self_contained(&m);
    int style = markup_find(&m, 0, "style", NULL);
    assert_true(style == 1 && strstr(m.elements[style].text, "prefers-color-scheme:dark"));
    assert_non_null(strstr(m.elements[style].text, ".paper{fill:"));
    markup_free(&m);
    buf_free(&text);
    free(path);
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
        cmocka_unit_test(test_colours_differ),
        cmocka_unit_test_setup_teardown(test_file_is_dark_on_dark, testing_set_up, testing_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
