#include "base/fault_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

#define MOST_BYTES ((size_t)1 << 30)

void fault_record_add(FaultRecord *f, int64_t rank, const char *host)
{
    char *name = rank >= 0 ? mem_printf("rank %lld on %s", (long long)rank, host) : mem_printf("host %s", host);
    int k = 0;
    while (k < f->n_places && strcmp(f->places[k].name, name) != 0) k++;
    if (k == f->n_places) {
        MEM_GROW(f->places, f->n_places, f->cap);
        f->places[f->n_places++] = (FaultyPlace){.name = mem_strdup(name)};
    }
    f->places[k].count++;
    f->count++;
    free(name);
}

static bool take_fault(FaultRecord *f, const Json *line)
{
    const char *host = js_string(js_get(line, "host"), "");
    int64_t rank = js_int(js_get(line, "rank"), -2);
    if (!*host || rank < -1) return false;
    fault_record_add(f, rank, host);
    return true;
}

static bool take_launch(FaultRecord *f, const Json *line)
{
    static const char *const keys[] = {"launch_s", "trained_s", "ending_s", "pause_s"};
    double seconds[4];
    for (int i = 0; i < 4; i++) {
        seconds[i] = js_real(js_get(line, keys[i]), NAN);
        if (!(seconds[i] >= 0)) return false;
    }
    f->launch_s += seconds[0];
    f->trained_s += seconds[1];
    f->ending_s += seconds[2];
    f->pause_s += seconds[3];
    f->launches++;
    return true;
}

/* A damaged line is counted, and hinders nothing. */
static Status read_lines(const char *dir, const char *name, FaultRecord *f, bool (*take)(FaultRecord *, const Json *))
{
    Buf text = {0};
    Status status = OK;
    char *path = file_join(dir, name);
    if (file_exists(path)) TRY_DONE(file_read(path, MOST_BYTES, &text));
    for (char *rest = text.data, *line; (line = strsep(&rest, "\n"));) {
        Json *doc = NULL;
        if (!*line) continue;
        if (js_parse(name, line, strlen(line), &doc) != OK || !take(f, doc)) f->damaged++;
        js_free(doc);
    }
done:
    buf_free(&text);
    free(path);
    return status;
}

Status fault_record_read(const char *dir, FaultRecord *f)
{
    *f = (FaultRecord){0};
    TRY(read_lines(dir, "faults.jsonl", f, take_fault));
    return read_lines(dir, "launches.jsonl", f, take_launch);
}

double fault_record_share(const FaultRecord *f) { return f->launch_s > 0 ? fmin(1, f->trained_s / f->launch_s) : NAN; }

static void put_seconds(Buf *out, const char *format, double seconds)
{
    char text[32];
    clock_format_duration(fmax(seconds, 0), text, sizeof text);
    buf_printf(out, format, text);
}

void fault_record_text(const FaultRecord *f, Buf *out)
{
    if (f->count > 0) buf_printf(out, "%d fault%s: ", f->count, f->count == 1 ? "" : "s");
    for (int k = 0; k < f->n_places; k++)
        buf_printf(out, "%s%s (%d)", k ? ", " : "", f->places[k].name, f->places[k].count);
    if (f->count > 0 && f->launches == 0)
        buf_puts(out, ". No `cairn launch` has summed up yet: the share of time is not known");
    if (f->launches > 0) {
        buf_printf(out, "%sffective share of time (ETTR): %.1f %%", f->count ? ". E" : "E",
                   100 * fault_record_share(f));
        put_seconds(out, " of %s", f->launch_s);
        put_seconds(out, ". Lost: %s until all ranks had ended", f->ending_s);
        put_seconds(out, ", %s in pauses", f->pause_s);
        put_seconds(out, ", %s in starts, steps made again and work after the last step",
                    f->launch_s - f->trained_s - f->ending_s - f->pause_s);
    }
    if (f->damaged > 0)
        buf_printf(out, "%s%d damaged line%s left out", out->len ? ". " : "", f->damaged,
                   f->damaged == 1 ? " is" : "s are");
}

void fault_record_free(FaultRecord *f)
{
    for (int k = 0; k < f->n_places; k++) free(f->places[k].name);
    free(f->places);
    *f = (FaultRecord){0};
}
