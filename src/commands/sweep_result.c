/* What a sweep found: a row per group with mean and deviation over seeds, a row per run, charts. */

#include "commands/sweep.h"
#include "report/page.h"

#define MIB ((double)(1 << 20))

typedef struct {
    double mean, deviation; /* of a sample; NaN below two */
    int n;
} Mean;

typedef double (*Figure)(const SweepRun *r, const char *name);

static double evaluation(const SweepRun *r, const char *name)
{
    return summary_value(r->record->s.evals, r->record->s.n_evals, name);
}
static double speed(const SweepRun *r, const char *name)
{
    (void)name;
    return r->record->s.seq_per_s;
}
static double measured(const SweepRun *r, const char *name)
{
    (void)name;
    return (double)r->record->s.measured_peak_bytes / MIB;
}

static Mean mean_of(const Sweep *s, int group, Figure figure, const char *name)
{
    Mean m = {NAN, NAN, 0};
    double sum = 0, squares = 0;
    bool undefined = false; /* the mean over seeds does not leave out a run whose metric is not a number */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < s->n_runs; i++) {
            const SweepRun *r = &s->runs[i];
            double x = r->group == group && r->record ? figure(r, name) : NAN;
            undefined |= figure == evaluation && r->group == group && r->record && !isfinite(x);
            if (!isfinite(x)) continue;
            if (pass == 0)
                sum += x, m.n++;
            else
                squares += (x - m.mean) * (x - m.mean);
            if (pass == 0) m.mean = sum / m.n;
        }
    if (m.n > 1) m.deviation = sqrt(squares / (m.n - 1));
    return undefined ? (Mean){NAN, NAN, 0} : m;
}

/* The first run of a group. */
static const SweepRun *first_of(const Sweep *s, int group)
{
    for (int i = 0; i < s->n_runs; i++)
        if (s->runs[i].group == group) return &s->runs[i];
    return NULL;
}

/* The evaluations that any run has: their names, from `at` on. NULL: no more. */
static const char *evaluation_name(const Sweep *s, int at)
{
    for (int i = 0; i < s->n_runs; i++)
        if (s->runs[i].record && s->runs[i].record->s.n_evals > at) return s->runs[i].record->s.evals[at].name;
    return NULL;
}

static int evaluations(const Sweep *s)
{
    int n = 0;
    while (evaluation_name(s, n)) n++;
    return n;
}

/* ---- tables ---- */

static const char *const states[] = {"to do", "done", "does not fit", "failed", "stopped"}; /* SweepState */

static void put_state(const Sweep *s, int group, Buf *out)
{
    for (int state = 0; state < 5; state++) {
        int n = 0, all = 0;
        for (int i = 0; i < s->n_runs; i++) {
            n += s->runs[i].group == group && (int)s->runs[i].state == state;
            all += s->runs[i].group == group;
        }
        if (n == 0) continue;
        buf_puts(out, out->len ? ", " : "");
        if (n == all && state != SWEEP_DONE)
            buf_puts(out, states[state]);
        else
            buf_printf(out, "%d %s", n, states[state]);
    }
}

static void put_mean(Table *t, Mean m, const char *format, bool people)
{
    if (!people) {
        table_figure(t, format, m.mean);
        table_figure(t, format, m.deviation);
    } else if (m.n > 1) {
        table_text(t, "%s ± %s", SHORT_TEXT(format, m.mean), SHORT_TEXT(format, m.deviation));
    } else {
        table_figure(t, format, m.mean);
    }
}

/* For people, or with a column for each deviation. */
static void group_table(const Sweep *s, bool people, Table *t)
{
    int n_evals = evaluations(s), axes = s->n_axes - (s->seeds >= 0), each = people ? 1 : 2;
    table_init(t, axes + 1 + n_evals * each + each + 2, axes + 1);
    for (int a = 0; a < s->n_axes; a++)
        if (a != s->seeds) table_text(t, "%s", s->axes[a].flag);
    table_text(t, "runs");
    for (int e = 0; e < n_evals; e++) {
        table_text(t, "%s", evaluation_name(s, e));
        if (!people) table_text(t, "deviation of %s", evaluation_name(s, e));
    }
    table_text(t, "sequences/s");
    if (!people) table_text(t, "deviation of sequences/s");
    table_text(t, "planned MiB");
    table_text(t, "measured MiB");
    for (int g = 0; g < s->n_groups; g++) {
        const SweepRun *first = first_of(s, g);
        Buf state = {0};
        for (int a = 0; a < s->n_axes; a++)
            if (a != s->seeds) table_text(t, "%s", s->axes[a].values[first->at[a]]);
        put_state(s, g, &state);
        table_text(t, "%s", state.data);
        buf_free(&state);
        for (int e = 0; e < n_evals; e++) put_mean(t, mean_of(s, g, evaluation, evaluation_name(s, e)), "%.4f", people);
        put_mean(t, mean_of(s, g, speed, ""), "%.1f", people);
        table_figure(t, "%.1f", first->planned / MIB);
        table_figure(t, "%.1f", mean_of(s, g, measured, "").mean);
    }
}

static void run_table(const Sweep *s, Table *t)
{
    int n_evals = evaluations(s);
    table_init(t, 2 + s->n_axes + n_evals + 8, 1);
    table_text(t, "run");
    for (int a = 0; a < s->n_axes; a++) table_text(t, "%s", s->axes[a].flag);
    table_text(t, "state");
    for (int e = 0; e < n_evals; e++) table_text(t, "%s", evaluation_name(s, e));
    static const char *const names[] = {"steps",     "final loss",         "sequences/s",         "tokens/s",
                                        "wall time", "planned peak bytes", "measured peak bytes", "message"};
    for (int i = 0; i < 8; i++) table_text(t, "%s", names[i]);
    for (int i = 0; i < s->n_runs; i++) {
        const SweepRun *r = &s->runs[i];
        const RunSummary *m = r->record ? &r->record->s : NULL;
        table_text(t, "%s", r->name);
        for (int a = 0; a < s->n_axes; a++) table_text(t, "%s", s->axes[a].values[r->at[a]]);
        table_text(t, "%s", states[r->state]);
        for (int e = 0; e < n_evals; e++) table_figure(t, "%.4f", m ? evaluation(r, evaluation_name(s, e)) : NAN);
        table_figure(t, "%.0f", m ? (double)m->steps : NAN);
        table_figure(t, "%.6g", m ? m->final_loss : NAN);
        table_figure(t, "%.1f", m ? m->seq_per_s : NAN);
        table_figure(t, "%.0f", m ? m->tokens_per_s : NAN);
        table_figure(t, "%.1f", m ? m->wall_s : NAN);
        table_figure(t, "%.0f", r->planned);
        table_figure(t, "%.0f", m ? (double)m->measured_peak_bytes : NAN);
        table_text(t, "%s", r->message ? r->message : "");
    }
}

/* ---- charts ---- */

/* The axis of x: --batch-size, else the first whose values are all numbers, but seeds. −1: none. */
static int number_axis(const Sweep *s)
{
    int found = -1;
    for (int a = s->n_axes - 1; a >= 0; a--) {
        bool numbers = a != s->seeds && s->axes[a].n > 1;
        for (int i = 0; i < s->axes[a].n && numbers; i++) {
            char *end;
            (void)strtod(s->axes[a].values[i], &end);
            numbers = *end == '\0';
        }
        if (numbers &&
            (found < 0 || strcmp(s->axes[found].flag, "batch-size") != 0 || strcmp(s->axes[a].flag, "batch-size") == 0))
            found = a;
    }
    return found;
}

/* The values of all axes but `without` and seeds. */
static char *line_name(const Sweep *s, const SweepRun *r, int without)
{
    Buf name = {0};
    buf_puts(&name, "");
    for (int a = 0; a < s->n_axes; a++) {
        if (a == without || a == s->seeds) continue;
        buf_printf(&name, "%s%s%s%s", name.len ? ", " : "", strcmp(s->axes[a].flag, "recompute") ? s->axes[a].flag : "",
                   strcmp(s->axes[a].flag, "recompute") ? " " : "", s->axes[a].values[r->at[a]]);
    }
    return name.data;
}

/* Takes the name. */
static void add_point(ChartLines *l, char *name, double x, double y)
{
    int k = chart_line_named(l, name);
    l->series[k].dots = true;
    if (isfinite(y)) chart_point(l, k, x, y);
    free(name);
}

/* The facts that all runs share. The caller frees. */
static char *about(const Sweep *s)
{
    const RunRecord **records = mem_array((size_t)s->n_runs, sizeof *records);
    for (int i = 0; i < s->n_runs; i++) records[i] = s->runs[i].record;
    char *text = run_records_about(records, s->n_runs);
    free(records);
    return text;
}

static Status draw(const Sweep *s, const char *file, const Chart *chart, Buf *page)
{
    char *line = about(s);
    Status status = page_chart_file(page, chart, line, s->c->output_dir, file);
    free(line);
    return status;
}

/* A figure against batch size, a line per policy. */
static Status draw_groups(const Sweep *s, int axis, const char *file, const char *title, const char *label,
                          Figure figure, Buf *page)
{
    ChartLines l = {0};
    for (int g = 0; g < s->n_groups; g++) {
        const SweepRun *r = first_of(s, g);
        add_point(&l, line_name(s, r, axis), strtod(s->axes[axis].values[r->at[axis]], NULL),
                  mean_of(s, g, figure, "").mean);
    }
    Status status = draw(s, file,
                         &(Chart){.title = title,
                                  .x_label = s->axes[axis].flag,
                                  .y_label = label,
                                  .series = l.series,
                                  .n_series = l.n,
                                  .from_zero = true,
                                  .fractions = true,
                                  .margin = true},
                         page);
    chart_lines_free(&l);
    return status;
}

/* The quality of each run against its seed, and each group's mean. */
static Status draw_seeds(const Sweep *s, const char *metric, Buf *page)
{
    ChartLines l = {0};
    for (int i = 0; i < s->n_runs; i++) {
        const SweepRun *r = &s->runs[i];
        if (!r->record) continue;
        double seed = strtod(s->axes[s->seeds].values[r->at[s->seeds]], NULL);
        add_point(&l, line_name(s, r, -1), seed, evaluation(r, metric));
    }
    for (int k = 0; k < l.n; k++) { /* side by side, where they are equal */
        l.series[k].unjoined = true;
        for (int i = 0; i < l.series[k].n; i++) l.points[k].x[i] += 0.4 * ((k + 0.5) / l.n - 0.5);
    }
    Status status = draw(s, "seeds.svg",
                         &(Chart){.title = "Quality against seeds",
                                  .x_label = "seed",
                                  .y_label = metric,
                                  .series = l.series,
                                  .n_series = l.n,
                                  .margin = true},
                         page);
    chart_lines_free(&l);
    return status;
}

static Status draw_all(const Sweep *s, Buf *page)
{
    int axis = number_axis(s);
    const char *metric = evaluation_name(s, 0);
    if (axis >= 0) {
        bool batch = strcmp(s->axes[axis].flag, "batch-size") == 0;
        TRY(draw_groups(s, axis, "throughput.svg", batch ? "Throughput against batch size" : "Throughput",
                        "sequences/s", speed, page));
        TRY(draw_groups(s, axis, "memory.svg", batch ? "Peak memory against batch size" : "Peak memory", "MiB",
                        measured, page));
    }
    return metric && s->seeds >= 0 ? draw_seeds(s, metric, page) : OK;
}

/* ---- all ---- */

Status sweep_results(const Sweep *s)
{
    Table people = {0}, means = {0}, runs = {0};
    Buf text = {0}, page = {0};
    Status status = OK;
    char *title = mem_printf("A sweep of %d runs", s->n_runs);
    group_table(s, true, &people);
    table_print(&people, table_terminal_width(), &text);
    buf_print(&text);
    if (s->c->dry_run) goto done;
    group_table(s, false, &means);
    run_table(s, &runs);
    char *subtitle = about(s);
    page_begin(&page, title, subtitle);
    free(subtitle);
    table_html(&people, &page);
    if (s->seeds >= 0) buf_puts(&page, "<p>Mean ± standard deviation (of a sample) over seeds.</p>\n");
    TRY_DONE(draw_all(s, &page));
    buf_puts(&page, "<h2>Runs</h2>\n");
    table_html(&runs, &page);
    page_end(&page);
    TRY_DONE(file_write_text(s->c->output_dir, "report.html", &page));
    TRY_DONE(table_write_csv(&runs, false, s->c->output_dir, "sweep.csv"));
    TRY_DONE(table_write_csv(&means, false, s->c->output_dir, "means.csv"));
    log_info("written to %s: report.html, sweep.csv, means.csv and charts", s->c->output_dir);
done:
    table_free(&people);
    table_free(&means);
    table_free(&runs);
    buf_free(&page);
    free(title);
    return status;
}
