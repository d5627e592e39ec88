#include "launch/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launch/machine.h"

char *record_write(const char *job, const RecordedRank *ranks, int n)
{
    Buf text = {0};
    char boot[48], *path = NULL, *folder = NULL;
    boot_id(boot);
    uint64_t started = process_started(getpid());
    buf_printf(&text, "boot %s\nagent %d %llu\njob %s\n", boot, (int)getpid(), (unsigned long long)started, job);
    for (int i = 0; i < n; i++)
        buf_printf(&text, "rank %d %d %llu\n", ranks[i].rank, (int)ranks[i].pid, (unsigned long long)ranks[i].started);
    Status status = file_user_folder(&folder);
    if (status == OK) {
        path = mem_printf("%s/launch-%d-%llu", folder, (int)getpid(), (unsigned long long)started);
        status = file_write_durable(path, text.data, text.len);
    }
    if (status != OK) {
        log_warn("the processes of this job are not recorded: %s", status_message());
        free(path);
        path = NULL;
    }
    free(folder);
    buf_free(&text);
    return path;
}

void record_remove(char *path)
{
    if (path) unlink(path);
    free(path);
}

/* Kills the recorded process. The handle excludes that its number is reused between check and kill. */
static bool kill_recorded(pid_t pid, uint64_t started)
{
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    if (handle < 0) return false;
    bool same = process_started(pid) == started && started != 0;
    bool killed = same && syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0) == 0;
    close(handle);
    return killed;
}

/* Returns the number of killed processes; −1: the job of this record is alive. */
static int clean_one(const char *path, const char *boot)
{
    Buf text = {0};
    int killed = 0;
    char job[256] = "";
    bool here = false;
    if (file_read(path, 16 << 20, &text) != OK) return -1;
    char *rest = text.data, *line;
    while (rest && (line = strsep(&rest, "\n"))) {
        int rank, pid;
        unsigned long long started;
        if (strncmp(line, "boot ", 5) == 0) {
            here = *boot && strcmp(line + 5, boot) == 0;
        } else if (strncmp(line, "job ", 4) == 0) {
            snprintf(job, sizeof job, "%s", line + 4);
        } else if (sscanf(line, "agent %d %llu", &pid, &started) == 2) {
            if (!here || process_started(pid) != started) continue;
            killed = -1;
            break;
        } else if (here && sscanf(line, "rank %d %d %llu", &rank, &pid, &started) == 3 && pid > 1 &&
                   kill_recorded(pid, started)) {
            log_warn("killed process %d: rank %d of job %s, whose launcher is gone", pid, rank, job);
            killed++;
        }
    }
    buf_free(&text);
    return killed;
}

int record_clean(void)
{
    char boot[48], *folder = NULL;
    int killed = 0;
    boot_id(boot);
    DIR *entries = file_user_folder(&folder) == OK ? opendir(folder) : NULL;
    for (struct dirent *d; entries && (d = readdir(entries));) {
        if (strncmp(d->d_name, "launch-", 7) != 0) continue;
        char *path = file_join(folder, d->d_name);
        struct stat info;
        int n =
            lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() ? clean_one(path, boot) : -1;
        if (n >= 0) unlink(path);
        if (n > 0) killed += n;
        free(path);
    }
    if (entries) closedir(entries);
    free(folder);
    return killed;
}
