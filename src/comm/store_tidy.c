/* The folder of a rendezvous: DIR/cairn-<job> holds a few small files of the meeting, and a folder run-<number> for
   each run. Its ranks remove it when they leave; a later start removes what killed ranks left. A run is alive as long
   as a rank holds a lock on its file "by", which names the host of its first rank. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/store_tidy.h"

#define OLD_S 86400.0

/* Stays the same after a reboot. */
static void host_text(Buf *b)
{
    char name[256] = "?";
    Buf id = {0};
    gethostname(name, sizeof name - 1);
    if (file_read("/etc/machine-id", 4096, &id) != OK || !id.data) buf_puts(&id, "-");
    buf_printf(b, "host %s %.*s\n", name, (int)strcspn(id.data, "\n"), id.data);
    buf_free(&id);
}

void tidy_begin_run(const char *run)
{
    char *path = file_join(run, "by");
    Buf text = {0};
    host_text(&text);
    if (file_write_durable(path, text.data, text.len) != OK) log_debug("%s", status_message());
    buf_free(&text);
    free(path);
}

int tidy_hold(const char *run)
{
    char *path = file_join(run, "by");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) flock(fd, LOCK_SH | LOCK_NB);
    free(path);
    return fd;
}

/* Number of entries of a folder with this prefix. */
static int count(const char *folder, const char *prefix)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    if (d) closedir(d);
    return n;
}

static void remove_tree(const char *path)
{
    if (file_remove_tree(path) != OK) log_debug("%s", status_message()); /* the next start tries again */
}

/* Removes a short file if it holds `word`. */
static void remove_that_holds(const char *folder, const char *name, const char *word)
{
    char *path = file_join(folder, name);
    Buf text = {0};
    if (access(path, F_OK) == 0 && file_read(path, 4096, &text) == OK && text.data && strstr(text.data, word))
        unlink(path);
    buf_free(&text);
    free(path);
}

void tidy_leave(const char *folder, const char *run, const char *nonce, int rank, int size, bool complete)
{
    char name[32];
    snprintf(name, sizeof name, "hello-%d", rank);
    remove_that_holds(folder, name, nonce);
    if (!run) {
        rmdir(folder);
        return;
    }
    char *path = file_join(folder, run), *by = file_join(path, "by");
    if (rank == 0) remove_that_holds(folder, "owner", nonce);
    for (int r = 1; r < size && rank == 0; r++) {
        snprintf(name, sizeof name, "answer-%d", r);
        remove_that_holds(folder, name, run + strlen("run-"));
    }
    bool last = !complete && (rank == 0 || access(by, F_OK) != 0);
    if (complete) {
        snprintf(name, sizeof name, "left-%d", rank);
        char *left = file_join(path, name);
        int fd = open(left, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0) close(fd);
        free(left);
        last = count(path, "left-") >= size;
    }
    if (last) remove_tree(path);
    rmdir(folder); /* if it is empty */
    free(path);
    free(by);
}

/* ---- leftovers of other runs ---- */

static bool is_old(const struct stat *st)
{
    double now = clock_wall();
    return now - (double)st->st_mtime > OLD_S;
}

static bool own_folder(const char *path, struct stat *st)
{
    return lstat(path, st) == 0 && S_ISDIR(st->st_mode) && st->st_uid == geteuid();
}

/* A run of this host that is old, and that no rank holds. */
static bool is_dead(const char *run, const char *host)
{
    struct stat st;
    Buf text = {0};
    char *path = file_join(run, "by");
    bool dead = false;
    /* for writing, which NFS needs for an exclusive lock */
    int fd = own_folder(run, &st) && is_old(&st) ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd >= 0 && file_read(path, 4096, &text) == OK && text.data && strcmp(text.data, host) == 0)
        dead = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0) close(fd);
    free(path);
    buf_free(&text);
    return dead;
}

/* Without a run and without a file of the last day: no meeting takes so long. */
static bool is_forsaken(const char *folder)
{
    struct stat st;
    bool forsaken = own_folder(folder, &st) && is_old(&st);
    DIR *d = forsaken ? opendir(folder) : NULL;
    for (struct dirent *e; d && forsaken && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *path = file_join(folder, e->d_name);
        forsaken = lstat(path, &st) == 0 && S_ISREG(st.st_mode) && is_old(&st);
        free(path);
    }
    if (d) closedir(d);
    return forsaken;
}

static void tidy_job(const char *folder, const char *host)
{
    struct stat st;
    DIR *d = own_folder(folder, &st) ? opendir(folder) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "run-", 4) != 0) continue;
        char *run = file_join(folder, e->d_name);
        if (is_dead(run, host)) {
            log_debug("removing %s, whose run ended without doing so", run);
            remove_tree(run);
        }
        free(run);
    }
    if (d) closedir(d);
}

void tidy_others(const char *directory)
{
    DIR *d = opendir(directory);
    Buf host = {0};
    host_text(&host);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "cairn-", 6) != 0 || strlen(e->d_name) != 22) continue;
        char *folder = file_join(directory, e->d_name);
        bool forsaken = is_forsaken(folder);
        if (!forsaken) tidy_job(folder, host.data);
        if (forsaken) remove_tree(folder);
        free(folder);
    }
    if (d) closedir(d);
    buf_free(&host);
}
