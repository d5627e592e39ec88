/* run.json, there and back. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

static void add(SummaryValue *list, int *n, double value, const char *format, const char *a, const char *b)
{
    CHECK(*n < SUMMARY_MOST, "more than %d figures in a summary", SUMMARY_MOST);
    list[*n].value = value;
    snprintf(list[*n].name, sizeof list[*n].name, format, a, b);
    (*n)++;
}

void summary_add_region(RunSummary *s, const char *name, size_t bytes)
{
    add(s->regions, &s->n_regions, (double)bytes, "%s%s", name, "");
}

void summary_add_eval(RunSummary *s, const char *split, const char *metric, double value)
{
    add(s->evals, &s->n_evals, value, "%s %s", split, metric);
}

static void put_values(Buf *out, const char *key, const SummaryValue *values, int n)
{
    buf_printf(out, ",\n \"%s\": {", key);
    for (int i = 0; i < n; i++) {
        buf_puts(out, i ? ", " : "");
        buf_json(out, values[i].name);
        buf_puts(out, ": ");
        buf_double(out, values[i].value);
    }
    buf_puts(out, "}");
}

static void put_string(Buf *out, const char *key, const char *value)
{
    buf_printf(out, ",\n \"%s\": ", key);
    buf_json(out, value);
}

static void put_real(Buf *out, const char *key, double value)
{
    buf_printf(out, ",\n \"%s\": ", key);
    buf_double(out, value);
}

Status summary_remove(const char *output_dir)
{
    char *path = file_join(output_dir, "run.json");
    Status status = file_remove_tree(path);
    if (status == OK) status = file_sync_directory(output_dir);
    free(path);
    return status;
}

Status summary_write(const char *output_dir, const RunSummary *s)
{
    Buf out = {0};
    char *path = file_join(output_dir, "run.json");
    buf_printf(&out, "{\"format\": 1");
    put_string(&out, "task", s->task);
    put_string(&out, "recompute", s->recompute);
    put_string(&out, "precision", s->precision);
    put_string(&out, "backend", s->backend);
    buf_printf(&out, ",\n \"threads\": %d, \"steps\": %lld", s->threads, (long long)s->steps);
    put_real(&out, "final_loss", s->final_loss);
    put_real(&out, "seq_per_s", s->seq_per_s);
    put_real(&out, "tokens_per_s", s->tokens_per_s);
    put_real(&out, "wall_s", s->wall_s);
    put_real(&out, "save_stall_s", s->save_stall_s);
    buf_printf(&out, ",\n \"planned_peak_bytes\": %zu, \"measured_peak_bytes\": %zu", s->planned_peak_bytes,
               s->measured_peak_bytes);
    put_values(&out, "eval", s->evals, s->n_evals);
    put_values(&out, "plan_bytes", s->regions, s->n_regions);
    buf_puts(&out, ",\n \"memory_series\": [");
    for (int i = 0; i < s->n_memory; i++) buf_printf(&out, "%s%.0f", i ? ", " : "", s->memory_series[i]);
    buf_printf(&out, "],\n \"config\": %s}\n", s->config_json);
    Status status = file_write_durable(path, out.data, out.len);
    buf_free(&out);
    free(path);
    return status;
}

/* ---- reading ---- */

static void read_values(const Json *object, SummaryValue *list, int *n)
{
    for (void *it = js_first(object); it && *n < SUMMARY_MOST; it = js_next(object, it))
        add(list, n, js_real(js_value(it), NAN), "%s%s", js_key(it), "");
}

static void read_summary(RunRecord *r)
{
    const Json *d = r->doc, *memory = js_get(d, "memory_series");
    RunSummary *s = &r->s;
    s->task = js_string(js_get(d, "task"), "?");
    s->recompute = js_string(js_get(d, "recompute"), "?");
    s->precision = js_string(js_get(d, "precision"), "?");
    s->backend = js_string(js_get(d, "backend"), "?");
    s->threads = (int)js_int(js_get(d, "threads"), 0);
    s->steps = js_int(js_get(d, "steps"), 0);
    s->final_loss = js_real(js_get(d, "final_loss"), NAN);
    s->seq_per_s = js_real(js_get(d, "seq_per_s"), NAN);
    s->tokens_per_s = js_real(js_get(d, "tokens_per_s"), NAN);
    s->wall_s = js_real(js_get(d, "wall_s"), NAN);
    s->save_stall_s = js_real(js_get(d, "save_stall_s"), NAN);
    s->planned_peak_bytes = (size_t)js_int(js_get(d, "planned_peak_bytes"), 0);
    s->measured_peak_bytes = (size_t)js_int(js_get(d, "measured_peak_bytes"), 0);
    read_values(js_get(d, "eval"), s->evals, &s->n_evals);
    read_values(js_get(d, "plan_bytes"), s->regions, &s->n_regions);
    s->n_memory = (int)js_size(memory);
    r->memory = mem_array((size_t)s->n_memory, sizeof *r->memory);
    for (int i = 0; i < s->n_memory; i++) r->memory[i] = js_real(js_at(memory, (size_t)i), 0);
    s->memory_series = r->memory;
}

/* The text of a member's value in one of our own lines; NULL if it is not there. */
static char *member_text(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    if (!at) return NULL;
    at += strlen(key);
    return mem_strndup(at, strcspn(at, ",}"));
}

static double member_value(const char *text) { return strcmp(text, "null") == 0 ? NAN : strtod(text, NULL); }

static Status read_steps(const char *path, RunRecord *r)
{
    Buf text = {0};
    int cap = 0, cap_text = 0, cap_loss = 0, cap_rate = 0;
    TRY(file_read(path, (size_t)4 << 30, &text));
    char *rest = text.data ? text.data : (char *)"";
    for (int line_number = 1; rest && *rest; line_number++) {
        char *line = strsep(&rest, "\n"), *loss = member_text(line, "\"loss\": "),
             *rate = member_text(line, "\"lr\": ");
        long long step;
        if (sscanf(line, "{\"step\": %lld", &step) != 1 || !loss || !rate) {
            free(loss);
            free(rate);
            buf_free(&text);
            return fail(E_FORMAT, "%s: line %d is not a step: expected {\"step\": N, \"loss\": …, \"lr\": …}", path,
                        line_number);
        }
        MEM_GROW(r->steps, r->n_steps, cap);
        MEM_GROW(r->loss_texts, r->n_steps, cap_text);
        MEM_GROW(r->losses, r->n_steps, cap_loss);
        MEM_GROW(r->rates, r->n_steps, cap_rate);
        r->steps[r->n_steps] = step;
        r->loss_texts[r->n_steps] = loss;
        r->losses[r->n_steps] = member_value(loss);
        r->rates[r->n_steps++] = member_value(rate);
        free(rate);
    }
    buf_free(&text);
    return OK;
}

Status run_record_read(const char *dir, RunRecord *r)
{
    char *summary = file_join(dir, "run.json"), *steps = file_join(dir, "metrics.jsonl");
    Status status = OK;
    *r = (RunRecord){0};
    TRY_DONE(js_read(summary, &r->doc));
    read_summary(r);
    if (file_exists(steps)) TRY_DONE(read_steps(steps, r));
done:
    free(summary);
    free(steps);
    if (status != OK) run_record_free(r);
    return status;
}

void run_record_free(RunRecord *r)
{
    for (int i = 0; i < r->n_steps; i++) free(r->loss_texts[i]);
    free(r->loss_texts);
    free(r->steps);
    free(r->losses);
    free(r->rates);
    free(r->memory);
    js_free(r->doc);
    *r = (RunRecord){0};
}
