#include "faults/excluded.h"

#include "base/base.h"
#include "faults/fault_record.h"

typedef struct {
    bool damaged; /* the last difference's places alone */
    double last;
    ExcludedPlace *places; // (n)
    int n, cap;
} Places;

/* A line of a later version is no place. */
static bool take_line(void *context, const Json *line)
{
    Places *p = context;
    double time = js_real(js_get(line, "time"), 0);
    if (p->damaged ? time != p->last : js_bool(js_get(line, "repaired"), false)) p->n = 0;
    p->last = time;
    if (p->damaged ? js_get(line, "changed") || js_get(line, "weights") : js_bool(js_get(line, "excluded"), false)) {
        ExcludedPlace place = {.local_rank = js_int(js_get(line, "local_rank"), -1)};
        snprintf(place.host, sizeof place.host, "%s", js_string(js_get(line, "host"), ""));
        MEM_PUSH(p->places, p->n, p->cap, place);
    }
    return true;
}

Status excluded_read(const char *dir, bool damaged, ExcludedPlace **places, int *n)
{
    Places p = {.damaged = damaged};
    bool any = damaged || file_exists_in(dir, EXCLUDED_REPORT);
    Status status = any ? fault_record_lines(dir, EXCLUDED_LINES, take_line, &p, NULL) : OK;
    *places = p.places;
    *n = p.n;
    return status;
}
