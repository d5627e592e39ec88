/* Tables of texts and figures: for a terminal, as CSV, as HTML. The first row is the header. */
#pragma once

#include "base/base.h"

typedef struct {
    char *text; /* for people */
    char *raw;  /* for CSV; NULL: the text */
} TableCell;

typedef struct {
    TableCell *cells; /* (count) row by row */
    int columns, count, cap;
    int left; /* columns that are aligned left, the first of all */
} Table;

void table_init(Table *t, int columns, int left);
void table_free(Table *t); /* takes a zeroed one */
/* The next cell. */
void table_text(Table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A figure: in `format` for people, in full for CSV; NaN is "–" and an empty CSV cell. */
void table_figure(Table *t, const char *format, double value);

#define TABLE_COLUMNS 100 /* where there is no terminal */
/* At most `width` columns of a terminal where that is possible: what is wider follows below, with the left columns
   again. */
int table_terminal_width(void); /* of standard output, else TABLE_COLUMNS */
void table_print(const Table *t, int width, Buf *out);
/* RFC 4180. `turned`: rows are columns. */
void table_csv(const Table *t, bool turned, Buf *out);
Status table_write_csv(const Table *t, bool turned, const char *folder, const char *name); /* as file_write_text */
void table_html(const Table *t, Buf *out);
