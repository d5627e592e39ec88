/* Places that --audit excluded from a run (docs/reproducibility.md): the run refuses them at its start, and the
   launcher starts nothing more on their hosts. Its output folder has a report for people, and lines of JSON. */
#pragma once

#include "base/status.h"

#define EXCLUDED_REPORT "audit-report.txt" /* without it no place is excluded */
#define EXCLUDED_LINES  "audit.jsonl"
/* In the lines: what stands before was excluded by a report that was removed. */
#define EXCLUDED_REPAIRED "{\"repaired\": true}\n"

typedef struct {
    char host[80]; /* as gethostname returns it */
    long long local_rank;
} ExcludedPlace;

/* The places that the run in folder `dir` excluded; *n is 0 without a report. Or those whose memory the last difference
   found `damaged`: the last lines of one time; *n is 0 where it found none. The caller frees *places. E_IO. */
Status excluded_read(const char *dir, bool damaged, ExcludedPlace **places, int *n);
