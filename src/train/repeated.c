#include "train/repeated.h"

#include "base/file.h"
#include "base/json.h"

#define TIMES     3
#define FILE_NAME "not_finite.json"

typedef struct {
    int64_t at, from, times;
} Record;

static Record read_record(const char *dir)
{
    Record r = {0};
    Json *doc = NULL;
    if (js_read_in(dir, FILE_NAME, &doc))
        r = (Record){js_int(js_get(doc, "step"), 0), js_int(js_get(doc, "resumed"), 0),
                     js_int(js_get(doc, "times"), 0)};
    js_free(doc);
    return r;
}

void repeated_record(const char *output_dir, int64_t from, int64_t at)
{
    Record r = read_record(output_dir);
    Buf text = {0};
    buf_printf(&text, "{\"step\": %lld, \"resumed\": %lld, \"times\": %lld}\n", (long long)at, (long long)from,
               (long long)(r.at == at ? r.times + 1 : 1));
    if (file_write_text(output_dir, FILE_NAME, &text) != OK) log_warn("%s", status_message());
}

void repeated_suspects(const char *output_dir, Suspects *s)
{
    Record r = read_record(output_dir);
    *s = (Suspects){0};
    if (r.times >= TIMES && r.from < r.at) {
        *s = (Suspects){r.from, r.at};
        log_warn("training ended %lld times because a value was not finite at step %lld, the last time from the state "
                 "of step %lld, which may be damaged; the state before it is taken, if there is one (--override takes "
                 "the newest with other flags, --resume FOLDER any)",
                 (long long)r.times, (long long)r.at, (long long)r.from);
    }
}
