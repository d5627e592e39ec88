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

/* A folder that nobody else can have put things into; NULL, and `why`. */
static char *record_folder(Buf *why)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"); /* of the login node's session, perhaps: not there on this one */
    bool there = runtime && *runtime == '/' && file_is_directory(runtime);
    char *path = there ? mem_printf("%s/cairn", runtime) : mem_printf("/tmp/cairn-%u", (unsigned)geteuid());
    struct stat info;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        buf_printf(why, "%s cannot be made: %s", path, strerror(errno));
    else if (lstat(path, &info) != 0)
        buf_printf(why, "%s: %s", path, strerror(errno));
    else if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 022))
        buf_printf(why, "%s is not a folder of our own that others cannot write", path);
    else
        return path;
    free(path);
    return NULL;
}

char *record_write(const char *job, const RecordedRank *ranks, int n)
{
    Buf text = {0}, why = {0};
    char boot[48], *path = NULL, *folder = record_folder(&why);
    boot_id(boot);
    uint64_t started = process_started(getpid());
    buf_printf(&text, "boot %s\nagent %d %llu\njob %s\n", boot, (int)getpid(), (unsigned long long)started, job);
    for (int i = 0; i < n; i++)
        buf_printf(&text, "rank %d %d %llu\n", ranks[i].rank, (int)ranks[i].pid, (unsigned long long)ranks[i].started);
    if (folder) {
        path = mem_printf("%s/launch-%d-%llu", folder, (int)getpid(), (unsigned long long)started);
        if (file_write_durable(path, text.data, text.len) != OK) {
            buf_puts(&why, status_message());
            free(path);
            path = NULL;
        }
    }
    if (!path) log_warn("what this job starts is not written down: %s", why.data ? why.data : "");
    free(folder);
    buf_free(&text);
    buf_free(&why);
    return path;
}

void record_remove(char *path)
{
    if (path) unlink(path);
    free(path);
}

/* Kills a process that is the one written down: the number cannot come to mean another one between look and kill. */
static bool kill_recorded(pid_t pid, uint64_t started)
{
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    if (handle < 0) return false;
    bool same = process_started(pid) == started && started != 0;
    bool killed = same && syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0) == 0;
    close(handle);
    return killed;
}

/* Returns how many it killed, or −1 where the record is of a job that is alive. */
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
    Buf why = {0};
    char boot[48], *folder = record_folder(&why);
    int killed = 0;
    buf_free(&why);
    boot_id(boot);
    DIR *entries = folder ? opendir(folder) : NULL;
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
