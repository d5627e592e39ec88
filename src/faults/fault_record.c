#include "faults/fault_record.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

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

/* The line of an older version, or of a killed launcher, has some of the seconds alone. */
static bool take_launch(void *record, const Json *line)
{
    FaultRecord *f = record;
    FaultSeconds x, *sum = &f->seconds;
    bool good = js_get(line, "launch_s") && js_get(line, "trained_s");
#define X(name)                                                                                                        \
    x.name = js_real(js_get(line, #name), 0);                                                                          \
    good = good && x.name >= 0;
    FAULT_SECONDS_LIST(X)
#undef X
    if (!good) return false;
#define X(name) sum->name += x.name;
    FAULT_SECONDS_LIST(X)
#undef X
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

double fault_record_share(const FaultRecord *f)
{
    const FaultSeconds *x = &f->seconds;
    return x->launch_s > 0 ? fmin(1, x->trained_s / x->launch_s) : NAN;
}

static void put_seconds(Buf *out, const char *format, double seconds)
{
    char text[32];
    clock_format_duration(fmax(seconds, 0), text, sizeof text);
    buf_printf(out, format, text);
}

static void put_losses(const FaultSeconds *x, Buf *out)
{
    double named = x->trained_s + x->notice_s + x->ending_s + x->pause_s + x->start_s + x->again_s;
    put_seconds(out, " of %s", x->launch_s);
    put_seconds(out, ". Lost: %s until faults were noticed", x->notice_s);
    put_seconds(out, ", %s until all ranks had ended", x->ending_s);
    put_seconds(out, ", %s in pauses", x->pause_s);
    put_seconds(out, ", %s in starts", x->start_s);
    put_seconds(out, ", %s in steps made again", x->again_s);
    put_seconds(out, ", %s in agents and work after the last step", x->launch_s - named);
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
        put_losses(&f->seconds, out);
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

void fault_record_append(const char *dir, const char *name, Buf *line)
{
    char *path = file_join(dir, name);
    int fd;
    Status status = file_open_regular(path, O_WRONLY | O_CREAT | O_APPEND, &fd);
    if (status == OK) status = file_write_all(fd, path, line->data, line->len);
    if (status != OK && errno == ENOENT) log_debug("%s", status_message()); /* the run has no folder yet */
    if (status != OK && errno != ENOENT) log_warn("%s; a line of it is lost", status_message());
    if (fd >= 0) close(fd);
    buf_free(line);
    free(path);
}

/* ---- starts.jsonl ---- */

void fault_record_start(const char *dir, const StartRecord *s)
{
    Buf line = {0};
    buf_printf(&line, "{\"time\": %.3f, \"job\": ", s->time);
    buf_json(&line, s->job);
    buf_printf(&line, ", \"step\": %lld, \"trained_s\": %.3f, \"start_s\": %.3f, \"again_s\": %.3f}\n",
               (long long)s->step, s->trained_s, s->start_s, s->again_s);
    fault_record_append(dir, "starts.jsonl", &line);
}

void fault_record_ended(const char *dir, const char *job)
{
    Buf line = {0};
    buf_puts(&line, "{\"job\": ");
    buf_json(&line, job);
    buf_puts(&line, ", \"ended\": true}\n");
    fault_record_append(dir, "starts.jsonl", &line);
}

/* Reads the lines for a launcher, which needs neither the file nor a damaged line. */
static void look_through(const char *dir, const char *name, bool (*take)(void *, const Json *), void *context)
{
    if (fault_record_lines(dir, name, take, context, NULL) != OK) log_debug("%s", status_message());
}

static bool is_of(const Json *line, const char *job) { return strcmp(js_string(js_get(line, "job"), ""), job) == 0; }

typedef struct {
    const char *job;
    StartSums sums;
} Starts;

static bool take_start(void *context, const Json *line)
{
    Starts *s = context;
    double start = js_real(js_get(line, "start_s"), 0);
    if (js_get(line, "ended") || !is_of(line, s->job)) return true;
    s->sums.last = js_real(js_get(line, "time"), 0);
    s->sums.step = js_int(js_get(line, "step"), 0);
    if (s->sums.count++ == 0) {
        s->sums.begun = s->sums.last - start;
        s->sums.trained_s = js_real(js_get(line, "trained_s"), 0);
    }
    s->sums.start_s += start;
    s->sums.again_s += js_real(js_get(line, "again_s"), 0);
    return true;
}

StartSums fault_record_starts(const char *dir, const char *job)
{
    Starts s = {.job = job};
    look_through(dir, "starts.jsonl", take_start, &s);
    return s.sums;
}

typedef struct {
    const char *job;
    bool found;
} Sum;

static bool find_sum(void *context, const Json *line)
{
    Sum *s = context;
    bool sum = js_get(line, "ended") || js_get(line, "launch_s");
    s->found = s->found || (sum && is_of(line, s->job));
    return true;
}

bool fault_record_summed(const char *dir, const char *job)
{
    Sum s = {.job = job};
    look_through(dir, "starts.jsonl", find_sum, &s);
    look_through(dir, "launches.jsonl", find_sum, &s);
    return s.found;
}

static bool take_last_job(void *job, const Json *line)
{
    if (js_get(line, "ended")) return true;
    free(*(char **)job);
    *(char **)job = mem_strdup(js_string(js_get(line, "job"), ""));
    return true;
}

char *fault_record_unsummed(const char *dir)
{
    char *job = NULL;
    look_through(dir, "starts.jsonl", take_last_job, &job);
    if (!job || !fault_record_summed(dir, job)) return job;
    free(job);
    return NULL;
}
