#include "report/label_scores.h"

#include "report/page.h"
#include "report/table.h"

enum {
    MOST_ROWS = 20,   /* labels of a table; of more the worst alone */
    WORST = 10,       /* then */
    MOST_COLUMNS = 8, /* labels whose predictions are columns of the table */
    MOST_DRAWN = 100, /* labels of a picture */
    LABEL_ROOM = 180, /* pixels of a label */
    TITLE = 60,       /* above the matrix, without the labels */
};

/* ---- the table ---- */

typedef struct {
    double f1; /* 2: the label occurs nowhere */
    int64_t rows;
    size_t number; /* of the label */
} Ranked;

static int by_f1(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (x->f1 != y->f1) return x->f1 < y->f1 ? -1 : 1;
    if (x->rows != y->rows) return x->rows > y->rows ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static const char *label_of(const Json *score) { return js_string(js_get(score, "label"), ""); }

static int64_t count_of(const Json *score, const char *key) { return js_int(js_get(score, key), 0); }

static void put_scores(Table *t, const Json *score)
{
    table_figure(t, "%.4f", js_real(js_get(score, "precision"), NAN));
    table_figure(t, "%.4f", js_real(js_get(score, "recall"), NAN));
    table_figure(t, "%.4f", js_real(js_get(score, "f1"), NAN));
}

static void put_means(Table *t, const Json *split, const char *key)
{
    table_text(t, "%s mean", key);
    put_scores(t, js_get(split, key));
    for (int i = 4; i < t->columns; i++) table_text(t, "%s", "");
}

static void make_table(const char *name, const Json *split, Buf *title, Table *t)
{
    static const char *const heads[] = {"label", "precision", "recall", "F1", "rows"};
    const Json *labels = js_get(split, "labels"), *matrix = js_get(split, "confusion_matrix");
    size_t n = js_size(labels), columns = n <= MOST_COLUMNS ? js_size(matrix) : 0, rows = n > MOST_ROWS ? WORST : n;
    Ranked *ranked = mem_array(n, sizeof *ranked);
    for (size_t i = 0; i < n; i++) {
        const Json *score = js_at(labels, i);
        int64_t support = count_of(score, "support");
        bool absent = support + count_of(score, "predicted") == 0;
        ranked[i] = (Ranked){absent ? 2 : js_real(js_get(score, "f1"), 0), support, i};
    }
    buf_printf(title, "%s, scores of each label", name);
    if (rows < n) {
        buf_printf(title, "; the %d worst of %zu by F1 (eval_results.json has all)", WORST, n);
        qsort(ranked, n, sizeof *ranked, by_f1);
    }
    table_init(t, 5 + (int)columns, 1);
    for (int i = 0; i < 5; i++) table_text(t, "%s", heads[i]);
    for (size_t k = 0; k < columns; k++) table_text(t, "as '%s'", label_of(js_at(labels, k)));
    for (size_t i = 0; i < rows; i++) {
        const Json *score = js_at(labels, ranked[i].number);
        table_text(t, "'%s'", label_of(score));
        put_scores(t, score);
        table_text(t, "%lld", (long long)ranked[i].rows);
        for (size_t k = 0; k < columns; k++)
            table_text(t, "%lld", (long long)js_int(js_at(js_at(matrix, ranked[i].number), k), 0));
    }
    put_means(t, split, "macro");
    put_means(t, split, "weighted");
    free(ranked);
}

/* ---- the picture ---- */

typedef struct {
    const Json *labels, *matrix;
    int n;
    double cell, left, top; /* pixels */
    Buf *out;
} Picture;

static void put_cell(const Picture *p, int row, int column, int64_t count, int64_t rows)
{
    double part = (double)count / (double)rows, x = p->left + column * p->cell, y = p->top + row * p->cell;
    const char *text = SHORT_TEXT("%lld", (long long)count);
    buf_printf(p->out,
               "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"f0\" fill=\"#0072B2\" "
               "fill-opacity=\"%.3f\"/>\n",
               x, y, p->cell, p->cell, 0.08 + 0.92 * part);
    if (markup_text_width(text, 12) + 4 > p->cell) return;
    buf_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\"%s>%s</text>\n", x + p->cell / 2,
               y + p->cell / 2 + 4, part > 0.5 ? " fill=\"#fff\"" : "", text);
}

/* The label beside its row and above its column, which is turned. */
static void put_label(const Picture *p, int i)
{
    double middle = (i + 0.5) * p->cell;
    const char *label = label_of(js_at(p->labels, (size_t)i));
    buf_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", p->left - 6, p->top + middle + 4);
    markup_fitting(p->out, label, 12, LABEL_ROOM);
    buf_printf(p->out, "</text>\n<text transform=\"translate(%.1f,%.1f) rotate(-90)\">", p->left + middle + 4,
               p->top - 6);
    markup_fitting(p->out, label, 12, LABEL_ROOM);
    buf_puts(p->out, "</text>\n");
}

static void put_matrix(const Picture *p)
{
    for (int i = 0; i < p->n; i++) {
        const Json *row = js_at(p->matrix, (size_t)i);
        int64_t rows = count_of(js_at(p->labels, (size_t)i), "support");
        put_label(p, i);
        for (int k = 0; k < p->n; k++) {
            int64_t count = js_int(js_at(row, (size_t)k), 0);
            if (count > 0 && rows >= count) put_cell(p, i, k, count, rows);
        }
    }
    double side = p->n * p->cell;
    buf_printf(p->out,
               "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" class=\"grid\" "
               "stroke=\"#ddd\"/>\n",
               p->left, p->top, side, side);
}

/* False: there is no matrix, or it is too large. */
static bool draw(const char *name, const Json *split, Buf *out)
{
    Picture p = {.labels = js_get(split, "labels"), .matrix = js_get(split, "confusion_matrix"), .out = out};
    double longest = 0;
    p.n = (int)js_size(p.labels);
    if (p.n == 0 || p.n > MOST_DRAWN || js_size(p.matrix) != (size_t)p.n) return false;
    for (int i = 0; i < p.n; i++) longest = fmax(longest, markup_text_width(label_of(js_at(p.labels, (size_t)i)), 12));
    longest = fmin(longest, LABEL_ROOM);
    p.cell = fmin(56, fmax(14, 640.0 / p.n));
    p.left = longest + 40;
    p.top = longest + TITLE;
    double side = p.n * p.cell, width = fmax(p.left + side + 20, 360);
    svg_begin(out, (int)width, (int)(p.top + side + 20));
    buf_puts(out, "<text x=\"14\" y=\"22\" font-size=\"14\" font-weight=\"bold\">Confusion matrix of ");
    markup_text(out, name);
    buf_printf(out,
               "</text>\n<text x=\"%.1f\" y=\"42\">predicted (colour: share of the row)</text>\n<text "
               "transform=\"translate(16,%.1f) rotate(-90)\" text-anchor=\"end\">true</text>\n",
               p.left, p.top);
    put_matrix(&p);
    buf_puts(out, "</svg>\n");
    return true;
}

/* ---- a run's folder ---- */

static void put_table(const char *name, const Json *split, Buf *text)
{
    Table table;
    Buf title = {0}, rows = {0}, log = {0};
    make_table(name, split, &title, &table);
    table_print(&table, TABLE_COLUMNS, &rows);
    buf_printf(text, "\n%s\n%s", title.data, rows.data);
    for (char *at = rows.data, *line; (line = strsep(&at, "\n")) && at;) buf_printf(&log, "\n  %s", line);
    log_info("%s%s", title.data, log.data);
    BUF_FREE(&title, &rows, &log);
    table_free(&table);
}

Status label_scores_write(const char *output_dir, Buf *text)
{
    Json *doc = NULL;
    Status status = OK;
    if (!js_read_in(output_dir, "eval_results.json", &doc)) return OK;
    const Json *splits = js_get(doc, "eval_labels");
    for (void *it = js_first(splits); it && status == OK; it = js_next(splits, it)) {
        Buf picture = {0};
        put_table(js_key(it), js_value(it), text);
        char *name = mem_printf("confusion_%s.svg", js_key(it)), *path = file_join(output_dir, name);
        status = draw(js_key(it), js_value(it), &picture) ? svg_write(output_dir, name, &picture)
                                                          : file_remove_tree(path); /* another run's */
        MEM_FREE(name, path);
    }
    js_free(doc);
    return status;
}

void label_scores_html(const char *output_dir, Buf *out)
{
    Json *doc = NULL;
    if (!js_read_in(output_dir, "eval_results.json", &doc)) return;
    const Json *splits = js_get(doc, "eval_labels");
    for (void *it = js_first(splits); it; it = js_next(splits, it)) {
        Table table;
        Buf title = {0};
        make_table(js_key(it), js_value(it), &title, &table);
        page_title(out, title.data);
        table_html(&table, out);
        draw(js_key(it), js_value(it), out);
        table_free(&table);
        buf_free(&title);
    }
    js_free(doc);
}
