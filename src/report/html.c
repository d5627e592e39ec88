/* report.html: one file, nothing fetched. */
#include <math.h>
#include <stdlib.h>

#include "report/report.h"

static void put_row(Buf *out, const char *name, const char *value)
{
    buf_puts(out, "<tr><td>");
    markup_text(out, name);
    buf_puts(out, "</td><td>");
    markup_text(out, value);
    buf_puts(out, "</td></tr>\n");
}

__attribute__((format(printf, 3, 4))) static void put_figure(Buf *out, const char *name, const char *format, ...)
{
    Buf value = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&value, format, args);
    va_end(args);
    put_row(out, name, value.data);
    buf_free(&value);
}

/* As MiB, small ones as KiB. */
static void put_bytes(Buf *out, const char *name, double bytes)
{
    if (bytes < 100 * 1024)
        put_figure(out, name, "%.1f KiB", bytes / 1024);
    else
        put_figure(out, name, "%.1f MiB", bytes / (1 << 20));
}

static void put_loss(const RunRecord *r, const double *x, Buf *out)
{
    double *smooth = mem_array((size_t)r->n_steps, sizeof *smooth), mean = 0, weight = 0;
    for (int i = 0; i < r->n_steps; i++) {
        if (isfinite(r->losses[i])) {
            mean = 0.95 * mean + 0.05 * r->losses[i];
            weight = 0.95 * weight + 0.05;
        }
        smooth[i] = weight > 0 ? mean / weight : NAN;
    }
    ChartSeries series[] = {
        {.name = "each step", .x = x, .y = r->losses, .n = r->n_steps, .width = 1.2, .colour = 1, .pale = true},
        {.name = "smoothed (exponential mean of 20 steps)", .x = x, .y = smooth, .n = r->n_steps, .colour = 1}};
    chart_svg(&(Chart){"Training loss", "step", "loss", series, 2, false, NULL}, out);
    free(smooth);
}

static void put_memory(const RunSummary *s, Buf *out)
{
    double peak = 0, unit = 1.0 / (1 << 20);
    for (int i = 0; i < s->n_memory; i++) peak = fmax(peak, s->memory_series[i]);
    double flat[2] = {peak, peak}, ends[2] = {0, s->n_memory - 1};
    char *name = mem_printf("recompute %s", s->recompute), *peak_name = mem_printf("peak, %.1f MiB", peak * unit);
    ChartSeries series[] = {
        {.name = name, .y = s->memory_series, .n = s->n_memory, .scale = unit, .filled = true},
        {.name = peak_name, .x = ends, .y = flat, .n = s->n_memory > 1 ? 2 : 0, .scale = unit, .dashed = true}};
    chart_svg(&(Chart){"Activations and scratch over one micro-batch", "instr of the plan: forward, then backward",
                       "MiB", series, 2, true, NULL},
              out);
    free(name);
    free(peak_name);
}

static void put_curves(const RunRecord *r, const RunSummary *s, Buf *out)
{
    double *x = mem_array((size_t)r->n_steps, sizeof *x);
    for (int i = 0; i < r->n_steps; i++) x[i] = (double)r->steps[i];
    put_loss(r, x, out);
    ChartSeries rate = {.x = x, .y = r->rates, .n = r->n_steps};
    chart_svg(&(Chart){"Learning rate", "step", "learning rate", &rate, 1, true, NULL}, out);
    if (s->n_memory) put_memory(s, out);
    free(x);
}

static void put_head(const RunSummary *s, Buf *out)
{
    buf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
                  "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>Cairn: ");
    markup_text(out, s->task);
    buf_puts(out,
             "</title>\n<style>\n"
             "body{font:15px/1.5 Helvetica,Arial,sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}\n"
             "h1{margin-bottom:0}h2{margin:1.6em 0 .4em}p{margin:.2em 0;color:#666}\n"
             "table{border-collapse:collapse;min-width:22em}\n"
             "td{border-bottom:1px solid #ddd;padding:.25em 0;overflow-wrap:anywhere}\n"
             "td+td{padding-left:2em;text-align:right;font-variant-numeric:tabular-nums}\n"
             "pre{background:#f6f6f6;padding:1em;overflow:auto;font-size:13px}\n"
             "svg{display:block;max-width:100%;height:auto;margin:1em 0}\n"
             "</style></head><body>\n<h1>");
    markup_text(out, s->task);
    buf_puts(out, "</h1>\n<p>");
    char *run = mem_printf("Cairn %s, recompute %s, %s, %s", CAIRN_VERSION, s->recompute, s->precision, s->backend);
    markup_text(out, run);
    free(run);
    buf_puts(out, "</p>\n");
}

static void put_page(const RunRecord *r, const RunSummary *s, Buf *out)
{
    put_head(s, out);
    buf_puts(out, "<h2>Results</h2>\n<table>\n");
    for (int i = 0; i < s->n_evals; i++) put_figure(out, s->evals[i].name, "%.4f", s->evals[i].value);
    put_figure(out, "steps", "%lld", (long long)s->steps);
    put_figure(out, "loss of the last step", "%.6g", s->final_loss);
    put_figure(out, "sequences/s", "%.1f", s->seq_per_s);
    put_figure(out, "tokens/s", "%.0f", s->tokens_per_s);
    put_figure(out, "wall time", "%.1f s", s->wall_s);
    buf_puts(out, "</table>\n<h2>Curves</h2>\n");
    put_curves(r, s, out);
    buf_puts(out, "<h2>Memory</h2>\n<table>\n");
    for (int i = 0; i < s->n_regions; i++) put_bytes(out, s->regions[i].name, s->regions[i].value);
    put_bytes(out, "peak of the process, planned", (double)s->planned_peak_bytes);
    put_bytes(out, "peak of the process, measured", (double)s->measured_peak_bytes);
    buf_puts(out, "</table>\n<h2>Run</h2>\n<table>\n");
    put_row(out, "recompute", s->recompute);
    put_row(out, "precision", s->precision);
    put_row(out, "backend", s->backend);
    put_figure(out, "threads", "%d", s->threads);
    put_row(out, "Cairn", CAIRN_VERSION);
    buf_puts(out, "</table>\n<h2>Configuration</h2>\n<pre>");
    markup_text(out, s->config_json);
    buf_puts(out, "</pre>\n</body></html>\n");
}

Status report_write(const char *output_dir, const RunSummary *s)
{
    RunRecord r;
    Buf out = {0};
    TRY(run_record_read(output_dir, &r));
    char *path = file_join(output_dir, "report.html");
    put_page(&r, s, &out);
    Status status = file_write_durable(path, out.data, out.len);
    buf_free(&out);
    free(path);
    run_record_free(&r);
    return status;
}
