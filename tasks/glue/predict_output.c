/* Predictions as TSV, CSV or JSON lines, with columns of the input; vectors as JSON lines or in NumPy's form. */
#include "tasks/glue/predict_output.h"

#include "base/sort.h"
#include "tasks/glue/custom.h"

/* ---- the form ---- */

static Status choose_form(const Config *c, RecordsForm *form)
{
    static const struct {
        const char *name;
        RecordsForm form;
    } forms[] = {{"tsv", RECORDS_TSV}, {"csv", RECORDS_CSV}, {"jsonl", RECORDS_JSONL}};
    const char *slash = strrchr(c->output, '/'), *name = slash ? slash + 1 : c->output, *dot = strrchr(name, '.');
    RecordsForm named = records_form_of_name(name);
    *form = RECORDS_BY_NAME;
    if (dot && strcmp(dot, ".gz") == 0)
        return fail(E_USAGE, "--output %s: predictions are not packed; give a name without .gz", c->output);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(c->format, forms[i].name) == 0) *form = forms[i].form;
    }
    bool known = named != RECORDS_BY_NAME && named != RECORDS_LINES;
    if (*form != RECORDS_BY_NAME && known && named != *form)
        return fail(E_USAGE, "--output %s and --format %s are two formats; give one of them, or an ending that agrees",
                    c->output, c->format);
    if (*form != RECORDS_BY_NAME) return OK;
    *form = known ? named : RECORDS_JSONL;
    if (!known && dot && dot > name && dot[1])
        return fail(E_USAGE, "--output %s: expected the ending %s, or --format", c->output,
                    c->embed ? ".npy or .jsonl" : ".csv, .tsv or .jsonl");
    return OK;
}

static Status choose_vectors(const Config *c, PredictOutput *out)
{
    if (out->npy && strcmp(c->format, "auto") != 0)
        return fail(E_USAGE, "--output %s and --format %s are two formats; give one of them", c->output, c->format);
    if (out->npy && *c->keep_columns)
        return fail(E_USAGE,
                    "--keep-columns: expected --output with the ending .jsonl, since a .npy file has vectors alone");
    if (out->npy || out->form == RECORDS_JSONL) return OK;
    return fail(E_USAGE, "--embed: expected JSON lines or the ending .npy, found --output '%s' and --format %s",
                c->output, c->format);
}

static Status cut_columns(PredictOutput *out, const Config *c)
{
    if (!*c->keep_columns) return OK;
    out->list = mem_strdup(c->keep_columns);
    out->n_keep = record_names(out->list, &out->keep);
    if (out->n_keep < 0)
        return fail(E_USAGE, "--keep-columns '%s': expected names with commas between them", c->keep_columns);
    const char *twice = sort_find_twice(out->keep, (size_t)out->n_keep);
    if (twice) return fail(E_USAGE, "--keep-columns '%s': '%s' occurs twice", c->keep_columns, twice);
    enum { MOST = RECORDS_MOST_COLUMNS - 2 };
    if (out->n_keep > MOST) return fail(E_USAGE, "--keep-columns: expected at most %d, found %d", MOST, out->n_keep);
    return OK;
}

Status predict_output_init(PredictOutput *out, const Config *c)
{
    out->npy = c->embed && str_ends_with(c->output, ".npy");
    if (!out->npy) TRY(choose_form(c, &out->form));
    if (c->embed) TRY(choose_vectors(c, out));
    return cut_columns(out, c);
}

void predict_output_free(PredictOutput *out)
{
    MEM_FREE(out->list, out->keep, out->ends);
    buf_free(&out->kept);
}

/* ---- columns of the input ---- */

static bool is_taken(const PredictOutput *out, const char *name)
{
    static const char probability[] = "probability_";
    const GlueTask *task = out->task;
    if (strcmp(name, "index") == 0) return true;
    if (!task) return strcmp(name, "embedding") == 0;
    if (out->form == RECORDS_JSONL) {
        if (task->regression) return strcmp(name, "score") == 0;
        return strcmp(name, "probabilities") == 0 || strcmp(name, task->multi ? "labels" : "label") == 0;
    }
    if (strcmp(name, "prediction") == 0) return true;
    for (int i = 0; i < task->n_labels && strncmp(name, probability, sizeof probability - 1) == 0; i++)
        if (strcmp(name + sizeof probability - 1, task->labels[i]) == 0) return true;
    return false;
}

Status predict_output_columns(PredictOutput *out, RecordsOptions *o)
{
    out->first = o->n;
    for (int i = 0; i < out->n_keep; i++) {
        const char *name = out->keep[i];
        if (is_taken(out, name))
            return fail(E_USAGE, "--keep-columns %s: the predictions have a column of that name; %s", name,
                        out->task && out->form == RECORDS_JSONL && strcmp(name, "index") != 0
                            ? "--format csv calls theirs otherwise"
                            : "rename it in the input");
        if (o->without_header && strspn(name, "0123456789") != strlen(name))
            return fail(E_USAGE, "--keep-columns %s: expected positions, as --text-columns has", name);
        o->columns[o->n] = name;
        o->values[o->n++] = out->form == RECORDS_JSONL ? RECORD_JSON : RECORD_ANY;
    }
    if (out->n_keep) o->advice = NULL;
    return OK;
}

static void put_json_text(RecordText s, Buf *out)
{
    Buf text = {0}; /* without NUL, which ends a C string */
    buf_puts(&text, "");
    for (size_t i = 0; i < s.len; i++) buf_append(&text, s.p[i] ? &s.p[i] : "\xef\xbf\xbd", s.p[i] ? 1 : 3);
    buf_json(out, text.data);
    buf_free(&text);
}

Status predict_output_keep(PredictOutput *out, const Records *records, const Record *row)
{
    for (int i = 0; i < out->n_keep; i++) {
        RecordText s = row->texts[out->first + i];
        if (!s.p) s = (RecordText){"", 0};
        if (out->form == RECORDS_JSONL) {
            buf_puts(&out->kept, ", ");
            buf_json(&out->kept, out->keep[i]);
            buf_puts(&out->kept, ": ");
            if (records_are_json(records))
                buf_append(&out->kept, s.p, s.len);
            else
                put_json_text(s, &out->kept);
            continue;
        }
        bool breaks = memchr(s.p, '\t', s.len) || memchr(s.p, '\n', s.len) || memchr(s.p, '\r', s.len);
        if (breaks && out->form == RECORDS_TSV)
            return fail(E_FORMAT,
                        "line %lld of the input: '%s' holds a tab or a line break, which a TSV file cannot hold; give "
                        "--format csv or jsonl",
                        (long long)row->line, out->keep[i]);
        buf_append(&out->kept, out->form == RECORDS_CSV ? "," : "\t", 1);
        glue_put_cell(out->form == RECORDS_CSV, s.p, s.len, &out->kept);
    }
    MEM_PUSH(out->ends, out->n_ends, out->cap_ends, out->kept.len);
    return OK;
}

void predict_output_forget(PredictOutput *out)
{
    out->n_ends = 0;
    out->kept.len = 0;
}

/* ---- rows ---- */

void predict_output_header(const PredictOutput *out, int64_t rows, Buf *text)
{
    bool csv = out->form == RECORDS_CSV;
    if (out->npy) { /* 128 bytes: the version 1.0, the length of the rest, and the rest */
        buf_append(text, "\x93NUMPY\1\0\x76\0", 10);
        buf_printf(text, "%-117s\n",
                   SHORT_TEXT("{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }", (long long)rows,
                              (long long)out->n));
        return;
    }
    if (out->form == RECORDS_JSONL) return;
    glue_put_header(out->task, csv, text);
    for (int i = 0; i < out->n_keep; i++) {
        buf_puts(text, csv ? "," : "\t");
        glue_put_cell(csv, out->keep[i], strlen(out->keep[i]), text);
    }
    buf_puts(text, "\n");
}

static void put_vector(const float *v, int64_t n, Buf *out)
{
    buf_puts(out, "\"embedding\": [");
    for (int64_t i = 0; i < n; i++) buf_printf(out, "%s%.9g", i ? ", " : "", (double)v[i]);
    buf_puts(out, "]");
}

static void put_json(const GlueTask *t, const float *v, Buf *out)
{
    bool any = false;
    if (t->regression) {
        buf_printf(out, "\"score\": %.9g", (double)v[0]);
        return;
    }
    buf_puts(out, t->multi ? "\"labels\": [" : "\"label\": ");
    if (!t->multi) buf_json(out, t->labels[glue_argmax(v, t->n_labels)]);
    for (int i = 0; i < t->n_labels && t->multi; i++) {
        if (v[i] <= 0.5f) continue;
        if (any) buf_puts(out, ", ");
        buf_json(out, t->labels[i]);
        any = true;
    }
    buf_puts(out, t->multi ? "], \"probabilities\": {" : ", \"probabilities\": {");
    for (int i = 0; i < t->n_labels; i++) {
        if (i) buf_puts(out, ", ");
        buf_json(out, t->labels[i]);
        buf_printf(out, ": %.9g", (double)v[i]);
    }
    buf_puts(out, "}");
}

void predict_output_row(const PredictOutput *out, int64_t index, int i, const float *v, Buf *text)
{
    size_t from = i ? out->ends[i - 1] : 0;
    bool json = out->form == RECORDS_JSONL;
    if (out->npy) {
        buf_append(text, v, (size_t)out->n * sizeof *v);
        return;
    }
    if (json) buf_printf(text, "{\"index\": %lld, ", (long long)index);
    if (!out->task)
        put_vector(v, out->n, text);
    else if (json)
        put_json(out->task, v, text);
    else
        glue_put_prediction(out->task, index, v, out->form == RECORDS_CSV, text);
    if (out->ends[i] > from) buf_append(text, out->kept.data + from, out->ends[i] - from);
    buf_puts(text, json ? "}\n" : "\n");
}
