/* report.html: one file, nothing fetched. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/observe.h"

static void put_escaped(Buf *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '<')
            buf_puts(out, "&lt;");
        else if (*s == '>')
            buf_puts(out, "&gt;");
        else if (*s == '&')
            buf_puts(out, "&amp;");
        else if (*s == '"')
            buf_puts(out, "&quot;");
        else
            buf_append(out, s, 1);
    }
}

static void put_row(Buf *out, const char *name, const char *value)
{
    buf_puts(out, "<tr><td>");
    put_escaped(out, name);
    buf_puts(out, "</td><td>");
    put_escaped(out, value);
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

static void put_curves(const RunRecord *r, const RunSummary *s, Buf *out)
{
    double *x = mem_array((size_t)r->n_steps, sizeof *x), *smooth = mem_array((size_t)r->n_steps, sizeof *smooth),
           mean = 0, weight = 0;
    for (int i = 0; i < r->n_steps; i++) {
        x[i] = (double)r->steps[i];
        mean = 0.95 * mean + 0.05 * r->losses[i];
        weight = 0.95 * weight + 0.05;
        smooth[i] = mean / weight;
    }
    ChartSeries loss[] = {{.name = "loss", .x = x, .y = r->losses, .n = r->n_steps},
                          {.name = "smoothed", .x = x, .y = smooth, .n = r->n_steps}};
    ChartSeries rate[] = {{.name = "learning rate", .x = x, .y = r->rates, .n = r->n_steps}};
    double planned = 0;
    for (int i = 0; i < s->n_memory; i++) planned = fmax(planned, s->memory_series[i]);
    double flat[2] = {planned, planned}, ends[2] = {0, s->n_memory > 1 ? s->n_memory - 1 : 1};
    ChartSeries memory[] = {{.name = s->recompute, .y = s->memory_series, .n = s->n_memory, .scale = 1.0 / (1 << 20)},
                            {.name = "peak", .x = ends, .y = flat, .n = 2, .scale = 1.0 / (1 << 20), .dashed = true}};
    chart_svg(&(Chart){"Training loss", "step", "loss", loss, 2, false}, out);
    chart_svg(&(Chart){"Learning rate", "step", "learning rate", rate, 1, true}, out);
    if (s->n_memory)
        chart_svg(&(Chart){"Activations and scratch over one micro-batch", "instr", "MiB", memory, 2, true}, out);
    free(x);
    free(smooth);
}

static void put_page(const RunRecord *r, const RunSummary *s, Buf *out)
{
    buf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Cairn: ");
    put_escaped(out, s->task);
    buf_puts(out,
             "</title>\n<style>body{font:15px/1.5 sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}"
             "table{border-collapse:collapse;margin:1em 0}td{border-bottom:1px solid #ddd;padding:.25em 1.2em .25em 0}"
             "pre{background:#f6f6f6;padding:1em;overflow:auto;font-size:13px}svg{max-width:100%;height:auto}</style></"
             "head><body>\n<h1>");
    put_escaped(out, s->task);
    buf_puts(out, "</h1>\n<h2>Results</h2>\n<table>\n");
    for (int i = 0; i < s->n_evals; i++) put_figure(out, s->evals[i].name, "%.4f", s->evals[i].value);
    put_figure(out, "steps", "%lld", (long long)s->steps);
    put_figure(out, "final loss", "%.6g", s->final_loss);
    put_figure(out, "sequences/s", "%.2f", s->seq_per_s);
    put_figure(out, "tokens/s", "%.0f", s->tokens_per_s);
    put_figure(out, "wall time", "%.1f s", s->wall_s);
    buf_puts(out, "</table>\n<h2>Curves</h2>\n");
    put_curves(r, s, out);
    buf_puts(out, "<h2>Memory</h2>\n<table>\n");
    for (int i = 0; i < s->n_regions; i++)
        put_figure(out, s->regions[i].name, "%.1f MiB", s->regions[i].value / (1 << 20));
    put_figure(out, "planned peak of the process", "%.1f MiB", (double)s->planned_peak_bytes / (1 << 20));
    put_figure(out, "measured peak", "%.1f MiB", (double)s->measured_peak_bytes / (1 << 20));
    buf_puts(out, "</table>\n<h2>Run</h2>\n<table>\n");
    put_row(out, "recompute", s->recompute);
    put_row(out, "precision", s->precision);
    put_row(out, "backend", s->backend);
    put_figure(out, "threads", "%d", s->threads);
    put_row(out, "Cairn", CAIRN_VERSION);
    buf_puts(out, "</table>\n<h2>Configuration</h2>\n<pre>");
    put_escaped(out, s->config_json);
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
