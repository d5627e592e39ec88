/* The labels of a user's training file. */

#include "state/models/import.h"
#include "tasks/glue/custom.h"
#include "text/characters.h"
#include "text/utf8.h"

enum { MOST_LABELS = 1000, FEW_ROWS = 5, SHOWN = 20 };

typedef struct {
    char *name;
    int64_t rows, line; /* line: of its first row */
} SeenLabel;

/* Different texts of a column, in the order of their bytes. */
typedef struct {
    SeenLabel *labels; // (n)
    int n, cap;
    int64_t rows;
    bool whole;   /* all are whole numbers */
    bool numbers; /* all are numbers */
    bool parts;   /* some number has a fraction */
    bool multi;   /* a row has several */
    int vector;   /* all rows are vectors of so many elements; −1: they are not */
    int length;   /* all rows have so many labels; −1: they have not */
    bool twice;   /* a row has a label twice */
    /* The row to show where labels are a vector: the first with labels, or the first with a 0 or 1 twice. */
    RecordShown shown;
    int64_t shown_line;
    bool twice_01;
} Seen;

static bool is_whole(const char *s)
{
    size_t sign = *s == '-';
    return s[sign] && strlen(s) <= 18 && strspn(s + sign, "0123456789") == strlen(s + sign);
}

/* The label's place, or where it belongs. */
static bool find(const Seen *seen, RecordText s, int *at)
{
    *at = 0;
    for (int high = seen->n; *at < high;) {
        int middle = (*at + high) / 2;
        size_t n = strlen(seen->labels[middle].name);
        int order = memcmp(seen->labels[middle].name, s.p, n < s.len ? n : s.len);
        if (order == 0 && n == s.len) {
            *at = middle;
            return true;
        }
        if (order < 0 || (order == 0 && n < s.len))
            *at = middle + 1;
        else
            high = middle;
    }
    return false;
}

static Status check_label(const char *path, const Record *row, RecordText s)
{
    if (s.len == 0)
        return fail(E_FORMAT, "%s:%lld: the label is empty; remove the row or mend its label", path,
                    (long long)row->line);
    if (glue_label_missing(s))
        return fail(E_FORMAT,
                    "%s:%lld: the label '%s' is a table's word for a missing value; remove the row or mend its label, "
                    "or, if it is a label, give all labels as --labels X,Y",
                    path, (long long)row->line, record_shown(s).text);
    if (memchr(s.p, 0, s.len) || memchr(s.p, '\n', s.len) || memchr(s.p, '\t', s.len))
        return fail(E_FORMAT, "%s:%lld: the label '%s' holds a tab, a line break or a NUL", path, (long long)row->line,
                    record_shown(s).text);
    return OK;
}

static bool is_number_with_comma(const char *label)
{
    char text[64];
    double value;
    size_t n = strlen(label);
    if (n >= sizeof text) return false;
    memcpy(text, label, n + 1);
    char *comma = strchr(text, ',');
    if (comma) *comma = '.';
    return comma && record_number((RecordText){text, n}, &value);
}

/* Scores with a decimal comma, and vectors without separators, would become classes. */
static Status check_written(const Seen *seen, const char *path)
{
    int commas = 0, whole = 0, bits = 0;
    for (int i = 0; i < seen->n; i++) {
        const char *name = seen->labels[i].name;
        size_t n = strlen(name);
        commas += is_number_with_comma(name);
        whole += is_whole(name);
        bits += n > 1 && strspn(name, "01") == n && n == strlen(seen->labels[0].name);
    }
    if (commas && commas + whole == seen->n)
        return fail(E_FORMAT, "%s: the labels are numbers with a decimal comma ('%s'); write a point (1.5)", path,
                    seen->labels[0].name);
    if (seen->multi && bits && bits == seen->n)
        return fail(E_FORMAT,
                    "%s: the labels, as '%s', look like vectors without separators; write commas between the elements "
                    "and name these, as --labels A,B,C. If they are names, give them as --labels",
                    path, seen->labels[0].name);
    return OK;
}

/* Notes a label's text. E_FORMAT: too many. */
static Status see(Seen *seen, const char *path, const Record *row, RecordText s)
{
    int at;
    double value = 0;
    TRY(check_label(path, row, s));
    if (find(seen, s, &at)) {
        seen->labels[at].rows++;
        return OK;
    }
    bool number = record_number(s, &value);
    seen->numbers = seen->numbers && number;
    seen->parts = seen->parts || (number && value != floor(value));
    if (seen->parts && !seen->numbers && !seen->multi)
        return fail(E_FORMAT,
                    "%s:%lld: the label '%s': some labels are numbers with a fraction, others are no numbers; expected "
                    "scores or classes. Correct them, or give the classes as --labels",
                    path, (long long)row->line, record_shown(s).text);
    if (seen->numbers && seen->parts && seen->multi)
        return fail(E_FORMAT, "%s:%lld: the label '%s' is a number with a fraction; expected names, or 0 and 1", path,
                    (long long)row->line, record_shown(s).text);
    if (seen->numbers && seen->parts && seen->n >= MOST_LABELS) return OK; /* scores; a later text fails when read */
    if (seen->n >= MOST_LABELS && !seen->numbers) {
        TRY(check_written(seen, path));
        return fail(E_FORMAT,
                    "%s:%lld: more than %d different labels; expected a column of classes. Give the classes as "
                    "--labels, or another --label-column",
                    path, (long long)row->line, MOST_LABELS);
    }
    MEM_GROW(seen->labels, seen->n, seen->cap);
    memmove(seen->labels + at + 1, seen->labels + at, (size_t)(seen->n - at) * sizeof *seen->labels);
    seen->labels[at] = (SeenLabel){.name = mem_alloc(s.len + 1), .rows = 1, .line = row->line};
    memcpy(seen->labels[at].name, s.p, s.len);
    seen->n++;
    seen->whole = seen->whole && is_whole(seen->labels[at].name);
    return OK;
}

static size_t brackets(RecordText s, const char *kinds)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) n += s.p[i] && strchr(kinds, s.p[i]);
    return n;
}

/* A row with several labels: each counts once. */
static Status see_list(Seen *seen, GlueLabelList *list, const char *path, const Record *row)
{
    TRY(glue_label_list(list, path, row, row->texts[0]));
    bool twice = glue_label_twice(list), twice_01 = twice && list->vector && !seen->twice_01;
    if (twice && list->numbers && !list->vector) return glue_label_vector(path, row->line, row->texts[0]);
    int length = list->vector ? list->n : -1;
    if ((seen->shown_line == 0 && list->n) || twice_01) {
        seen->shown = record_shown(row->texts[0]);
        seen->shown_line = row->line;
    }
    seen->twice_01 |= twice_01;
    seen->vector = seen->rows == 0 || seen->vector == length ? length : -1;
    seen->length = seen->rows == 0 || seen->length == list->n ? list->n : -1;
    seen->twice = seen->twice || twice;
    for (int i = 0; i < list->n; i++) {
        RecordText label = list->labels[i];
        if (memchr(label.p, '|', label.len) || memchr(label.p, ';', label.len))
            return fail(
                E_FORMAT,
                "%s:%lld: the label '%s' holds another separator than a comma; write commas between labels, or, "
                "if it is one label, give all as --labels X,Y",
                path, (long long)row->line, record_shown(label).text);
        if (brackets(label, "([{") != brackets(label, ")]}"))
            return fail(E_FORMAT,
                        "%s:%lld: the label '%s' holds one bracket of a pair, as a list that was cut at its commas; "
                        "write labels as a,b, or, if it is one label, give all as --labels X,Y",
                        path, (long long)row->line, record_shown(label).text);
        if (glue_label_is_new(list, i)) TRY(see(seen, path, row, label));
    }
    return OK;
}

static Status see_file(Seen *seen, const char *path, const GlueLayout *layout)
{
    RecordsOptions o = {.columns = {layout->label},
                        .values = {seen->multi ? RECORD_LIST : RECORD_TEXT},
                        .n = 1,
                        .without_header = layout->columns};
    Records *rows;
    GlueLabelList list = {0};
    const Record *row;
    Status status = records_open(&rows, path, &o);
    for (; status == OK; seen->rows++) {
        status = records_next(rows, &row);
        if (status != OK || !row) break;
        status = seen->multi ? see_list(seen, &list, path, row) : see(seen, path, row, record_trim(row->texts[0]));
    }
    records_close(rows);
    free(list.labels);
    return status;
}

/* ---- what is said ---- */

static void log_labels(const Seen *seen, const char *path)
{
    Buf list = {0};
    for (int i = 0; i < seen->n && i < SHOWN; i++)
        buf_printf(&list, "%s'%s' (%lld)", i ? ", " : "", seen->labels[i].name, (long long)seen->labels[i].rows);
    log_info("%s: %d labels, %s%s", path, seen->n, list.data, seen->n > SHOWN ? ", …" : "");
    buf_free(&list);
}

static bool is_invisible(uint32_t c)
{
    return character_is_space(c) || c == 0xad || (c >= 0x200b && c <= 0x200f) || c == 0x2060 || c == 0xfeff;
}

/* The label in lower case without blanks and invisible characters; the caller frees. */
static char *fold(const char *label)
{
    Buf lowered = {0}, out = {0};
    buf_puts(&out, "");
    characters_lower(label, strlen(label), &lowered);
    for (const char *at = lowered.data, *end = at + lowered.len; at < end;) {
        const char *from = at;
        if (!is_invisible(utf8_decode(&at, end))) buf_append(&out, from, (size_t)(at - from));
    }
    buf_free(&lowered);
    return out.data;
}

/* Whether two labels may be one. */
static bool alike(const char *a, const char *a_folded, const char *b, const char *b_folded)
{
    double x, y;
    if (strcmp(a_folded, b_folded) == 0) return true;
    if (strspn(a, "0123456789") == strlen(a) && strspn(b, "0123456789") == strlen(b)) /* a double has 53 bits */
        return strcmp(a + strspn(a, "0"), b + strspn(b, "0")) == 0;
    return record_number((RecordText){a, strlen(a)}, &x) && record_number((RecordText){b, strlen(b)}, &y) && x == y;
}

static void warn_alike(const Seen *seen, const char *path)
{
    Buf pairs = {0};
    char **folded = mem_array((size_t)seen->n, sizeof *folded);
    int found = 0;
    for (int i = 0; i < seen->n; i++) folded[i] = fold(seen->labels[i].name);
    for (int i = 0; i < seen->n; i++)
        for (int k = 0; k < i; k++) {
            const char *a = seen->labels[k].name, *b = seen->labels[i].name;
            if (!alike(a, folded[k], b, folded[i])) continue;
            if (found < SHOWN) buf_printf(&pairs, "%s'%s' and '%s'", found ? ", " : "", a, b);
            found++;
        }
    if (found)
        log_warn("%s: %s differ only in case, blanks or how a number is written, and are different labels; if they are "
                 "one, mend the rows",
                 path, pairs.data);
    mem_free_texts(folded, seen->n);
    buf_free(&pairs);
}

static void warn_rare(const Seen *seen, const char *path)
{
    Buf list = {0};
    int found = 0;
    for (int i = 0; i < seen->n; i++) {
        int64_t rows = seen->labels[i].rows;
        if (rows >= FEW_ROWS || rows * 100 >= seen->rows) continue;
        if (found < SHOWN)
            buf_printf(&list, "%s'%s' (%lld, first in line %lld)", found ? ", " : "", seen->labels[i].name,
                       (long long)rows, (long long)seen->labels[i].line);
        found++;
    }
    if (found)
        log_warn("%s: under 1 %% of the %lld rows have the label%s %s%s; if that is a mistake, mend the rows", path,
                 (long long)seen->rows, found == 1 ? "" : "s", list.data, found > SHOWN ? ", …" : "");
    buf_free(&list);
}

/* ---- the labels ---- */

static int by_number(const void *a, const void *b)
{
    long long x = strtoll(((const SeenLabel *)a)->name, NULL, 10), y = strtoll(((const SeenLabel *)b)->name, NULL, 10);
    return x < y ? -1 : x > y;
}

static Status check_count(const Seen *seen, const char *path)
{
    if (seen->n > MOST_LABELS)
        return fail(E_FORMAT,
                    "%s: %d different labels, all whole numbers; give --labels regression if they are scores, else "
                    "the classes as --labels",
                    path, seen->n);
    if (seen->n == 0) return fail(E_FORMAT, "%s: expected at least one row with a label, found none", path);
    if (seen->n < (seen->multi ? 1 : 2))
        return fail(E_FORMAT, "%s: all labels are '%s'; expected two different ones at least", path,
                    seen->labels[0].name);
    return OK;
}

/* Whether the rows look like vectors, whose elements the data do not name: all have as many elements, or some element
   occurs twice in a row, or is written as 1.0 or true, not 1. */
static bool has_vectors(const Seen *seen)
{
    bool elements = seen->n > 0, bare = true;
    for (int i = 0; i < seen->n; i++) {
        RecordText name = {seen->labels[i].name, strlen(seen->labels[i].name)};
        elements = elements && glue_label_is_element(name);
        bare = bare && name.len == 1;
    }
    return seen->vector > 0 || seen->twice_01 || (elements && !bare) || (seen->twice && seen->length > 1);
}

/* The elements of vectors have the names of a model with several labels; without one they are refused. */
static Status labels_of_vectors(GlueCustom *c, const Seen *seen, const char *path, const char *model)
{
    HeadKind kind = HEAD_CLASSIFIER;
    if (*model && seen->vector > 0) TRY(import_problem(model, NULL, &kind));
    if (kind != HEAD_MULTI)
        return glue_label_vector(path, seen->shown_line, (RecordText){seen->shown.text, strlen(seen->shown.text)});
    log_info("%s: the labels are vectors of 0 and 1, so their names are those of %s", path, model);
    return glue_custom_labels_of_model(c, model);
}

Status glue_custom_labels_of_data(GlueCustom *c, const char *dir, const char *model)
{
    Seen seen = {.whole = true, .numbers = true, .multi = c->task.multi};
    char *path = NULL;
    Status status = OK;
    TRY_DONE(glue_split_path(dir, &c->task, &c->task.splits[0], &path));
    TRY_DONE(see_file(&seen, path, &c->labelled));
    if (seen.multi && seen.rows && has_vectors(&seen)) {
        TRY_DONE(labels_of_vectors(c, &seen, path, model));
        goto done;
    }
    if (seen.numbers && seen.parts) {
        log_info("%s: the labels are numbers with fractions, so they are scores (--labels regression)", path);
        glue_custom_be_regression(&c->task);
        goto done;
    }
    TRY_DONE(check_written(&seen, path));
    TRY_DONE(check_count(&seen, path));
    if (seen.whole) qsort(seen.labels, (size_t)seen.n, sizeof *seen.labels, by_number);
    log_labels(&seen, path);
    warn_alike(&seen, path);
    warn_rare(&seen, path);
    char **names = mem_array((size_t)seen.n, sizeof *names);
    for (int i = 0; i < seen.n; i++) names[i] = mem_strdup(seen.labels[i].name);
    glue_custom_be_classes(c, names, seen.n);
done:
    for (int i = 0; i < seen.n; i++) free(seen.labels[i].name);
    MEM_FREE(seen.labels, path);
    return status;
}
