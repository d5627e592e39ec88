/* GLUE's TSV files. A row ends at LF (or CRLF, or the end of the file), columns are parted by tabs, and nothing else
   has a meaning: quotes are text. A UTF-8 BOM and empty lines at the end are passed over. */
#include "tasks/glue/glue.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/text.h"

typedef struct {
    const char *p;
    size_t len;
} Span;

typedef struct {
    const char *name; /* what errors call the file */
    const char *at, *end;
    int64_t line; /* of the row last taken, from 1 */
} Rows;

/* Column positions; −1: none. */
typedef struct {
    int index, a, b, label;
    int count; /* columns in every row */
} Columns;

static bool rows_next(Rows *r, Span *row)
{
    if (r->at >= r->end) return false;
    const char *feed = memchr(r->at, '\n', (size_t)(r->end - r->at));
    const char *stop = feed ? feed : r->end;
    row->p = r->at;
    row->len = (size_t)(stop - r->at);
    if (row->len && row->p[row->len - 1] == '\r') row->len--;
    r->at = feed ? feed + 1 : r->end;
    r->line++;
    return true;
}

/* Takes the next column of a row; `row` is what is left, with p NULL after the last column. */
static bool column_next(Span *row, Span *column)
{
    if (!row->p) return false;
    const char *tab = memchr(row->p, '\t', row->len);
    *column = (Span){row->p, tab ? (size_t)(tab - row->p) : row->len};
    *row = tab ? (Span){tab + 1, row->len - column->len - 1} : (Span){NULL, 0};
    return true;
}

static int64_t column_count(Span row)
{
    int64_t n = 0;
    for (Span c; column_next(&row, &c);) n++;
    return n;
}

/* A piece of a file for a message: at most 40 bytes, whole characters, nothing that moves a cursor. */
typedef struct {
    char text[48];
} Shown;

static Shown shown(Span s)
{
    Shown out = {{0}};
    size_t n = s.len <= 40 ? s.len : 40;
    if (n < s.len) {
        while (n && ((unsigned char)s.p[n] & 0xc0) == 0x80) n--;
    }
    for (size_t i = 0; i < n; i++) out.text[i] = (unsigned char)s.p[i] < 32 || s.p[i] == 127 ? '?' : s.p[i];
    if (n < s.len) memcpy(out.text + n, "…", sizeof "…");
    return out;
}

static bool span_is(Span s, const char *text) { return strlen(text) == s.len && !memcmp(s.p, text, s.len); }

/* ---- the whole file ---- */

static Status check_utf8(const char *name, const char *data, size_t size)
{
    int64_t offset = text_utf8_error(data, size);
    if (offset < 0) return OK;
    int64_t line = 1, start = 0;
    for (int64_t i = 0; i < offset; i++) {
        if (data[i] == '\n') line++, start = i + 1;
    }
    return fail(
        E_FORMAT,
        "%s:%lld: expected UTF-8, found byte 0x%02x at offset %lld of the file (byte %lld of the line); convert "
        "the file, for example with iconv -f latin1 -t utf-8",
        name, (long long)line, (unsigned char)data[offset], (long long)offset, (long long)(offset - start + 1));
}

/* ---- the header ---- */

static Status find_in_header(const Rows *r, Span header, const char *wanted, int *position)
{
    int found = -1, i = 0;
    Span rest = header;
    for (Span c; column_next(&rest, &c); i++) {
        if (!span_is(c, wanted)) continue;
        if (found >= 0)
            return fail(E_FORMAT, "%s:%lld: the header names column '%s' twice (columns %d and %d)", r->name,
                        (long long)r->line, wanted, found + 1, i + 1);
        found = i;
    }
    *position = found;
    return OK;
}

static Status missing_column(const Rows *r, Span header, const char *wanted)
{
    Buf names = {0};
    int i = 0;
    Span rest = header;
    for (Span c; i < 24 && column_next(&rest, &c); i++) buf_printf(&names, "%s'%s'", i ? ", " : "", shown(c).text);
    if (rest.p) buf_puts(&names, ", …");
    Status status = fail(E_FORMAT, "%s:%lld: expected a column named '%s' in the header, found %s", r->name,
                         (long long)r->line, wanted, names.data);
    buf_free(&names);
    return status;
}

static Status columns_by_name(const Rows *r, Span header, const GlueLayout *layout, Columns *c)
{
    const struct {
        const char *name;
        int *position;
        bool needed;
    } wanted[] = {
        {layout->index, &c->index, false},
        {layout->a, &c->a, true},
        {layout->b, &c->b, true},
        {layout->label, &c->label, true},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (!wanted[i].name) continue;
        TRY(find_in_header(r, header, wanted[i].name, wanted[i].position));
        if (wanted[i].needed && *wanted[i].position < 0) return missing_column(r, header, wanted[i].name);
    }
    int64_t count = column_count(header);
    if (count > INT_MAX)
        return fail(E_FORMAT, "%s:%lld: %lld columns are too many", r->name, (long long)r->line, (long long)count);
    c->count = (int)count;
    return OK;
}

static int position_of(const char *digits) { return digits ? (int)strtol(digits, NULL, 10) : -1; }

static Status columns_by_position(const Rows *r, Span first_row, const GlueLayout *layout, Columns *c)
{
    c->index = position_of(layout->index);
    c->a = position_of(layout->a);
    c->b = position_of(layout->b);
    c->label = position_of(layout->label);
    if (layout->columns > 0) {
        c->count = layout->columns;
        return OK;
    }
    int64_t count = column_count(first_row);
    const int wanted[] = {c->index, c->a, c->b, c->label};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (wanted[i] >= count)
            return fail(E_FORMAT, "%s:%lld: expected a column at position %d (counted from 0), found %lld columns",
                        r->name, (long long)r->line + 1, wanted[i], (long long)count);
    }
    if (count > INT_MAX) return fail(E_FORMAT, "%s: %lld columns are too many", r->name, (long long)count);
    c->count = (int)count;
    return OK;
}

/* ---- one row ---- */

static Status parse_index(const Rows *r, Span s, int64_t *index)
{
    int64_t v = 0;
    bool good = s.len > 0 && s.len <= 18;
    for (size_t i = 0; good && i < s.len; i++) {
        good = s.p[i] >= '0' && s.p[i] <= '9';
        v = 10 * v + (s.p[i] - '0');
    }
    if (!good)
        return fail(E_FORMAT, "%s:%lld: expected a number as index, found '%s'", r->name, (long long)r->line,
                    shown(s).text);
    *index = v;
    return OK;
}

static Status parse_score(const Rows *r, const GlueTask *task, Span s, float *score)
{
    char text[64], *end = text;
    double v = 0;
    if (s.len > 0 && s.len < sizeof text) {
        memcpy(text, s.p, s.len);
        text[s.len] = 0;
        if (strspn(text, "0123456789+-.eE") == s.len) v = strtod(text, &end);
    }
    if (end == text || *end || !isfinite((float)v))
        return fail(E_FORMAT, "%s:%lld: expected a number as score, found '%s'", r->name, (long long)r->line,
                    shown(s).text);
    if (v < (double)task->low || v > (double)task->high)
        return fail(E_FORMAT, "%s:%lld: expected a score from %g to %g, found %s", r->name, (long long)r->line,
                    (double)task->low, (double)task->high, text);
    *score = (float)v;
    return OK;
}

static Status unknown_label(const Rows *r, const GlueTask *task, Span s)
{
    Buf names = {0};
    int show = task->n_labels <= 20 ? task->n_labels : 20;
    for (int i = 0; i < show; i++) buf_printf(&names, "%s'%s'", i ? ", " : "", task->labels[i]);
    if (show < task->n_labels) buf_printf(&names, " or one of %d more", task->n_labels - show);
    Status status = fail(E_FORMAT, "%s:%lld: label '%s' is unknown; expected %s", r->name, (long long)r->line,
                         shown(s).text, names.data);
    buf_free(&names);
    return status;
}

typedef enum { ROW_TAKEN, ROW_UNLABELLED, ROW_SHORT } RowKind;

static Status parse_row(const Rows *r, Span row, const GlueTask *task, const Columns *c, bool may_skip, GlueExample *e,
                        RowKind *kind)
{
    Span index = {0}, a = {0}, b = {0}, label = {0}, column, rest = row;
    int64_t n = 0;
    for (; column_next(&rest, &column); n++) {
        if (n == c->index) index = column;
        if (n == c->a) a = column;
        if (n == c->b) b = column;
        if (n == c->label) label = column;
    }
    *kind = ROW_TAKEN;
    if (n < c->count && may_skip && task->skip_short_rows) {
        *kind = ROW_SHORT;
        return OK;
    }
    if (n != c->count)
        return fail(E_FORMAT, "%s:%lld: expected %d columns, found %lld; look for %s in the text of this row", r->name,
                    (long long)r->line, c->count, (long long)n, n < c->count ? "a line break" : "a tab");
    e->a = a.p;
    e->a_len = a.len;
    e->b = c->b >= 0 ? b.p : NULL;
    e->b_len = c->b >= 0 ? b.len : 0;
    e->label = -1;
    e->line = r->line;
    if (c->index >= 0) TRY(parse_index(r, index, &e->index));
    if (c->label < 0) return OK;
    if (task->skip_label && span_is(label, task->skip_label)) {
        *kind = ROW_UNLABELLED;
        return OK;
    }
    if (task->regression) return parse_score(r, task, label, &e->score);
    e->label = glue_label_find(task, label.p, label.len);
    return e->label >= 0 ? OK : unknown_label(r, task, label);
}

/* ---- all of it ---- */

static Status parse_rows(GlueExamples *x, Rows *r, const GlueTask *task, const GlueSplit *split, const Columns *c)
{
    size_t upper = r->at < r->end;
    for (const char *p = r->at; p < r->end && (p = memchr(p, '\n', (size_t)(r->end - p))); p++) upper++;
    x->examples = mem_array(upper, sizeof *x->examples);
    Span row;
    for (int64_t number = 0; rows_next(r, &row); number++) {
        GlueExample *e = &x->examples[x->count];
        RowKind kind = ROW_TAKEN;
        *e = (GlueExample){.index = number};
        TRY(parse_row(r, row, task, c, split->kind != GLUE_TEST, e, &kind));
        x->count += kind == ROW_TAKEN;
        x->skipped_unlabelled += kind == ROW_UNLABELLED;
        x->skipped_short += kind == ROW_SHORT;
    }
    if (x->skipped_unlabelled)
        log_warn("%s: left out %zu rows whose label is '%s' (no majority)", r->name, x->skipped_unlabelled,
                 task->skip_label);
    if (x->skipped_short)
        log_warn("%s: left out %zu rows with fewer than %d columns", r->name, x->skipped_short, c->count);
    if (x->count) return OK;
    return fail(E_FORMAT, "%s: expected at least one row%s, found %s", r->name, c->label >= 0 ? " with a label" : "",
                x->skipped_unlabelled || x->skipped_short ? "only rows that are left out" : "none after the header");
}

Status glue_parse(GlueExamples *x, const char *name, const void *data, size_t size, const GlueTask *task,
                  const GlueSplit *split)
{
    const GlueLayout *layout = split->layout;
    *x = (GlueExamples){.labelled = layout->label != NULL, .path = mem_strdup(name)};
    Rows r = {.name = x->path, .at = data, .end = (const char *)data + size};
    Columns c = {-1, -1, -1, -1, 0};
    Status status = OK;
    Span first;

    if (split->kind != GLUE_TEST && !layout->label) {
        status = fail(E_USAGE, "%s: training and evaluation need labels: give --label-column", name);
        goto done;
    }
    TRY_DONE(check_utf8(name, data, size));
    x->digest = digest_of(data, size);
    if (size >= 3 && !memcmp(data, "\xef\xbb\xbf", 3)) r.at += 3;
    while (r.end > r.at && (r.end[-1] == '\n' || r.end[-1] == '\r')) r.end--; /* empty lines at the end */

    Rows ahead = r;
    if (!rows_next(&ahead, &first)) {
        status = fail(E_FORMAT, "%s: the file is empty; expected %s", name,
                      layout->columns ? "rows of tab-separated columns" : "a header and rows of tab-separated columns");
        goto done;
    }
    if (layout->columns) {
        TRY_DONE(columns_by_position(&r, first, layout, &c));
    } else {
        r = ahead;
        TRY_DONE(columns_by_name(&r, first, layout, &c));
    }
    TRY_DONE(parse_rows(x, &r, task, split, &c));
done:
    if (status != OK) glue_examples_free(x);
    return status;
}

/* The caller frees. */
static char *split_path(const char *dir, const GlueTask *task, const GlueSplit *split)
{
    for (int i = 0; i < 2 && task->folders[i]; i++) {
        char *folder = file_join(dir, task->folders[i]);
        char *path = file_is_directory(folder) ? file_join(folder, split->file) : NULL;
        free(folder);
        if (path) return path;
    }
    return file_join(dir, split->file);
}

Status glue_read(GlueExamples *x, const char *dir, const GlueTask *task, const GlueSplit *split)
{
    Status status = OK;
    FileMap map = {0};
    *x = (GlueExamples){0};
    char *path = split_path(dir, task, split);
    if (!file_exists(path)) {
        status = fail(E_IO,
                      "task %s needs %s for its split '%s', and there is no such file; --data-dir is the folder that "
                      "holds %s/ or the .tsv files themselves%s",
                      task->name, path, split->name, task->folders[0],
                      split->kind == GLUE_TRAIN ? "" : ", and --eval-splits can leave a split out");
        goto done;
    }
    TRY_DONE(file_map(&map, path));
    TRY_DONE(glue_parse(x, path, map.data, map.size, task, split));
    x->map = map;
    map = (FileMap){0};
done:
    file_unmap(&map);
    free(path);
    return status;
}

void glue_examples_free(GlueExamples *x)
{
    free(x->examples);
    free(x->path);
    file_unmap(&x->map);
    *x = (GlueExamples){0};
}
