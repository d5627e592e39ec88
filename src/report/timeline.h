/* What a run wrote into profile/, for report.html: of --profile the ops that took longest and a picture of one step;
   the timeline of a pipeline. */
#ifndef CAIRN_REPORT_TIMELINE_H
#define CAIRN_REPORT_TIMELINE_H

#include <stdbool.h>

#include "base/base.h"

/* The first profiled step of a trace (docs/files.md, `profile/`): a row per lane, a bar per instr, coloured by phase.
   Neighbours of a phase that are too narrow to tell apart are one bar. False: the trace holds no step. */
bool timeline_svg(const Json *trace, int width, Buf *out);
/* The section of the page. Nothing where there is no profile, or one that cannot be read. */
void timeline_page(const char *output_dir, Buf *out);

#endif
