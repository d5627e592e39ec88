/* `cairn report DIR…`: runs side by side, their curves, and whether their losses are the same bits. */

#include "commands/commands.h"
#include "report/compare.h"
#include "report/page.h"

/* ---- reading ---- */

static Status read_run(const char *dir, ComparedRun *run)
{
    TRY(run_record_read_any(dir, &run->r));
    TRY(fault_record_read(dir, &run->faults));
    run->config = js_get(run->r.doc, "config");
    if (run->config) return OK;
    run->state = commands_newest_state(dir); /* of a run that has not ended; none is fine */
    run->config = js_get(run->state, "config");
    return OK;
}

static void runs_free(ComparedRun *runs, int n)
{
    for (int i = 0; i < n; i++) {
        run_record_free(&runs[i].r);
        fault_record_free(&runs[i].faults);
        js_free(runs[i].state);
        free(runs[i].name);
    }
    free(runs);
}

/* ---- equal losses ---- */

/* Options beside those that options.h gives an effect: files. Their digests are compared where both runs have them. */
static const int files[] = {OPTION_data_dir, OPTION_model, OPTION_model_config, OPTION_vocab, OPTION_input};

static bool may_change_bits(int option, bool by_digests)
{
    bool file = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) file = file || option == files[i];
    return file ? !by_digests : config_effect(option) != EFFECT_NONE;
}

/* A digest of the run's record; NULL: it has none. */
static const char *digest_in(const ComparedRun *run, const char *key)
{
    const char *digest = js_string(js_get(js_get(run->state ? run->state : run->r.doc, "fingerprint"), key), "");
    return *digest ? digest : NULL;
}

static void add_reason(Buf *out, const char *format, const char *name)
{
    if (out->len) buf_puts(out, ", ");
    buf_printf(out, format, name);
}

/* What lets the losses of two runs differ (contracts.md 9); nothing: they must be equal. */
static void differences(const ComparedRun *a, const ComparedRun *b, Buf *out)
{
    const RunSummary *s = &a->r.s, *o = &b->r.s;
    static const char *const digests[][2] = {{"data", "the data"}, {"origin", "the model or its first weights"}};
    int known = 0;
    if (!a->config || !b->config) add_reason(out, "%s", "an unknown configuration");
    for (int i = 0; i < 2; i++) {
        const char *x = digest_in(a, digests[i][0]), *y = digest_in(b, digests[i][0]);
        known += x && y;
        if (x && y && strcmp(x, y) != 0) add_reason(out, "%s", digests[i][1]);
    }
    for (int i = 0; i < N_OPTIONS; i++)
        if (may_change_bits(i, known == 2) && compare_option_differs(a, b, config_flag(i)))
            add_reason(out, "--%s", config_flag(i));
    if (!a->r.finished || !b->r.finished) return;
    if (strcmp(s->precision, o->precision) != 0) add_reason(out, "%s", "the precision");
    if (strcmp(s->backend, o->backend) != 0) add_reason(out, "%s", "the backend or its libraries");
    if (js_int(js_get(a->r.doc, "ranks"), 1) != js_int(js_get(b->r.doc, "ranks"), 1))
        add_reason(out, "%s", "the number of ranks");
}

/* Where the losses, as they were written (17 digits), differ; empty: nowhere. A run that began with a checkpoint of
   another folder lacks the steps before it. Returns the number of steps that both have. */
static int compare_pair(const ComparedRun *a, const ComparedRun *b, Buf *out)
{
    const double *steps = a->r.column[STEP_NUMBER], *others = b->r.column[STEP_NUMBER];
    int i = 0, j = 0;
    while (i < a->r.n_steps && j < b->r.n_steps && steps[i] != others[j]) *(steps[i] < others[j] ? &i : &j) += 1;
    int rest_a = a->r.n_steps - i, rest_b = b->r.n_steps - j, n = rest_a < rest_b ? rest_a : rest_b;
    if (n == 0 && a->r.n_steps && b->r.n_steps) buf_printf(out, "have no step in common");
    for (int k = 0; k < n; k++)
        if (steps[i + k] != others[j + k] || strcmp(a->r.loss_texts[i + k], b->r.loss_texts[j + k]) != 0) {
            buf_printf(out, "differ from step %.0f on: %s in %s, %s in %s", steps[i + k], a->r.loss_texts[i + k],
                       a->name, b->r.loss_texts[j + k], b->name);
            return n;
        }
    if (rest_a != rest_b && !out->len)
        buf_printf(out, "are equal over %d steps; %s has %d steps, %s has %d", n, a->name, a->r.n_steps, b->name,
                   b->r.n_steps);
    return n;
}

/* Compares the losses of runs 1 … with those of run 0, and prints the result. E_FAIL: they differ, though their
   configurations promise the same. `equal`: all are. */
static Status compare_losses(const ComparedRun *runs, int n, bool *equal, Buf *out)
{
    Buf broken = {0};
    Status status = OK;
    int least = runs[0].r.n_steps;
    *equal = true;
    for (int i = 1; i < n; i++) {
        const ComparedRun *a = &runs[0], *b = &runs[i];
        Buf found = {0}, why = {0};
        bool unfinished = !a->r.finished || !b->r.finished;
        if (a->r.finished && b->r.finished && strcmp(a->r.s.task, b->r.s.task) != 0) {
            buf_printf(out, "losses: %s is %s, %s is %s: not compared\n", a->name, a->r.s.task, b->name, b->r.s.task);
            *equal = false;
            continue;
        }
        int common = compare_pair(a, b, &found);
        least = common < least ? common : least;
        differences(a, b, &why);
        bool short_only = found.len && (common == 0 || (unfinished && strncmp(found.data, "are equal", 9) == 0));
        if (found.len) *equal = false;
        if (found.len && !why.len && !short_only)
            buf_printf(&broken, "%sthe losses %s", broken.len ? "; " : "", found.data);
        else if (found.len)
            buf_printf(out, "losses: %s%s%s\n", found.data, why.len ? "; the runs differ in " : "",
                       why.len ? why.data : "");
        BUF_FREE(&found, &why);
    }
    if (n > 1 && *equal) buf_printf(out, "losses: equal, bit for bit, over %d steps\n", least);
    if (broken.len)
        status =
            fail(E_FAIL, "%s. Their configurations promise equal losses (docs/contracts.md, section 9)", broken.data);
    buf_free(&broken);
    return status;
}

/* ---- output ---- */

static void put_faults(const ComparedRun *runs, int n, Buf *out)
{
    for (int i = 0; i < n; i++) {
        Buf text = {0};
        fault_record_text(&runs[i].faults, &text);
        if (text.len) buf_printf(out, "faults of %s: %s\n", runs[i].name, text.data);
        buf_free(&text);
    }
}

typedef struct {
    const char *dir;
    Buf page, written;
} ReportOutput;

/* Each chart is a file of its own, and in the page. */
static Status draw(void *context, const char *file, const Chart *chart)
{
    ReportOutput *o = context;
    Buf out = {0};
    char *name = mem_printf("%s.svg", file);
    chart_svg(chart, &out);
    Status status = file_write_text(o->dir, name, &out);
    page_chart(&o->page, chart);
    buf_printf(&o->written, ", %s", name);
    free(name);
    return status;
}

/* A run's own folder has a report.html of that run alone. */
static Status check_output(const Config *c)
{
    if (!file_exists_in(c->output_dir, "metrics.jsonl")) return OK;
    return fail(E_USAGE, "--output-dir %s is the folder of a run, whose report.html would be replaced; give another",
                c->output_dir);
}

static Status write_page(const Config *c, const ComparedRun *runs, int n, const Table *table, bool equal,
                         const char *lines)
{
    ReportOutput o = {.dir = c->output_dir};
    Status status = OK;
    char *title = mem_printf("%d %s compared", n, n == 1 ? "run" : "runs");
    page_begin(&o.page, title, "Cairn " CAIRN_VERSION);
    table_html(table, &o.page);
    buf_puts(&o.page, "<p class=\"lines\">");
    markup_text(&o.page, lines);
    buf_puts(&o.page, "</p>\n<h2>Curves</h2>\n");
    TRY_DONE(compare_charts(runs, n, equal, draw, &o));
    page_end(&o.page);
    TRY_DONE(file_write_text(o.dir, "report.html", &o.page));
    printf("written to %s: report.html%s\n", o.dir, o.written.data);
done:
    BUF_FREE(&o.page, &o.written);
    free(title);
    return status;
}

Status command_report(const Config *c)
{
    int n = c->n_positional;
    Status status = OK;
    Table table = {0};
    Buf text = {0}, losses = {0}, lines = {0};
    char *names[COMPARE_MOST];
    bool equal;
    if (n < 1) return fail(E_USAGE, "give the output folders of runs: cairn report DIR1 DIR2");
    if (n > COMPARE_MOST)
        return fail(E_USAGE, "%d folders are given; cairn report compares %d at most", n, COMPARE_MOST);
    TRY(check_output(c));
    ComparedRun *runs = mem_array((size_t)n, sizeof *runs);
    compare_names(c->positional, n, names);
    for (int i = 0; i < n; i++) runs[i].name = names[i];
    for (int i = 0; i < n; i++) TRY_DONE(read_run(c->positional[i], &runs[i]));
    compare_table(runs, n, &table);
    table_print(&table, table_terminal_width(), &text);
    put_faults(runs, n, &lines);
    Status same = compare_losses(runs, n, &equal, &losses);
    char *message = same == OK ? NULL : mem_strdup(status_message()); /* later calls may replace it */
    if (lines.len) buf_puts(&text, lines.data);
    if (losses.len) buf_puts(&text, losses.data);
    buf_print(&text);
    buf_puts(&lines, message ? message : losses.len ? losses.data : "");
    status = file_make_directories(c->output_dir);
    if (status == OK && *c->csv) status = table_write_csv(&table, true, NULL, c->csv);
    if (status == OK) status = write_page(c, runs, n, &table, equal && n > 1, lines.data);
    if (status == OK && same != OK) status = fail(same, "%s", message);
    free(message);
done:
    table_free(&table);
    BUF_FREE(&losses, &lines);
    runs_free(runs, n);
    return status;
}
