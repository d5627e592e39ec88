/* report.html of a run: one file, nothing fetched. */

#include "faults/fault_record.h"
#include "report/label_scores.h"
#include "report/page.h"
#include "report/record.h"

#define MIB ((double)(1 << 20))

/* A figure of each step, pale, and its mean over steps. */
static void put_steps(const RunRecord *r, const char *title, const char *label, StepColumn column, bool from_zero,
                      Buf *out)
{
    double *mean = run_record_smooth(r->column[column], r->n_steps), *steps = r->column[STEP_NUMBER];
    ChartSeries series[] = {{.name = "each step",
                             .x = steps,
                             .y = r->column[column],
                             .n = r->n_steps,
                             .width = 1.2,
                             .colour = 1,
                             .pale = true},
                            {.name = "mean of 20 steps", .x = steps, .y = mean, .n = r->n_steps, .colour = 1}};
    page_chart(out, &(Chart){.title = title,
                             .x_label = "step",
                             .y_label = label,
                             .series = series,
                             .n_series = 2,
                             .from_zero = from_zero});
    free(mean);
}

/* The evaluations during training: a curve per split and metric. */
static void put_evaluations(const RunRecord *r, Buf *out)
{
    ChartLines lines = {0};
    for (int e = 0; e < r->n_evals; e++) {
        int k = chart_line_named(&lines, r->evals[e].name);
        chart_point(&lines, k, r->evals[e].step, r->evals[e].value);
        lines.series[k].dots = true;
    }
    if (lines.n > 0)
        page_chart(out, &(Chart){.title = "Evaluations during training",
                                 .x_label = "step",
                                 .y_label = "metric",
                                 .series = lines.series,
                                 .n_series = lines.n,
                                 .from_zero_x = true});
    chart_lines_free(&lines);
}

static void put_curves(const RunRecord *r, const RunSummary *s, Buf *out)
{
    put_steps(r, "Training loss", "loss", STEP_LOSS, false, out);
    if (r->n_steps && isfinite(r->column[STEP_ACCURACY][0]))
        put_steps(r, "Masked words guessed right", "share", STEP_ACCURACY, true, out);
    put_evaluations(r, out);
    ChartSeries rate = {.x = r->column[STEP_NUMBER], .y = r->column[STEP_RATE], .n = r->n_steps};
    page_chart(out, &(Chart){.title = "Learning rate",
                             .x_label = "step",
                             .y_label = "learning rate",
                             .series = &rate,
                             .n_series = 1,
                             .from_zero = true});
    put_steps(r, "Throughput", "sequences/s", STEP_SEQUENCES, true, out);
    if (!s->n_memory) return;
    double peak = 0;
    for (int i = 0; i < s->n_memory; i++) peak = fmax(peak, s->memory_series[i]);
    double flat[2] = {peak, peak}, ends[2] = {0, s->n_memory - 1};
    char *name = mem_printf("recompute %s", s->recompute), *peak_name = mem_printf("peak, %.1f MiB", peak / MIB);
    ChartSeries series[] = {
        {.name = name, .y = s->memory_series, .n = s->n_memory, .scale = 1 / MIB, .filled = true},
        {.name = peak_name, .x = ends, .y = flat, .n = s->n_memory > 1 ? 2 : 0, .scale = 1 / MIB, .dashed = true}};
    page_chart(out, &(Chart){.title = "Activations and scratch over one micro-batch",
                             .x_label = "instr of the plan: forward, then backward",
                             .y_label = "MiB",
                             .series = series,
                             .n_series = 2,
                             .from_zero = true});
    MEM_FREE(name, peak_name);
}

/* The memory of the process over the steps, below its plan. */
static void put_measured(const RunRecord *r, const RunSummary *s, Buf *out)
{
    double planned = (double)s->planned_peak_bytes, *steps = r->column[STEP_NUMBER];
    if (r->n_steps < 2 || !isfinite(r->column[STEP_PEAK][0]) || !(planned > 0)) return;
    double flat[2] = {planned, planned}, ends[2] = {steps[0], steps[r->n_steps - 1]};
    ChartSeries series[] = {
        {.name = "measured", .x = steps, .y = r->column[STEP_PEAK], .n = r->n_steps, .scale = 1 / MIB, .filled = true},
        {.name = "planned", .x = ends, .y = flat, .n = 2, .scale = 1 / MIB, .dashed = true}};
    page_chart(out, &(Chart){.title = "Peak memory so far, against the plan",
                             .x_label = "step",
                             .y_label = "MiB",
                             .series = series,
                             .n_series = 2,
                             .from_zero = true});
}

/* ---- tables ---- */

static void put_results(const RunSummary *s, Buf *out)
{
    page_rows_begin(out, "Results");
    for (int i = 0; i < s->n_evals; i++) page_figure(out, s->evals[i].name, "%.4f", s->evals[i].value);
    page_figure(out, "steps", "%lld", (long long)s->steps);
    page_figure(out, "loss of the last step", "%.6g", s->final_loss);
    page_figure(out, "sequences/s", "%.1f", s->seq_per_s);
    page_figure(out, "tokens/s", "%.0f", s->tokens_per_s);
    page_figure(out, "wall time", "%.1f s", s->wall_s);
    page_rows_end(out);
}

static void put_faults(const char *dir, Buf *out)
{
    FaultRecord f;
    Buf text = {0};
    if (fault_record_read(dir, &f) == OK) fault_record_text(&f, &text);
    if (text.len) {
        buf_puts(out, "<h2>Faults</h2>\n<p>");
        markup_text(out, text.data);
        buf_puts(out, "</p>\n");
    }
    buf_free(&text);
    fault_record_free(&f);
}

static void put_bytes(const RunRecord *r, const RunSummary *s, Buf *out)
{
    double rest = (double)s->planned_peak_bytes;
    page_rows_begin(out, "Memory");
    for (int i = 0; i < s->n_regions; i++) {
        if (str_starts_with(s->regions[i].name, SUMMARY_HOST)) continue;
        page_bytes(out, s->regions[i].name, s->regions[i].value);
        rest -= s->regions[i].value;
    }
    page_bytes(out, "beside the plan: program, libraries, data, snapshots", rest);
    page_bytes(out, "sum: peak of the process, planned", (double)s->planned_peak_bytes);
    page_bytes(out, "peak of the process, measured", (double)s->measured_peak_bytes);
    for (int i = 0; i < s->n_regions; i++)
        if (str_starts_with(s->regions[i].name, SUMMARY_HOST)) page_bytes(out, s->regions[i].name, s->regions[i].value);
    page_rows_end(out);
    put_measured(r, s, out);
}

/* A list of scalars with blanks between them. */
static void value_text(const Json *v, Buf *out)
{
    buf_puts(out, "");
    if (js_kind(v) == JSON_KIND_STRING) buf_puts(out, js_string(v, ""));
    if (js_kind(v) == JSON_KIND_BOOL) buf_puts(out, js_bool(v, false) ? "yes" : "no");
    if (js_kind(v) == JSON_KIND_INT) buf_printf(out, "%lld", (long long)js_int(v, 0));
    if (js_kind(v) == JSON_KIND_REAL) buf_printf(out, "%.6g", js_real(v, NAN));
    for (size_t i = 0; js_kind(v) == JSON_KIND_ARRAY && i < js_size(v); i++) {
        if (i) buf_puts(out, " ");
        value_text(js_at(v, i), out);
    }
}

/* Who ran it, where, when and how: what run.json says beyond the figures above. */
static void put_origin(const RunRecord *r, const RunSummary *s, Buf *out)
{
    static const char shown[] =
        "format task recompute precision backend threads steps final_loss wall_s planned_peak_bytes "
        "planned_step_s bound_step_s bound_peak_bytes measured_peak_bytes eval plan_bytes memory_series tokens_per_s "
        "config seq_per_s save_stall_s again";
    page_rows_begin(out, "Run");
    for (void *it = js_first(r->doc); it; it = js_next(r->doc, it)) {
        const char *key = js_key(it);
        if (js_kind(js_value(it)) == JSON_KIND_OBJECT || str_list_has(shown, ' ', key, strlen(key))) continue;
        Buf text = {0};
        value_text(js_value(it), &text);
        page_row(out, key, text.data);
        buf_free(&text);
    }
    page_row(out, "recompute", s->recompute);
    if (s->bound_step_s > 0) {
        page_figure(out, "seconds of a step, planned", "%.4g", s->planned_step_s);
        page_figure(out, "… at most above the shortest possible", "%.1f %%",
                    100 * fmax(s->planned_step_s / s->bound_step_s - 1, 0));
    }
    page_row(out, "precision", s->precision);
    page_row(out, "backend", s->backend);
    page_figure(out, "threads", "%d", s->threads);
    if (js_get(r->doc, "again")) page_row(out, "the same run again", s->again);
    if (!js_get(r->doc, "version")) page_row(out, "Cairn", CAIRN_VERSION);
    page_rows_end(out);
}

static void put_page(const char *dir, const RunRecord *r, Buf *out)
{
    const RunSummary *s = &r->s;
    Buf config = {0};
    char *about = run_records_about(&r, 1),
         *subtitle = mem_printf("%s. Cairn %s, recompute %s, %s", about, s->version, s->recompute, s->backend);
    page_begin(out, s->task, subtitle);
    MEM_FREE(about, subtitle);
    put_results(s, out);
    put_faults(dir, out);
    if (s->n_evals) label_scores_html(dir, out);
    buf_puts(out, "<h2>Curves</h2>\n");
    put_curves(r, s, out);
    put_bytes(r, s, out);
    page_profile(dir, out);
    put_origin(r, s, out);
    buf_puts(out, "<h2>Configuration</h2>\n<pre>");
    js_put_indented(&config, js_get(r->doc, "config"), 0, false);
    markup_text(out, config.data);
    buf_free(&config);
    buf_puts(out, "</pre>\n");
    page_end(out);
}

Status report_write(const char *output_dir)
{
    RunRecord r;
    Buf out = {0};
    TRY(run_record_read(output_dir, &r));
    put_page(output_dir, &r, &out);
    run_record_free(&r);
    return file_write_text(output_dir, "report.html", &out);
}
