/* Creates a snapshot file, or reuses an existing one. */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/host.h"
#include "base/mapping.h"
#include "state/snapshot/snapshot_internal.h"

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

typedef struct {
    char *path;
    Buf fixed;
    SnapshotHeader header;
} Expected;

static bool others(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && st.st_uid != geteuid();
}

/* An existing file with a nonce in its name, for choose_path. NULL: none. */
static char *find_with_nonce(const char *dir, const char *stem)
{
    FileList entries;
    char *found = NULL;
    if (file_list(dir, &entries) != OK) return NULL;
    for (int i = 0; i < entries.count && !found; i++) {
        const char *path = entries.paths[i], *name = file_basename(path);
        if (str_starts_with(name, stem) && str_ends_with(name, SNAPSHOT_SUFFIX) && !others(path))
            found = mem_strdup(path);
    }
    file_list_free(&entries);
    return found;
}

/* Other users can compute the name of a snapshot and take it. Then a nonce goes before the suffix. */
static char *choose_path(const SnapshotPlace *p)
{
    char *name = snapshot_name(p->output, p->world, p->slice, p->holder);
    char *path = file_join(p->dir, name), *aside = mem_printf("%s.new", path);
    if (others(path) || others(aside)) {
        char *stem = mem_printf("%.*s.", (int)(strlen(name) - strlen(SNAPSHOT_SUFFIX)), name);
        uint64_t nonce;
        CHECK(getrandom(&nonce, sizeof nonce, 0) == sizeof nonce, "no random numbers from the system");
        free(path);
        path = find_with_nonce(p->dir, stem);
        if (!path) path = mem_printf("%s/%s%016" PRIx64 "%s", p->dir, stem, nonce, SNAPSHOT_SUFFIX);
        free(stem);
    }
    MEM_FREE(aside, name);
    return path;
}

static void expected_init(Expected *e, const SnapshotPlace *p)
{
    *e = (Expected){0};
    SnapshotHeader *h = &e->header;
    snapshot_fixed_render(p, &e->fixed);
    memset(h, 0, sizeof *h); /* the digest includes the gaps between members */
    memcpy(h->magic, SNAPSHOT_MAGIC, sizeof h->magic);
    h->version = p->own.params[1]->size > 0 ? SNAPSHOT_VERSION : 1;
    h->order = SNAPSHOT_ORDER;
    h->run = p->run;
    h->params = snapshot_tables_digest(p->own.params);
    h->world = p->world;
    h->slice = p->slice;
    h->holder = p->holder;
    h->params_size = p->own.params[0]->size;
    h->slice_size = p->own.part[0]->size;
    h->sets_size = p->own.params[1]->size;
    h->sets_slice = p->own.part[1]->size;
    h->fixed_bytes = e->fixed.len;
    h->fixed = digest_of(e->fixed.data, e->fixed.len);
    h->slot_offset[0] = 2 * SNAPSHOT_PAGE + snapshot_round(e->fixed.len);
    h->slot_offset[1] = h->slot_offset[0] + snapshot_slot_size(h);
    h->bytes = h->slot_offset[1] + snapshot_slot_size(h);
    memcpy(h->output, p->output, strnlen(p->output, sizeof h->output - 1));
    h->digest = snapshot_header_digest(h);
    e->path = choose_path(p);
}

static void expected_free(Expected *e)
{
    free(e->path);
    buf_free(&e->fixed);
}

/* Whether the open file is the expected one. */
static bool matches(int fd, const Expected *e)
{
    SnapshotHeader found;
    struct stat st;
    return snapshot_check_owner(fd, &st) == OK && (uint64_t)st.st_size == e->header.bytes &&
           pread(fd, &found, sizeof found, 0) == sizeof found && memcmp(&found, &e->header, sizeof found) == 0;
}

uint64_t snapshot_held(const SnapshotPlace *p)
{
    Expected e;
    struct stat st;
    uint64_t held = 0;
    expected_init(&e, p);
    int fd = snapshot_open_path(e.path, O_RDONLY);
    if (fd >= 0 && matches(fd, &e))
        held = e.header.bytes;
    else if (fd >= 0 && snapshot_check_owner(fd, &st) == OK)
        held = (uint64_t)st.st_blocks * 512;
    if (fd >= 0) close(fd);
    expected_free(&e);
    return held;
}

/* ---- the file ---- */

/* A process that was just killed may still be exiting. */
static Status lock_file(const char *path, int fd)
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

static Status fail_allocation(const char *path, const char *dir, uint64_t bytes)
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
    errno = ENOSPC;
    return available >= bytes ? OK : fail_allocation(path, dir, bytes);
}

/* Created under a name that readers ignore, then renamed. Allocates all memory now, because a tmpfs that fills up later
   would kill the process. */
static Status create_file(const char *dir, const Expected *e, int *out)
{
    Status status = OK;
    const SnapshotHeader *h = &e->header;
    char *aside = mem_printf("%s.new", e->path);
    int fd = -1;
    (void)unlink(aside);
    TRY_DONE(check_room(e->path, dir, h->bytes));
    fd = open(aside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) TRY_DONE(fail(E_IO, "%s: cannot create the file: %m", aside));
    TRY_DONE(lock_file(aside, fd));
    if (fchmod(fd, 0600) != 0) TRY_DONE(fail(E_IO, "%s: cannot make the file private: %m", aside));
    errno = posix_fallocate(fd, 0, (off_t)h->bytes);
    if (errno != 0) TRY_DONE(fail_allocation(e->path, dir, h->bytes));
    if (pwrite(fd, e->fixed.data, e->fixed.len, 2 * (off_t)SNAPSHOT_PAGE) != (ssize_t)e->fixed.len ||
        pwrite(fd, h, sizeof *h, 0) != sizeof *h)
        TRY_DONE(fail(E_IO, "%s: cannot write: %m", aside));
    if (rename(aside, e->path) != 0) TRY_DONE(fail(E_IO, "%s: cannot rename to %s: %m", aside, e->path));
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
static Status remove_other(const char *path, int fd)
{
    struct stat st;
    if (snapshot_check_owner(fd, &st) != OK)
        return fail(E_IO, "%s: expected a regular file that only you can access, found something else; remove it",
                    path);
    TRY(lock_file(path, fd));
    return unlink(path) == 0 ? OK : fail(E_IO, "%s: cannot remove the file of another run: %m", path);
}

/* The existing file if it is the expected one, else a new one; locked. */
static Status open_file(const char *dir, const Expected *e, int *out)
{
    int fd = snapshot_open_path(e->path, O_RDWR);
    if (fd < 0 && errno != ENOENT) return fail(E_IO, "%s: cannot open: %m", e->path);
    if (fd < 0) return create_file(dir, e, out);
    bool same = matches(fd, e);
    Status status = same ? lock_file(e->path, fd) : remove_other(e->path, fd);
    if (same && status == OK)
        *out = fd;
    else
        close(fd);
    return same || status != OK ? status : create_file(dir, e, out);
}

static void write_owner(Snapshot *s)
{
    SnapshotOwner owner;
    memset(&owner, 0, sizeof owner);
    owner.pid = (int64_t)getpid();
    host_name(owner.host, sizeof owner.host);
    memcpy(s->data + SNAPSHOT_PAGE, &owner, sizeof owner);
}

Status snapshot_open(const SnapshotPlace *p, Snapshot **out)
{
    Status status = OK;
    Expected e;
    Snapshot *s = mem_alloc(sizeof *s);
    *out = NULL;
    s->fd = -1;
    CHECK(sem_init(&s->copy_ended, 0, 0) == 0, "the system has no more semaphores");
    expected_init(&e, p);
    s->path = mem_strdup(e.path);
    TRY_DONE(open_file(p->dir, &e, &s->fd));
    s->size = e.header.bytes;
    s->data = mapping_open(s->fd, s->size, true);
    if (!s->data) TRY_DONE(fail(E_IO, "%s: cannot map: %m", s->path));
    s->header = mem_alloc(sizeof *s->header);
    *s->header = e.header;
    for (int space = 0; space < N_SPACES; space++) s->part[space] = intervals_joined(p->own.part[space], NULL, 1);
    write_owner(s);
    for (int i = 0; i < SNAPSHOT_SLOTS; i++) {
        int64_t generation = (int64_t)snapshot_mark(s, i)->generation;
        if (generation > s->newest && snapshot_slot_whole(s->data, s->header, i)) s->newest = generation;
    }
    *out = s;
done:
    expected_free(&e);
    if (status != OK) snapshot_close(s);
    return status;
}

void snapshot_close(Snapshot *s)
{
    if (!s) return;
    (void)snapshot_poll(s, true);
    sem_destroy(&s->copy_ended);
    mapping_close(s->data, s->size);
    free(s->header);
    if (s->fd >= 0) close(s->fd);
    for (int i = 0; i < N_SPACES; i++) intervals_free(&s->part[i]);
    MEM_FREE(s->message, s->path, s);
}

void snapshot_discard(Snapshot *s)
{
    if (!s) return;
    (void)snapshot_poll(s, true);
    if (unlink(s->path) != 0 && errno != ENOENT) log_warn("%s: cannot remove: %m", s->path);
    snapshot_close(s);
}
