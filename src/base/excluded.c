#include "base/excluded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* A line of a later version, or half a line, is no place. */
static bool parse_place(const char *line, ExcludedPlace *place)
{
    Json *doc = NULL;
    if (js_parse(EXCLUDED_LINES, line, strlen(line), &doc) != OK) return false;
    bool excluded = js_bool(js_get(doc, "excluded"), false);
    snprintf(place->host, sizeof place->host, "%s", js_string(js_get(doc, "host"), ""));
    place->local_rank = js_int(js_get(doc, "local_rank"), -1);
    js_free(doc);
    return excluded;
}

Status excluded_read(const char *dir, ExcludedPlace **places, int *n)
{
    Buf text = {0};
    int cap = 0;
    *places = NULL;
    *n = 0;
    if (!file_exists_in(dir, EXCLUDED_REPORT) || !file_exists_in(dir, EXCLUDED_LINES)) return OK;
    char *path = file_join(dir, EXCLUDED_LINES);
    Status status = file_read(path, (size_t)1 << 30, &text);
    char *rest = status == OK ? text.data : NULL, *line;
    while (rest && (line = strsep(&rest, "\n"))) {
        ExcludedPlace place;
        if (strncmp(line, EXCLUDED_REPAIRED, strlen(EXCLUDED_REPAIRED) - 1) == 0) *n = 0;
        if (!*line || !parse_place(line, &place)) continue;
        MEM_PUSH(*places, *n, cap, place);
    }
    buf_free(&text);
    free(path);
    return status;
}
