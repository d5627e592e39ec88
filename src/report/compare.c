#include "report/compare.h"

#define MIB ((double)(1 << 20))

/* ---- names ---- */

/* The last `parts` parts of a path. */
static char *tail_of(const char *path, int parts)
{
    size_t len = strlen(path), start;
    while (len > 1 && path[len - 1] == '/') len--;
    for (start = len; start > 0; start--)
        if (path[start - 1] == '/' && --parts == 0) break;
    return mem_strndup(path + start, len - start);
}

void compare_names(char *const *paths, int n, char **names)
{
    for (int i = 0; i < n; i++) {
        names[i] = NULL;
        for (int parts = 1; parts < 64; parts++) {
            bool alone = true;
            free(names[i]);
            names[i] = tail_of(paths[i], parts);
            for (int k = 0; k < n && alone; k++) {
                char *other = tail_of(paths[k], parts);
                alone = k == i || strcmp(other, names[i]) != 0 || strcmp(paths[k], paths[i]) == 0;
                free(other);
            }
            if (alone) break;
        }
    }
}

/* ---- options ---- */

void compare_option(const ComparedRun *run, const char *flag, Buf *out)
{
    const Json *v = js_get(run->config, flag);
    buf_puts(out, "");
    if (js_kind(v) == JSON_KIND_STRING)
        buf_puts(out, js_string(v, ""));
    else if (v)
        (void)js_put_scalar(out, v);
}

bool compare_option_differs(const ComparedRun *a, const ComparedRun *b, const char *flag)
{
    Buf x = {0}, y = {0};
    compare_option(a, flag, &x);
    compare_option(b, flag, &y);
    bool differs = strcmp(x.data, y.data) != 0;
    BUF_FREE(&x, &y);
    return differs;
}

/* Not rows of their own: paths of the output, saving and logging, and what has a row as it was resolved. */
static bool is_row(const char *flag)
{
    static const char others[] =
        "output-dir recompute precision threads resume override verbose dry-run config save-every save-steps keep "
        "max-time log-every log-format profile gpu-metrics snapshot-dir snapshot-steps persist-file preset";
    return !str_list_has(others, ' ', flag, strlen(flag));
}

static bool option_differs(const ComparedRun *runs, int n, const char *flag)
{
    for (int i = 1; i < n; i++)
        if (runs[0].config && runs[i].config && compare_option_differs(&runs[0], &runs[i], flag)) return true;
    return false;
}

static void put_options(const ComparedRun *runs, int n, Table *t)
{
    const Json *keys = NULL; /* the options of the first run that has any: other commands' are left out */
    for (int i = 0; i < n && !keys; i++) keys = runs[i].config;
    for (void *it = js_first(keys); it; it = js_next(keys, it)) {
        if (!is_row(js_key(it)) || !option_differs(runs, n, js_key(it))) continue;
        table_text(t, "--%s", js_key(it));
        for (int i = 0; i < n; i++) {
            Buf text = {0};
            compare_option(&runs[i], js_key(it), &text);
            table_text(t, "%s", text.len ? text.data : "–");
            buf_free(&text);
        }
    }
}

/* ---- the table ---- */

/* A text that run.json has, else the option's. */
static void put_resolved(const ComparedRun *run, const char *text, const char *flag, Table *t)
{
    Buf option = {0};
    if (!run->r.finished) compare_option(run, flag, &option);
    table_text(t, "%s", option.len ? option.data : text);
    buf_free(&option);
}

#define FIGURES(label, format, value)                                                                                  \
    do {                                                                                                               \
        table_text(t, label);                                                                                          \
        for (int i = 0; i < n; i++) {                                                                                  \
            const RunSummary *s = &runs[i].r.s;                                                                        \
            table_figure(t, format, value);                                                                            \
        }                                                                                                              \
    } while (0)

static void put_evaluations(const ComparedRun *runs, int n, Table *t)
{
    for (int k = 0; k < n; k++)
        for (int e = 0; e < runs[k].r.s.n_evals; e++) {
            const char *name = runs[k].r.s.evals[e].name;
            bool before = false;
            for (int j = 0; j < k; j++)
                for (int i = 0; i < runs[j].r.s.n_evals && !before; i++)
                    before = strcmp(runs[j].r.s.evals[i].name, name) == 0;
            if (before) continue;
            table_text(t, "%s", name);
            for (int i = 0; i < n; i++)
                table_figure(t, "%.4f", summary_value(runs[i].r.s.evals, runs[i].r.s.n_evals, name));
        }
}

static double or_nan(double value) { return value > 0 ? value : NAN; }

static void put_faults(const ComparedRun *runs, int n, Table *t)
{
    table_text(t, "faults");
    for (int i = 0; i < n; i++) table_figure(t, "%.0f", runs[i].faults.count);
    table_text(t, "share of time that counts (%%)");
    for (int i = 0; i < n; i++) table_figure(t, "%.1f", 100 * fault_record_share(&runs[i].faults));
}

void compare_table(const ComparedRun *runs, int n, Table *t)
{
    bool finished = true, threads = false, faults = false;
    table_init(t, n + 1, 1);
    table_text(t, "%s", "");
    for (int i = 0; i < n; i++) {
        table_text(t, "%s", runs[i].name);
        finished = finished && runs[i].r.finished;
        faults = faults || runs[i].faults.count;
        threads = threads || (runs[i].r.finished && runs[i].r.s.threads != runs[0].r.s.threads);
    }
    if (!finished) {
        table_text(t, "state");
        for (int i = 0; i < n; i++) table_text(t, runs[i].r.finished ? "finished" : "not finished");
    }
    table_text(t, "task");
    for (int i = 0; i < n; i++) put_resolved(&runs[i], runs[i].r.s.task, "task", t);
    table_text(t, "recompute");
    for (int i = 0; i < n; i++) put_resolved(&runs[i], runs[i].r.s.recompute, "recompute", t);
    table_text(t, "precision");
    for (int i = 0; i < n; i++) put_resolved(&runs[i], runs[i].r.s.precision, "precision", t);
    if (threads) FIGURES("threads", "%.0f", or_nan(s->threads));
    put_options(runs, n, t);
    FIGURES("steps", "%.0f", (double)s->steps);
    FIGURES("final loss", "%.9g", s->final_loss);
    put_evaluations(runs, n, t);
    FIGURES("sequences/s", "%.1f", or_nan(s->seq_per_s));
    if (n > 1) FIGURES("speed, first = 1", "%.2f", or_nan(s->seq_per_s) / or_nan(runs[0].r.s.seq_per_s));
    if (faults) put_faults(runs, n, t);
    FIGURES("planned peak memory (MiB)", "%.1f", or_nan((double)s->planned_peak_bytes / MIB));
    FIGURES("measured peak memory (MiB)", "%.1f", or_nan((double)s->measured_peak_bytes / MIB));
    FIGURES("activations (MiB)", "%.1f", summary_value(s->regions, s->n_regions, "activations") / MIB);
}

/* ---- curves ---- */

typedef enum { OVER_STEPS, OVER_SEQUENCES, OVER_TIME } Over;

static const struct {
    const char *label, *suffix, *title;
} overs[] = {[OVER_STEPS] = {"step", "", ""},
             [OVER_SEQUENCES] = {"sequences", "-sequences", " over sequences"},
             [OVER_TIME] = {"seconds in training", "-time", " over time"}};

/* Seconds in training up to each step, (n_steps), over all processes of the run: `trained_s`; in older files `wall_s`,
   which begins again in each process. The caller frees. */
static double *seconds_of(const RunRecord *r)
{
    double *seconds = mem_array((size_t)r->n_steps, sizeof *seconds), before = 0, last = 0;
    const double *trained = r->column[STEP_TRAINED], *wall = r->column[STEP_WALL];
    for (int i = 0; i < r->n_steps; i++) {
        if (wall[i] < last) before += last;
        if (isfinite(wall[i])) last = wall[i];
        seconds[i] = isfinite(trained[i]) ? trained[i] : before + wall[i];
    }
    return seconds;
}

/* The x of each step, (n_steps); the caller frees. */
static double *steps_over(const ComparedRun *run, Over over)
{
    const RunRecord *r = &run->r;
    if (over == OVER_TIME) return seconds_of(r);
    double *x = mem_array((size_t)r->n_steps, sizeof *x), batch = js_real(js_get(run->config, "batch-size"), NAN);
    for (int i = 0; i < r->n_steps; i++) {
        double skipped = r->column[STEP_SKIPPED][i], step = r->column[STEP_NUMBER][i];
        x[i] = over == OVER_STEPS ? step : (step + (isfinite(skipped) ? skipped : 0)) * batch;
    }
    return x;
}

static Status draw_curves(const ChartLines *c, Over over, const char *what, const char *file, const char *y_label,
                          const char *note, CompareDraw draw, void *context)
{
    char *title = mem_printf("%s%s", what, overs[over].title), *name = mem_printf("%s%s", file, overs[over].suffix);
    Chart chart = {.title = title,
                   .x_label = overs[over].label,
                   .y_label = y_label,
                   .series = c->series,
                   .n_series = c->n,
                   .note = note,
                   .fractions = over == OVER_TIME,
                   .from_zero_x = over != OVER_STEPS};
    Status status = draw(context, name, &chart);
    MEM_FREE(title, name);
    return status;
}

/* The first of equal losses is broad and pale below the others, so that all are visible. */
static Status draw_steps(const ComparedRun *runs, int n, StepColumn column, Over over, bool equal, CompareDraw draw,
                         void *context)
{
    ChartLines c = {0};
    bool loss = column == STEP_LOSS, same = loss && equal && n > 1 && over != OVER_TIME, smoothed = !loss;
    for (int i = 0; i < n; i++) smoothed = smoothed || (!same && n > 1 && runs[i].r.n_steps > 100);
    for (int i = 0; i < n; i++) {
        const RunRecord *r = &runs[i].r;
        double *x = steps_over(&runs[i], over), *mean = run_record_smooth(r->column[column], r->n_steps);
        (void)chart_line(&c, runs[i].name);
        for (int k = 0; k < r->n_steps; k++) chart_point(&c, i, x[k], smoothed ? mean[k] : r->column[column][k]);
        if (same) c.series[i].width = i ? 1.3 : 6;
        c.series[i].pale = same && i == 0;
        MEM_FREE(x, mean);
    }
    Status status = draw_curves(&c, over, loss ? "Training loss" : "Masked words guessed right in training",
                                loss ? "loss" : "mlm-accuracy", loss ? "loss" : "share",
                                same       ? "equal, bit for bit"
                                : smoothed ? "mean of 20 steps"
                                           : NULL,
                                draw, context);
    chart_lines_free(&c);
    return status;
}

/* Where step `step` is on the axis. */
static double place_of(const RunRecord *r, const double *x, double step)
{
    int low = 0, high = r->n_steps;
    while (low < high) {
        int middle = (low + high) / 2;
        if (r->column[STEP_NUMBER][middle] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->n_steps ? x[low] : NAN;
}

static Status draw_evaluation(const ComparedRun *runs, int n, const char *name, Over over, CompareDraw draw,
                              void *context)
{
    ChartLines c = {0};
    for (int i = 0; i < n; i++) {
        const RunRecord *r = &runs[i].r;
        double *x = steps_over(&runs[i], over);
        (void)chart_line(&c, runs[i].name);
        for (int e = 0; e < r->n_evals; e++)
            if (strcmp(r->evals[e].name, name) == 0)
                chart_point(&c, i, place_of(r, x, r->evals[e].step), r->evals[e].value);
        c.series[i].dots = c.series[i].n < 40;
        free(x);
    }
    char *file = mem_strdup(name);
    for (char *p = file; *p; p++)
        if (strchr(" /", *p)) *p = '-';
    Status status = draw_curves(&c, over, name, file, name, NULL, draw, context);
    free(file);
    chart_lines_free(&c);
    return status;
}

static Status draw_evaluations(const ComparedRun *runs, int n, CompareDraw draw, void *context)
{
    for (int k = 0; k < n; k++)
        for (int e = 0; e < runs[k].r.n_evals; e++) {
            const char *name = runs[k].r.evals[e].name;
            bool before = false;
            for (int j = 0; j <= k && !before; j++)
                for (int f = 0; f < (j < k ? runs[j].r.n_evals : e) && !before; f++)
                    before = strcmp(runs[j].r.evals[f].name, name) == 0;
            if (before) continue;
            TRY(draw_evaluation(runs, n, name, OVER_STEPS, draw, context));
            TRY(draw_evaluation(runs, n, name, OVER_TIME, draw, context));
        }
    return OK;
}

static Status draw_memory(const ComparedRun *runs, int n, CompareDraw draw, void *context)
{
    ChartLines c = {0};
    for (int i = 0; i < n; i++) {
        const RunRecord *r = &runs[i].r;
        double peak = 0;
        for (int k = 0; k < r->s.n_memory; k++) peak = fmax(peak, r->memory[k]);
        if (r->s.n_memory == 0) continue;
        char *name = mem_printf("%s: peak %.1f MiB", runs[i].name, peak / MIB);
        int line = chart_line(&c, name);
        for (int k = 0; k < r->s.n_memory; k++) chart_point(&c, line, k, r->memory[k]);
        c.series[line].scale = 1 / MIB;
        c.series[line].filled = n <= 3;
        free(name);
    }
    Status status = draw(context, "memory",
                         &(Chart){.title = "Memory over one micro-batch: activations and scratch",
                                  .x_label = "instr of the plan: forward, then backward",
                                  .y_label = "MiB",
                                  .series = c.series,
                                  .n_series = c.n,
                                  .from_zero = true});
    chart_lines_free(&c);
    return status;
}

Status compare_charts(const ComparedRun *runs, int n, bool equal, CompareDraw draw, void *context)
{
    bool batches = false, accuracy = false;
    for (int i = 0; i < n; i++) {
        batches = batches || js_get(runs[i].config, "batch-size");
        accuracy = accuracy || (runs[i].r.n_steps && isfinite(runs[i].r.column[STEP_ACCURACY][0]));
    }
    TRY(draw_steps(runs, n, STEP_LOSS, OVER_STEPS, equal, draw, context));
    if (batches) TRY(draw_steps(runs, n, STEP_LOSS, OVER_SEQUENCES, equal, draw, context));
    TRY(draw_steps(runs, n, STEP_LOSS, OVER_TIME, equal, draw, context));
    if (accuracy) TRY(draw_steps(runs, n, STEP_ACCURACY, OVER_STEPS, equal, draw, context));
    TRY(draw_evaluations(runs, n, draw, context));
    return draw_memory(runs, n, draw, context);
}
