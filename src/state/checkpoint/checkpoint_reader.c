/* Elements of a checkpoint that was verified: several processes read it, each its part. */
#include <unistd.h>

#include "formats/tensor_file.h"
#include "state/checkpoint/checkpoint_internal.h"

#define BLOCK     ((uint64_t)MANIFEST_BLOCK)
#define MAX_SHOWN 12 /* differences in a message */
#define NEXT      "next."

const char *const checkpoint_files[CHECKPOINT_FILES] = {MODEL_WEIGHTS, CHECKPOINT_OPTIMIZER, CHECKPOINT_KFAC};

/* Weights, m, v, and K-FAC's sets. */
const struct CheckpointArray checkpoint_arrays[CHECKPOINT_ARRAYS] = {
    {0, SPACE_MODEL, 0, ""}, {1, SPACE_MODEL, 0, "m."}, {1, SPACE_MODEL, 1, "v."}, {2, SPACE_SETS, 0, ""}};

struct CheckpointReader {
    const ParamTable *params[N_SPACES];
    SeenFiles seen;
    const Digest *digests[CHECKPOINT_FILES];
    const int64_t *places[CHECKPOINT_ARRAYS]; // (params->count) bytes from the start of the file
    char *path[CHECKPOINT_FILES];
    int fd[CHECKPOINT_FILES];
    /* the block that was read last */
    uint8_t *block; // (BLOCK)
    int file;       /* −1: none */
    uint64_t number;
};

/* ---- blocks ---- */

static Status open_files(CheckpointReader *r, const char *dir)
{
    Manifest m;
    TRY(checkpoint_read_manifest(dir, &m));
    bool same = digest_equal(checkpoint_identity(&m), r->seen.manifest);
    manifest_free(&m);
    if (!same) return fail(E_CORRUPT, "%s: another checkpoint than the one that was verified", dir);
    for (int i = 0; i < CHECKPOINT_FILES; i++) {
        r->path[i] = file_join(dir, checkpoint_files[i]);
        if (r->seen.size[i]) TRY(manifest_open_file(r->path[i], r->seen.size[i], &r->fd[i]));
    }
    return OK;
}

Status checkpoint_open(const char *dir, const ParamTable *const params[N_SPACES], const Buf *files,
                       CheckpointReader **reader)
{
    CheckpointReader *r = *reader = mem_alloc(sizeof *r);
    *r =
        (CheckpointReader){.params = {params[0], params[1]}, .fd = {-1, -1, -1}, .block = mem_alloc(BLOCK), .file = -1};
    memcpy(&r->seen, files->data, sizeof r->seen);
    const char *at = files->data + sizeof r->seen;
    for (int i = 0; i < CHECKPOINT_FILES; i++) {
        r->digests[i] = (const Digest *)(const void *)at;
        at += (r->seen.size[i] + BLOCK - 1) / BLOCK * sizeof(Digest);
    }
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++) {
        r->places[a] = (const int64_t *)(const void *)at;
        at += (size_t)params[checkpoint_arrays[a].space]->count * sizeof(int64_t);
    }
    Status status = open_files(r, dir);
    if (status != OK) {
        checkpoint_close(r);
        *reader = NULL;
    }
    return status;
}

void checkpoint_close(CheckpointReader *r)
{
    if (!r) return;
    for (int i = 0; i < CHECKPOINT_FILES; i++) {
        if (r->fd[i] >= 0) close(r->fd[i]);
        free(r->path[i]);
    }
    MEM_FREE(r->block, r);
}

/* Block `number` of the file into r->block. */
static Status open_block(CheckpointReader *r, int file, uint64_t number)
{
    uint64_t begin = number * BLOCK, size = r->seen.size[file] - begin;
    if (r->file == file && r->number == number) return OK;
    if (size > BLOCK) size = BLOCK;
    r->file = -1;
    ssize_t got = file_read_at(r->fd[file], begin, r->block, size);
    if (got < 0) return manifest_read_failed(r->path[file], "read");
    if ((uint64_t)got < size || !digest_equal(digest_of(r->block, size), r->digests[file][number]))
        return fail(E_CORRUPT, "%s: bytes %" PRIu64 " to %" PRIu64 " are not those that were verified: damaged",
                    r->path[file], begin, begin + size - 1);
    r->file = file;
    r->number = number;
    return OK;
}

/* Bytes of a file; `to` NULL: they are only verified. */
static Status read_bytes(CheckpointReader *r, int file, uint64_t at, uint64_t bytes, uint8_t *to)
{
    for (uint64_t end = at + bytes, n; at < end; at += n) {
        n = BLOCK - at % BLOCK;
        if (n > end - at) n = end - at;
        TRY(open_block(r, file, at / BLOCK));
        if (!to) continue;
        memcpy(to, r->block + at % BLOCK, n);
        to += n;
    }
    return OK;
}

Status checkpoint_read(void *reader, int array, int64_t begin, int64_t end, float *to)
{
    CheckpointReader *r = reader;
    const ParamTable *t = r->params[checkpoint_arrays[array].space];
    memset(to, 0, (size_t)(end - begin) * sizeof *to);
    for (int i = 0; i < t->count && t->params[i].offset < end; i++) {
        const Param *p = &t->params[i];
        int64_t last = p->offset + param_exported(p), from = begin > p->offset ? begin : p->offset,
                until = end < last ? end : last, place = r->places[array][i];
        if (from >= until || place < 0) continue;
        TRY(read_bytes(r, checkpoint_arrays[array].file, (uint64_t)place + (uint64_t)(from - p->offset) * sizeof *to,
                       (uint64_t)(until - from) * sizeof *to, (uint8_t *)(to + (from - begin))));
    }
    return OK;
}

/* ---- the tensors of the files ---- */

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

/* Whether the file has sets behind the one in use. */
static bool has_next(const TensorFile *file)
{
    for (int i = 0; i < tensor_file_count(file); i++)
        if (str_starts_with(tensor_file_info(file, i)->name, NEXT)) return true;
    return false;
}

/* Appends the places of an array's tensors. A next set may be absent as a whole. */
static void find_array(const TensorFile *file, const ParamTable *t, int array, Buf *places, Differences *d)
{
    bool sets = checkpoint_arrays[array].space == SPACE_SETS, one = sets && !has_next(file);
    for (int i = 0; i < t->count; i++) {
        const Param *p = &t->params[i];
        char *own = param_file_name(t, p), *name = mem_printf("%s%s", checkpoint_arrays[array].prefix, own);
        const TensorInfo *found = one && str_starts_with(p->name, NEXT) ? NULL : find_tensor(file, name, p, d);
        int64_t place = found ? (int64_t)found->offset : -1;
        buf_append(places, &place, sizeof place);
        MEM_FREE(own, name);
    }
}

static bool is_expected(const CheckpointReader *r, int file, const char *name)
{
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++) {
        const char *prefix = checkpoint_arrays[a].prefix;
        if (checkpoint_arrays[a].file != file || !str_starts_with(name, prefix)) continue;
        char *own = param_table_name(name + strlen(prefix));
        int at = params_find(r->params[checkpoint_arrays[a].space], own);
        free(own);
        if (at >= 0) return true;
    }
    return false;
}

/* The header is read through a mapping, where a media error would kill the process. So it is read once before. */
static Status open_tensors(CheckpointReader *r, int file, TensorFile **tensors)
{
    uint64_t length = 0;
    TRY(read_bytes(r, file, 0, 1, NULL));
    if (r->seen.size[file] >= 8) length = bytes_number(r->block, 8);
    if (length > r->seen.size[file]) length = r->seen.size[file];
    TRY(read_bytes(r, file, 0, length, NULL));
    Status status = tensor_file_open(r->path[file], tensors);
    return status == E_FORMAT ? fail(E_CORRUPT, "%s: damaged", status_message()) : status;
}

/* Appends the places of the file's arrays. */
static Status find_in_file(CheckpointReader *r, int file, Buf *places)
{
    Status status = OK;
    TensorFile *tensors = NULL;
    Differences d = {0};
    TRY_DONE(open_tensors(r, file, &tensors));
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
        if (checkpoint_arrays[a].file == file)
            find_array(tensors, r->params[checkpoint_arrays[a].space], a, places, &d);
    for (int i = 0; i < tensor_file_count(tensors); i++) {
        const char *name = tensor_file_info(tensors, i)->name;
        if (is_expected(r, file, name)) continue;
        if (d.count == 0 && str_starts_with(name, NEXT))
            TRY_DONE(fail(E_FORMAT,
                          "%s: holds the next inverses of a run with a --kfac-lag, and this run has none: give "
                          "--kfac-lag, or --resume never",
                          r->path[file]));
        add_difference(&d, "unexpected: %s", name);
    }
    if (d.count > 0)
        status = fail(E_FORMAT, "%s: was saved from another model; %d tensors differ%s:%s", r->path[file], d.count,
                      d.count > MAX_SHOWN ? ", the first are" : "", d.text.data);
done:
    tensor_file_close(tensors);
    buf_free(&d.text);
    return status;
}

Status checkpoint_find_tensors(const char *dir, const ParamTable *const params[N_SPACES], Buf *files, bool *sets)
{
    Status status = OK;
    CheckpointReader *r;
    Buf places = {0};
    TRY(checkpoint_open(dir, params, files, &r));
    *sets = r->seen.size[2] > 0;
    TRY_DONE(find_in_file(r, 0, &places));
    TRY_DONE(find_in_file(r, 1, &places));
    if (*sets && params[SPACE_SETS]->count) TRY_DONE(find_in_file(r, 2, &places));
    buf_append(files, places.data, places.len);
    for (int64_t i = 0, none = -1; !*sets && i < params[SPACE_SETS]->count; i++) buf_append(files, &none, sizeof none);
done:
    buf_free(&places);
    checkpoint_close(r);
    return status;
}

/* ---- a state against a checkpoint ---- */

enum { COMPARED = 1 << 18 }; /* elements at once */

/* Elements of a tensor from number `first` on. */
static Status compare_elements(CheckpointReader *r, int array, const Param *p, int64_t first, ArrayRead *read,
                               void *context, float *was, float *is)
{
    int64_t n = param_exported(p) - first, begin = p->offset + first, i = 0;
    if (n > COMPARED) n = COMPARED;
    TRY(read(context, array, begin, begin + n, is));
    TRY(checkpoint_read(r, array, begin, begin + n, was));
    if (memcmp(was, is, (size_t)n * sizeof *was) == 0) return OK;
    while (memcmp(&was[i], &is[i], sizeof *was) == 0) i++;
    return fail(E_DIFFERS, "%s: element %" PRId64 " of %s%s was %.9g, and is %.9g",
                r->path[checkpoint_arrays[array].file], first + i, checkpoint_arrays[array].prefix, p->name,
                (double)was[i], (double)is[i]);
}

Status checkpoint_compare(const char *dir, const ParamTable *const params[N_SPACES], Buf *files, ArrayRead *read,
                          void *context)
{
    Status status = OK;
    CheckpointReader *r = NULL;
    bool sets;
    float *was = mem_array(COMPARED, sizeof *was), *is = mem_array(COMPARED, sizeof *is);
    TRY_DONE(checkpoint_find_tensors(dir, params, files, &sets));
    TRY_DONE(checkpoint_open(dir, params, files, &r));
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++) {
        const ParamTable *t = params[checkpoint_arrays[a].space];
        for (int i = 0; i < t->count; i++)
            for (int64_t at = 0; at < param_exported(&t->params[i]); at += COMPARED)
                TRY_DONE(compare_elements(r, a, &t->params[i], at, read, context, was, is));
    }
done:
    checkpoint_close(r);
    MEM_FREE(was, is);
    return status;
}
