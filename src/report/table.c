#include "report/table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "base/terminal.h"
#include "report/report.h"

#define GAP 2 /* blanks between columns */

void table_init(Table *t, int columns, int left) { *t = (Table){.columns = columns, .left = left}; }

void table_free(Table *t)
{
    for (int i = 0; i < t->count; i++) {
        MEM_FREE(t->cells[i].text, t->cells[i].raw);
    }
    free(t->cells);
    *t = (Table){0};
}

static void add(Table *t, char *text, char *raw) { MEM_PUSH(t->cells, t->count, t->cap, (TableCell){text, raw}); }

void table_text(Table *t, const char *format, ...)
{
    Buf text = {0};
    va_list args;
    va_start(args, format);
    buf_puts(&text, "");
    buf_vprintf(&text, format, args);
    va_end(args);
    Buf shown = {0};
    buf_puts(&shown, "");
    buf_message(&shown, text.data);
    add(t, shown.data, text.data);
}

void table_figure(Table *t, const char *format, double value)
{
    if (!isfinite(value)) {
        add(t, mem_strdup("–"), mem_strdup(""));
        return;
    }
    Buf raw = {0};
    buf_double(&raw, value);
    add(t, mem_printf(format, value), raw.data);
}

static int rows_of(const Table *t) { return t->count / t->columns; }
static const TableCell *cell(const Table *t, int row, int column) { return &t->cells[row * t->columns + column]; }

static void put_row(const Table *t, const int *width, int row, int from, int to, Buf *out)
{
    size_t before = out->len;
    for (int c = 0; c < to; c++) {
        if (c >= t->left && c < from) continue;
        const char *text = cell(t, row, c)->text;
        int pad = width[c] - terminal_width(text, strlen(text));
        if (c) buf_printf(out, "%*s", GAP, "");
        if (c >= t->left) buf_printf(out, "%*s", pad, "");
        buf_puts(out, text);
        if (c < t->left) buf_printf(out, "%*s", pad, "");
    }
    while (out->len > before && out->data[out->len - 1] == ' ') out->data[--out->len] = '\0';
    buf_puts(out, "\n");
}

void table_print(const Table *t, int width, Buf *out)
{
    int *columns = mem_array((size_t)t->columns, sizeof *columns), rows = rows_of(t), left = 0;
    for (int c = 0; c < t->columns; c++) {
        for (int r = 0; r < rows; r++) {
            int needed = terminal_width(cell(t, r, c)->text, strlen(cell(t, r, c)->text));
            if (needed > columns[c]) columns[c] = needed;
        }
        if (c < t->left) left += columns[c] + GAP;
    }
    for (int from = t->left, to; from < t->columns || from == t->left; from = to) {
        int used = left - GAP;
        for (to = from; to < t->columns && (to == from || used + GAP + columns[to] <= width); to++)
            used += GAP + columns[to];
        if (from > t->left) buf_puts(out, "\n");
        for (int r = 0; r < rows; r++) put_row(t, columns, r, from, to, out);
        if (to == from) break;
    }
    free(columns);
}

int table_terminal_width(void)
{
    struct winsize size;
    bool terminal = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return terminal ? size.ws_col : TABLE_COLUMNS;
}

static void put_csv(const char *text, Buf *out)
{
    if (!strpbrk(text, ",\"\r\n")) {
        buf_puts(out, text);
        return;
    }
    buf_puts(out, "\"");
    for (; *text; text++) buf_printf(out, *text == '"' ? "\"%c" : "%c", *text);
    buf_puts(out, "\"");
}

void table_csv(const Table *t, bool turned, Buf *out)
{
    int rows = turned ? t->columns : rows_of(t), columns = turned ? rows_of(t) : t->columns;
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < columns; c++) {
            const TableCell *x = turned ? cell(t, c, r) : cell(t, r, c);
            if (c) buf_puts(out, ",");
            put_csv(x->raw ? x->raw : x->text, out);
        }
        buf_puts(out, "\r\n");
    }
}

Status table_write_csv(const Table *t, bool turned, const char *folder, const char *name)
{
    Buf csv = {0};
    table_csv(t, turned, &csv);
    return file_write_text(folder, name, &csv);
}

/* A name breaks behind its underscores. */
static void put_name(const char *name, Buf *out)
{
    Buf part = {0};
    for (const char *at = name; *at; at += part.len) {
        size_t n = strcspn(at, "_");
        part.len = 0;
        buf_append(&part, at, n + (at[n] != '\0'));
        markup_text(out, part.data);
        if (at[part.len]) buf_puts(out, "<wbr/>");
    }
    buf_free(&part);
}

void table_html(const Table *t, Buf *out)
{
    buf_puts(out, "<div class=\"wide-table\"><table>\n");
    for (int r = 0; r < rows_of(t); r++) {
        const char *tag = r ? "td" : "th";
        buf_puts(out, "<tr>");
        for (int c = 0; c < t->columns; c++) {
            buf_printf(out, "<%s%s>", tag, c < t->left ? " class=\"left\"" : "");
            if (r == 0)
                put_name(cell(t, r, c)->text, out);
            else
                markup_text(out, cell(t, r, c)->text);
            buf_printf(out, "</%s>", tag);
        }
        buf_puts(out, "</tr>\n");
    }
    buf_puts(out, "</table></div>\n");
}
