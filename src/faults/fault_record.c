#include "faults/fault_record.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

void fault_record_add(FaultRecord *f, int64_t rank, const char *host)
{
    char *name = rank >= 0 ? mem_printf("rank %lld on %s", (long long)rank, host)
                 : *host   ? mem_printf("host %s", host)
                           : mem_strdup("an unknown rank");
    int k = 0;
    while (k < f->n_places && strcmp(f->places[k].name, name) != 0) k++;
    if (k == f->n_places) {
        MEM_PUSH(f->places, f->n_places, f->cap, (FaultyPlace){.name = mem_strdup(name)});
    }
    f->places[k].count++;
    f->count++;
    free(name);
}

static bool take_fault(void *record, const Json *line)
{
    const char *host = js_string(js_get(line, "host"), NULL);
    int64_t rank = js_int(js_get(line, "rank"), -2);
    if (!host || rank < -1 || (!*host && rank >= 0)) return false;
    fault_record_add(record, rank, host);
    return true;
}

/* Lines of older versions have more members, and some are of a launcher that was killed. */
static bool take_launch(void *record, const Json *line)
{
    FaultRecord *f = record;
    double launch = js_real(js_get(line, "launch_s"), -1), trained = js_real(js_get(line, "trained_s"), -1);
    if (!(launch >= 0 && trained >= 0)) return false;
    f->launch_s += launch;
    f->trained_s += trained;
    f->launches++;
    return true;
}

Status fault_record_lines(const char *dir, const char *name, bool (*take)(void *context, const Json *line),
                          void *context, int *damaged)
{
    Buf text = {0};
    Status status = OK;
    char *path = file_join(dir, name);
    if (file_exists(path)) TRY_DONE(file_read(path, (size_t)1 << 30, &text));
    for (char *rest = text.data, *line; (line = strsep(&rest, "\n"));) {
        Json *doc = NULL;
        if (!*line) continue;
        if ((js_parse(name, line, strlen(line), &doc) != OK || !take(context, doc)) && damaged) (*damaged)++;
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
    TRY(fault_record_lines(dir, "faults.jsonl", take_fault, f, &f->damaged));
    return fault_record_lines(dir, "launches.jsonl", take_launch, f, &f->damaged);
}

double fault_record_share(const FaultRecord *f) { return f->launch_s > 0 ? fmin(1, f->trained_s / f->launch_s) : NAN; }

void fault_record_text(const FaultRecord *f, Buf *out)
{
    if (f->count > 0) buf_printf(out, "%d fault%s: ", f->count, f->count == 1 ? "" : "s");
    for (int k = 0; k < f->n_places; k++)
        buf_printf(out, "%s%s (%d)", k ? ", " : "", f->places[k].name, f->places[k].count);
    if (f->count > 0 && f->launches == 0)
        buf_puts(out, ". No `cairn launch` has summed up yet: the share of time is not known");
    if (f->launches > 0)
        buf_printf(out, "%sffective share of time (ETTR): %.1f %% of %s", f->count ? ". E" : "E",
                   100 * fault_record_share(f), CLOCK_DURATION(f->launch_s));
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
