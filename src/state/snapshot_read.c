/* Reads snapshots: lists a folder's files, chooses a whole generation and assembles it. Nothing here trusts a file's
   contents before comparing their digest. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/snapshot_internal.h"

/* ---- One file's bytes ---- */

static Status check_header(const SnapshotHeader *h, size_t size)
{
    if (memcmp(h->magic, SNAPSHOT_MAGIC, sizeof h->magic) != 0) return fail(E_FORMAT, "not a Cairn snapshot");
    if (h->order != SNAPSHOT_ORDER) return fail(E_FORMAT, "written on a machine of another byte order");
    if (h->version != SNAPSHOT_VERSION)
        return fail(E_FORMAT, "version %u; this program reads version %d", h->version, SNAPSHOT_VERSION);
    if (!digest_equal(h->digest, snapshot_header_digest(h))) return fail(E_FORMAT, "its header is damaged");
    if (h->world < 1 || h->world > SNAPSHOT_RANKS || h->slice < 0 || h->slice >= h->world || h->holder < 0 ||
        h->holder >= h->world)
        return fail(E_FORMAT, "slice %d of %d ranks, held by rank %d: not valid", h->slice, h->world, h->holder);
    if (h->bytes != size)
        return fail(E_FORMAT, "has %zu bytes, its header says %" PRIu64 ": cut short", size, h->bytes);
    if (h->params_size < 1 || h->slice_size < 0 || h->slice_size > h->params_size || h->params_size > INT64_MAX / 64 ||
        memchr(h->output, '\0', sizeof h->output) == NULL)
        return fail(E_FORMAT, "its header is not valid");
    uint64_t at = 2 * SNAPSHOT_PAGE;
    if (h->fixed_bytes > size || at + snapshot_round(h->fixed_bytes) != h->slot_offset[0] ||
        h->slot_offset[1] != h->slot_offset[0] + snapshot_slot_size(h->slice_size) ||
        h->bytes != h->slot_offset[1] + snapshot_slot_size(h->slice_size))
        return fail(E_FORMAT, "the places of its parts are not valid");
    return OK;
}

Status snapshot_view(const uint8_t *data, size_t size, SnapshotView *v)
{
    *v = (SnapshotView){.data = data, .size = size};
    if (size < 2 * SNAPSHOT_PAGE) return fail(E_FORMAT, "too short for a snapshot");
    v->header = (const SnapshotHeader *)(const void *)data;
    TRY(check_header(v->header, size));
    const uint8_t *fixed = data + 2 * SNAPSHOT_PAGE;
    if (!digest_equal(v->header->fixed, digest_of(fixed, v->header->fixed_bytes)))
        return fail(E_FORMAT, "its fixed part is damaged");
    return snapshot_fixed_parse(fixed, v->header->fixed_bytes, v->header->params_size, v->header->slice_size,
                                &v->fixed);
}

void snapshot_view_free(SnapshotView *v)
{
    snapshot_fixed_free(&v->fixed);
    if (v->mapped) munmap((void *)(uintptr_t)v->data, v->size);
    *v = (SnapshotView){0};
}

/* ---- One file ---- */

static void read_slots(SnapshotFile *f, const SnapshotView *v)
{
    for (int s = 0; s < SNAPSHOT_SLOTS; s++) {
        SnapshotMark m;
        memcpy(&m, v->data + v->header->slot_offset[s], sizeof m);
        f->slots[s] = (SnapshotSlot){.generation = (int64_t)(m.generation & INT64_MAX),
                                     .step = m.step,
                                     .stamp = m.stamp,
                                     .committed = m.committed == m.generation && m.generation != 0,
                                     .whole = snapshot_slot_whole(v->data, v->header, s)};
    }
}

/* Guards against files of other users. */
static Status check_owner(const struct stat *st)
{
    if (!S_ISREG(st->st_mode)) return fail(E_FORMAT, "not a regular file");
    if (st->st_uid != geteuid()) return fail(E_FORMAT, "belongs to another user (%ld)", (long)st->st_uid);
    if ((st->st_mode & 077) != 0) return fail(E_FORMAT, "others may read or change it (mode %o)", st->st_mode & 0777);
    return OK;
}

static Status open_view(SnapshotFile *f)
{
    Status status = OK;
    struct stat st;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return fail(E_FORMAT, "cannot open: %m");
    f->alive = snapshot_locked(fd);
    if (fstat(fd, &st) != 0) TRY_DONE(fail(E_FORMAT, "cannot examine: %m"));
    TRY_DONE(check_owner(&st));
    f->bytes = (uint64_t)st.st_size;
    if (st.st_size < (off_t)(2 * SNAPSHOT_PAGE)) TRY_DONE(fail(E_FORMAT, "too short for a snapshot"));
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) TRY_DONE(fail(E_FORMAT, "cannot map: %m"));
    f->view = mem_alloc(sizeof *f->view);
    status = snapshot_view(data, (size_t)st.st_size, f->view);
    f->view->mapped = true;
done:
    close(fd);
    return status;
}

/* Sets `why` if the file cannot be used. */
static void read_file(SnapshotFile *f)
{
    Status status = open_view(f);
    if (status != OK) f->why = mem_strdup(status_message());
    const SnapshotView *v = f->view;
    if (!v) return;
    SnapshotOwner owner;
    memcpy(&owner, v->data + SNAPSHOT_PAGE, sizeof owner);
    f->pid = owner.pid;
    f->host = mem_strndup(owner.host, strnlen(owner.host, sizeof owner.host));
    if (status != OK) return;
    const SnapshotHeader *h = v->header;
    f->output = mem_strdup(h->output);
    f->run = h->run;
    f->params = h->params;
    f->world = h->world;
    f->slice = h->slice;
    f->holder = h->holder;
    read_slots(f, v);
}

/* ---- The folder ---- */

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const SnapshotFile *)a)->path, ((const SnapshotFile *)b)->path);
}

static Status list_names(const char *dir, const char *output, const char *suffix, SnapshotList *list)
{
    Status status = OK;
    *list = (SnapshotList){0};
    DIR *folder = opendir(dir);
    if (!folder) return errno == ENOENT ? OK : fail(E_IO, "%s: cannot list the folder: %m", dir);
    char *prefix = snapshot_prefix(output);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry && errno) TRY_DONE(fail(E_IO, "%s: cannot list the folder: %m", dir));
        if (!entry) break;
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || !has_suffix(entry->d_name, suffix)) continue;
        MEM_GROW(list->files, list->count, list->cap);
        list->files[list->count++] = (SnapshotFile){.path = file_join(dir, entry->d_name)};
    }
    if (list->count > 0) qsort(list->files, (size_t)list->count, sizeof *list->files, by_path);
done:
    closedir(folder);
    free(prefix);
    if (status != OK) snapshot_list_free(list);
    return status;
}

uint64_t snapshot_present(const char *dir, const char *output)
{
    SnapshotList list;
    uint64_t bytes = 0;
    struct stat st;
    if (list_names(dir, output, SNAPSHOT_SUFFIX, &list) != OK) return 0;
    for (int i = 0; i < list.count; i++)
        if (lstat(list.files[i].path, &st) == 0) bytes += (uint64_t)st.st_blocks * 512;
    snapshot_list_free(&list);
    return bytes;
}

Status snapshot_find(const char *dir, const char *output, SnapshotList *list)
{
    TRY(list_names(dir, output, SNAPSHOT_SUFFIX, list));
    for (int i = 0; i < list->count; i++) read_file(&list->files[i]);
    return OK;
}

void snapshot_list_free(SnapshotList *list)
{
    for (int i = 0; i < list->count; i++) {
        SnapshotFile *f = &list->files[i];
        if (f->view) snapshot_view_free(f->view);
        free(f->view);
        free(f->path);
        free(f->output);
        free(f->host);
        free(f->why);
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

/* ---- Choice of a generation ---- */

void snapshot_pieces(const SnapshotList *list, Digest run, int rank, SnapshotPiece **pieces, int *count, int *cap)
{
    for (int i = 0; i < list->count; i++) {
        const SnapshotFile *f = &list->files[i];
        if (f->why || !digest_equal(f->run, run)) continue;
        for (int s = 0; s < SNAPSHOT_SLOTS; s++) {
            if (!f->slots[s].whole) continue;
            MEM_GROW(*pieces, *count, *cap);
            SnapshotPiece *p = &(*pieces)[(*count)++];
            memset(p, 0, sizeof *p);
            p->generation = f->slots[s].generation;
            p->step = f->slots[s].step;
            p->params = f->params;
            p->world = f->world;
            p->slice = f->slice;
            p->rank = rank;
            p->file = i;
            p->slot = s;
            p->committed = f->slots[s].committed;
            p->copy = f->holder != f->slice;
        }
    }
}

static bool same_generation(const SnapshotPiece *a, const SnapshotPiece *b)
{
    return a->generation == b->generation && a->step == b->step && a->world == b->world &&
           digest_equal(a->params, b->params);
}

/* Compares steps first. A run that resumed from an older state, or without the host that held the newest numbers,
   restarts the count below them, so a larger number may be older. */
static bool newer(const SnapshotPiece *a, const SnapshotPiece *b)
{
    return a->step != b->step ? a->step > b->step : a->generation > b->generation;
}

/* Collects all slices of `first`'s generation. Takes the first of several copies. */
static bool gather(const SnapshotPiece *pieces, int count, const SnapshotPiece *first, SnapshotSet *set, Buf *missing)
{
    int n = 0;
    int64_t newest = set->newest;
    bool *there = mem_array((size_t)first->world, sizeof *there);
    *set = (SnapshotSet){.generation = first->generation, .step = first->step, .world = first->world, .newest = newest};
    set->pieces = mem_array((size_t)first->world, sizeof *set->pieces);
    for (int i = 0; i < count; i++) {
        const SnapshotPiece *p = &pieces[i];
        if (p->slice < 0 || p->slice >= first->world || there[p->slice] || !same_generation(p, first)) continue;
        there[p->slice] = true;
        set->pieces[p->slice] = *p;
        n++;
    }
    if (n < first->world) {
        if (missing) {
            buf_printf(missing, "%sgeneration %" PRId64 " (step %" PRId64 ") of %d slices lacks",
                       missing->len ? "; " : "", first->generation, first->step, first->world);
            for (int s = 0, shown = 0; s < first->world && shown < 8; s++)
                if (!there[s]) buf_printf(missing, "%s %d", shown++ ? "," : " number", s);
        }
        snapshot_set_free(set);
        set->newest = newest;
    }
    free(there);
    return n == first->world;
}

void snapshot_choose(const SnapshotPiece *pieces, int count, const Digest *params, SnapshotSet *set, Buf *missing)
{
    const SnapshotPiece *last = NULL;
    *set = (SnapshotSet){0};
    for (int i = 0; i < count; i++)
        if (pieces[i].generation > set->newest) set->newest = pieces[i].generation;
    for (;;) { /* in descending order; each step tries every kind of generation */
        const SnapshotPiece *next = NULL;
        for (int i = 0; i < count; i++)
            if ((!last || newer(last, &pieces[i])) && (!next || newer(&pieces[i], next))) next = &pieces[i];
        if (!next) return;
        for (int i = 0; i < count; i++) {
            const SnapshotPiece *p = &pieces[i];
            bool seen = false;
            if (newer(p, next) || newer(next, p) || p->world < 1 || (params && !digest_equal(*params, p->params)))
                continue;
            for (int j = 0; j < i && !seen; j++) seen = same_generation(&pieces[j], p);
            if (!seen && gather(pieces, count, p, set, missing)) return;
        }
        last = next;
    }
}

void snapshot_set_free(SnapshotSet *set)
{
    free(set->pieces);
    *set = (SnapshotSet){0};
}

/* ---- Contents ---- */

const Interval *snapshot_intervals(const SnapshotFile *f, int *count)
{
    *count = f->view->fixed.n_intervals;
    return f->view->fixed.intervals;
}

const float *snapshot_values(const SnapshotFile *f, int slot, int array)
{
    const SnapshotHeader *h = f->view->header;
    return (const float *)(const void *)(f->view->data + h->slot_offset[slot] + snapshot_array_offset(h, array));
}

const char *snapshot_state(const SnapshotFile *f, int slot, size_t *size)
{
    const uint8_t *at = f->view->data + f->view->header->slot_offset[slot];
    SnapshotMark m;
    memcpy(&m, at, sizeof m);
    *size = m.state_bytes;
    return (const char *)at + SNAPSHOT_PAGE;
}

void snapshot_scatter(const Interval *intervals, int count, const float *values, float *to)
{
    for (int i = 0; i < count; i++) {
        size_t n = (size_t)(intervals[i].end - intervals[i].begin);
        memcpy(to + intervals[i].begin, values, n * sizeof *to);
        values += n;
    }
}

void snapshot_assemble_piece(const SnapshotList *list, const SnapshotPiece *p, float *const arrays[SNAPSHOT_ARRAYS])
{
    const SnapshotFile *f = &list->files[p->file];
    int n;
    const Interval *intervals = snapshot_intervals(f, &n);
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++)
        if (arrays[a]) snapshot_scatter(intervals, n, snapshot_values(f, p->slot, a), arrays[a]);
}

void snapshot_assemble(const SnapshotList *list, const SnapshotSet *set, float *const arrays[SNAPSHOT_ARRAYS])
{
    for (int s = 0; s < set->world; s++) snapshot_assemble_piece(list, &set->pieces[s], arrays);
}

const ParamTable *snapshot_params(const SnapshotFile *f) { return &f->view->fixed.params; }

const ModelFile *snapshot_files(const SnapshotFile *f, int *count)
{
    *count = f->view->fixed.n_files;
    return f->view->fixed.files;
}

/* ---- Removal ---- */

/* Removes an unfinished file or a snapshot, unless a process holds it. */
static Status remove_dead(const char *path, bool *gone)
{
    struct stat st;
    *gone = false;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return errno == ENOENT ? OK : fail(E_IO, "%s: cannot open: %m", path);
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
static int name_world(const char *path)
{
    const char *at = strrchr(path, '/');
    int world = 0;
    at = at ? at + 1 : path;
    return sscanf(at, "cairn-%*d-%*16[0-9a-f]-%d-", &world) == 1 ? world : 0;
}

static Status remove_listed(const SnapshotList *list, int except_world, int *removed, int *kept)
{
    for (int i = 0; i < list->count; i++) {
        bool gone;
        if (except_world > 0 && name_world(list->files[i].path) == except_world) continue;
        TRY(remove_dead(list->files[i].path, &gone));
        if (gone && removed) ++*removed;
        if (!gone && kept) ++*kept;
    }
    return OK;
}

Status snapshot_remove(const char *dir, const char *output, int except_world, int *removed, int *kept)
{
    Status status = OK;
    SnapshotList list = {0}, unfinished = {0};
    if (removed) *removed = 0;
    if (kept) *kept = 0;
    TRY_DONE(list_names(dir, output, SNAPSHOT_SUFFIX, &list));
    TRY_DONE(list_names(dir, output, SNAPSHOT_SUFFIX ".new", &unfinished));
    TRY_DONE(remove_listed(&list, except_world, removed, kept));
    TRY_DONE(remove_listed(&unfinished, 0, NULL, NULL));
done:
    snapshot_list_free(&list);
    snapshot_list_free(&unfinished);
    return status;
}
