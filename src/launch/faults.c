/* The faults of a job: a line each in faults.jsonl of the output folder, and a summary at the job's end, which is a
   line of launches.jsonl. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "launch/launch_internal.h"

/* Seconds of training that count, by the last line of metrics.jsonl: steps that are made again count once. 0: none. */
static double trained(const char *dir)
{
    enum { TAIL = 1 << 16 }; /* longer than a line */
    static const char key[] = "\"trained_s\": ";
    char *path = file_join(dir, "metrics.jsonl"), *text = mem_alloc(TAIL + 1);
    double seconds = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (size > 0 && pread(fd, text, TAIL, size > TAIL ? size - TAIL : 0) > 0)
        for (const char *at = text; (at = strstr(at, key));) seconds = strtod(at += sizeof key - 1, NULL);
    if (fd >= 0) close(fd);
    free(path);
    free(text);
    return seconds;
}

void faults_begin(Launch *l) { l->faults.trained_before = l->faults.trained = trained(l->output_dir); }

void faults_end_start(Launch *l)
{
    double now = l->output_dir ? trained(l->output_dir) : 0;
    l->faults.fruitless = now > l->faults.trained ? 0 : l->faults.fruitless + 1;
    l->faults.trained = now;
}

/* Appends the line. A folder that cannot be written is reported by the ranks. */
static void append(const Launch *l, const char *name, Buf *line)
{
    char *path = file_join(l->output_dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || file_write_all(fd, path, line->data, line->len) != OK) log_debug("%s: not written", path);
    if (fd >= 0) close(fd);
    buf_free(line);
    free(path);
}

static void write_fault(const Launch *l, const Outcome *o, double ending)
{
    Buf line = {0};
    buf_printf(&line, "{\"time\": %.3f, \"start\": %d, \"rank\": %d, \"host\": ", clock_wall(), l->restarts, o->rank);
    buf_json(&line, o->host);
    buf_puts(&line, ", \"what\": ");
    buf_json(&line, o->what);
    buf_printf(&line, ", \"code\": %d, \"ending_s\": %.3f}\n", o->code, ending);
    append(l, "faults.jsonl", &line);
}

/* Sums up a run that has had faults, in this command or before. */
static void write_launch(const Launch *l, const FaultRecord *f)
{
    char *path = file_join(l->output_dir, "faults.jsonl");
    Buf line = {0};
    bool any = file_exists(path);
    free(path);
    if (!any) return;
    buf_printf(&line,
               "{\"time\": %.3f, \"faults\": %d, \"launch_s\": %.3f, \"trained_s\": %.3f, \"ending_s\": %.3f, "
               "\"pause_s\": %.3f}\n",
               clock_wall(), f->count, f->launch_s, f->trained_s, f->ending_s, f->pause_s);
    append(l, "launches.jsonl", &line);
}

void faults_add(Launch *l, const Outcome *o)
{
    double found = fmin(l->failed_at, l->lost_at), now = clock_monotonic();
    double ending = found < now ? now - found : 0;
    bool fault = o->code == 77 || (outcome_is_failure(o->code) && o->code != status_exit_code(E_USAGE));
    if (!fault) return;
    l->faults.record.ending_s += ending;
    fault_record_add(&l->faults.record, o->rank, o->host);
    write_fault(l, o, ending);
}

void faults_end(Launch *l)
{
    FaultRecord *f = &l->faults.record;
    Buf text = {0};
    f->launches = 1;
    f->launch_s = clock_monotonic() - l->begun;
    f->trained_s = fmin(fmax(0, trained(l->output_dir) - l->faults.trained_before), f->launch_s);
    write_launch(l, f);
    if (f->count > 0) {
        fault_record_text(f, &text);
        log_info("%s. Each fault is a line in %s/faults.jsonl", text.data, l->output_dir);
    }
    buf_free(&text);
    fault_record_free(f);
}
