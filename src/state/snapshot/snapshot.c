/* Names, the run's number, the layout, locks. Writing is in snapshot_write.c, reading in snapshot_read.c. */
#include "state/snapshot/snapshot.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include "state/snapshot/snapshot_internal.h"

/* ---- The run's number ---- */

bool snapshot_run_known(Digest run) { return run.hi != 0 || run.lo != 0; }

Status snapshot_run(const char *output, bool create, bool fresh, Digest *run)
{
    Status status = OK;
    Buf text = {0};
    char line[34], *path = file_join(output, ".run");
    *run = (Digest){0};
    if (!fresh && file_exists(path)) {
        TRY_DONE(file_read(path, 64, &text));
        if (text.len == 33 && text.data[32] == '\n') text.data[32] = '\0';
        if (text.len == 33 && digest_parse(text.data, run) && snapshot_run_known(*run)) goto done;
        log_warn("%s: expected 32 hexadecimal digits, found something else; ignoring this run's snapshots "
                 "in memory",
                 path);
    }
    if (!create) goto done;
    if (getrandom(run, sizeof *run, 0) != sizeof *run) TRY_DONE(fail(E_IO, "cannot get a random number: %m"));
    run->hi |= 1; /* never 0 */
    digest_format(*run, line);
    strcat(line, "\n");
    TRY_DONE(file_write_durable(path, line, strlen(line)));
done:
    buf_free(&text);
    free(path);
    return status;
}

/* ---- Names ---- */

char *snapshot_canonical(const char *output)
{
    char *path = realpath(output, NULL);
    return path ? path : mem_strdup(output);
}

char *snapshot_prefix(const char *output)
{
    if (!output) return mem_printf("cairn-%ld-", (long)geteuid());
    return mem_printf("cairn-%ld-%.16s-", (long)geteuid(), DIGEST_TEXT(digest_of(output, strlen(output))));
}

char *snapshot_name(const char *output, int world, int slice, int holder)
{
    char *prefix = snapshot_prefix(output);
    char *name = mem_printf("%s%d-%d-%d%s", prefix, world, slice, holder, SNAPSHOT_SUFFIX);
    free(prefix);
    return name;
}

/* ---- Files ---- */

int snapshot_open_path(const char *path, int flags) { return file_open(path, flags | O_NOFOLLOW); }

Status snapshot_check_owner(int fd, struct stat *st)
{
    if (fstat(fd, st) != 0) return fail(E_FORMAT, "cannot examine: %m");
    if (!S_ISREG(st->st_mode)) return fail(E_FORMAT, "not a regular file");
    if (st->st_uid != geteuid()) return fail(E_FORMAT, "belongs to another user (%ld)", (long)st->st_uid);
    if ((st->st_mode & 077) != 0) return fail(E_FORMAT, "others may read or change it (mode %o)", st->st_mode & 0777);
    return OK;
}

/* ---- Locks: of the open file, so that they end with the process and exclude other ranks' threads ---- */

static struct flock whole_file(void) { return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET}; }

bool snapshot_lock(int fd)
{
    struct flock lock = whole_file();
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

bool snapshot_locked(int fd)
{
    struct flock lock = whole_file();
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* ---- Layout ---- */

uint64_t snapshot_round(uint64_t bytes) { return (bytes + SNAPSHOT_PAGE - 1) / SNAPSHOT_PAGE * SNAPSHOT_PAGE; }

static uint64_t array_bytes(int64_t slice_size) { return snapshot_round((uint64_t)slice_size * sizeof(float)); }

uint64_t snapshot_array_offset(const SnapshotHeader *h, int array)
{
    uint64_t at = SNAPSHOT_PAGE + SNAPSHOT_STATE;
    for (int a = 0; a < array; a++) at += array_bytes(snapshot_slice_size(h, a));
    return at;
}

uint64_t snapshot_slot_size(const SnapshotHeader *h) { return snapshot_array_offset(h, SNAPSHOT_ARRAYS); }

uint64_t snapshot_bytes(const HeldPart *own, uint64_t file_bytes)
{
    enum { TENSOR = 136, FILES = 32 * 136 + 40 }; /* as written by snapshot_fixed.c, for at most 32 files */
    uint64_t fixed = FILES;
    const SnapshotHeader sizes = {.slice_size = own->part[0]->size, .sets_slice = own->part[1]->size};
    for (int i = 0; i < N_SPACES; i++)
        fixed += (uint64_t)own->part[i]->count * sizeof(Interval) + (uint64_t)own->params[i]->count * TENSOR;
    return 2 * SNAPSHOT_PAGE + snapshot_round(fixed + file_bytes) + SNAPSHOT_SLOTS * snapshot_slot_size(&sizes);
}

/* ---- Digests ---- */

Digest snapshot_tables_digest(const ParamTable *const params[N_SPACES])
{
    Digest both[N_SPACES] = {params_digest(params[0])};
    if (params[1]->count == 0) return both[0];
    both[1] = params_digest(params[1]);
    return digest_of(both, sizeof both);
}

Digest snapshot_header_digest(const SnapshotHeader *h) { return digest_of(h, offsetof(SnapshotHeader, digest)); }

Digest snapshot_mark_digest(const SnapshotHeader *h, const SnapshotMark *m)
{
    SnapshotHeader of = *h;
    SnapshotMark mark;
    of.holder = 0;
    memset(&mark, 0, sizeof mark);
    memcpy(&mark, m, offsetof(SnapshotMark, digest));
    mark.digest = snapshot_header_digest(&of);
    return digest_of(&mark, sizeof mark);
}

bool snapshot_slot_whole(const uint8_t *data, const SnapshotHeader *h, int slot)
{
    const uint8_t *at = data + h->slot_offset[slot];
    SnapshotMark m;
    memcpy(&m, at, sizeof m);
    if (m.generation == 0 || m.state_bytes > SNAPSHOT_STATE) return false;
    if (!digest_equal(m.digest, snapshot_mark_digest(h, &m))) return false;
    DigestStream *stream = digest_new();
    digest_update(stream, at + SNAPSHOT_PAGE, m.state_bytes);
    for (int a = 0; a < SNAPSHOT_ARRAYS; a++)
        digest_update(stream, at + snapshot_array_offset(h, a), (size_t)snapshot_slice_size(h, a) * sizeof(float));
    bool equal = digest_equal(digest_value(stream), m.payload);
    digest_free(stream);
    return equal;
}
