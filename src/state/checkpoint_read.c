/* Reading a checkpoint: every byte passes through the digest once, on its way to its destination. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/tensor_file.h"
#include "state/checkpoint_internal.h"

#define BLOCK        ((size_t)1 << 20)
#define MAX_MANIFEST ((size_t)1 << 20)

/* ---- One file against its line in the manifest ---- */

typedef void (*Sink)(void *context, uint64_t offset, const uint8_t *data, size_t len);

/* Tells damage (E_CORRUPT) from a refusal of the system (E_IO): an unreadable checkpoint need not be corrupt. */
static Status read_failed(const char *path, const char *what)
{
    bool damage = errno == ENOENT || errno == ENOTDIR || errno == EISDIR || errno == EIO || errno == EUCLEAN;
    return damage ? fail(E_CORRUPT, "%s: cannot %s: %m: damaged", path, what)
                  : fail(E_IO, "%s: cannot %s: %m", path, what);
}

static Status open_sized(const char *path, uint64_t size, int *fd)
{
    struct stat st;
    do *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return read_failed(path, "open");
    Status status = OK;
    if (fstat(*fd, &st) != 0)
        status = read_failed(path, "examine");
    else if (!S_ISREG(st.st_mode))
        status = fail(E_CORRUPT, "%s: not a regular file: damaged", path);
    else if ((uint64_t)st.st_size != size)
        status = fail(E_CORRUPT, "%s: has %lld bytes, the manifest says %" PRIu64 ": damaged", path,
                      (long long)st.st_size, size);
    if (status != OK) close(*fd);
    return status;
}

static ssize_t read_some(int fd, void *out, size_t len)
{
    ssize_t n;
    do n = read(fd, out, len);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Passes the whole file to `sink` (may be NULL), then verifies its size and digest. */
static Status read_verified(const char *path, const ManifestFile *f, Sink sink, void *context)
{
    Status status = OK;
    int fd;
    uint64_t at = 0;
    char want[33], found[33];
    TRY(open_sized(path, f->size, &fd));
    uint8_t *block = mem_alloc(BLOCK);
    DigestStream *digest = digest_new();
    for (;;) {
        ssize_t n = read_some(fd, block, BLOCK);
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

static Status verify_member(const char *dir, const ManifestFile *f, Sink sink, void *context)
{
    char *path = file_join(dir, f->name);
    Status status = read_verified(path, f, sink, context);
    free(path);
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
    struct stat st;
    int fd;
    ssize_t n;
    char block[4096];
    if (stat(path, &st) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return fail(E_CORRUPT, "%s: %s is missing: not a complete Cairn checkpoint", dir, CHECKPOINT_MANIFEST);
        return read_failed(path, "examine");
    }
    if (st.st_size > (off_t)MAX_MANIFEST)
        return fail(E_CORRUPT, "%s: expected a file of at most %zu bytes: damaged", path, MAX_MANIFEST);
    TRY(open_sized(path, (uint64_t)st.st_size, &fd));
    while ((n = read_some(fd, block, sizeof block)) > 0 && text->len <= MAX_MANIFEST)
        buf_append(text, block, (size_t)n);
    Status status = n < 0 ? read_failed(path, "read") : OK;
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
    free(path);
    free(name);
    buf_free(&text);
    if (status != OK) manifest_free(m);
    return status;
}

/* Reads all files except the tensors; stores state.json's text in `state`. */
static Status read_small(const char *dir, const Manifest *m, Buf *state)
{
    if (state && state->data) state->len = 0;
    for (int i = 0; i < m->count; i++) {
        const ManifestFile *f = &m->files[i];
        if (strcmp(f->name, CHECKPOINT_MODEL) == 0 || strcmp(f->name, CHECKPOINT_OPTIMIZER) == 0) continue;
        bool is_state = strcmp(f->name, CHECKPOINT_STATE) == 0;
        if (is_state && f->size > CHECKPOINT_MAX_STATE)
            return fail(E_CORRUPT, "%s/%s: %" PRIu64 " bytes, expected at most %" PRIu64, dir, f->name, f->size,
                        CHECKPOINT_MAX_STATE);
        TRY(verify_member(dir, f, append_text, is_state ? state : NULL));
    }
    return OK;
}

Status checkpoint_verify(const char *dir, Buf *state, int64_t *step)
{
    Status status = OK;
    Manifest m;
    TRY(checkpoint_read_manifest(dir, &m));
    TRY_DONE(read_small(dir, &m, state));
    TRY_DONE(verify_member(dir, manifest_find(&m, CHECKPOINT_MODEL), NULL, NULL));
    TRY_DONE(verify_member(dir, manifest_find(&m, CHECKPOINT_OPTIMIZER), NULL, NULL));
    if (step) *step = m.step;
done:
    manifest_free(&m);
    return status;
}

/* ---- Tensors ---- */

typedef struct {
    uint64_t begin, end; /* bytes of the file */
    uint8_t *to;
} Piece;

typedef struct {
    Piece *pieces; /* ascending, without overlap */
    int count, next;
} Scatter;

static void scatter(void *context, uint64_t offset, const uint8_t *data, size_t len)
{
    Scatter *s = context;
    uint64_t end = offset + len;
    for (; s->next < s->count && s->pieces[s->next].begin < end; s->next++) {
        const Piece *p = &s->pieces[s->next];
        uint64_t from = p->begin > offset ? p->begin : offset, to = p->end < end ? p->end : end;
        if (to > from) memcpy(p->to + (from - p->begin), data + (from - offset), (size_t)(to - from));
        if (p->end > end) return;
    }
}

static int by_place(const void *a, const void *b)
{
    const Piece *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* One array of the flat space, and the prefix of its tensors' names. */
typedef struct {
    const char *prefix;
    float *values; // (params->size)
} Array;

typedef struct {
    Buf text;
    int count;
} Differences;

static void differ(Differences *d, const char *what, const char *name, const char *shapes)
{
    enum { SHOWN = 12 };
    if (d->count++ < SHOWN) buf_printf(&d->text, "\n  %s %s%s", what, name, shapes);
}

static void print_shape(char out[64], const int64_t *dims, int n)
{
    if (n == 1)
        snprintf(out, 64, "(%" PRId64 ")", dims[0]);
    else if (n == 2)
        snprintf(out, 64, "(%" PRId64 ", %" PRId64 ")", dims[0], dims[1]);
    else
        snprintf(out, 64, "of %d dimensions", n);
}

/* Finds `name` in the file and compares its type and shape with the model's. */
static const TensorInfo *match(const TensorFile *file, const char *name, const Param *p, Differences *d)
{
    const int64_t dims[2] = {p->rows, p->cols};
    char want[64], found[64], shapes[160];
    int at = tensor_file_find(file, name);
    print_shape(want, dims, p->n_dims);
    if (at < 0) {
        snprintf(shapes, sizeof shapes, " %s", want);
        differ(d, "missing:   ", name, shapes);
        return NULL;
    }
    const TensorInfo *t = tensor_file_info(file, at);
    if (t->dtype != F32 || t->n_dims != p->n_dims || memcmp(t->dims, dims, (size_t)p->n_dims * sizeof *dims) != 0) {
        print_shape(found, t->dims, t->n_dims);
        snprintf(shapes, sizeof shapes, ": expected f32 %s, found %s %s", want, dtype_name(t->dtype), found);
        differ(d, "different: ", name, shapes);
        return NULL;
    }
    return t;
}

static bool expected_somewhere(const ParamTable *params, const Array *arrays, int n, const char *name)
{
    for (int a = 0; a < n; a++) {
        size_t len = strlen(arrays[a].prefix);
        if (strncmp(name, arrays[a].prefix, len) == 0 && params_find(params, name + len) >= 0) return true;
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
            const TensorInfo *t = match(file, name, p, d);
            if (t)
                s->pieces[s->count++] = (Piece){
                    .begin = t->offset, .end = t->offset + t->bytes, .to = (uint8_t *)(arrays[a].values + p->offset)};
            free(name);
        }
    for (int i = 0; i < tensor_file_count(file); i++) {
        const char *name = tensor_file_info(file, i)->name;
        if (!expected_somewhere(params, arrays, n, name)) differ(d, "unexpected:", name, "");
    }
    if (s->count > 0) qsort(s->pieces, (size_t)s->count, sizeof *s->pieces, by_place);
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
    TRY(open_sized(path, size, &fd));
    ssize_t n = read_some(fd, block, sizeof block);
    for (int i = 0; n >= 8 && i < 8; i++) length |= (uint64_t)block[i] << (8 * i);
    if (length > size) length = size;
    for (uint64_t at = 0; n > 0 && at < length + 8; at += (uint64_t)n) n = read_some(fd, block, sizeof block);
    if (n < 0) status = read_failed(path, "read");
    close(fd);
    return status;
}

static Status read_tensors(const char *dir, const ManifestFile *f, const ParamTable *params, const Array *arrays, int n)
{
    Status status = OK;
    TensorFile *file = NULL;
    Scatter s = {0};
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
                      d.count > 12 ? ", the first are" : "", d.text.data));
    }
    for (int a = 0; a < n; a++) clear_gaps(params, arrays[a].values);
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
    TRY_DONE(read_small(dir, &manifest, state));
    TRY_DONE(read_tensors(dir, manifest_find(&manifest, CHECKPOINT_MODEL), params, model, 1));
    if (m) TRY_DONE(read_tensors(dir, manifest_find(&manifest, CHECKPOINT_OPTIMIZER), params, moments, 2));
done:
    manifest_free(&manifest);
    return status;
}

/* ---- The newest good one ---- */

/* `params` NULL: only verify. */
static Status search(const char *out, const ParamTable *params, float *weights, float *m, float *v, Buf *state,
                     char **path)
{
    Status status = OK;
    CheckpointList list;
    *path = NULL;
    TRY(checkpoint_find(out, &list));
    for (int i = 0; i < list.count && !*path; i++) {
        const char *dir = list.items[i].path;
        Status one = params ? checkpoint_load(dir, params, weights, m, v, state) : checkpoint_verify(dir, state, NULL);
        if (one == OK)
            *path = mem_strdup(dir);
        else if (one == E_CORRUPT)
            log_warn("%s; looking for the checkpoint before it", status_message());
        else
            TRY_DONE(one);
    }
    if (list.count > 0 && !*path)
        TRY_DONE(fail(E_CORRUPT,
                      "%s: all %d checkpoints are damaged (the newest is %s); restore a good one, or "
                      "start over in another output folder",
                      out, list.count, list.items[0].path));
done:
    checkpoint_list_free(&list);
    return status;
}

Status checkpoint_load_newest(const char *out, const ParamTable *params, float *weights, float *m, float *v, Buf *state,
                              char **path)
{
    return search(out, params, weights, m, v, state, path);
}

Status checkpoint_newest(const char *out, Buf *state, char **path)
{
    return search(out, NULL, NULL, NULL, NULL, state, path);
}
