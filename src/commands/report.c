/* `cairn report DIR…`: finished runs side by side, and whether their losses are the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "report/report.h"

/* Losses of run i against run 0, as they were written (17 digits). */
static Status compare_losses(const RunRecord *runs, char *const *names, int n)
{
    const RunRecord *a = &runs[0];
    for (int i = 1; i < n; i++) {
        const RunRecord *b = &runs[i];
        int steps = a->n_steps < b->n_steps ? a->n_steps : b->n_steps;
        for (int k = 0; k < steps; k++)
            if (a->steps[k] != b->steps[k] || strcmp(a->loss_texts[k], b->loss_texts[k]) != 0)
                return fail(E_FAIL, "the losses differ from step %lld on: %s in %s, %s in %s", (long long)a->steps[k],
                            a->loss_texts[k], names[0], b->loss_texts[k], names[i]);
        if (a->n_steps != b->n_steps)
            return fail(E_FAIL, "%s has %d steps, %s has %d", names[0], a->n_steps, names[i], b->n_steps);
    }
    return OK;
}

static int widest(const RunRecord *runs, int n)
{
    size_t width = 14;
    for (int i = 0; i < n; i++)
        if (strlen(runs[i].s.recompute) > width) width = strlen(runs[i].s.recompute);
    return (int)width + 2;
}

static double value_of(const SummaryValue *values, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(values[i].name, name) == 0) return values[i].value;
    return NAN;
}

#define ROW(label, format, value)                                                                                      \
    do {                                                                                                               \
        printf("%-34s", label);                                                                                        \
        for (int i = 0; i < n; i++) {                                                                                  \
            const RunSummary *s = &runs[i].s;                                                                          \
            char cell[128];                                                                                            \
            snprintf(cell, sizeof cell, format, value);                                                                \
            printf("%*s", width, cell);                                                                                \
        }                                                                                                              \
        printf("\n");                                                                                                  \
    } while (0)

static void print_table(const RunRecord *runs, int n)
{
    int width = widest(runs, n);
    ROW("recompute", "%s", s->recompute);
    ROW("precision", "%s", s->precision);
    ROW("steps", "%lld", (long long)s->steps);
    ROW("final loss", "%.9g", s->final_loss);
    for (int e = 0; e < runs[0].s.n_evals; e++) {
        const char *name = runs[0].s.evals[e].name;
        ROW(name, "%.4f", value_of(s->evals, s->n_evals, name));
    }
    ROW("planned peak memory (MiB)", "%.1f", (double)s->planned_peak_bytes / (1 << 20));
    ROW("measured peak memory (MiB)", "%.1f", (double)s->measured_peak_bytes / (1 << 20));
    ROW("activations (MiB)", "%.1f", value_of(s->regions, s->n_regions, "activations") / (1 << 20));
    ROW("sequences/s", "%.1f", s->seq_per_s);
}

static Status write_chart(const char *dir, const char *name, const Chart *chart)
{
    Buf out = {0};
    char *path = file_join(dir, name);
    chart_svg(chart, &out);
    Status status = file_write_durable(path, out.data, out.len);
    buf_free(&out);
    free(path);
    return status;
}

/* Runs whose losses are equal: the first is drawn broad and pale below the others, so that all can be seen. */
static Status write_loss(const char *dir, const RunRecord *runs, int n, bool same)
{
    ChartSeries *series = mem_array((size_t)n, sizeof *series);
    double **x = mem_array((size_t)n, sizeof *x); // [run](n_steps)
    for (int i = 0; i < n; i++) {
        x[i] = mem_array((size_t)runs[i].n_steps, sizeof *x[i]);
        for (int k = 0; k < runs[i].n_steps; k++) x[i][k] = (double)runs[i].steps[k];
        series[i] = (ChartSeries){.name = runs[i].s.recompute,
                                  .x = x[i],
                                  .y = runs[i].losses,
                                  .n = runs[i].n_steps,
                                  .width = same && n > 1 ? (i ? 1.3 : 6) : 0,
                                  .pale = same && n > 1 && i == 0};
    }
    const char *note = same && n > 1 ? "equal, bit for bit" : NULL;
    Status status = write_chart(dir, "loss.svg", &(Chart){"Training loss", "step", "loss", series, n, false, note});
    for (int i = 0; i < n; i++) free(x[i]);
    free(x);
    free(series);
    return status;
}

static Status write_memory(const char *dir, const RunRecord *runs, int n)
{
    ChartSeries *series = mem_array((size_t)n, sizeof *series);
    char **names = mem_array((size_t)n, sizeof *names); // (n)
    const double unit = 1.0 / (1 << 20);
    for (int i = 0; i < n; i++) {
        double peak = 0;
        for (int k = 0; k < runs[i].s.n_memory; k++) peak = fmax(peak, runs[i].memory[k]);
        names[i] = mem_printf("%s: peak %.1f MiB", runs[i].s.recompute, peak * unit);
        series[i] = (ChartSeries){
            .name = names[i], .y = runs[i].memory, .n = runs[i].s.n_memory, .scale = unit, .filled = n <= 3};
    }
    Status status = write_chart(dir, "memory.svg",
                                &(Chart){"Memory over one micro-batch: activations and scratch",
                                         "instr of the plan: forward, then backward", "MiB", series, n, true, NULL});
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
    free(series);
    return status;
}

Status command_report(const Config *c)
{
    int n = c->n_positional;
    Status status = OK;
    if (n < 1) return fail(E_USAGE, "give the output folders of finished runs: cairn report DIR1 DIR2");
    RunRecord *runs = mem_array((size_t)n, sizeof *runs);
    for (int i = 0; i < n; i++) TRY_DONE(run_record_read(c->positional[i], &runs[i]));
    print_table(runs, n);
    Status same = compare_losses(runs, c->positional, n);
    if (n > 1 && same == OK) printf("losses: equal, bit for bit, over %d steps\n", runs[0].n_steps);
    TRY_DONE(file_make_directories(c->output_dir));
    TRY_DONE(write_loss(c->output_dir, runs, n, same == OK));
    TRY_DONE(write_memory(c->output_dir, runs, n));
    printf("curves: %s/loss.svg, %s/memory.svg\n", c->output_dir, c->output_dir);
    if (same != OK) status = compare_losses(runs, c->positional, n);
done:
    for (int i = 0; i < n; i++) run_record_free(&runs[i]);
    free(runs);
    return status;
}
