/* Records the processes of a job, and kills those of dead agents. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch/agent_internal.h"

void record_write(Agent *a)
{
    Buf text = {0};
    char boot[48], *folder = NULL;
    boot_id(boot);
    unsigned long long started = process_started(getpid());
    buf_printf(&text, "boot %s\nagent %d %llu\njob %s\n", boot, (int)getpid(), started, a->job ? a->job : "");
    for (const Child *c = a->children; c < a->children + a->n_children; c++)
        buf_printf(&text, "rank %d %d %llu\n", c->rank, (int)c->pid, (unsigned long long)process_started(c->pid));
    Status status = file_user_folder(&folder);
    if (status == OK) {
        a->record = mem_printf("%s/launch-%d-%llu", folder, (int)getpid(), started);
        status = file_write_durable(a->record, text.data, text.len);
    }
    if (status != OK) log_warn("the processes of this job are not recorded: %s", status_message());
    free(folder);
    buf_free(&text);
}

void record_remove(Agent *a)
{
    if (a->record) unlink(a->record);
    free(a->record);
}

/* Kills the recorded process. The handle ensures that its number is not reused between check and kill. */
static bool kill_recorded(pid_t pid, uint64_t started)
{
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    if (handle < 0) return false;
    bool same = process_started(pid) == started && started != 0;
    bool killed = same && syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0) == 0;
    close(handle);
    return killed;
}

#define UNFINISHED_S 60.0 /* a record without its agent is one that is just written, and then one that a kill cut */

/* Kills the ranks of a record. False: the record must stay, because its agent is alive or it cannot be read. */
static bool clean_record(const char *path, const char *boot, double written)
{
    Buf text = {0};
    char job[256] = "";
    bool here = false, dead = true, known = false;
    if (file_read(path, 16 << 20, &text) != OK) return false;
    char *rest = text.data, *line;
    while (dead && rest && (line = strsep(&rest, "\n"))) {
        int rank, pid;
        unsigned long long started;
        if (strncmp(line, "boot ", 5) == 0)
            here = *boot && strcmp(line + 5, boot) == 0;
        else if (strncmp(line, "job ", 4) == 0)
            snprintf(job, sizeof job, "%s", line + 4);
        else if (sscanf(line, "agent %d %llu", &pid, &started) == 2) {
            known = true;
            dead = !here || process_started(pid) != started;
        } else if (here && sscanf(line, "rank %d %d %llu", &rank, &pid, &started) == 3 && pid > 1 &&
                   kill_recorded(pid, started))
            log_warn("killed process %d: rank %d of job %s, whose launcher is gone", pid, rank, job);
    }
    buf_free(&text);
    return known ? dead : clock_wall() > written + UNFINISHED_S;
}

void record_clean(void)
{
    char boot[48], *folder = NULL;
    boot_id(boot);
    FileList list = {0};
    if (file_user_folder(&folder) == OK && file_list(folder, &list) != OK) log_debug("%s", status_message());
    for (int i = 0; i < list.count; i++) {
        const char *path = list.paths[i];
        struct stat info;
        if (str_starts_with(file_basename(path), "launch-") && lstat(path, &info) == 0 && S_ISREG(info.st_mode) &&
            info.st_uid == geteuid() && clean_record(path, boot, (double)info.st_mtime))
            unlink(path);
    }
    file_list_free(&list);
    free(folder);
}
