#include "faults/excluded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* `keep` chooses lines by its answer, and empties the list (*n) by itself. A line of a later version, or half a line,
   is no place. */
static Status read_places(const char *dir, bool (*keep)(const Json *line, void *context, int *n), void *context,
                          ExcludedPlace **places, int *n)
{
    Buf text = {0};
    int cap = 0;
    *places = NULL;
    *n = 0;
    if (!file_exists_in(dir, EXCLUDED_LINES)) return OK;
    char *path = file_join(dir, EXCLUDED_LINES);
    Status status = file_read(path, (size_t)1 << 30, &text);
    char *rest = status == OK ? text.data : NULL, *line;
    while (rest && (line = strsep(&rest, "\n"))) {
        Json *doc = NULL;
        if (!*line || js_parse(EXCLUDED_LINES, line, strlen(line), &doc) != OK) continue;
        if (keep(doc, context, n)) {
            ExcludedPlace place = {.local_rank = js_int(js_get(doc, "local_rank"), -1)};
            snprintf(place.host, sizeof place.host, "%s", js_string(js_get(doc, "host"), ""));
            MEM_PUSH(*places, *n, cap, place);
        }
        js_free(doc);
    }
    buf_free(&text);
    free(path);
    return status;
}

static bool is_excluded(const Json *line, void *context, int *n)
{
    (void)context;
    if (js_bool(js_get(line, "repaired"), false)) *n = 0;
    return js_bool(js_get(line, "excluded"), false);
}

Status excluded_read(const char *dir, ExcludedPlace **places, int *n)
{
    if (file_exists_in(dir, EXCLUDED_REPORT)) return read_places(dir, is_excluded, NULL, places, n);
    *places = NULL;
    *n = 0;
    return OK;
}

static bool is_damaged(const Json *line, void *context, int *n)
{
    double *last = context, time = js_real(js_get(line, "time"), 0);
    if (time != *last) *n = 0;
    *last = time;
    return js_get(line, "changed") || js_get(line, "weights");
}

Status excluded_damaged(const char *dir, ExcludedPlace **places, int *n)
{
    double last = 0;
    return read_places(dir, is_damaged, &last, places, n);
}
