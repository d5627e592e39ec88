/* Pages of HTML that fetch nothing: light and dark as the reader's system asks, for screens of 400 pixels and more. */
#ifndef CAIRN_REPORT_PAGE_H
#define CAIRN_REPORT_PAGE_H

#include "report/report.h"

#define PAGE_NARROW 400 /* pixels of a picture for narrow screens */

void page_begin(Buf *out, const char *title, const char *subtitle);
void page_end(Buf *out);
/* A row of a table of names and values, between page_rows_begin and page_rows_end. */
void page_rows_begin(Buf *out, const char *title);
void page_rows_end(Buf *out);
void page_row(Buf *out, const char *name, const char *value);
void page_figure(Buf *out, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
void page_bytes(Buf *out, const char *name, double bytes); /* as MiB, small ones as KiB */
/* The chart in two widths, of which the screen's is shown. */
void page_chart(Buf *out, const Chart *chart);

#endif
