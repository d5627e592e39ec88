/* A store in a folder that all ranks see: a file per value, written aside and renamed. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/meet/store_internal.h"

typedef struct {
    char *directory;
    double looked; /* when the folder was last read */
    int held;      /* of tidy_hold; −1 */
} FileStore;

/* The file of a name. The first slash makes a folder; all but letters, digits, '.', '-' and '_' become %XX. */
static char *path_of(const FileStore *f, const char *name)
{
    Buf b = {0};
    const char *slash = strchr(name, '/');
    buf_printf(&b, "%s/", f->directory);
    for (const char *p = name; *p; p++) {
        bool plain = isalnum((unsigned char)*p) || *p == '-' || *p == '_' || p == slash ||
                     (*p == '.' && p > name && p[-1] != '/');
        if (plain)
            buf_append(&b, p, 1);
        else
            buf_printf(&b, "%%%02X", (unsigned)(unsigned char)*p);
    }
    return b.data;
}

enum { MOST_TRIES = 1000 }; /* to make the folder of a job, which ranks that leave remove when it is empty */

/* E_PEER: the folder is missing, because rank 0 has left a meeting that failed. */
static Status lost_or_failed(void) { return errno == ENOENT ? E_PEER : E_IO; }

static Status make_folder(const char *path)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return fail(lost_or_failed(), "cannot make the folder %s: %m", path);
    return OK;
}

/* Creates a file, and its folder where that is missing: up to `tries` times. */
static Status create_file(const char *folder, const char *path, int tries, FILE **file)
{
    int fd;
    do {
        TRY(make_folder(folder));
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == ENOENT && --tries > 0);
    *file = fd < 0 ? NULL : fdopen(fd, "w");
    return *file ? OK : fail(lost_or_failed(), "cannot write %s: %m", path);
}

static Status file_set(void *self, const char *name, const void *data, size_t size)
{
    Status status = OK;
    FileStore *f = self;
    char unique[33];
    hash128_random_hex(unique);
    char *path = path_of(f, name), *folder = file_directory(path), *aside = mem_printf("%s.%s", path, unique);
    FILE *file;
    TRY_DONE(create_file(folder, aside, strcmp(folder, f->directory) == 0 ? MOST_TRIES : 1, &file));
    if (fwrite(data, 1, size, file) != size) status = fail(E_IO, "%s: %m", aside);
    if (fclose(file) != 0 && status == OK) status = fail(E_IO, "%s: %m", aside); /* NFS reports a full disk here */
    if (status == OK && rename(aside, path) != 0) status = fail(lost_or_failed(), "cannot write %s: %m", path);
    if (status != OK) unlink(aside);
done:
    MEM_FREE(path, folder, aside);
    return status;
}

/* NFS caches the absence of a file for a while; opening its folder refreshes that. */
static void look_again(FileStore *f, const char *path)
{
    double now = clock_monotonic();
    if (now < f->looked + 0.5) return;
    f->looked = now;
    char *folder = file_directory(path);
    DIR *d = opendir(folder);
    if (d) closedir(d);
    free(folder);
}

static Status read_now(const char *path, void **data, size_t *size)
{
    Buf b = {0};
    if (access(path, F_OK) != 0) return OK;
    Status status = file_read(path, STORE_MAX_VALUE, &b);
    if (status != OK) {
        buf_free(&b);
        return access(path, F_OK) != 0 ? OK : status; /* OK: it was removed since */
    }
    *size = b.len;
    *data = b.data ? b.data : mem_alloc(1);
    return OK;
}

static Status file_get(void *self, const char *name, double wait_s, void **data, size_t *size)
{
    Status status = OK;
    FileStore *f = self;
    char *path = path_of(f, name);
    double end = clock_monotonic() + wait_s, pause = 0.001;
    *data = NULL;
    for (;;) {
        TRY_DONE(read_now(path, data, size));
        if (*data || clock_monotonic() >= end) break;
        look_again(f, path);
        usleep((useconds_t)(pause * 1e6));
        if (pause < 0.05) pause *= 1.5;
    }
done:
    free(path);
    return status;
}

static void file_close(void *self)
{
    FileStore *f = self;
    if (f->held >= 0) close(f->held);
    MEM_FREE(f->directory, f);
}

static void file_join_run(void *self, const char *run, int rank)
{
    FileStore *f = self;
    char *path = file_join(f->directory, run);
    if (rank == 0 && make_folder(path) == OK) tidy_begin_run(path);
    if (f->held < 0) f->held = tidy_hold(path);
    free(path);
}

static void file_leave(void *self, const char *run, const char *nonce, int rank, int size, bool complete)
{
    FileStore *f = self;
    if (f->held >= 0) close(f->held);
    f->held = -1;
    tidy_leave(f->directory, run, nonce, rank, size, complete);
}

static const StoreKind file_kind = {"file", file_set, file_get, file_close, file_join_run, file_leave, NULL};

static char *folder_of(const char *directory, Hash128 job)
{
    char hex[33];
    hash128_format(job, hex);
    return mem_printf("%s/cairn-%.16s", directory, hex);
}

void store_file_forget(const char *directory, Hash128 job)
{
    struct stat st;
    char *folder = folder_of(directory, job);
    if (lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid()) tidy_remove(folder);
    free(folder);
}

Status store_file_open(const char *directory, Hash128 job, bool first, const StoreKind **kind, void **self)
{
    struct stat st;
    if (!*directory) return fail(E_USAGE, "rendezvous 'file:' has no folder; expected file:DIR");
    TRY(file_make_directories(directory));
    if (first) tidy_others(directory);
    FileStore *f = mem_alloc(sizeof *f);
    *f = (FileStore){.directory = folder_of(directory, job), .held = -1};
    Status status = make_folder(f->directory);
    for (int tries = 1; status == OK && lstat(f->directory, &st) != 0; tries++)
        status = errno == ENOENT && tries < MOST_TRIES ? make_folder(f->directory) : fail(E_IO, "%s: %m", f->directory);
    if (status == OK && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)))
        status =
            fail(E_USAGE, "%s must be a folder that this user alone can write to; another user made it", f->directory);
    if (status != OK) {
        file_close(f);
        return status;
    }
    *kind = &file_kind;
    *self = f;
    return OK;
}
