/* The fixed part of a snapshot file: the slice's intervals, the table of tensors, the run's small files. */

#include "state/snapshot/snapshot_internal.h"

typedef struct {
    char name[96];
    int64_t rows, cols, padded, offset, n_dims;
} FixedTensor;

typedef struct {
    char name[128];
    uint64_t size;
} FixedFile;

typedef struct {
    int64_t intervals, tensors, files;
} FixedCounts;

typedef struct {
    int64_t intervals, tensors;
} FixedSets; /* of K-FAC; not without it */

static void render_tensors(const ParamTable *params, Buf *out)
{
    for (int i = 0; i < params->count; i++) {
        const Param *from = &params->params[i];
        FixedTensor t;
        memset(&t, 0, sizeof t);
        char *name = param_file_name(params, from);
        CHECK(strlen(name) < sizeof t.name, "a tensor's name of %zu characters", strlen(name));
        memcpy(t.name, name, strlen(name));
        free(name);
        t.rows = from->rows;
        t.cols = from->cols;
        t.padded = from->padded;
        t.offset = from->offset;
        t.n_dims = from->n_dims;
        buf_append(out, &t, sizeof t);
    }
}

void snapshot_fixed_render(const SnapshotPlace *p, Buf *out)
{
    FixedCounts counts = {p->own.part[0]->count, p->own.params[0]->count, p->n_files};
    FixedSets sets = {p->own.part[1]->count, p->own.params[1]->count};
    buf_append(out, &counts, sizeof counts);
    if (p->own.params[1]->size > 0) buf_append(out, &sets, sizeof sets);
    for (int i = 0; i < N_SPACES; i++) {
        buf_append(out, p->own.part[i]->intervals, (size_t)p->own.part[i]->count * sizeof *p->own.part[i]->intervals);
        render_tensors(p->own.params[i], out);
    }
    for (int i = 0; i < p->n_files; i++) {
        FixedFile f;
        memset(&f, 0, sizeof f);
        size_t length = strlen(p->files[i].name);
        CHECK(length < sizeof f.name, "a file's name of %zu characters", length);
        memcpy(f.name, p->files[i].name, length);
        f.size = p->files[i].size;
        buf_append(out, &f, sizeof f);
    }
    for (int i = 0; i < p->n_files; i++) buf_append(out, p->files[i].data, p->files[i].size);
}

/* ---- reading: the records in place, since a file begins on a page and all sizes are multiples of 8 ---- */

typedef struct {
    const uint8_t *at;
    uint64_t left;
} Cursor;

/* The next `n` records, or NULL if they do not fit. */
static const void *cursor_take(Cursor *c, int64_t n, size_t size)
{
    const uint8_t *at = c->at;
    if (n < 0 || (uint64_t)n > c->left / size) return NULL;
    c->at += (uint64_t)n * size;
    c->left -= (uint64_t)n * size;
    return at;
}

static Status cut_short(const char *what) { return fail(E_FORMAT, "its fixed part ends within %s", what); }

static Status parse_intervals(Cursor *c, int64_t n, int64_t params_size, int64_t slice_size, Intervals *part)
{
    int64_t end = 0;
    const Interval *intervals = cursor_take(c, n, sizeof *intervals);
    if (!intervals) return cut_short("the intervals");
    for (int64_t i = 0; i < n; i++) {
        const Interval *x = &intervals[i];
        if (x->begin < end || x->end <= x->begin || x->end > params_size)
            return fail(E_FORMAT, "interval %lld is [%lld, %lld), after %lld and of %lld elements", (long long)i,
                        (long long)x->begin, (long long)x->end, (long long)end, (long long)params_size);
        end = x->end;
        intervals_add(part, x->begin, x->end);
    }
    if (part->size == slice_size) return OK;
    return fail(E_FORMAT, "its intervals have %lld elements, the header says %lld", (long long)part->size,
                (long long)slice_size);
}

static bool tensor_valid(const FixedTensor *t, int64_t from, int64_t params_size)
{
    enum { MOST = 1 << 30 }; /* rows or columns: products stay far below 2^63 */
    if (memchr(t->name, '\0', sizeof t->name) == NULL || !*t->name) return false;
    if (t->n_dims != 1 && t->n_dims != 2) return false;
    if (t->rows < 1 || t->rows > MOST || t->cols < 1 || t->cols > MOST || t->padded < t->rows || t->padded > MOST)
        return false;
    return t->offset >= from && t->offset <= params_size && t->padded * t->cols <= params_size - t->offset;
}

static Status parse_tensors(Cursor *c, int64_t n, int64_t params_size, ParamTable *params)
{
    int64_t end = 0;
    const FixedTensor *tensors = cursor_take(c, n, sizeof *tensors);
    if (!tensors) return cut_short("the tensors");
    *params = (ParamTable){.params = mem_array((size_t)n, sizeof *params->params), .size = params_size};
    for (int64_t i = 0; i < n; i++) {
        const FixedTensor *t = &tensors[i];
        if (!tensor_valid(t, end, params_size)) return fail(E_FORMAT, "tensor %lld is not valid", (long long)i);
        Param *p = &params->params[params->count++];
        memcpy(p->name, t->name, sizeof t->name);
        p->rows = t->rows;
        p->cols = t->cols;
        p->padded = t->padded;
        p->offset = t->offset;
        p->n_dims = (int)t->n_dims;
        end = t->offset + param_held(p);
    }
    return OK;
}

static Status parse_files(Cursor *c, int64_t n, SnapshotFixed *f)
{
    const FixedFile *files = cursor_take(c, n, sizeof *files);
    if (!files) return cut_short("the files");
    f->files = mem_array((size_t)n, sizeof *f->files);
    for (int64_t i = 0; i < n; i++) {
        const FixedFile *file = &files[i];
        if (!memchr(file->name, '\0', sizeof file->name) || !manifest_name_valid(file->name))
            return fail(E_FORMAT, "file %lld has a name that is not valid in a checkpoint", (long long)i);
        f->files[f->n_files++] = (ModelFile){.name = mem_strdup(file->name), .size = file->size};
        if (file->size > INT64_MAX) return cut_short("a file");
    }
    for (int i = 0; i < f->n_files; i++) {
        f->files[i].data = cursor_take(c, (int64_t)f->files[i].size, 1);
        if (!f->files[i].data) return cut_short("a file");
    }
    return c->left ? fail(E_FORMAT, "its fixed part has %llu bytes too many", (unsigned long long)c->left) : OK;
}

Status snapshot_fixed_parse(const uint8_t *data, const SnapshotHeader *h, SnapshotFixed *f)
{
    Status status = OK;
    Cursor c = {data, h->fixed_bytes};
    const FixedCounts *counts = cursor_take(&c, 1, sizeof *counts);
    const FixedSets none = {0}, *sets = h->sets_size > 0 ? cursor_take(&c, 1, sizeof *sets) : &none;
    *f = (SnapshotFixed){0};
    if (!counts || !sets) return cut_short("its counts");
    if (counts->tensors == 0) return cut_short("the tensors");
    TRY_DONE(parse_intervals(&c, counts->intervals, h->params_size, h->slice_size, &f->part[0]));
    TRY_DONE(parse_tensors(&c, counts->tensors, h->params_size, &f->params[0]));
    TRY_DONE(parse_intervals(&c, sets->intervals, h->sets_size, h->sets_slice, &f->part[1]));
    TRY_DONE(parse_tensors(&c, sets->tensors, h->sets_size, &f->params[1]));
    TRY_DONE(parse_files(&c, counts->files, f));
done:
    if (status != OK) snapshot_fixed_free(f);
    return status;
}

void snapshot_fixed_free(SnapshotFixed *f)
{
    for (int i = 0; i < f->n_files; i++) free((void *)(uintptr_t)f->files[i].name);
    free(f->files);
    for (int i = 0; i < N_SPACES; i++) {
        intervals_free(&f->part[i]);
        free(f->params[i].params);
    }
    *f = (SnapshotFixed){0};
}
