/* run.json, there and back. */

#include "report/record.h"

static void add_value(SummaryValue *list, int *n, double value, const char *format, const char *a, const char *b)
{
    CHECK(*n < SUMMARY_MOST, "more than %d figures in a summary", SUMMARY_MOST);
    list[*n].value = value;
    snprintf(list[*n].name, sizeof list[*n].name, format, a, b);
    (*n)++;
}

void summary_add_region(RunSummary *s, const char *name, size_t bytes)
{
    add_value(s->regions, &s->n_regions, (double)bytes, "%s%s", name, "");
}

void summary_add_eval(RunSummary *s, const char *split, const char *metric, double value)
{
    add_value(s->evals, &s->n_evals, value, "%s %s", split, metric);
}

double summary_value(const SummaryValue *values, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(values[i].name, name) == 0) return values[i].value;
    return NAN;
}

static void put_values(Buf *out, const char *key, const SummaryValue *values, int n)
{
    buf_printf(out, ",\n \"%s\": {", key);
    for (int i = 0; i < n; i++) buf_member(out, values[i].name, values[i].value);
    buf_puts(out, "}");
}

/* X(kind, type, member): members of run.json that are one value, in the file's order. */
#define MEMBER_LIST(X)                                                                                                 \
    X(text, const char *, task)                                                                                        \
    X(text, const char *, recompute)                                                                                   \
    X(text, const char *, precision)                                                                                   \
    X(text, const char *, backend)                                                                                     \
    X(text, const char *, version)                                                                                     \
    X(text, const char *, started)                                                                                     \
    X(text, const char *, hosts)                                                                                       \
    X(text, const char *, folder)                                                                                      \
    X(text, const char *, command)                                                                                     \
    X(text, const char *, again)                                                                                       \
    X(text, const char *, model)                                                                                       \
    X(text, const char *, device)                                                                                      \
    X(count, int, ranks)                                                                                               \
    X(count, int, threads)                                                                                             \
    X(count, int64_t, steps)                                                                                           \
    X(real, double, final_loss)                                                                                        \
    X(real, double, seq_per_s)                                                                                         \
    X(real, double, tokens_per_s)                                                                                      \
    X(real, double, wall_s)                                                                                            \
    X(real, double, micro_batches)                                                                                     \
    X(real, double, save_stall_s)                                                                                      \
    X(real, double, planned_step_s)                                                                                    \
    X(real, double, bound_step_s)                                                                                      \
    X(count, size_t, bound_peak_bytes)                                                                                 \
    X(count, size_t, planned_peak_bytes)                                                                               \
    X(count, size_t, measured_peak_bytes)

static void put_text(Buf *out, const char *value) { buf_json(out, value); }
static void put_real(Buf *out, double value) { buf_double(out, value); }
static void put_count(Buf *out, int64_t value) { buf_printf(out, "%lld", (long long)value); }
static const char *get_text(const Json *v) { return js_string(v, "?"); }
static double get_real(const Json *v) { return js_real(v, NAN); }
static int64_t get_count(const Json *v) { return js_int(v, 0); }

static void put_if_any(Buf *out, const char *key, const char *value)
{
    if (!value || !*value) return;
    buf_printf(out, ",\n \"%s\": ", key);
    buf_json(out, value);
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
    buf_printf(&out, "{\"format\": %d", RUN_JSON_FORMAT);
#define X(kind, type, member)                                                                                          \
    buf_puts(&out, ",\n \"" #member "\": ");                                                                           \
    put_##kind(&out, s->member);
    MEMBER_LIST(X)
#undef X
    put_if_any(&out, "waited_for", s->waited_for);
    put_if_any(&out, "while_saving", s->while_saving);
    put_if_any(&out, "best", s->best);
    put_values(&out, "eval", s->evals, s->n_evals);
    put_values(&out, "plan_bytes", s->regions, s->n_regions);
    buf_puts(&out, ",\n \"memory_series\": [");
    for (int i = 0; i < s->n_memory; i++) buf_printf(&out, "%s%.0f", i ? ", " : "", s->memory_series[i]);
    buf_printf(&out, "],\n \"fingerprint\": %s,\n \"config\": %s}\n", s->fingerprint ? s->fingerprint : "{}",
               s->config_json);
    return file_write_text(output_dir, "run.json", &out);
}

/* ---- reading ---- */

static void read_values(const Json *object, SummaryValue *list, int *n)
{
    for (void *it = js_first(object); it && *n < SUMMARY_MOST; it = js_next(object, it))
        add_value(list, n, js_real(js_value(it), NAN), "%s%s", js_key(it), "");
}

void run_record_summary(RunRecord *r)
{
    const Json *d = r->doc, *memory = js_get(d, "memory_series");
    RunSummary *s = &r->s;
#define X(kind, type, member) s->member = (type)get_##kind(js_get(d, #member));
    MEMBER_LIST(X)
#undef X
    read_values(js_get(d, "eval"), s->evals, &s->n_evals);
    read_values(js_get(d, "plan_bytes"), s->regions, &s->n_regions);
    s->n_memory = (int)js_size(memory);
    r->memory = mem_array((size_t)s->n_memory, sizeof *r->memory);
    for (int i = 0; i < s->n_memory; i++) r->memory[i] = js_real(js_at(memory, (size_t)i), 0);
    s->memory_series = r->memory;
}

Status summary_read(const char *path, Json **doc)
{
    TRY(js_read(path, doc));
    int64_t format = js_int(js_get(*doc, "format"), RUN_JSON_FORMAT);
    if (format == RUN_JSON_FORMAT) return OK;
    js_free(*doc);
    *doc = NULL;
    return fail(E_FORMAT, "%s: expected a run.json of format %d, found format %lld: another version wrote it", path,
                RUN_JSON_FORMAT, (long long)format);
}
