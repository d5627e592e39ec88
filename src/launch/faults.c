/* The faults of a command: a line each in faults.jsonl of the output folder, and at the command's end a line of
   launches.jsonl, the faults in report.html and a message that sum up. */
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lock.h"
#include "launch/launch_internal.h"
#include "report/report.h"

double faults_trained(const Launch *l)
{
    return l->output_dir ? js_last(l->output_dir, "metrics.jsonl", "trained_s") : 0;
}

/* Appends a line to a file of the output folder, and frees it. A folder that cannot be written is reported elsewhere.
 */
static void append(const Launch *l, const char *name, Buf *line)
{
    char *path = file_join(l->output_dir, name);
    int fd;
    Status status = file_open_regular(path, O_WRONLY | O_CREAT | O_APPEND, &fd);
    if (status == OK) status = file_write_all(fd, path, line->data, line->len);
    if (status != OK && errno == ENOENT) log_debug("%s", status_message()); /* the run has no folder yet */
    if (status != OK && errno != ENOENT) log_warn("%s; a line of it is lost", status_message());
    if (fd >= 0) close(fd);
    buf_free(line);
    free(path);
}

/* A process of another command holds the folder's lock, which no rank of this one ever had. */
static bool used_by_other(const Launch *l) { return !l->state.had_folder && lock_in_use(l->output_dir); }

static void add_fault(Launch *l, const Outcome *o)
{
    Buf line = {0};
    fault_record_add(&l->faults, o->rank, o->host);
    buf_printf(&line, "{\"time\": %.3f, \"start\": %d, \"rank\": %d", clock_wall(), l->state.restarts, o->rank);
    buf_member_text(&line, "host", o->host);
    buf_member_text(&line, "what", o->what);
    buf_printf(&line, ", \"code\": %d}\n", o->code);
    append(l, "faults.jsonl", &line);
}

void faults_add(Launch *l, const Outcome *o)
{
    Outcome also;
    bool fault = o->code == 77 || (launch_is_failure(o->code) && o->code != status_exit_code(E_USAGE));
    if (!fault || (o->rank >= 0 && used_by_other(l))) return; /* a lost host's ranks may hold the lock */
    add_fault(l, o);
    for (int rank = -1; outcome_also(l, &rank, &also);) add_fault(l, &also);
}

static void write_launch(const Launch *l)
{
    const FaultRecord *f = &l->faults;
    Buf line = {0};
    buf_printf(&line, "{\"time\": %.3f", clock_wall());
    buf_member_text(&line, "job", l->job);
    buf_printf(&line, ", \"faults\": %d, \"launch_s\": %.3f, \"trained_s\": %.3f}\n", f->count, f->launch_s,
               f->trained_s);
    append(l, "launches.jsonl", &line);
    /* a run that has ended wrote its page before the line was there */
    if (file_exists_in(l->output_dir, "run.json") && report_write(l->output_dir) != OK)
        log_warn("%s; report.html lacks the share of time", status_message());
}

void faults_end(Launch *l)
{
    FaultRecord *f = &l->faults;
    const char *dir = l->output_dir;
    Buf text = {0};
    f->launches = 1;
    f->launch_s = clock_monotonic() - l->begun;
    if (l->state.had_folder) /* else the steps are another command's */
        f->trained_s = fmin(fmax(0, faults_trained(l) - l->trained_before), f->launch_s);
    if (f->count == 0 && used_by_other(l))
        log_debug("%s is another command's, which sums up itself", dir);
    else if (file_exists_in(dir, "faults.jsonl") || file_exists_in(dir, "launches.jsonl"))
        write_launch(l); /* a run without faults needs no line */
    if (f->count > 0) {
        fault_record_text(f, &text);
        log_info("%s. Each fault is a line in %s/faults.jsonl", text.data, dir);
    }
    buf_free(&text);
    fault_record_free(f);
}
