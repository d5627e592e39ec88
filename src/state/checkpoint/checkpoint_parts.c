/* Elements of the flat space at their places in a checkpoint's files. Several processes write one checkpoint: a process
   makes the files with their full size, and each writes its part. */
#include <fcntl.h>
#include <unistd.h>

#include "state/checkpoint/checkpoint_internal.h"

enum { ARRAYS = CHECKPOINT_ARRAYS, FILES = CHECKPOINT_FILES, BLOCK = 1 << 18 }; /* BLOCK: elements */

typedef struct {
    int n;
    char *path[FILES];
    int fd[FILES];
    uint64_t start[FILES]; /* of the data */
    FileSent sent[FILES];  /* of files that are written */
} Files;

static bool has_sets(const HeldPart *p) { return p->params[1] && p->params[1]->count > 0; }

static Status file_failed(const char *path, const char *what) { return fail(E_IO, "%s: cannot %s: %m", path, what); }

static void files_close(Files *f)
{
    for (int i = 0; i < FILES; i++) {
        if (f->fd[i] >= 0) close(f->fd[i]);
        free(f->path[i]);
    }
}

/* Opens the file, and finds where its data begin. */
static Status find_start(Files *f, int i, bool write)
{
    uint8_t length[8];
    f->fd[i] = file_open(f->path[i], O_RDONLY | O_NOFOLLOW);
    if (f->fd[i] < 0) return file_failed(f->path[i], "open");
    if (write) (void)posix_fadvise(f->fd[i], 0, 0, POSIX_FADV_RANDOM); /* nothing is read ahead */
    ssize_t n = file_read_at(f->fd[i], 0, length, sizeof length);
    if (n < 0) return file_failed(f->path[i], "read");
    if (n != (ssize_t)sizeof length) return fail(E_IO, "%s: it has no header", f->path[i]);
    f->start[i] = sizeof length + bytes_number(length, sizeof length);
    return OK;
}

/* Opens the file again, to write alone. Where several hosts write one file of NFS, a host writes whole pages of those
   that it has read: its zeros would come over the part of another host. So it keeps none of them. */
static Status open_to_write(Files *f, int i)
{
    (void)posix_fadvise(f->fd[i], 0, 0, POSIX_FADV_DONTNEED);
    close(f->fd[i]);
    f->fd[i] = file_open(f->path[i], O_WRONLY | O_NOFOLLOW);
    return f->fd[i] < 0 ? file_failed(f->path[i], "open") : OK;
}

static Status files_open(Files *f, const char *dir, const HeldPart *part, bool write)
{
    Status status = OK;
    *f = (Files){.n = has_sets(part) ? 3 : 2, .fd = {-1, -1, -1}};
    for (int i = 0; i < f->n && status == OK; i++) {
        f->path[i] = file_join(dir, checkpoint_files[i]);
        status = find_start(f, i, write);
        if (status == OK && write) status = open_to_write(f, i);
    }
    if (status != OK) files_close(f);
    return status;
}

static Status files_sync(const Files *f)
{
    for (int i = 0; i < f->n; i++)
        if (file_sync(f->fd[i]) != 0) return file_failed(f->path[i], "flush to the disk");
    return OK;
}

static Status write_bytes(Files *f, int file, const float *data, size_t bytes, uint64_t at)
{
    for (const uint8_t *p = (const uint8_t *)data, *end = p + bytes; p < end;) {
        ssize_t n = pwrite(f->fd[file], p, (size_t)(end - p), (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO; /* no progress and no reason */
        if (n <= 0) return file_failed(f->path[file], "write");
        p += n;
        at += (uint64_t)n;
    }
    return file_send(f->fd[file], (off_t)at, &f->sent[file]) == 0 ? OK : file_failed(f->path[file], "write");
}

static Status read_bytes(const Files *f, int file, float *data, size_t bytes, uint64_t at)
{
    ssize_t n = file_read_at(f->fd[file], at, data, bytes);
    if (n >= 0) errno = EIO; /* the file ends */
    return n == (ssize_t)bytes ? OK : file_failed(f->path[file], "read");
}

/* Elements on their way from `read`, into the files where these are not NULL. */
typedef struct {
    Files *files;
    ArrayRead *read;
    void *context;
    DigestStream *digest;
    float *block; // (BLOCK)
} Pass;

/* Elements [begin, end) of an array, all of one tensor, which are `place` elements into the data of their file. */
static Status pass_run(const Pass *p, int array, int64_t begin, int64_t end, int64_t place)
{
    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t n = end - at < BLOCK ? end - at : BLOCK;
        size_t bytes = (size_t)n * sizeof(float);
        int file = checkpoint_arrays[array].file;
        TRY(p->read(p->context, array, at, at + n, p->block));
        if (p->files)
            TRY(write_bytes(p->files, file, p->block, bytes,
                            p->files->start[file] + (uint64_t)(place + at - begin) * sizeof(float)));
        digest_update(p->digest, p->block, bytes);
    }
    return OK;
}

/* The part's elements of one array; those between and behind tensors are in no file. */
static Status pass_array(const Pass *p, const ParamTable *params, const Intervals *part, int array)
{
    int64_t all = 0;
    for (int i = 0; i < params->count; i++) all += param_exported(&params->params[i]);
    int64_t place = checkpoint_arrays[array].before * all; /* in the file, of parameter `k` */
    int k = 0;
    for (int i = 0; i < part->count; i++) {
        const Interval *x = &part->intervals[i];
        for (; k < params->count; k++) {
            const Param *q = &params->params[k];
            int64_t end = q->offset + param_exported(q), from = x->begin > q->offset ? x->begin : q->offset,
                    to = x->end < end ? x->end : end;
            if (from < to) TRY(pass_run(p, array, from, to, place + from - q->offset));
            if (end > x->end) break; /* the next interval may have more of it */
            place += param_exported(q);
        }
    }
    return OK;
}

/* ---- writing a part ---- */

struct CheckpointPart {
    Files files;
    HeldPart part;
};

Status checkpoint_part_open(const char *out, int64_t step, const HeldPart *part, CheckpointPart **opened)
{
    CheckpointPart *p = *opened = mem_alloc(sizeof *p);
    char *dir = checkpoint_path(out, step, ".tmp");
    Status status = files_open(&p->files, dir, part, true);
    p->part = *part;
    free(dir);
    if (status == OK) return OK;
    free(p);
    *opened = NULL;
    return status;
}

static Status pass_part(Files *files, const HeldPart *part, ArrayRead *read, void *context, Digest *digest)
{
    Pass p = {files, read, context, digest_new(), mem_array(BLOCK, sizeof(float))};
    Status status = OK;
    for (int a = 0; a < ARRAYS && status == OK; a++) {
        int space = checkpoint_arrays[a].space;
        if (space == SPACE_MODEL || has_sets(part)) status = pass_array(&p, part->params[space], part->part[space], a);
    }
    *digest = digest_value(p.digest);
    digest_free(p.digest);
    free(p.block);
    return status;
}

Status checkpoint_part_write(CheckpointPart *p, ArrayRead *read, void *context, Digest *digest)
{
    Status status = pass_part(&p->files, &p->part, read, context, digest);
    if (status == OK) status = files_sync(&p->files);
    files_close(&p->files);
    free(p);
    return status;
}

Status checkpoint_write_part(const char *out, int64_t step, const HeldPart *part, ArrayRead *read, void *context,
                             Digest *digest)
{
    CheckpointPart *opened;
    TRY(checkpoint_part_open(out, step, part, &opened));
    return checkpoint_part_write(opened, read, context, digest);
}

Status checkpoint_part_digest(const HeldPart *part, ArrayRead *read, void *context, Digest *digest)
{
    return pass_part(NULL, part, read, context, digest);
}

/* ---- checking all parts ---- */

/* A part, walked in the order of the files. */
typedef struct {
    const Intervals *list; /* of the space that is read */
    int at;
    DigestStream *digest;
} PartWalk;

/* Elements [begin, end), which lie behind those before. */
static void digest_elements(PartWalk *w, int64_t begin, int64_t end, const float *x)
{
    const Interval *v = w->list->intervals;
    while (w->at < w->list->count && v[w->at].end <= begin) w->at++;
    for (int k = w->at; k < w->list->count && v[k].begin < end; k++) {
        int64_t from = v[k].begin > begin ? v[k].begin : begin, to = v[k].end < end ? v[k].end : end;
        digest_update(w->digest, x + (from - begin), (size_t)(to - from) * sizeof *x);
    }
}

/* One file, from begin to end: its own digest, and those of the parts. */
static Status digest_file(const Files *f, int file, const ParamTable *const *params, const Intervals *const *parts,
                          PartWalk *walks, int n, float *block, CheckpointFilled *filled)
{
    DigestStream *whole = digest_new();
    uint64_t at = 0;
    Status status = OK;
    for (size_t bytes; at < f->start[file] && status == OK; at += bytes) {
        bytes = f->start[file] - at < BLOCK ? (size_t)(f->start[file] - at) : BLOCK;
        status = read_bytes(f, file, block, bytes, at);
        digest_update(whole, block, bytes);
    }
    for (int a = 0; a < ARRAYS; a++) {
        const ParamTable *t = params[checkpoint_arrays[a].space];
        if (checkpoint_arrays[a].file != file) continue;
        for (int p = 0; p < n; p++) walks[p] = (PartWalk){&parts[checkpoint_arrays[a].space][p], 0, walks[p].digest};
        for (int i = 0; i < t->count; i++) {
            int64_t end = t->params[i].offset + param_exported(&t->params[i]), count;
            for (int64_t from = t->params[i].offset; from < end && status == OK; from += count) {
                count = end - from < BLOCK ? end - from : BLOCK;
                size_t bytes = (size_t)count * sizeof *block;
                status = read_bytes(f, file, block, bytes, at);
                digest_update(whole, block, bytes);
                for (int p = 0; p < n; p++) digest_elements(&walks[p], from, from + count, block);
                at += bytes;
            }
        }
    }
    filled->digest[file] = digest_value(whole);
    filled->size[file] = at;
    digest_free(whole);
    return status;
}

Status checkpoint_check_parts(const char *out, const TrainingState *t, const Intervals *const parts[N_SPACES],
                              const Digest *digests, int n, bool *wrong, CheckpointFilled *filled)
{
    Files f;
    const HeldPart tables = {{t->params, t->kfac}, {NULL, NULL}};
    for (int space = 0; space < N_SPACES; space++)
        if (tables.params[space]) TRY(checkpoint_check_whole(tables.params[space], parts[space], n));
    char *dir = checkpoint_path(out, t->step, ".tmp");
    Status status = files_open(&f, dir, &tables, false);
    free(dir);
    if (status != OK) return status;
    float *block = mem_array(BLOCK, sizeof *block);
    PartWalk *walks = mem_array((size_t)n, sizeof *walks);
    for (int p = 0; p < n; p++) walks[p].digest = digest_new();
    for (int i = 0; i < f.n && status == OK; i++)
        status = digest_file(&f, i, tables.params, parts, walks, n, block, filled);
    for (int p = 0; p < n; p++) {
        wrong[p] = status != E_IO && !digest_equal(digest_value(walks[p].digest), digests[p]);
        if (status == OK && wrong[p])
            status = fail(E_CORRUPT, "%s and %s: bytes differ from those that were written", f.path[0], f.path[1]);
        digest_free(walks[p].digest);
    }
    files_close(&f);
    MEM_FREE(block, walks);
    return status;
}

Status checkpoint_check_whole(const ParamTable *params, const Intervals *parts, int n)
{
    Status status = OK;
    Intervals all = intervals_joined(parts, NULL, n);
    for (int i = 0; i < params->count && status == OK; i++) {
        const Param *p = &params->params[i];
        int64_t end = p->offset + param_exported(p);
        Interval v = {p->offset, p->offset};
        bool begins = intervals_next(&all, end, &v) && v.begin == p->offset;
        if (!begins || v.end < end)
            status = fail(E_CORRUPT, "no part of the state has element %" PRId64 " of %s",
                          begins ? v.end - p->offset : 0, p->name);
    }
    intervals_free(&all);
    return status;
}
