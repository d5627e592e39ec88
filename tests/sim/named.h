/* Hard cases of the control plane, most of them once a fault of a release: what happens, and what has to become of it.
 */
#pragma once

typedef struct {
    const char *name;     /* NULL: the last */
    const char *schedule; /* see schedule_parse */
    const char *story;    /* a pattern (fnmatch) of the saves of survivors, the outcome of each start, and the end */
} NamedSchedule;

extern const NamedSchedule named_schedules[];
