/* Progress of a stage of preparation, or of an evaluation, on stderr: a live line on a terminal, else a line every 30
 * s. */
#pragma once

#include "base/std.h"

typedef struct {
    bool live;
    double started, last, first_done;
    char line[256];
} StageProgress;

void stage_progress_open(StageProgress *p);
/* `done` is a fraction, NaN where nobody knows it; `what` is text before the time left: "1234 articles, 12 MB of text".
   Call it when a line is due. */
bool stage_progress_due(StageProgress *p);
void stage_progress_show(StageProgress *p, double done, const char *what);
void stage_progress_close(StageProgress *p); /* takes a zeroed one */

/* "1.5 GB", decimal, as disks are sold. Returns `out`. STAGE_BYTES lasts as SHORT_TEXT does (base/mem.h). */
const char *stage_format_bytes(double bytes, char out[24]);
#define STAGE_BYTES(bytes) stage_format_bytes(bytes, (char[24]){""})
