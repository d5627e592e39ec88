/* Reading a checkpoint: every byte passes through the digest once, on its way to its destination. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/tensor_file.h"
#include "state/checkpoint/checkpoint_internal.h"

#define BLOCK        ((size_t)1 << 20)
#define MAX_MANIFEST ((size_t)1 << 20)
#define MAX_SHOWN    12 /* differences in a message */
#define ANY_SIZE     UINT64_MAX

/* ---- One file against its line in the manifest ---- */

typedef void (*Sink)(void *context, uint64_t offset, const uint8_t *data, size_t len);

/* Tells damage (E_CORRUPT) from a refusal of the system (E_IO): an unreadable checkpoint need not be corrupt. */
static Status read_failed(const char *path, const char *what)
{
    bool damage = errno == ENOENT || errno == ENOTDIR || errno == EISDIR || errno == EIO || errno == EUCLEAN;
    return damage ? fail(E_CORRUPT, "%s: cannot %s: %m: damaged", path, what)
                  : fail(E_IO, "%s: cannot %s: %m", path, what);
}

/* Opens a regular file of `size` bytes, or of any size. */
static Status open_file(const char *path, uint64_t size, int *fd)
{
    struct stat st;
    *fd = file_open(path, O_RDONLY);
    if (*fd < 0) return read_failed(path, "open");
    Status status = OK;
    if (fstat(*fd, &st) != 0)
        status = read_failed(path, "examine");
    else if (!S_ISREG(st.st_mode))
        status = fail(E_CORRUPT, "%s: not a regular file: damaged", path);
    else if (size != ANY_SIZE && (uint64_t)st.st_size != size)
        status = fail(E_CORRUPT, "%s: has %lld bytes, the manifest says %" PRIu64 ": damaged", path,
                      (long long)st.st_size, size);
    if (status != OK) close(*fd);
    return status;
}

/* A whole block, but at the end of the file, so that no number lies in two blocks. */
static ssize_t read_block(int fd, uint8_t *block)
{
    size_t got = 0;
    while (got < BLOCK) {
        ssize_t n = file_read_some(fd, block + got, BLOCK - got);
        if (n < 0) return n;
        if (n == 0) break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

/* Passes the whole file to `sink` (may be NULL), then verifies its size and digest. */
static Status read_verified(const char *path, const ManifestFile *f, Sink sink, void *context)
{
    Status status = OK;
    int fd;
    uint64_t at = 0;
    char want[33], found[33];
    TRY(open_file(path, f->size, &fd));
    uint8_t *block = mem_alloc(BLOCK);
    DigestStream *digest = digest_new();
    for (;;) {
        ssize_t n = read_block(fd, block);
        if (n < 0) TRY_DONE(read_failed(path, "read"));
        if (n == 0) break;
        if ((uint64_t)n > f->size - at) TRY_DONE(fail(E_CORRUPT, "%s: the file grew during reading", path));
        digest_update(digest, block, (size_t)n);
        if (sink) sink(context, at, block, (size_t)n);
        at += (uint64_t)n;
    }
    if (at != f->size)
        TRY_DONE(fail(E_CORRUPT, "%s: ends after %" PRIu64 " bytes, the manifest says %" PRIu64 ": damaged", path, at,
                      f->size));
    if (!digest_equal(digest_value(digest), f->digest)) {
        digest_format(digest_value(digest), found);
        digest_format(f->digest, want);
        TRY_DONE(fail(E_CORRUPT, "%s: its digest is %s, the manifest says %s: damaged", path, found, want));
    }
done:
    close(fd);
    digest_free(digest);
    free(block);
    return status;
}

/* ---- The manifest and the state ---- */

static void append_text(void *context, uint64_t offset, const uint8_t *data, size_t len)
{
    (void)offset;
    if (context) buf_append(context, data, len);
}

static Status read_manifest_text(const char *dir, const char *path, Buf *text)
{
    char block[4096];
    ssize_t n;
    int fd;
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return fail(E_CORRUPT, "%s: %s is missing: not a complete Cairn checkpoint", dir, CHECKPOINT_MANIFEST);
    TRY(open_file(path, ANY_SIZE, &fd));
    while ((n = file_read_some(fd, block, sizeof block)) > 0 && text->len <= MAX_MANIFEST)
        buf_append(text, block, (size_t)n);
    Status status = n < 0   ? read_failed(path, "read")
                    : n > 0 ? fail(E_CORRUPT, "%s: expected a file of at most %zu bytes: damaged", path, MAX_MANIFEST)
                            : OK;
    close(fd);
    return status;
}

Status checkpoint_read_manifest(const char *dir, Manifest *m)
{
    Status status = OK;
    Buf text = {0};
    int64_t step;
    const char *suffix;
    char *path = file_join(dir, CHECKPOINT_MANIFEST), *name = mem_strdup(dir);
    *m = (Manifest){0};
    TRY_DONE(read_manifest_text(dir, path, &text));
    TRY_DONE(manifest_parse(path, text.data ? text.data : "", text.len, m));
    size_t len = strlen(name);
    while (len > 1 && name[len - 1] == '/') name[--len] = '\0';
    if (checkpoint_parse_name(file_basename(name), &step, &suffix) && step != m->step)
        TRY_DONE(fail(E_CORRUPT, "%s: is of step %" PRId64 ", the folder's name says %" PRId64 ": mixed up", path,
                      m->step, step));
done:
    MEM_FREE(path, name);
    buf_free(&text);
    if (status != OK) manifest_free(m);
    return status;
}

/* Verifies all files, those with tensors only if `tensors`; stores state.json's text in `state` (may be NULL). */
static Status verify_files(const char *dir, const Manifest *m, bool tensors, Buf *state)
{
    if (state && state->data) state->len = 0;
    for (int i = 0; i < m->count; i++) {
        const ManifestFile *f = &m->files[i];
        bool is_state = strcmp(f->name, CHECKPOINT_STATE) == 0;
        bool has_tensors = strcmp(f->name, CHECKPOINT_MODEL) == 0 || strcmp(f->name, CHECKPOINT_OPTIMIZER) == 0 ||
                           strcmp(f->name, CHECKPOINT_KFAC) == 0;
        if (!tensors && has_tensors) continue;
        if (is_state && f->size > CHECKPOINT_MAX_STATE)
            return fail(E_CORRUPT, "%s/%s: %" PRIu64 " bytes, expected at most %" PRIu64, dir, f->name, f->size,
                        CHECKPOINT_MAX_STATE);
        char *path = file_join(dir, f->name);
        Status status = read_verified(path, f, append_text, is_state ? state : NULL);
        free(path);
        TRY(status);
    }
    return OK;
}

Status checkpoint_verify(const char *dir, Buf *state, int64_t *step)
{
    Manifest m;
    TRY(checkpoint_read_manifest(dir, &m));
    Status status = verify_files(dir, &m, true, state);
    if (status == OK && step) *step = m.step;
    manifest_free(&m);
    return status;
}

/* ---- Tensors ---- */

typedef struct {
    uint64_t begin, end; /* bytes of the file */
    float *to;           /* NULL: to the array's `put` */
    int64_t at;          /* the first element's place in the flat space */
} Piece;

typedef struct {
    Piece *pieces; /* ascending, without overlap */
    int count, next;
    CheckpointPut put;
    void *context;
} Scatter;

/* Bytes [from, to) of the file, which begin at `data`. A file with a `put` has whole numbers there. */
static void pass_bytes(const Scatter *s, const Piece *p, uint64_t from, uint64_t to, const uint8_t *data)
{
    size_t before = (size_t)(from - p->begin), n = (size_t)(to - from);
    if (p->to) {
        memcpy((uint8_t *)p->to + before, data, n);
        return;
    }
    int64_t at = p->at + (int64_t)(before / sizeof(float));
    s->put(s->context, at, at + (int64_t)(n / sizeof(float)), (const float *)(const void *)data);
}

static void scatter(void *context, uint64_t offset, const uint8_t *data, size_t len)
{
    Scatter *s = context;
    uint64_t end = offset + len;
    for (; s->next < s->count && s->pieces[s->next].begin < end; s->next++) {
        const Piece *p = &s->pieces[s->next];
        uint64_t from = p->begin > offset ? p->begin : offset, to = p->end < end ? p->end : end;
        if (to > from) pass_bytes(s, p, from, to, data + (from - offset));
        if (p->end > end) return;
    }
}

static int by_offset(const void *a, const void *b)
{
    const Piece *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* One array of the flat space, and the prefix of its tensors' names. */
typedef struct {
    const char *prefix;
    float *values; // (params->size); NULL: the scatter's `put`
} Array;

typedef struct {
    Buf text;
    int count;
} Differences;

static void add_difference(Differences *d, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add_difference(Differences *d, const char *format, ...)
{
    va_list args;
    if (d->count++ >= MAX_SHOWN) return;
    va_start(args, format);
    buf_puts(&d->text, "\n  ");
    buf_vprintf(&d->text, format, args);
    va_end(args);
}

/* Finds `name` in the file and compares its type and shape with the model's; NULL if they differ. */
static const TensorInfo *find_tensor(const TensorFile *file, const char *name, const Param *p, Differences *d)
{
    const int64_t dims[2] = {p->rows, p->cols};
    char want[TENSOR_SHAPE_BYTES], found[TENSOR_SHAPE_BYTES];
    int at = tensor_file_find(file, name);
    tensor_shape(want, dims, p->n_dims);
    if (at < 0) {
        add_difference(d, "missing:    %s %s", name, want);
        return NULL;
    }
    const TensorInfo *t = tensor_file_info(file, at);
    if (t->dtype == F32 && t->n_dims == p->n_dims && memcmp(t->dims, dims, (size_t)p->n_dims * sizeof *dims) == 0)
        return t;
    add_difference(d, "different:  %s: expected f32 %s, found %s %s", name, want, dtype_name(t->dtype),
                   tensor_shape(found, t->dims, t->n_dims));
    return NULL;
}

static bool is_expected(const ParamTable *params, const Array *arrays, int n, const char *name)
{
    for (int a = 0; a < n; a++) {
        const char *prefix = arrays[a].prefix;
        if (str_starts_with(name, prefix) && params_find(params, name + strlen(prefix)) >= 0) return true;
    }
    return false;
}

/* Fills `s` with the destination of each tensor's bytes. */
static void map_tensors(const TensorFile *file, const ParamTable *params, const Array *arrays, int n, Scatter *s,
                        Differences *d)
{
    s->pieces = mem_array((size_t)n * (size_t)params->count, sizeof *s->pieces);
    for (int a = 0; a < n; a++)
        for (int i = 0; i < params->count; i++) {
            const Param *p = &params->params[i];
            char *name = mem_printf("%s%s", arrays[a].prefix, p->name);
            const TensorInfo *t = find_tensor(file, name, p, d);
            float *to = arrays[a].values ? arrays[a].values + p->offset : NULL;
            if (t && !to && t->offset % sizeof *to)
                add_difference(d, "misplaced:  %s: at byte %" PRIu64, name, t->offset);
            else if (t)
                s->pieces[s->count++] = (Piece){t->offset, t->offset + t->bytes, to, p->offset};
            free(name);
        }
    for (int i = 0; i < tensor_file_count(file); i++) {
        const char *name = tensor_file_info(file, i)->name;
        if (!is_expected(params, arrays, n, name)) add_difference(d, "unexpected: %s", name);
    }
    if (s->count > 0) qsort(s->pieces, (size_t)s->count, sizeof *s->pieces, by_offset);
}

/* Zeros the gaps between tensors, and the pad rows. */
static void clear_gaps(const ParamTable *params, float *values)
{
    int64_t end = 0;
    for (int i = 0; i <= params->count; i++) {
        int64_t next = i < params->count ? params->params[i].offset : params->size;
        CHECK(next >= end, "the parameter table is not in the order of the flat space");
        memset(values + end, 0, (size_t)(next - end) * sizeof *values);
        if (i < params->count) end = next + param_exported(&params->params[i]);
    }
}

/* The header is read through a mapping, where a media error would kill the process. So read it once before. */
static Status touch_header(const char *path, uint64_t size)
{
    Status status = OK;
    int fd;
    uint64_t length = 0;
    uint8_t block[4096];
    TRY(open_file(path, size, &fd));
    ssize_t n = file_read_some(fd, block, sizeof block);
    for (int i = 0; n >= 8 && i < 8; i++) length |= (uint64_t)block[i] << (8 * i);
    if (length > size) length = size;
    for (uint64_t at = 0; n > 0 && at < length + 8; at += (uint64_t)n) n = file_read_some(fd, block, sizeof block);
    if (n < 0) status = read_failed(path, "read");
    close(fd);
    return status;
}

static Status read_tensors(const char *dir, const ManifestFile *f, const ParamTable *params, const Array *arrays, int n,
                           Scatter s)
{
    Status status = OK;
    TensorFile *file = NULL;
    Differences d = {0};
    char *path = file_join(dir, f->name);
    TRY_DONE(touch_header(path, f->size));
    status = tensor_file_open(path, &file);
    if (status == E_FORMAT) status = fail(E_CORRUPT, "%s: damaged", status_message());
    if (status != OK) goto done;
    map_tensors(file, params, arrays, n, &s, &d);
    if (d.count > 0) { /* either another model or a damaged header */
        TRY_DONE(read_verified(path, f, NULL, NULL));
        TRY_DONE(fail(E_FORMAT, "%s: was saved from another model; %d tensors differ%s:%s", path, d.count,
                      d.count > MAX_SHOWN ? ", the first are" : "", d.text.data));
    }
    for (int a = 0; a < n && arrays[a].values; a++) clear_gaps(params, arrays[a].values);
    TRY_DONE(read_verified(path, f, scatter, &s));
done:
    tensor_file_close(file);
    free(s.pieces);
    buf_free(&d.text);
    free(path);
    return status;
}

Status checkpoint_load(const char *dir, const ParamTable *params, float *weights, float *m, float *v, Buf *state)
{
    Status status = OK;
    Manifest manifest;
    const Array model[] = {{"", weights}}, moments[] = {{"m.", m}, {"v.", v}};
    CHECK(!m == !v, "checkpoint_load needs both moments or neither");
    TRY(checkpoint_read_manifest(dir, &manifest));
    TRY_DONE(verify_files(dir, &manifest, false, state));
    TRY_DONE(read_tensors(dir, manifest_find(&manifest, CHECKPOINT_MODEL), params, model, 1, (Scatter){0}));
    if (m)
        TRY_DONE(read_tensors(dir, manifest_find(&manifest, CHECKPOINT_OPTIMIZER), params, moments, 2, (Scatter){0}));
done:
    manifest_free(&manifest);
    return status;
}

/* ---- K-FAC's sets ---- */

#define NEXT "next."

static Status has_next(const char *dir, const ManifestFile *f, bool *has)
{
    TensorFile *file = NULL;
    char *path = file_join(dir, f->name);
    Status status = touch_header(path, f->size);
    if (status == OK) status = tensor_file_open(path, &file);
    if (status == E_FORMAT) status = fail(E_CORRUPT, "%s: damaged", status_message());
    *has = false;
    for (int i = 0; status == OK && i < tensor_file_count(file) && !*has; i++)
        *has = str_starts_with(tensor_file_info(file, i)->name, NEXT);
    tensor_file_close(file);
    free(path);
    return status;
}

/* The tensors before those of the next set. */
static ParamTable first_set(const ParamTable *kfac)
{
    ParamTable first = *kfac;
    for (first.count = 0; first.count < kfac->count; first.count++)
        if (str_starts_with(kfac->params[first.count].name, NEXT)) break;
    if (first.count < kfac->count) first.size = kfac->params[first.count].offset;
    return first;
}

Status checkpoint_load_kfac(const char *dir, const ParamTable *kfac, CheckpointPut put, void *context, bool *found)
{
    Status status = OK;
    Manifest manifest;
    bool two = false;
    ParamTable first = first_set(kfac);
    TRY(checkpoint_read_manifest(dir, &manifest));
    const ManifestFile *f = manifest_find(&manifest, CHECKPOINT_KFAC);
    *found = f;
    if (!f) goto done;
    TRY_DONE(has_next(dir, f, &two));
    if (two && first.count == kfac->count)
        TRY_DONE(fail(
            E_FORMAT,
            "%s/%s: holds the next inverses of a run with a --kfac-lag, and this run has none: give --kfac-lag, or "
            "--resume never",
            dir, f->name));
    status =
        read_tensors(dir, f, two ? kfac : &first, &(Array){"", NULL}, 1, (Scatter){.put = put, .context = context});
done:
    manifest_free(&manifest);
    return status;
}
