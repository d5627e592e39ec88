#include "train/keep/suspects.h"

#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

#define TIMES      3
#define NOT_FINITE "not_finite.json"
#define DAMAGED    "damaged.json"

typedef struct {
    int64_t at, from, times;
} NotFinite;

static NotFinite read_not_finite(const char *dir)
{
    NotFinite r = {0};
    Json *doc = NULL;
    if (js_read_in(dir, NOT_FINITE, &doc))
        r = (NotFinite){js_int(js_get(doc, "step"), 0), js_int(js_get(doc, "resumed"), 0),
                        js_int(js_get(doc, "times"), 0)};
    js_free(doc);
    return r;
}

void suspects_not_finite(const char *output_dir, int64_t from, int64_t at)
{
    NotFinite r = read_not_finite(output_dir);
    Buf text = {0};
    buf_printf(&text, "{\"step\": %lld, \"resumed\": %lld, \"times\": %lld}\n", (long long)at, (long long)from,
               (long long)(r.at == at ? r.times + 1 : 1));
    if (file_write_text(output_dir, NOT_FINITE, &text) != OK) log_warn("%s", status_message());
}

Status suspects_damaged(const char *output_dir, int64_t from, int64_t to)
{
    Buf text = {0};
    buf_printf(&text, "{\"from\": %lld, \"before\": %lld}\n", (long long)from, (long long)to);
    return file_write_text(output_dir, DAMAGED, &text);
}

bool suspects_find_damaged(const char *output_dir, Suspects *s)
{
    Json *doc = NULL;
    *s = (Suspects){0};
    if (js_read_in(output_dir, DAMAGED, &doc))
        *s = (Suspects){js_int(js_get(doc, "from"), 0), js_int(js_get(doc, "before"), 0)};
    js_free(doc);
    return s->to > s->from;
}

Status suspects_forget_damaged(const char *output_dir)
{
    char *path = file_join(output_dir, DAMAGED);
    Status status = unlink(path) == 0 ? file_sync_directory(output_dir) : fail(E_IO, "%s: cannot remove: %m", path);
    free(path);
    return status;
}

void suspects_read(const char *output_dir, Suspects *s)
{
    NotFinite r = read_not_finite(output_dir);
    *s = (Suspects){0};
    if (r.times < TIMES || r.from >= r.at) return;
    *s = (Suspects){r.from, r.at};
    log_warn("training ended %lld times because a value was not finite at step %lld, the last time from the state "
             "of step %lld, which may be damaged; the state before it is taken, if there is one (--override takes "
             "the newest with other flags, --resume FOLDER any)",
             (long long)r.times, (long long)r.at, (long long)r.from);
}
