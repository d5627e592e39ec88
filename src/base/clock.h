/* Time. Monotonic for durations and time-based saves; wall clock only for logs. */
#pragma once

#include "base/status.h"

double clock_monotonic(void); /* seconds since an arbitrary fixed point */
/* Seconds for which this process was suspended, if it was to wake at `due` (clock_monotonic). 0: it was only late. */
double clock_suspended(double due);
double clock_wall(void);                /* seconds since 1970 */
double clock_thread(void);              /* seconds on a processor of the calling thread */
void clock_iso(char *out, size_t size); /* UTC, "2026-11-21T03:40:36Z": 21 bytes */

#define CLOCK_MAX_DURATION (36500.0 * 86400.0)

/* "90", "90s", "100ms", "20m", "1.5h", "2d", or as Slurm writes it: "59:30" (minutes:seconds), "02:03:04",
   "1-02:03:04", "1-02", "1-02:03" → seconds, 0 to CLOCK_MAX_DURATION. Anything else is E_USAGE, and *seconds stays. */
Status clock_parse_duration(const char *text, double *seconds);
/* "3s", "2m 03s", "1h 02m 03s", "1d 02h 03m 04s", rounded to seconds; "?" for negative and non-finite values. 32
   bytes suffice. Returns `out`. CLOCK_DURATION lasts as SHORT_TEXT does (base/mem.h). */
const char *clock_format_duration(double seconds, char *out, size_t size);
#define CLOCK_DURATION(seconds) clock_format_duration(seconds, (char[32]){""}, 32)
