/* The folder of a rendezvous: DIR/cairn-<job> holds a few small files of the meeting, and a folder run-<number> for
   each run. Its ranks remove it when they leave; a later start removes what killed ranks left. A run is alive as long
   as a rank holds a lock on its file "by", which names the host of its first rank. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/host.h"
#include "comm/meet/store_internal.h"

#define DEAD_S     600.0   /* a run: between its first file and its lock lie moments */
#define FORSAKEN_S 86400.0 /* files of a meeting, which nobody locks */

/* Identifies this host, also after a reboot. */
static void host_text(Buf *b)
{
    char name[256];
    Buf id = {0};
    host_name(name, sizeof name);
    if (file_read("/etc/machine-id", 4096, &id) != OK || !id.data) buf_puts(&id, "-");
    buf_printf(b, "host %s %.*s\n", name, (int)strcspn(id.data, "\n"), id.data);
    buf_free(&id);
}

void tidy_begin_run(const char *run)
{
    Buf text = {0};
    host_text(&text);
    if (file_write_text(run, "by", &text) != OK) log_debug("%s", status_message());
}

int tidy_hold(const char *run)
{
    char *path = file_join(run, "by");
    int fd = file_open(path, O_RDONLY);
    if (fd >= 0) flock(fd, LOCK_SH | LOCK_NB);
    free(path);
    return fd;
}

/* Whether an entry of a folder has this prefix. */
static bool begins_with(const char *path, const char *prefix) { return str_starts_with(file_basename(path), prefix); }

/* Entries of a folder; none if it cannot be listed. */
static FileList entries_of(const char *folder)
{
    FileList list;
    if (file_list(folder, &list) != OK) log_debug("%s", status_message());
    return list;
}

static int count_entries(const char *folder, const char *prefix)
{
    int n = 0;
    FileList list = entries_of(folder);
    for (int i = 0; i < list.count; i++) n += begins_with(list.paths[i], prefix);
    file_list_free(&list);
    return n;
}

void tidy_remove(const char *path)
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
        int fd = file_open(left, O_WRONLY | O_CREAT);
        if (fd >= 0) close(fd);
        free(left);
        last = count_entries(path, "left-") >= size;
    }
    if (last) tidy_remove(path);
    rmdir(folder); /* if it is empty */
    MEM_FREE(path, by);
}

/* ---- leftovers of other runs ---- */

static bool is_older(const struct stat *st, double seconds) { return clock_wall() - (double)st->st_mtime > seconds; }

static bool own_folder(const char *path, struct stat *st)
{
    return lstat(path, st) == 0 && S_ISDIR(st->st_mode) && st->st_uid == geteuid();
}

/* True: the run is of this host, old, and locked by no rank. */
static bool is_dead(const char *run, const char *host)
{
    struct stat st;
    Buf text = {0};
    char *path = file_join(run, "by");
    bool dead = false;
    /* for writing, which NFS needs for an exclusive lock */
    int fd = own_folder(run, &st) && is_older(&st, DEAD_S) ? file_open(path, O_RDWR | O_NOFOLLOW) : -1;
    if (fd >= 0 && file_read(path, 4096, &text) == OK && text.data && strcmp(text.data, host) == 0)
        dead = flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0) close(fd);
    free(path);
    buf_free(&text);
    return dead;
}

/* True: it has no run and no file of the last day. No meeting takes that long. */
static bool is_forsaken(const char *folder)
{
    struct stat st;
    bool forsaken = own_folder(folder, &st) && is_older(&st, FORSAKEN_S);
    if (!forsaken) return false;
    FileList list = entries_of(folder);
    for (int i = 0; i < list.count && forsaken; i++)
        forsaken = lstat(list.paths[i], &st) == 0 && S_ISREG(st.st_mode) && is_older(&st, FORSAKEN_S);
    file_list_free(&list);
    return forsaken;
}

static void tidy_job(const char *folder, const char *host)
{
    struct stat st;
    if (!own_folder(folder, &st)) return;
    FileList list = entries_of(folder);
    for (int i = 0; i < list.count; i++) {
        const char *run = list.paths[i];
        if (!begins_with(run, "run-") || !is_dead(run, host)) continue;
        log_debug("removing %s, whose run ended without doing so", run);
        tidy_remove(run);
    }
    file_list_free(&list);
}

void tidy_others(const char *directory)
{
    FileList list = entries_of(directory);
    Buf host = {0};
    host_text(&host);
    for (int i = 0; i < list.count; i++) {
        const char *folder = list.paths[i];
        if (!begins_with(folder, "cairn-") || strlen(file_basename(folder)) != 22) continue;
        if (is_forsaken(folder))
            tidy_remove(folder);
        else
            tidy_job(folder, host.data);
    }
    file_list_free(&list);
    buf_free(&host);
}
