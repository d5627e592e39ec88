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

static const char *option_of(const ComparedRun *run, const char *flag, const char *absent)
{
    const char *text = js_text(js_get(run->config, flag));
    return text ? text : absent;
}

bool compare_option_differs(const ComparedRun *a, const ComparedRun *b, const char *flag, const char *absent)
{
    return strcmp(option_of(a, flag, absent), option_of(b, flag, absent)) != 0;
}

/* Options that differ, except those of output, saving and logging, and those with a row of their resolved value. */
static bool is_row(const ComparedRun *runs, int n, const char *flag)
{
    bool differs = false;
    static const char others[] =
        "output-dir recompute precision threads resume override verbose dry-run config save-every save-steps keep "
        "max-time log-every log-format profile gpu-metrics snapshot-dir snapshot-steps persist-file preset";
    for (int i = 1; i < n; i++)
        differs |= runs[0].config && runs[i].config && compare_option_differs(&runs[0], &runs[i], flag, "");
    return differs && !str_list_has(others, ' ', flag, strlen(flag));
}

/* A row of texts: `own`, that of run.json, which unfinished runs and older versions lack; else the option's. */
static void put_texts(const ComparedRun *runs, int n, const char *label, bool own, const char *key, Table *t)
{
    table_text(t, "%s", label);
    for (int i = 0; i < n; i++) {
        const char *text = own ? js_string(js_get(runs[i].r.doc, key), "") : "";
        if (!*text) text = option_of(&runs[i], key, "");
        table_text(t, "%s", *text ? text : "–");
    }
}

static void put_options(const ComparedRun *runs, int n, Table *t)
{
    const Json *keys = NULL; /* the options of the first run that has any: other commands' are left out */
    for (int i = 0; i < n && !keys; i++) keys = runs[i].config;
    for (void *it = js_first(keys); it; it = js_next(keys, it))
        if (is_row(runs, n, js_key(it))) put_texts(runs, n, SHORT_TEXT("--%s", js_key(it)), false, js_key(it), t);
}

/* ---- the table ---- */

#define FIGURES(label, format, value)                                                                                  \
    do {                                                                                                               \
        table_text(t, "%s", label);                                                                                    \
        for (int i = 0; i < n; i++) {                                                                                  \
            const ComparedRun *run = &runs[i];                                                                         \
            const RunSummary *s = &run->r.s;                                                                           \
            (void)s;                                                                                                   \
            table_figure(t, format, value);                                                                            \
        }                                                                                                              \
    } while (0)

static void put_evaluations(const ComparedRun *runs, int n, Table *t)
{
    ChartLines names = {0};
    for (int k = 0; k < n; k++)
        for (int e = 0; e < runs[k].r.s.n_evals; e++) (void)chart_line_named(&names, runs[k].r.s.evals[e].name);
    for (int e = 0; e < names.n; e++)
        FIGURES(names.series[e].name, "%.4f", summary_value(s->evals, s->n_evals, names.series[e].name));
    chart_lines_free(&names);
}

static double or_nan(double value) { return value > 0 ? value : NAN; }

static void begin(const ComparedRun *runs, int n, Table *t)
{
    if (t->count) return;
    table_init(t, n + 1, 1);
    table_text(t, "%s", "");
    for (int i = 0; i < n; i++) table_text(t, "%s", runs[i].name);
}

char *compare_about(const ComparedRun *runs, int n)
{
    const RunRecord *records[COMPARE_MOST];
    for (int i = 0; i < n; i++) records[i] = &runs[i].r;
    return run_records_about(records, n);
}

void compare_setup(const ComparedRun *runs, int n, Table *t)
{
    bool finished = true, threads = false;
    begin(runs, n, t);
    for (int i = 0; i < n; i++) {
        finished = finished && runs[i].r.finished;
        threads = threads || (runs[i].r.finished && runs[i].r.s.threads != runs[0].r.s.threads);
    }
    if (!finished) {
        table_text(t, "state");
        for (int i = 0; i < n; i++) table_text(t, runs[i].r.finished ? "finished" : "not finished");
    }
    put_texts(runs, n, "task", true, "task", t);
    put_texts(runs, n, "recompute", true, "recompute", t);
    put_texts(runs, n, "precision", true, "precision", t);
    FIGURES("ranks", "%.0f", or_nan(s->ranks));
    put_texts(runs, n, "hosts", true, "hosts", t);
    put_texts(runs, n, "processor or GPU", true, "device", t);
    FIGURES("micro-batches of a step", "%.3g", or_nan(s->micro_batches));
    if (threads) FIGURES("threads", "%.0f", or_nan(s->threads));
    put_options(runs, n, t);
}

/* Bytes of the planned peak that hold the weights and what belongs to each of them. */
static double weight_bytes(const RunSummary *s)
{
    static const char *const regions[] = {"weights", "copies", "gradients", "optimizer", "kfac"};
    double sum = 0;
    for (size_t i = 0; i < sizeof regions / sizeof *regions; i++)
        sum += fmax(0, summary_value(s->regions, s->n_regions, regions[i])); /* NaN, where there is none, counts as 0 */
    return or_nan(sum);
}

static double activation_bytes(const RunSummary *s) { return summary_value(s->regions, s->n_regions, "activations"); }

void compare_figures(const ComparedRun *runs, int n, Table *t)
{
    bool faults = false;
    begin(runs, n, t);
    for (int i = 0; i < n; i++) faults = faults || runs[i].faults.count;
    FIGURES("steps", "%.0f", (double)s->steps);
    FIGURES("final loss", "%.9g", s->final_loss);
    put_evaluations(runs, n, t);
    FIGURES("sequences/s", "%.1f", or_nan(s->seq_per_s));
    if (n > 1) FIGURES("speed, first = 1", "%.2f", or_nan(s->seq_per_s) / or_nan(runs[0].r.s.seq_per_s));
    FIGURES("wall time (s)", "%.1f", or_nan(s->wall_s));
    if (faults) {
        FIGURES("faults", "%.0f", run->faults.count);
        FIGURES("share of time that counts (%)", "%.1f", 100 * fault_record_share(&run->faults));
    }
    FIGURES("activations (MiB)", "%.1f", activation_bytes(s) / MIB);
    FIGURES("weights, gradients, optimizer (MiB)", "%.1f", weight_bytes(s) / MIB);
    FIGURES("all else (MiB)", "%.1f", ((double)s->planned_peak_bytes - activation_bytes(s) - weight_bytes(s)) / MIB);
    FIGURES("sum: planned peak memory (MiB)", "%.1f", or_nan((double)s->planned_peak_bytes / MIB));
    FIGURES("measured peak memory (MiB)", "%.1f", or_nan((double)s->measured_peak_bytes / MIB));
    if (n > 1)
        FIGURES("measured memory, first = 1", "%.2f",
                or_nan((double)s->measured_peak_bytes) / or_nan((double)runs[0].r.s.measured_peak_bytes));
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

/* Shared by all charts. */
typedef struct {
    const ComparedRun *runs;
    int n;
    bool equal;
    CompareDraw draw;
    void *context;
} Charts;

/* Draws the lines and frees them. */
static Status draw_curves(const Charts *o, ChartLines *c, Over over, const char *what, const char *file,
                          const char *y_label, const char *note)
{
    char *title = mem_printf("%s%s", what, overs[over].title), *name = mem_printf("%s%s.svg", file, overs[over].suffix);
    Chart chart = {.title = title,
                   .x_label = overs[over].label,
                   .y_label = y_label,
                   .series = c->series,
                   .n_series = c->n,
                   .note = note,
                   .fractions = over == OVER_TIME,
                   .from_zero_x = over != OVER_STEPS};
    Status status = o->draw(o->context, name, &chart);
    chart_lines_free(c);
    MEM_FREE(title, name);
    return status;
}

static Status draw_steps(const Charts *o, StepColumn column, Over over)
{
    ChartLines c = {0};
    bool loss = column == STEP_LOSS, same = loss && o->equal && over != OVER_TIME, smoothed = !loss;
    for (int i = 0; i < o->n; i++) smoothed = smoothed || (!same && o->n > 1 && o->runs[i].r.n_steps > 100);
    for (int i = 0; i < o->n; i++) {
        const RunRecord *r = &o->runs[i].r;
        double *x = steps_over(&o->runs[i], over), *mean = run_record_smooth(r->column[column], r->n_steps);
        (void)chart_line(&c, o->runs[i].name);
        for (int k = 0; k < r->n_steps; k++) chart_point(&c, i, x[k], smoothed ? mean[k] : r->column[column][k]);
        MEM_FREE(x, mean);
    }
    const char *note = same ? "equal, bit for bit" : smoothed ? "mean of 20 steps" : NULL;
    return loss ? draw_curves(o, &c, over, "Training loss", "loss", "loss", note)
                : draw_curves(o, &c, over, "Masked words guessed right in training", "mlm-accuracy", "share", note);
}

static Status draw_evaluation(const Charts *o, const char *name, Over over)
{
    ChartLines c = {0};
    for (int i = 0; i < o->n; i++) {
        const RunRecord *r = &o->runs[i].r;
        double *x = steps_over(&o->runs[i], over);
        (void)chart_line(&c, o->runs[i].name);
        for (int e = 0, at = 0; e < r->n_evals; e++, at = 0) {
            if (strcmp(r->evals[e].name, name) != 0) continue;
            while (at < r->n_steps && r->column[STEP_NUMBER][at] < r->evals[e].step) at++;
            chart_point(&c, i, at < r->n_steps ? x[at] : NAN, r->evals[e].value);
        }
        c.series[i].dots = c.series[i].n < 40;
        free(x);
    }
    char *file = mem_strdup(name);
    for (char *p = file; *p; p++)
        if (strchr(" /", *p)) *p = '-';
    Status status = draw_curves(o, &c, over, name, file, name, NULL);
    free(file);
    return status;
}

static Status draw_evaluations(const Charts *o)
{
    ChartLines names = {0};
    Status status = OK;
    for (int k = 0; k < o->n; k++)
        for (int e = 0; e < o->runs[k].r.n_evals; e++) (void)chart_line_named(&names, o->runs[k].r.evals[e].name);
    for (int e = 0; e < names.n; e++) {
        TRY_DONE(draw_evaluation(o, names.series[e].name, OVER_STEPS));
        TRY_DONE(draw_evaluation(o, names.series[e].name, OVER_TIME));
    }
done:
    chart_lines_free(&names);
    return status;
}

static Status draw_memory(const Charts *o)
{
    ChartLines c = {0};
    for (int i = 0; i < o->n; i++) {
        const RunRecord *r = &o->runs[i].r;
        double peak = 0;
        for (int k = 0; k < r->s.n_memory; k++) peak = fmax(peak, r->memory[k]);
        if (r->s.n_memory == 0) continue;
        char *name = mem_printf("%s: peak %.1f MiB", o->runs[i].name, peak / MIB);
        int line = chart_line(&c, name);
        for (int k = 0; k < r->s.n_memory; k++) chart_point(&c, line, k, r->memory[k]);
        c.series[line].scale = 1 / MIB;
        c.series[line].filled = o->n <= 3;
        free(name);
    }
    Status status = o->draw(o->context, "memory.svg",
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
    Charts o = {runs, n, equal, draw, context};
    bool batches = false, accuracy = false;
    for (int i = 0; i < n; i++) {
        batches = batches || js_get(runs[i].config, "batch-size");
        accuracy = accuracy || (runs[i].r.n_steps && isfinite(runs[i].r.column[STEP_ACCURACY][0]));
    }
    TRY(draw_steps(&o, STEP_LOSS, OVER_STEPS));
    if (batches) TRY(draw_steps(&o, STEP_LOSS, OVER_SEQUENCES));
    TRY(draw_steps(&o, STEP_LOSS, OVER_TIME));
    if (accuracy) TRY(draw_steps(&o, STEP_ACCURACY, OVER_STEPS));
    TRY(draw_evaluations(&o));
    return draw_memory(&o);
}
