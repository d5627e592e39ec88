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
        for (int e = 0, at = 0; e < r->n_evals; e++) { /* evaluations are in the order of steps */
            while (at < r->n_steps && r->column[STEP_NUMBER][at] < r->evals[e].step) at++;
            if (strcmp(r->evals[e].name, name) == 0)
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
