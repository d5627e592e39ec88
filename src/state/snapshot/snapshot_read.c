/* Reads snapshots: lists a folder's files, checks and assembles them. Nothing here trusts a file's contents before
   comparing their digest. The choice of a generation is in snapshot_choose.c. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mapping.h"
#include "state/snapshot/snapshot_internal.h"

/* ---- One file's bytes ---- */

static Status check_header(const SnapshotHeader *h, size_t size)
{
    if (memcmp(h->magic, SNAPSHOT_MAGIC, sizeof h->magic) != 0) return fail(E_FORMAT, "not a Cairn snapshot");
    if (h->order != SNAPSHOT_ORDER) return fail(E_FORMAT, "written on a machine of another byte order");
    if (h->version < 1 || h->version > SNAPSHOT_VERSION)
        return fail(E_FORMAT, "version %u; this program reads versions 1 to %d", h->version, SNAPSHOT_VERSION);
    if (!digest_equal(h->digest, snapshot_header_digest(h))) return fail(E_FORMAT, "its header is damaged");
    if (h->world < 1 || h->world > SNAPSHOT_RANKS || h->slice < 0 || h->slice >= h->world || h->holder < 0 ||
        h->holder >= h->world)
        return fail(E_FORMAT, "slice %d of %d ranks, held by rank %d: not valid", h->slice, h->world, h->holder);
    if (h->bytes != size)
        return fail(E_FORMAT, "has %zu bytes, its header says %" PRIu64 ": cut short", size, h->bytes);
    if (h->params_size < 1 || h->slice_size < 0 || h->slice_size > h->params_size || h->params_size > INT64_MAX / 64 ||
        h->sets_size < 0 || h->sets_slice < 0 || h->sets_slice > h->sets_size || h->sets_size > INT64_MAX / 64 ||
        (h->version == 1 && h->sets_size != 0))
        return fail(E_FORMAT, "its header is not valid");
    if (memchr(h->output, '\0', sizeof h->output) == NULL) return fail(E_FORMAT, "its header is not valid");
    uint64_t at = 2 * SNAPSHOT_PAGE;
    if (h->fixed_bytes > size || at + snapshot_round(h->fixed_bytes) != h->slot_offset[0] ||
        h->slot_offset[1] != h->slot_offset[0] + snapshot_slot_size(h) ||
        h->bytes != h->slot_offset[1] + snapshot_slot_size(h))
        return fail(E_FORMAT, "the places of its parts are not valid");
    return OK;
}

Status snapshot_check(const uint8_t *data, size_t size, SnapshotFixed *fixed)
{
    const SnapshotHeader *h = (const SnapshotHeader *)(const void *)data;
    *fixed = (SnapshotFixed){0};
    if (size < 2 * SNAPSHOT_PAGE) return fail(E_FORMAT, "too short for a snapshot");
    TRY(check_header(h, size));
    data += 2 * SNAPSHOT_PAGE;
    if (!digest_equal(h->fixed, digest_of(data, h->fixed_bytes))) return fail(E_FORMAT, "its fixed part is damaged");
    return snapshot_fixed_parse(data, h, fixed);
}

/* ---- One file ---- */

static const SnapshotHeader *header_of(const SnapshotFile *f) { return (const SnapshotHeader *)(const void *)f->data; }

static void read_slots(SnapshotFile *f)
{
    const SnapshotHeader *h = header_of(f);
    for (int s = 0; s < SNAPSHOT_SLOTS; s++) {
        SnapshotMark m;
        memcpy(&m, f->data + h->slot_offset[s], sizeof m);
        f->slots[s] = (SnapshotSlot){.generation = (int64_t)(m.generation & INT64_MAX),
                                     .step = m.step,
                                     .stamp = m.stamp,
                                     .whole = snapshot_slot_whole(f->data, h, s)};
    }
}

static Status map_file(SnapshotFile *f)
{
    Status status = OK;
    struct stat st;
    int fd = snapshot_open_path(f->path, O_RDONLY);
    if (fd < 0) return fail(E_FORMAT, "cannot open: %m");
    f->alive = snapshot_locked(fd);
    TRY_DONE(snapshot_check_owner(fd, &st));
    f->bytes = (uint64_t)st.st_size;
    if (f->bytes < 2 * SNAPSHOT_PAGE) TRY_DONE(fail(E_FORMAT, "too short for a snapshot"));
    f->data = mapping_open(fd, f->bytes, false);
    if (!f->data) TRY_DONE(fail(E_FORMAT, "cannot map: %m"));
    status = snapshot_check(f->data, f->bytes, &f->fixed);
done:
    close(fd);
    return status;
}

/* Sets `why` if the file cannot be used. */
static void read_file(SnapshotFile *f)
{
    Status status = map_file(f);
    if (status != OK) f->why = mem_strdup(status_message());
    if (!f->data) return;
    SnapshotOwner owner;
    memcpy(&owner, f->data + SNAPSHOT_PAGE, sizeof owner);
    f->pid = owner.pid;
    f->host = mem_strndup(owner.host, strnlen(owner.host, sizeof owner.host));
    if (status != OK) return;
    const SnapshotHeader *h = header_of(f);
    f->output = mem_strdup(h->output);
    f->run = h->run;
    f->params = h->params;
    f->world = h->world;
    f->slice = h->slice;
    f->holder = h->holder;
    read_slots(f);
}

/* ---- The folder ---- */

/* The snapshots of a run, by name, unread. */
static Status list_files(const char *dir, const char *output, SnapshotList *list)
{
    FileList entries;
    *list = (SnapshotList){0};
    TRY(file_list(dir, &entries));
    char *prefix = snapshot_prefix(output);
    for (int i = 0; i < entries.count; i++) {
        const char *path = entries.paths[i];
        if (!str_starts_with(file_basename(path), prefix) || !str_ends_with(path, SNAPSHOT_SUFFIX)) continue;
        MEM_PUSH(list->files, list->count, list->cap, (SnapshotFile){.path = mem_strdup(path)});
    }
    file_list_free(&entries);
    free(prefix);
    return OK;
}

uint64_t snapshot_present(const char *dir, const char *output)
{
    SnapshotList list;
    uint64_t bytes = 0;
    struct stat st;
    if (list_files(dir, output, &list) != OK) return 0;
    for (int i = 0; i < list.count; i++)
        if (lstat(list.files[i].path, &st) == 0) bytes += (uint64_t)st.st_blocks * 512;
    snapshot_list_free(&list);
    return bytes;
}

Status snapshot_find(const char *dir, const char *output, SnapshotList *list)
{
    TRY(list_files(dir, output, list));
    for (int i = 0; i < list->count; i++) read_file(&list->files[i]);
    return OK;
}

void snapshot_list_free(SnapshotList *list)
{
    for (int i = 0; i < list->count; i++) {
        SnapshotFile *f = &list->files[i];
        snapshot_fixed_free(&f->fixed);
        mapping_close(f->data, f->bytes);
        MEM_FREE(f->path, f->output, f->host, f->why);
    }
    free(list->files);
    *list = (SnapshotList){0};
}

void snapshot_list_warn(const SnapshotList *list, Digest run)
{
    for (int i = 0; i < list->count; i++) {
        const SnapshotFile *f = &list->files[i];
        if (f->why) {
            log_warn("%s: ignored: %s", f->path, f->why);
            continue;
        }
        if (!digest_equal(f->run, run)) {
            log_warn("%s: ignored: it belongs to an earlier run in this output folder", f->path);
            continue;
        }
        for (int s = 0; s < SNAPSHOT_SLOTS; s++)
            if (!f->slots[s].whole && f->slots[s].generation != 0)
                log_warn("%s: generation %" PRId64 " of slice %d is ignored: its digest does not match (torn or "
                         "damaged)",
                         f->path, f->slots[s].generation, f->slice);
    }
}

/* ---- Contents ---- */

static const float *values_of(const SnapshotFile *f, int slot, int array)
{
    const SnapshotHeader *h = header_of(f);
    return (const float *)(const void *)(f->data + h->slot_offset[slot] + snapshot_array_offset(h, array));
}

const char *snapshot_state(const SnapshotFile *f, int slot, size_t *size)
{
    const uint8_t *at = f->data + header_of(f)->slot_offset[slot];
    SnapshotMark m;
    memcpy(&m, at, sizeof m);
    *size = m.state_bytes;
    return (const char *)at + SNAPSHOT_PAGE;
}

Status snapshot_read_range(const SnapshotFile *f, int slot, int array, int64_t begin, int64_t end, float *to)
{
    const float *from = values_of(f, slot, array) + intervals_before(&f->fixed.part[snapshot_space(array)], begin);
    memcpy(to, from, (size_t)(end - begin) * sizeof *to);
    return mapping_cut(f->data) ? fail(E_CORRUPT, "%s: another process shortened the file", f->path) : OK;
}

/* ---- Removal ---- */

static Status forget_slots(const char *path, int fd, int64_t from, int64_t to)
{
    const SnapshotMark none = {0};
    SnapshotHeader h;
    if (pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || !digest_equal(h.digest, snapshot_header_digest(&h)))
        return OK;
    for (int s = 0; s < SNAPSHOT_SLOTS; s++) {
        SnapshotMark m;
        off_t at = (off_t)h.slot_offset[s];
        if (pread(fd, &m, sizeof m, at) != (ssize_t)sizeof m || m.step < from || m.step >= to) continue;
        if (pwrite(fd, &none, sizeof none, at) != (ssize_t)sizeof none) return fail(E_IO, "%s: cannot write: %m", path);
    }
    return OK;
}

Status snapshot_forget(const char *dir, const char *output, int64_t from, int64_t to)
{
    SnapshotList list;
    struct stat st;
    Status status = list_files(dir, output, &list);
    for (int i = 0; i < list.count && status == OK; i++) {
        int fd = snapshot_open_path(list.files[i].path, O_RDWR);
        if (fd < 0 || snapshot_check_owner(fd, &st) != OK)
            log_debug("%s: left as it is", list.files[i].path);
        else if (!snapshot_lock(fd))
            log_warn("%s: a process holds it; its states of steps %" PRId64 " to %" PRId64 " stay", list.files[i].path,
                     from, to - 1);
        else
            status = forget_slots(list.files[i].path, fd, from, to);
        if (fd >= 0) close(fd);
    }
    snapshot_list_free(&list);
    return status;
}

/* Removes an unfinished file or a snapshot, unless a process holds it. */
static Status remove_unlocked(const char *path, bool *gone)
{
    struct stat st;
    *gone = false;
    int fd = snapshot_open_path(path, O_RDWR);
    if (fd < 0) return errno == ENOENT || errno == EACCES ? OK : fail(E_IO, "%s: cannot open: %m", path);
    bool ours = fstat(fd, &st) == 0 && st.st_uid == geteuid() && S_ISREG(st.st_mode);
    Status status = OK;
    if (ours && snapshot_lock(fd)) {
        *gone = unlink(path) == 0 || errno == ENOENT;
        if (!*gone) status = fail(E_IO, "%s: cannot remove: %m", path);
    }
    close(fd);
    return status;
}

/* The world in "…-<world>-<slice>-<holder>.snapshot"; 0: another kind of name. */
static int world_in_name(const char *path)
{
    int world = 0;
    return sscanf(file_basename(path), "cairn-%*d-%*16[0-9a-f]-%d-", &world) == 1 ? world : 0;
}

Status snapshot_remove(const char *dir, const char *output, int except_world, int *removed, int *kept)
{
    FileList entries;
    Status status = OK;
    int counts[2] = {0}; /* kept, removed */
    TRY(file_list(dir, &entries));
    char *prefix = snapshot_prefix(output);
    for (int i = 0; i < entries.count && status == OK; i++) {
        const char *path = entries.paths[i];
        bool gone, unfinished = str_ends_with(path, SNAPSHOT_SUFFIX ".new");
        if (!str_starts_with(file_basename(path), prefix)) continue;
        if (!unfinished && !str_ends_with(path, SNAPSHOT_SUFFIX)) continue;
        if (!unfinished && except_world > 0 && world_in_name(path) == except_world) continue;
        status = remove_unlocked(path, &gone);
        if (!unfinished) counts[gone]++;
    }
    if (removed) *removed = counts[true];
    if (kept) *kept = counts[false];
    file_list_free(&entries);
    free(prefix);
    return status;
}
