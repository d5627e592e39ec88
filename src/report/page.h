/* Pages of HTML that fetch nothing: light and dark as the reader's system asks, for screens of 400 pixels and more. */
#pragma once

#include "report/report.h"

#define PAGE_NARROW 400 /* pixels of a picture for narrow screens */

void page_begin(Buf *out, const char *title, const char *subtitle);
void page_end(Buf *out);
void page_title(Buf *out, const char *title); /* of a section */
void page_lines(Buf *out, const char *lines); /* a paragraph that keeps the lines of a text */
/* A row of a table of names and values, between page_rows_begin and page_rows_end. */
void page_rows_begin(Buf *out, const char *title);
void page_rows_end(Buf *out);
void page_row(Buf *out, const char *name, const char *value);
void page_figure(Buf *out, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
void page_bytes(Buf *out, const char *name, double bytes); /* as MiB, small ones as KiB */
/* What a run wrote into profile/ (timeline.c): of --profile the ops that took longest and a picture of one step; the
   timeline of a pipeline. Nothing where there is no profile, or one that cannot be read. */
void page_profile(const char *output_dir, Buf *out);
/* The first profiled step of a trace (docs/files.md, `profile/`): a row per lane, a bar per instr, coloured by phase.
   Neighbours of a phase that are too narrow to tell apart are one bar. False: the trace holds no step. */
bool timeline_svg(const Json *trace, int width, Buf *out);
/* The chart in two widths, of which the screen's is shown. */
void page_chart(Buf *out, const Chart *chart);
/* Also writes it as a file of the folder; both have the line `about` below the title. */
Status page_chart_file(Buf *out, const Chart *chart, const char *about, const char *folder, const char *name);
