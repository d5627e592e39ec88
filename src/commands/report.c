/* `cairn report DIR…`: runs side by side, their curves, and whether their losses are the same bits. */

#include "commands/report.h"
#include "commands/commands.h"

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

/* ---- output ---- */

static void put_faults(const ComparedRun *runs, int n, Buf *out)
{
    buf_puts(out, "");
    for (int i = 0; i < n; i++) {
        Buf text = {0};
        fault_record_text(&runs[i].faults, &text);
        if (text.len) buf_printf(out, "faults of %s: %s\n", runs[i].name, text.data);
        buf_free(&text);
    }
}

typedef struct {
    const char *dir, *about;
    Buf page, written;
} ReportOutput;

static Status draw(void *context, const char *file, const Chart *chart)
{
    ReportOutput *o = context;
    buf_printf(&o->written, ", %s", file);
    return page_chart_file(&o->page, chart, o->about, o->dir, file);
}

/* A run's own folder has a report.html of that run alone. */
static Status check_output(const Config *c)
{
    if (c->proof && !*c->output_dir)
        return fail(E_USAGE, "--proof writes proof.html and proof.txt: give their folder with --output-dir DIR");
    if (!*c->output_dir || !file_exists_in(c->output_dir, "metrics.jsonl")) return OK;
    return fail(E_USAGE, "--output-dir %s is the folder of a run, whose report.html would be replaced; give another",
                c->output_dir);
}

static Status write_page(const char *dir, const ComparedRun *runs, int n, const Table *table, bool equal,
                         const char *lines)
{
    char *title = mem_printf("%d %s compared", n, n == 1 ? "run" : "runs"), *about = compare_about(runs, n);
    ReportOutput o = {.dir = dir, .about = about};
    Status status = OK;
    page_begin(&o.page, title, about);
    table_html(table, &o.page);
    page_lines(&o.page, lines);
    page_title(&o.page, "Curves");
    TRY_DONE(compare_charts(runs, n, equal, draw, &o));
    page_end(&o.page);
    TRY_DONE(file_write_text(o.dir, "report.html", &o.page));
    printf("written to %s: report.html%s\n", o.dir, o.written.data);
done:
    BUF_FREE(&o.page, &o.written);
    MEM_FREE(title, about);
    return status;
}

static Status write_files(const Config *c, const ComparedRun *runs, int n, const Table *table, const LossGroups *groups,
                          const char *lines)
{
    if (*c->csv) {
        TRY(table_write_csv(table, true, NULL, c->csv));
        printf("written: %s\n", c->csv);
    }
    if (!*c->output_dir) return OK;
    TRY(file_make_directories(c->output_dir));
    TRY(write_page(c->output_dir, runs, n, table, groups->n == 1 && n > 1, lines));
    return c->proof ? proof_write(c, runs, n, groups, lines) : OK;
}

Status command_report(const Config *c)
{
    int n = c->n_positional;
    Status status = OK;
    Table table = {0};
    Buf text = {0}, lines = {0}, broken = {0};
    char *names[COMPARE_MOST];
    LossGroups groups;
    if (n < 1) return fail(E_USAGE, "give the output folders of runs: cairn report DIR1 DIR2");
    if (n > COMPARE_MOST)
        return fail(E_USAGE, "%d folders are given; cairn report compares %d at most", n, COMPARE_MOST);
    TRY(check_output(c));
    ComparedRun *runs = mem_array((size_t)n, sizeof *runs);
    compare_names(c->positional, n, names);
    for (int i = 0; i < n; i++) runs[i].name = names[i];
    for (int i = 0; i < n; i++) TRY_DONE(read_run(c->positional[i], &runs[i]));
    compare_setup(runs, n, &table);
    compare_figures(runs, n, &table);
    table_print(&table, table_terminal_width(), &text);
    put_faults(runs, n, &lines);
    losses_compare(runs, n, &groups, &lines, &broken);
    buf_puts(&text, lines.data);
    buf_print(&text);
    if (broken.len) buf_printf(&lines, "%s\n", broken.data);
    TRY_DONE(write_files(c, runs, n, &table, &groups, lines.data));
    if (broken.len) status = fail(E_FAIL, "%s", broken.data);
done:
    table_free(&table);
    BUF_FREE(&lines, &broken);
    runs_free(runs, n);
    return status;
}
