/* The curves of runs side by side. */
#include "report/compare.h"

#define MIB ((double)(1 << 20))

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
