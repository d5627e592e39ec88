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
static void write_launch(const Launch *l, double seconds, double useful)
{
    char *path = file_join(l->output_dir, "faults.jsonl");
    Buf line = {0};
    bool any = file_exists(path);
    free(path);
    if (!any) return;
    buf_printf(&line,
               "{\"time\": %.3f, \"faults\": %d, \"launch_s\": %.3f, \"trained_s\": %.3f, \"ending_s\": %.3f, "
               "\"pause_s\": %.3f}\n",
               clock_wall(), l->faults.count, seconds, useful, l->faults.ending_s, l->faults.pause_s);
    append(l, "launches.jsonl", &line);
}

void faults_add(Launch *l, const Outcome *o)
{
    Faults *all = &l->faults;
    double found = fmin(l->failed_at, l->lost_at), now = clock_monotonic();
    double ending = found < now ? now - found : 0;
    bool fault = o->code == 77 || (outcome_is_failure(o->code) && o->code != status_exit_code(E_USAGE));
    if (!fault) return;
    all->ending_s += ending;
    all->count++;
    write_fault(l, o, ending);
    char *name = o->rank >= 0 ? mem_printf("rank %d on %s", o->rank, o->host) : mem_printf("host %s", o->host);
    int k = 0;
    while (k < all->n && strcmp(all->list[k].name, name) != 0) k++;
    if (k == all->n) {
        MEM_GROW(all->list, all->n, all->cap);
        all->list[all->n++] = (Blamed){.name = mem_strdup(name)};
    }
    all->list[k].count++;
    free(name);
}

void faults_end(Launch *l)
{
    Faults *all = &l->faults;
    double seconds = clock_monotonic() - l->begun, trained_s = trained(l->output_dir);
    double useful = fmin(fmax(0, trained_s - all->trained_before), seconds);
    char whole[32], ending[32], pause[32], rest[32];
    Buf blamed = {0};
    write_launch(l, seconds, useful);
    if (all->count > 0) {
        clock_format_duration(seconds, whole, sizeof whole);
        clock_format_duration(all->ending_s, ending, sizeof ending);
        clock_format_duration(all->pause_s, pause, sizeof pause);
        clock_format_duration(fmax(0, seconds - useful - all->ending_s - all->pause_s), rest, sizeof rest);
        for (int k = 0; k < all->n; k++)
            buf_printf(&blamed, "%s%s (%d)", k ? ", " : "", all->list[k].name, all->list[k].count);
        log_info("%d fault%s in %s: %s. Effective share of time (ETTR): %.1f %%. Lost: %s until all ranks had ended, "
                 "%s in pauses, %s in starts, steps made again and work after the last step. Each fault is a line in "
                 "%s/faults.jsonl",
                 all->count, all->count == 1 ? "" : "s", whole, blamed.data, seconds > 0 ? 100 * useful / seconds : 0,
                 ending, pause, rest, l->output_dir);
    }
    buf_free(&blamed);
    for (int k = 0; k < all->n; k++) free(all->list[k].name);
    free(all->list);
}
