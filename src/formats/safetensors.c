/* safetensors: 8 bytes little-endian header length, a JSON object {name: {dtype, shape, data_offsets}}, the data.
   Source: the format section of huggingface/safetensors. Read as strictly as its own library does: the ranges are
   contiguous, without holes and overlaps, and end at the end of the file. The writer writes the same form. */

#include "base/sort.h"
#include "formats/reader_internal.h"

#define MAX_HEADER 100000000u

static const struct {
    const char *name;
    Dtype dtype;
} dtypes[] = {
    {"F32", F32}, {"F16", F16}, {"BF16", BF16}, {"F64", F64}, {"I64", I64},
    {"I32", I32}, {"I16", I16}, {"I8", I8},     {"U8", U8},   {"BOOL", U8}, /* the writer takes the first that fits */
};

#define N_NAMES (sizeof dtypes / sizeof *dtypes)

static Status check_metadata(const char *path, const Json *object)
{
    if (js_kind(object) != JSON_KIND_OBJECT) return fail(E_FORMAT, "%s: __metadata__ is not a JSON object", path);
    for (void *it = js_first(object); it; it = js_next(object, it))
        if (js_kind(js_value(it)) != JSON_KIND_STRING)
            return fail(E_FORMAT, "%s: __metadata__: the value of '%s' is not a string", path, js_key(it));
    return OK;
}

/* A JSON array of at most `max` integers from 0 up. */
static bool read_integers(const Json *array, int64_t *out, int max, int *n)
{
    if (!array || js_kind(array) != JSON_KIND_ARRAY || js_size(array) > (size_t)max) return false;
    *n = (int)js_size(array);
    for (int i = 0; i < *n; i++) {
        const Json *v = js_at(array, (size_t)i);
        if (js_kind(v) != JSON_KIND_INT || (out[i] = js_int(v, -1)) < 0) return false;
    }
    return true;
}

/* `start`, `room`: start of the data in the file, and its bytes. */
static Status read_entry(TensorFile *f, int shard, const char *name, const Json *v, uint64_t start, uint64_t room)
{
    const char *path = f->shards[shard].path;
    const Json *type = js_get(v, "dtype"), *shape = js_get(v, "shape"), *range = js_get(v, "data_offsets");
    int64_t dims[TENSOR_MAX_DIMS], ends[2];
    int n_dims = 0, n_ends = 0;
    const char *quoted = QUOTED(name, strlen(name));
    if (js_kind(v) != JSON_KIND_OBJECT || !type || !shape || !range || js_size(v) != 3)
        return fail(E_FORMAT, "%s: tensor '%s': expected an object of exactly dtype, shape and data_offsets", path,
                    quoted);
    size_t k = 0;
    while (k < N_NAMES && strcmp(js_string(type, ""), dtypes[k].name) != 0) k++;
    if (k == N_NAMES)
        return fail(E_FORMAT, "%s: tensor '%s': dtype is '%s', expected one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL",
                    path, quoted, js_string(type, "not a string"));
    if (!read_integers(shape, dims, TENSOR_MAX_DIMS, &n_dims))
        return fail(E_FORMAT, "%s: tensor '%s': shape must be an array of at most %d integers, 0 or more", path, quoted,
                    TENSOR_MAX_DIMS);
    if (!read_integers(range, ends, 2, &n_ends) || n_ends != 2 || ends[0] > ends[1])
        return fail(E_FORMAT, "%s: tensor '%s': data_offsets must be two integers [begin, end] with begin ≤ end", path,
                    quoted);
    if ((uint64_t)ends[1] > room)
        return fail(E_FORMAT,
                    "%s: tensor '%s' ends at byte %" PRId64 " of the data, the file has only %" PRIu64
                    ": it is truncated, or its header is wrong",
                    path, quoted, ends[1], room);
    TensorInfo *t;
    TRY(reader_add_tensor(f, shard, path, name, strlen(name), dtypes[k].dtype, dims, n_dims, &t));
    if (t->bytes != (uint64_t)(ends[1] - ends[0]))
        return fail(E_FORMAT, "%s: tensor '%s': its shape takes %" PRIu64 " bytes as %s, data_offsets give it %" PRId64,
                    path, quoted, t->bytes, dtypes[k].name, ends[1] - ends[0]);
    t->offset = start + (uint64_t)ends[0];
    return OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const TensorInfo *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Every byte of the data belongs to exactly one tensor. */
static Status check_contiguous(const char *path, const TensorInfo *infos, int count, uint64_t start, uint64_t size)
{
    uint64_t end = start;
    for (int i = 0; i < count; i++) {
        const TensorInfo *t = &infos[i];
        if (t->offset != end)
            return fail(
                E_FORMAT, "%s: tensor '%s' begins at byte %" PRIu64 " of the data, expected %" PRIu64 ": %s '%s'", path,
                t->name, t->offset - start, end - start, t->offset < end ? "it overlaps" : "there is a hole after",
                i > 0 ? infos[i - 1].name : "the header");
        end += t->bytes;
    }
    if (end != size)
        return fail(E_FORMAT,
                    "%s: the last tensor ends at byte %" PRIu64 ", the file at %" PRIu64 ": expected the same", path,
                    end, size);
    return OK;
}

Status safetensors_read(TensorFile *f, int shard)
{
    Status status = OK;
    Json *doc = NULL;
    const char *path = f->shards[shard].path;
    const uint8_t *data = f->shards[shard].map.data;
    uint64_t size = f->shards[shard].map.size;
    if (size < 8) return fail(E_FORMAT, "%s: %" PRIu64 " bytes, too short for a safetensors file", path, size);
    uint64_t header = reader_le64(data), start = 8 + header;
    if (header > MAX_HEADER)
        return fail(E_FORMAT, "%s: the header claims %" PRIu64 " bytes, expected at most %u", path, header, MAX_HEADER);
    if (header > size - 8)
        return fail(E_FORMAT, "%s: the header claims %" PRIu64 " bytes, the file has only %" PRIu64 " more: truncated",
                    path, header, size - 8);
    if (header < 2 || data[8] != '{') return fail(E_FORMAT, "%s: the header must be JSON that begins with '{'", path);

    int first = f->count;
    TRY_DONE(js_parse(path, (const char *)data + 8, (size_t)header, &doc));
    if (js_repeated(doc)) TRY_DONE(fail(E_FORMAT, "%s: the header names '%s' twice", path, js_repeated(doc)));
    for (void *it = js_first(doc); it; it = js_next(doc, it)) {
        if (strcmp(js_key(it), "__metadata__") == 0)
            TRY_DONE(check_metadata(path, js_value(it)));
        else
            TRY_DONE(read_entry(f, shard, js_key(it), js_value(it), start, size - start));
    }
    int n = f->count - first;
    TensorInfo *added = n > 0 ? f->infos + first : NULL;
    if (n > 0) qsort(added, (size_t)n, sizeof *added, compare_offsets);
    TRY_DONE(check_contiguous(path, added, n, start, size));
done:
    js_free(doc);
    return status;
}

/* The writer. */

struct SafetensorsWriter {
    FileWriter out;
    uint64_t left; /* bytes of data still to come */
};

static Status check_names(const char *path, const TensorInfo *infos, int count)
{
    Status status = OK;
    char **names = mem_array((size_t)count, sizeof *names);
    for (int i = 0; i < count; i++) {
        names[i] = infos[i].name;
        if (!reader_name_valid(names[i], strlen(names[i])) || strcmp(names[i], "__metadata__") == 0)
            TRY_DONE(fail(E_FAIL, "%s: '%s' cannot be the name of a tensor", path, names[i]));
    }
    const char *twice = sort_find_twice(names, (size_t)count);
    if (twice) status = fail(E_FAIL, "%s: two tensors to write are named '%s'", path, twice);
done:
    free(names);
    return status;
}

static Status build_header(Buf *b, const char *path, const TensorInfo *infos, int count, const char *const *metadata,
                           int n_pairs, uint64_t *total)
{
    const char *separator = "";
    int64_t end = 0;
    buf_puts(b, "{");
    if (n_pairs > 0) {
        buf_puts(b, "\"__metadata__\":{");
        for (int i = 0; i < n_pairs; i++) {
            buf_puts(b, i > 0 ? "," : "");
            buf_json(b, metadata[2 * i]);
            buf_puts(b, ":");
            buf_json(b, metadata[2 * i + 1]);
        }
        buf_puts(b, "}");
        separator = ",";
    }
    for (int i = 0; i < count; i++, separator = ",") {
        const TensorInfo *t = &infos[i];
        int64_t bytes = (int64_t)dtype_size(t->dtype), begin = end;
        size_t k = 0;
        while (k < N_NAMES && dtypes[k].dtype != t->dtype) k++;
        CHECK(k < N_NAMES && t->n_dims >= 0 && t->n_dims <= TENSOR_MAX_DIMS, "%s: tensor '%s': dtype %d, %d dimensions",
              path, t->name, (int)t->dtype, t->n_dims);
        buf_puts(b, separator);
        buf_json(b, t->name);
        buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", dtypes[k].name);
        for (int d = 0; d < t->n_dims; d++) {
            buf_printf(b, "%s%" PRId64, d > 0 ? "," : "", t->dims[d]);
            if (t->dims[d] < 0 || __builtin_mul_overflow(bytes, t->dims[d], &bytes))
                return fail(E_FAIL, "%s: tensor '%s' to write: dimension %d is %" PRId64, path, t->name, d, t->dims[d]);
        }
        if (__builtin_add_overflow(end, bytes, &end)) return fail(E_FAIL, "%s: more than 2^63 bytes to write", path);
        buf_printf(b, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
    }
    buf_puts(b, "}");
    while (b->len % 8 != 0) buf_puts(b, " ");
    if (b->len > MAX_HEADER)
        return fail(E_FAIL, "%s: the header takes %zu bytes, expected at most %u", path, b->len, MAX_HEADER);
    *total = (uint64_t)end;
    return OK;
}

Status safetensors_writer_open(SafetensorsWriter **writer, const char *path, const TensorInfo *infos, int count,
                               const char *const *metadata, int n_metadata_pairs)
{
    Status status = OK;
    Buf header = {0};
    uint8_t length[8];
    SafetensorsWriter *w = mem_alloc(sizeof *w);
    *writer = NULL;
    TRY_DONE(check_names(path, infos, count));
    TRY_DONE(build_header(&header, path, infos, count, metadata, n_metadata_pairs, &w->left));
    bytes_put(length, header.len, sizeof length);
    TRY_DONE(file_writer_open(&w->out, path));
    TRY_DONE(file_writer_write(&w->out, length, sizeof length));
    TRY_DONE(file_writer_write(&w->out, header.data, header.len));
    *writer = w;
    w = NULL;
done:
    safetensors_writer_abandon(w);
    buf_free(&header);
    return status;
}

Status safetensors_writer_write(SafetensorsWriter *w, const void *data, size_t bytes)
{
    if (bytes > w->left)
        return fail(E_FAIL, "%s: %zu bytes to write, the header has room for %" PRIu64, w->out.path, bytes, w->left);
    TRY(file_writer_write(&w->out, data, bytes));
    w->left -= bytes;
    return OK;
}

Status safetensors_writer_close(SafetensorsWriter *w, Digest *digest)
{
    Status status = OK;
    if (w->left > 0)
        status = fail(E_FAIL, "%s: %" PRIu64 " bytes that the header promises were not written", w->out.path, w->left);
    if (status == OK)
        status = file_writer_close(&w->out, digest, NULL);
    else
        file_writer_abandon(&w->out);
    free(w);
    return status;
}

Status safetensors_writer_leave(SafetensorsWriter *w)
{
    Status status = file_writer_extend(&w->out, w->left);
    w->left = 0;
    if (status == OK) return safetensors_writer_close(w, NULL);
    safetensors_writer_abandon(w);
    return status;
}

void safetensors_writer_abandon(SafetensorsWriter *w)
{
    if (!w) return;
    file_writer_abandon(&w->out);
    free(w);
}
