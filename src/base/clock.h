/* Time. Monotonic for durations and time-based saves; wall clock only for logs. */
#ifndef CAIRN_BASE_CLOCK_H
#define CAIRN_BASE_CLOCK_H

#include <stddef.h>

#include "base/status.h"

double clock_monotonic(void);             /* seconds since some fixed point */
double clock_wall(void);                  /* seconds since 1970 */
void clock_iso(char *out, size_t size);   /* "2026-11-21T03:40:36Z" */
/* "90", "90s", "20m", "1.5h", "1-02:03:04" or "02:03:04" (as Slurm writes it) → seconds. */
Status clock_parse_duration(const char *text, double *seconds);
void clock_format_duration(double seconds, char *out, size_t size); /* "1h 02m 03s" */

#endif
