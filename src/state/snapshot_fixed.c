/* The fixed part of a snapshot file: the slice's intervals, the table of tensors, the run's small files. */
#include <stdlib.h>
#include <string.h>

#include "state/checkpoint_internal.h"
#include "state/snapshot_internal.h"

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

void snapshot_fixed_render(const SnapshotPlace *p, Buf *out)
{
    FixedCounts counts = {p->part->count, p->params->count, p->n_files};
    buf_append(out, &counts, sizeof counts);
    buf_append(out, p->part->intervals, (size_t)p->part->count * sizeof *p->part->intervals);
    for (int i = 0; i < p->params->count; i++) {
        const Param *from = &p->params->params[i];
        FixedTensor t;
        memset(&t, 0, sizeof t);
        memcpy(t.name, from->name, strlen(from->name));
        t.rows = from->rows;
        t.cols = from->cols;
        t.padded = from->padded;
        t.offset = from->offset;
        t.n_dims = from->n_dims;
        buf_append(out, &t, sizeof t);
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

/* ---- reading ---- */

typedef struct {
    const uint8_t *at;
    uint64_t left;
} Cursor;

static bool take(Cursor *c, void *to, uint64_t size)
{
    if (size > c->left) return false;
    memcpy(to, c->at, size);
    c->at += size;
    c->left -= size;
    return true;
}

static Status cut_short(const char *what) { return fail(E_FORMAT, "its fixed part ends within %s", what); }

static Status parse_intervals(Cursor *c, int64_t n, int64_t params_size, int64_t slice_size, SnapshotFixed *f)
{
    int64_t end = 0, sum = 0;
    if (n < 0 || (uint64_t)n > c->left / sizeof *f->intervals) return cut_short("the intervals");
    f->intervals = mem_array((size_t)n, sizeof *f->intervals);
    f->n_intervals = (int)n;
    (void)take(c, f->intervals, (uint64_t)n * sizeof *f->intervals);
    for (int i = 0; i < f->n_intervals; i++) {
        const Interval *x = &f->intervals[i];
        if (x->begin < end || x->end <= x->begin || x->end > params_size)
            return fail(E_FORMAT, "interval %d is [%lld, %lld), after %lld and of %lld elements", i,
                        (long long)x->begin, (long long)x->end, (long long)end, (long long)params_size);
        end = x->end;
        sum += x->end - x->begin;
    }
    if (sum != slice_size)
        return fail(E_FORMAT, "its intervals have %lld elements, the header says %lld", (long long)sum,
                    (long long)slice_size);
    return OK;
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

static Status parse_tensors(Cursor *c, int64_t n, int64_t params_size, SnapshotFixed *f)
{
    int64_t end = 0;
    FixedTensor t;
    if (n < 1 || (uint64_t)n > c->left / sizeof t) return cut_short("the tensors");
    f->params = (ParamTable){.params = mem_array((size_t)n, sizeof *f->params.params), .size = params_size};
    for (int64_t i = 0; i < n; i++) {
        (void)take(c, &t, sizeof t);
        if (!tensor_valid(&t, end, params_size)) return fail(E_FORMAT, "tensor %lld is not valid", (long long)i);
        Param *p = &f->params.params[f->params.count++];
        memcpy(p->name, t.name, sizeof t.name);
        p->rows = t.rows;
        p->cols = t.cols;
        p->padded = t.padded;
        p->offset = t.offset;
        p->n_dims = (int)t.n_dims;
        end = t.offset + param_held(p);
    }
    return OK;
}

static Status parse_files(Cursor *c, int64_t n, SnapshotFixed *f)
{
    FixedFile file;
    if (n < 0 || (uint64_t)n > c->left / sizeof file) return cut_short("the files");
    f->files = mem_array((size_t)n, sizeof *f->files);
    for (int64_t i = 0; i < n; i++) {
        (void)take(c, &file, sizeof file);
        if (!memchr(file.name, '\0', sizeof file.name) || !manifest_name_valid(file.name))
            return fail(E_FORMAT, "file %lld has a name that is not valid in a checkpoint", (long long)i);
        f->files[f->n_files++] = (ModelFile){.name = mem_strdup(file.name), .size = file.size};
    }
    for (int i = 0; i < f->n_files; i++) {
        if (f->files[i].size > c->left) return cut_short("a file");
        f->files[i].data = c->at;
        c->at += f->files[i].size;
        c->left -= f->files[i].size;
    }
    return c->left ? fail(E_FORMAT, "its fixed part has %llu bytes too many", (unsigned long long)c->left) : OK;
}

Status snapshot_fixed_parse(const uint8_t *data, uint64_t size, int64_t params_size, int64_t slice_size,
                            SnapshotFixed *f)
{
    Status status = OK;
    FixedCounts counts;
    Cursor c = {data, size};
    *f = (SnapshotFixed){0};
    if (!take(&c, &counts, sizeof counts)) return cut_short("its counts");
    TRY_DONE(parse_intervals(&c, counts.intervals, params_size, slice_size, f));
    TRY_DONE(parse_tensors(&c, counts.tensors, params_size, f));
    TRY_DONE(parse_files(&c, counts.files, f));
done:
    if (status != OK) snapshot_fixed_free(f);
    return status;
}

void snapshot_fixed_free(SnapshotFixed *f)
{
    for (int i = 0; i < f->n_files; i++) free((void *)(uintptr_t)f->files[i].name);
    free(f->files);
    free(f->intervals);
    free(f->params.params);
    *f = (SnapshotFixed){0};
}
