/* Creates a snapshot file, or reuses an existing one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "state/snapshot_writer_internal.h"

#ifndef HUGETLBFS_MAGIC
#    define HUGETLBFS_MAGIC 0x958458f6
#endif

Status snapshot_memory_backed(const char *dir, bool *memory)
{
    struct statfs fs;
    if (statfs(dir, &fs) != 0)
        return fail(E_IO,
                    "--snapshot-dir %s: %m. Create the folder, choose another (a tmpfs), or give --snapshot-steps 0",
                    dir);
    long type = (long)fs.f_type;
    *memory = type == TMPFS_MAGIC || type == RAMFS_MAGIC || type == (long)HUGETLBFS_MAGIC;
    return OK;
}

/* ---- the expected file ---- */

static void describe(const SnapshotPlace *p, const Buf *fixed, SnapshotHeader *h)
{
    memset(h, 0, sizeof *h);
    memcpy(h->magic, SNAPSHOT_MAGIC, sizeof h->magic);
    h->version = SNAPSHOT_VERSION;
    h->order = SNAPSHOT_ORDER;
    h->run = p->run;
    h->params = params_digest(p->params);
    h->world = p->world;
    h->slice = p->slice;
    h->holder = p->holder;
    h->params_size = p->params->size;
    h->slice_size = p->part->size;
    h->fixed_bytes = fixed->len;
    h->fixed = digest_of(fixed->data, fixed->len);
    h->slot_offset[0] = 2 * SNAPSHOT_PAGE + snapshot_round(fixed->len);
    h->slot_offset[1] = h->slot_offset[0] + snapshot_slot_size(h->slice_size);
    h->bytes = h->slot_offset[1] + snapshot_slot_size(h->slice_size);
    memcpy(h->output, p->output, strnlen(p->output, sizeof h->output - 1));
    h->digest = snapshot_header_digest(h);
}

static char *place_path(const SnapshotPlace *p)
{
    char *name = snapshot_name(p->output, p->world, p->slice, p->holder), *path = file_join(p->dir, name);
    free(name);
    return path;
}

static bool acceptable(int fd, uint64_t bytes)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 077) == 0 &&
           (bytes == 0 || (uint64_t)st.st_size == bytes);
}

static bool holds(int fd, const SnapshotHeader *want)
{
    SnapshotHeader found;
    return acceptable(fd, want->bytes) && pread(fd, &found, sizeof found, 0) == sizeof found &&
           memcmp(&found, want, sizeof found) == 0;
}

uint64_t snapshot_held(const SnapshotPlace *p)
{
    Buf fixed = {0};
    SnapshotHeader want;
    snapshot_fixed_render(p, &fixed);
    describe(p, &fixed, &want);
    char *path = place_path(p);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    uint64_t held = 0;
    if (fd >= 0 && holds(fd, &want))
        held = want.bytes;
    else if (fd >= 0 && acceptable(fd, 0) && fstat(fd, &st) == 0)
        held = (uint64_t)st.st_blocks * 512;
    if (fd >= 0) close(fd);
    free(path);
    buf_free(&fixed);
    return held;
}

/* ---- the file ---- */

/* A process that was just killed may still be exiting. */
static Status lock(const char *path, int fd)
{
    for (int tries = 0; tries < 50; tries++) {
        if (snapshot_lock(fd)) return OK;
        if (errno != EAGAIN && errno != EACCES) return fail(E_IO, "%s: cannot lock: %m", path);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    SnapshotOwner owner = {0};
    (void)!pread(fd, &owner, sizeof owner, SNAPSHOT_PAGE);
    owner.host[sizeof owner.host - 1] = '\0';
    return fail(E_FAIL,
                "%s: process %lld on host %s is alive and holds this snapshot. End it (kill -9 %lld) and start again, "
                "or use another --snapshot-dir",
                path, (long long)owner.pid, owner.host, (long long)owner.pid);
}

static Status no_room(const char *path, const char *dir, uint64_t bytes)
{
    uint64_t available = 0;
    int error = errno;
    if (error != ENOSPC && error != EDQUOT && error != ENOMEM)
        return fail(E_IO, "%s: cannot allocate %.1f MiB: %s", path, (double)bytes / (1 << 20), strerror(error));
    (void)file_free_bytes(dir, &available);
    return fail(
        E_MEMORY,
        "--snapshot-dir %s: a snapshot takes %.1f MiB here, %.1f MiB are free. Enlarge it (mount -o "
        "remount,size=…; of a container: --shm-size), choose another tmpfs, use more ranks, or give --snapshot-steps 0",
        dir, (double)bytes / (1 << 20), (double)available / (1 << 20));
}

static Status check_room(const char *path, const char *dir, uint64_t bytes)
{
    uint64_t available;
    TRY(file_free_bytes(dir, &available));
    if (available >= bytes) return OK;
    errno = ENOSPC;
    return no_room(path, dir, bytes);
}

/* Created under a name that readers ignore, then renamed. Allocates all memory now, because a tmpfs that fills up later
   would kill the process. */
static Status make(const SnapshotPlace *p, const SnapshotHeader *want, const Buf *fixed, const char *path, int *out)
{
    Status status = OK;
    char *aside = mem_printf("%s.new", path);
    int fd = -1;
    (void)unlink(aside);
    TRY_DONE(check_room(path, p->dir, want->bytes));
    fd = open(aside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) TRY_DONE(fail(E_IO, "%s: cannot create the file: %m", aside));
    TRY_DONE(lock(aside, fd));
    if (fchmod(fd, 0600) != 0) TRY_DONE(fail(E_IO, "%s: cannot make the file private: %m", aside));
    errno = posix_fallocate(fd, 0, (off_t)want->bytes);
    if (errno != 0) TRY_DONE(no_room(path, p->dir, want->bytes));
    if (pwrite(fd, fixed->data, fixed->len, 2 * (off_t)SNAPSHOT_PAGE) != (ssize_t)fixed->len ||
        pwrite(fd, want, sizeof *want, 0) != sizeof *want)
        TRY_DONE(fail(E_IO, "%s: cannot write: %m", aside));
    if (rename(aside, path) != 0) TRY_DONE(fail(E_IO, "%s: cannot rename to %s: %m", aside, path));
    *out = fd;
    fd = -1;
done:
    if (fd >= 0) {
        (void)unlink(aside);
        close(fd);
    }
    free(aside);
    return status;
}

/* Removes a file that is damaged or of another run. */
static Status take_away(const char *path, int fd)
{
    if (!acceptable(fd, 0))
        return fail(E_IO, "%s: expected a regular file that only you can access, found something else; remove it",
                    path);
    TRY(lock(path, fd));
    return unlink(path) == 0 ? OK : fail(E_IO, "%s: cannot remove the file of another run: %m", path);
}

static Status open_file(const SnapshotPlace *p, const SnapshotHeader *want, const Buf *fixed, const char *path,
                        int *out)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && holds(fd, want)) {
        Status status = lock(path, fd);
        if (status == OK)
            *out = fd;
        else
            close(fd);
        return status;
    }
    if (fd >= 0) {
        Status status = take_away(path, fd);
        close(fd);
        TRY(status);
    } else if (errno != ENOENT) {
        return fail(E_IO, "%s: cannot open: %m", path);
    }
    return make(p, want, fixed, path, out);
}

static void sign(Snapshot *s)
{
    SnapshotOwner owner;
    memset(&owner, 0, sizeof owner);
    owner.pid = (int64_t)getpid();
    if (gethostname(owner.host, sizeof owner.host - 1) != 0) owner.host[0] = '?';
    memcpy(s->data + SNAPSHOT_PAGE, &owner, sizeof owner);
}

static void copy_part(Intervals *to, const Intervals *from)
{
    *to = (Intervals){.count = from->count, .cap = from->count, .size = from->size};
    to->intervals = mem_array((size_t)from->count, sizeof *to->intervals);
    if (from->count) memcpy(to->intervals, from->intervals, (size_t)from->count * sizeof *to->intervals);
}

Status snapshot_open(const SnapshotPlace *p, Snapshot **out)
{
    Status status = OK;
    Buf fixed = {0};
    SnapshotHeader want;
    Snapshot *s = mem_alloc(sizeof *s);
    *out = NULL;
    s->fd = -1;
    snapshot_fixed_render(p, &fixed);
    describe(p, &fixed, &want);
    s->path = place_path(p);
    TRY_DONE(open_file(p, &want, &fixed, s->path, &s->fd));
    s->size = want.bytes;
    void *data = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, s->fd, 0);
    if (data == MAP_FAILED) TRY_DONE(fail(E_IO, "%s: cannot map: %m", s->path));
    s->data = data;
    s->header = data;
    copy_part(&s->part, p->part);
    sign(s);
    for (int i = 0; i < SNAPSHOT_SLOTS; i++)
        if (snapshot_slot_whole(s->data, s->header, i)) {
            int64_t generation = (int64_t)snapshot_mark(s, i)->generation;
            if (generation > s->newest) s->newest = generation;
        }
    snapshot_start_thread(s);
    *out = s;
done:
    buf_free(&fixed);
    if (status != OK) snapshot_close(s);
    return status;
}

void snapshot_close(Snapshot *s)
{
    if (!s) return;
    snapshot_stop_thread(s);
    if (s->data) munmap(s->data, s->size);
    if (s->fd >= 0) close(s->fd);
    intervals_free(&s->part);
    free(s->message);
    free(s->path);
    free(s);
}

void snapshot_discard(Snapshot *s)
{
    if (!s) return;
    snapshot_stop_thread(s);
    if (unlink(s->path) != 0 && errno != ENOENT) log_warn("%s: cannot remove: %m", s->path);
    snapshot_close(s);
}
