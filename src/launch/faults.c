/* The faults of a job: a line each in faults.jsonl of the output folder, and a summary at the job's end, which is a
   line of launches.jsonl. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lock.h"
#include "launch/launch_internal.h"

/* The number behind `key` in the last line of metrics.jsonl. 0: there is none. */
static double last_number(const char *dir, const char *key)
{
    enum { TAIL = 1 << 16 }; /* longer than a line */
    char *path = file_join(dir, "metrics.jsonl"), *text = mem_alloc(TAIL + 1);
    double number = 0;
    int fd = file_open(path, O_RDONLY);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    if (size > 0 && pread(fd, text, TAIL, size > TAIL ? size - TAIL : 0) > 0)
        for (const char *at = text; (at = strstr(at, key));) number = strtod(at += strlen(key), NULL);
    if (fd >= 0) close(fd);
    MEM_FREE(path, text);
    return number;
}

static double trained(const char *dir) { return last_number(dir, "\"trained_s\": "); }

double faults_trained(const Launch *l) { return l->output_dir ? trained(l->output_dir) : 0; }

/* `ending` NULL: the line of another fault of the start has it. */
static void write_fault(const Launch *l, const Outcome *o, const double *ending)
{
    Buf line = {0};
    buf_printf(&line, "{\"time\": %.3f, \"start\": %d, \"rank\": %d, \"host\": ", clock_wall(), l->state.restarts,
               o->rank);
    buf_json(&line, o->host);
    buf_puts(&line, ", \"what\": ");
    buf_json(&line, o->what);
    buf_printf(&line, ", \"code\": %d", o->code);
    if (ending) buf_printf(&line, ", \"ending_s\": %.3f", *ending);
    buf_puts(&line, "}\n");
    fault_record_append(l->output_dir, "faults.jsonl", &line);
}

static void add_fault(Launch *l, const Outcome *o, const double *ending)
{
    fault_record_add(&l->faults.record, o->rank, o->host);
    write_fault(l, o, ending);
}

/* A process of another command holds the folder's lock, which no rank of this one ever had. */
static bool used_by_other(const Launch *l, const StartSums *starts)
{
    return starts->count == 0 && lock_in_use(l->output_dir);
}

/* Seconds since 1970 of the last step's line, or of the start that opened the file; 0: there is none. */
static double last_step_time(const char *dir)
{
    char *path = file_join(dir, "metrics.jsonl");
    struct stat info;
    bool there = stat(path, &info) == 0;
    free(path);
    return there ? (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec : 0;
}

/* `faults` −1: not known. */
static void write_launch(const char *dir, const char *job, double time, int faults, const FaultSeconds *x)
{
    Buf line = {0};
    buf_printf(&line, "{\"time\": %.3f, \"job\": ", time);
    buf_json(&line, job);
    if (faults < 0) buf_puts(&line, ", \"killed\": true");
    if (faults >= 0) buf_printf(&line, ", \"faults\": %d", faults);
#define X(name) buf_printf(&line, ", \"" #name "\": %.3f", x->name);
    FAULT_SECONDS_LIST(X)
#undef X
    buf_puts(&line, "}\n");
    fault_record_append(dir, "launches.jsonl", &line);
}

/* Sums up the last command where its launcher was killed or still runs, until its last step or start. */
static void sum_up_last(Launch *l)
{
    const char *dir = l->output_dir;
    KilledLaunch *last = &l->faults.last;
    last->job = fault_record_unsummed(dir);
    if (!last->job) return;
    StartSums starts = fault_record_starts(dir, last->job);
    last->end = fmax(last_step_time(dir), starts.last);
    last->seconds = (FaultSeconds){.launch_s = fmax(0, last->end - starts.begun),
                                   .trained_s = fmax(0, trained(dir) - starts.trained_s),
                                   .start_s = starts.start_s,
                                   .again_s = starts.again_s};
}

static void drop_last(KilledLaunch *last)
{
    free(last->job);
    *last = (KilledLaunch){0};
}

void faults_turn(Launch *l)
{
    KilledLaunch *last = &l->faults.last;
    if (!last->job || fault_record_starts(l->output_dir, l->job).count == 0) return;
    if (!fault_record_summed(l->output_dir, last->job))
        write_launch(l->output_dir, last->job, last->end, -1, &last->seconds);
    drop_last(last);
}

void faults_begin(Launch *l)
{
    sum_up_last(l);
    l->faults.trained_before = l->state.trained = trained(l->output_dir);
}

void faults_add(Launch *l, const Outcome *o)
{
    double found = fmin(l->state.failed_at, l->state.lost_at), now = clock_monotonic();
    double ending = found < now ? now - found : 0;
    bool fault = o->code == 77 || (launch_is_failure(o->code) && o->code != status_exit_code(E_USAGE));
    if (!fault) return;
    FaultSeconds *x = &l->faults.record.seconds;
    StartSums starts = fault_record_starts(l->output_dir, l->job);
    bool stepped = starts.count > l->faults.starts && last_number(l->output_dir, "{\"step\": ") > (double)starts.step;
    if (o->rank >= 0 && used_by_other(l, &starts)) return; /* ranks of a lost host may use it, too */
    if (stepped) x->notice_s += fmax(0, clock_wall() - ending - last_step_time(l->output_dir));
    x->ending_s += ending;
    add_fault(l, o, &ending);
    Outcome also;
    for (int rank = -1; outcome_also(l, &rank, &also);) add_fault(l, &also, NULL);
}

/* A run without faults needs no lines of launches.jsonl. */
static bool has_faults(const char *dir)
{
    char *faults = file_join(dir, "faults.jsonl"), *launches = file_join(dir, "launches.jsonl");
    bool any = file_exists(faults) || file_exists(launches);
    MEM_FREE(faults, launches);
    return any;
}

void faults_end(Launch *l)
{
    FaultRecord *f = &l->faults.record;
    FaultSeconds *x = &f->seconds;
    Buf text = {0};
    StartSums starts = fault_record_starts(l->output_dir, l->job);
    f->launches = 1;
    x->launch_s = clock_monotonic() - l->begun;
    if (starts.count > 0) /* else the steps are another command's */
        x->trained_s = fmin(fmax(0, trained(l->output_dir) - l->faults.trained_before), x->launch_s);
    x->start_s = starts.start_s;
    x->again_s = starts.again_s;
    bool summed = fault_record_summed(l->output_dir, l->job); /* by one that began between two starts */
    if (f->count == 0 && used_by_other(l, &starts))
        log_debug("%s is another command's, which sums up itself", l->output_dir);
    else if (!summed && has_faults(l->output_dir))
        write_launch(l->output_dir, l->job, clock_wall(), f->count, x);
    else if (!summed && starts.count > 0)
        fault_record_ended(l->output_dir, l->job);
    if (f->count > 0) {
        fault_record_text(f, &text);
        log_info("%s. Each fault is a line in %s/faults.jsonl", text.data, l->output_dir);
    }
    buf_free(&text);
    fault_record_free(f);
    drop_last(&l->faults.last);
}
