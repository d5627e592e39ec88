/* Opening a tensor file: its format, its files, and the functions for all readers. Reading is in tensor_read.c. */

#include "base/sort.h"
#include "formats/reader_internal.h"

#define MAX_SHARDS     4096
#define MAX_NAME_BYTES 1024

const char *reader_quote(char out[128], const void *text, size_t len)
{
    const unsigned char *s = text;
    size_t n = len < 120 ? len : 120;
    for (size_t i = 0; i < n; i++) out[i] = s[i] >= 0x20 && s[i] < 0x7f ? (char)s[i] : '?';
    memcpy(out + n, len > n ? "…" : "", len > n ? 4 : 1);
    return out;
}

int reader_order(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

/* UTF-8 (shortest form, no surrogates) without control characters, 1…MAX_NAME_BYTES bytes. */
bool reader_name_valid(const char *name, size_t len)
{
    char text[MAX_NAME_BYTES + 1];
    int valid = 1;
    if (len == 0 || len > MAX_NAME_BYTES) return false;
    memcpy(text, name, len);
    text[len] = '\0';
    for (const char *at = text; at < text + len && valid; at += buf_utf8_span(at, &valid))
        if ((unsigned char)*at < 0x20 || *at == 0x7f) return false;
    return valid;
}

Status reader_add_shard(TensorFile *f, const char *path, int *shard)
{
    MEM_GROW(f->shards, f->n_shards, f->shards_capacity);
    TensorShard *s = &f->shards[f->n_shards];
    memset(s, 0, sizeof *s);
    TRY(file_map(&s->map, path));
    s->path = mem_strdup(path);
    s->mapped = true;
    *shard = f->n_shards++;
    return OK;
}

Status reader_add_tensor(TensorFile *f, int shard, const char *path, const char *name, size_t name_len, Dtype dtype,
                         const int64_t *dims, int n_dims, TensorInfo **info)
{
    if (!reader_name_valid(name, name_len))
        return fail(E_FORMAT,
                    "%s: tensor name '%s' (%zu bytes): expected 1 to %d bytes of UTF-8 without control characters",
                    path, QUOTED(name, name_len), name_len, MAX_NAME_BYTES);
    const char *quoted = QUOTED(name, name_len);
    if (n_dims < 0 || n_dims > TENSOR_MAX_DIMS)
        return fail(E_FORMAT, "%s: tensor '%s' has %d dimensions, expected at most %d", path, quoted, n_dims,
                    TENSOR_MAX_DIMS);

    TensorInfo t = {.dtype = dtype, .n_dims = n_dims, .shard = shard, .sum = -1, .count = 1};
    int64_t bytes = (int64_t)dtype_size(dtype); /* counts a 0 as 1, so that strides cannot overflow either */
    for (int d = n_dims - 1; d >= 0; d--) {
        int64_t dim = dims[d];
        if (dim < 0)
            return fail(E_FORMAT, "%s: tensor '%s': dimension %d is %" PRId64 ", expected 0 or more", path, quoted, d,
                        dim);
        t.strides[d] = bytes / (int64_t)dtype_size(dtype);
        if (__builtin_mul_overflow(bytes, dim > 0 ? dim : 1, &bytes))
            return fail(E_FORMAT, "%s: tensor '%s': its dimensions multiply to more than 2^63 bytes", path, quoted);
        t.dims[d] = dim;
        t.count *= dim;
    }
    t.bytes = (uint64_t)t.count * dtype_size(dtype);
    t.name = mem_strndup(name, name_len);
    MEM_PUSH(f->infos, f->count, f->capacity, t);
    *info = &f->infos[f->count - 1];
    return OK;
}

int reader_add_sum(TensorFile *f, int shard, bool castagnoli, uint32_t want, uint64_t offset, uint64_t bytes)
{
    MEM_GROW(f->sums, f->n_sums, f->sums_capacity);
    TensorSum *s = &f->sums[f->n_sums];
    s->shard = shard;
    s->castagnoli = castagnoli;
    s->want = want;
    s->offset = offset;
    s->bytes = bytes;
    atomic_init(&s->good, false);
    return f->n_sums++;
}

/* One self-contained file, identified by its content; the suffix serves only the message for an unreadable one. */
static Status read_single(TensorFile *f, const char *path)
{
    int shard;
    TRY(reader_add_shard(f, path, &shard));
    const FileMap *m = &f->shards[shard].map;
    const char *data = (const char *)m->data;
    /* Its first bytes are the header's length, which may look like a pickle's. */
    f->format = TENSORS_SAFETENSORS;
    if (m->size > 8 && m->data[8] == '{') return safetensors_read(f, shard);
    f->format = TENSORS_PYTORCH;
    if (str_begins(data, m->size, "PK\3\4") || str_begins(data, m->size, "PK\5\6")) return pytorch_zip_read(f, shard);
    if (m->size >= 2 && m->data[0] == 0x80 && m->data[1] <= 5) return pytorch_old_read(f, shard);
    f->format = TENSORS_SAFETENSORS;
    if (str_ends_with(path, ".safetensors")) return safetensors_read(f, shard);
    if (m->size >= 48 && reader_le64(m->data + m->size - 8) == UINT64_C(0xdb4775248b80fb57))
        return fail(E_FORMAT,
                    "%s: a TensorFlow table in one file (the V1 form, before TensorFlow 0.12); expected the V2 form, "
                    "PREFIX.index and PREFIX.data-…; save it again with a newer TensorFlow 1",
                    path);
    if (str_begins(data, m->size, "\x89HDF"))
        return fail(E_FORMAT, "%s: an HDF5 file (Keras weights?); expected safetensors, PyTorch or TensorFlow 1", path);
    if (m->size >= 512 && memcmp(m->data + 257, "ustar", 5) == 0)
        return fail(E_FORMAT, "%s: a tar file (PyTorch before 0.1.10?); save it again with a newer PyTorch", path);
    return fail(
        E_FORMAT,
        "%s: %zu bytes that begin neither as safetensors (8 bytes, then '{') nor as a PyTorch file (zip or pickle)",
        path, m->size);
}

/* The files that the index's weight_map names, each once, in order of name. */
static Status list_files(const char *path, const Json *map, const char ***files, int *n_files)
{
    size_t n = js_size(map), used = 0, unique = 0;
    const char **names = mem_array(n, sizeof *names);
    *files = names;
    for (void *it = js_first(map); it; it = js_next(map, it)) {
        const char *name = js_string(js_value(it), NULL);
        if (!name || !*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return fail(E_FORMAT,
                        "%s: weight_map gives tensor '%s' %s%s%s; expected the name of a file beside the index", path,
                        js_key(it), name ? "'" : "", name ? name : "a value that is not a string", name ? "'" : "");
        names[used++] = name;
    }
    qsort(names, used, sizeof *names, sort_by_text);
    for (size_t i = 0; i < used; i++)
        if (i == 0 || strcmp(names[unique - 1], names[i]) != 0) names[unique++] = names[i];
    if (unique > MAX_SHARDS)
        return fail(E_FORMAT, "%s: weight_map names %zu files, expected at most %d", path, unique, MAX_SHARDS);
    *n_files = (int)unique;
    return OK;
}

static int compare_tensor_names(const void *a, const void *b, void *file)
{
    const TensorInfo *infos = ((const TensorFile *)file)->infos;
    return strcmp(infos[*(const int *)a].name, infos[*(const int *)b].name);
}

/* Sorts the names for tensor_file_find and detects duplicates. */
static Status sort_names(TensorFile *f)
{
    f->by_name = mem_array((size_t)f->count, sizeof *f->by_name);
    for (int i = 0; i < f->count; i++) f->by_name[i] = i;
    qsort_r(f->by_name, (size_t)f->count, sizeof *f->by_name, compare_tensor_names, f);
    for (int i = 1; i < f->count; i++) {
        const TensorInfo *a = &f->infos[f->by_name[i - 1]], *b = &f->infos[f->by_name[i]];
        if (strcmp(a->name, b->name) == 0)
            return fail(E_FORMAT, "%s: tensor '%s' occurs twice (also in '%s')", f->shards[b->shard].path, b->name,
                        file_basename(f->shards[a->shard].path));
    }
    return OK;
}

/* Checks both directions: the index names every tensor of the files, and the files hold every tensor of the index. */
static Status compare_with_index(const TensorFile *f, const char *path, const Json *map)
{
    for (int i = 0; i < f->count; i++) {
        const char *file = file_basename(f->shards[f->infos[i].shard].path), *name = f->infos[i].name;
        const char *listed = js_string(js_get(map, name), NULL);
        if (!listed)
            return fail(E_FORMAT,
                        "%s: weight_map lacks tensor '%s', which '%s' holds: index and files are from different saves",
                        path, name, file);
        if (strcmp(listed, file) != 0)
            return fail(E_FORMAT, "%s: weight_map looks for tensor '%s' in '%s', it is in '%s'", path, name, listed,
                        file);
    }
    for (void *it = js_first(map); it; it = js_next(map, it)) {
        if (tensor_file_find(f, js_key(it)) < 0)
            return fail(E_FORMAT, "%s: weight_map names tensor '%s' in '%s', which does not hold it", path, js_key(it),
                        js_string(js_value(it), "?"));
    }
    return OK;
}

/* A Hugging Face index: {"metadata": …, "weight_map": {tensor: file}}. */
static Status read_index(TensorFile *f, const char *path)
{
    Status status = OK;
    Json *doc = NULL;
    const char **files = NULL;
    char *directory = file_directory(path);
    int n_files = 0;
    TRY_DONE(js_read(path, &doc));
    const Json *map = js_get(doc, "weight_map");
    if (!map || js_kind(map) != JSON_KIND_OBJECT || js_size(map) == 0)
        TRY_DONE(fail(E_FORMAT, "%s: expected \"weight_map\", an object from tensor names to file names", path));
    TRY_DONE(list_files(path, map, &files, &n_files));
    for (int i = 0; i < n_files; i++) {
        TensorFormat before = f->format;
        char *file = file_join(directory, files[i]);
        status = read_single(f, file);
        free(file);
        if (status != OK) goto done;
        if (i > 0 && f->format != before)
            TRY_DONE(fail(E_FORMAT, "%s: '%s' has another format than '%s'", path, files[i], files[i - 1]));
    }
    TRY_DONE(sort_names(f));
    TRY_DONE(compare_with_index(f, path, map));
done:
    js_free(doc);
    MEM_FREE(files, directory);
    return status;
}

/* "p.index", "p.data-00000-of-00001" → "p" (caller frees); NULL for other names. */
static char *tf1_prefix(const char *path)
{
    size_t n = strlen(path), digits = strlen(".data-00000-of-00001");
    if (str_ends_with(path, ".index")) return mem_strndup(path, n - strlen(".index"));
    if (n > digits && strncmp(path + n - digits, ".data-", 6) == 0 && strncmp(path + n - 9, "-of-", 4) == 0)
        return mem_strndup(path, n - digits);
    return NULL;
}

static Status read_path(TensorFile *f, const char *path)
{
    Status status = OK;
    char *prefix = tf1_prefix(path), *index = mem_printf("%s.index", path);
    if (prefix)
        status = tf1_bundle_read(f, prefix);
    else if (file_exists(path))
        status = str_ends_with(path, ".json") ? read_index(f, path) : read_single(f, path);
    else if (file_exists(index))
        status = tf1_bundle_read(f, path);
    else
        status = fail(E_IO, "%s: no such file, and no TensorFlow checkpoint '%s'", path, index);
    MEM_FREE(prefix, index);
    return status;
}

/* The first TF1 index of a directory, which the caller frees (NULL: none), and their number. */
static Status find_tf1_index(const char *directory, char **index, int *n)
{
    FileList list;
    TRY(file_list(directory, &list));
    *n = 0;
    for (int i = 0; i < list.count; i++)
        if (str_ends_with(list.paths[i], ".index") && (*n)++ == 0) *index = mem_strdup(list.paths[i]);
    file_list_free(&list);
    return OK;
}

static Status find_in_directory(const char *directory, char **path)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                        "pytorch_model.bin.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *path = file_join(directory, names[i]);
        if (file_exists(*path)) return OK;
        free(*path);
        *path = NULL;
    }
    int n = 0;
    TRY(find_tf1_index(directory, path, &n));
    if (n == 1) return OK;
    if (n > 1)
        return fail(E_FORMAT, "%s: holds %d TensorFlow checkpoints (.index files); give the prefix of one of them",
                    directory, n);
    return fail(E_IO,
                "%s: holds none of model.safetensors, model.safetensors.index.json, pytorch_model.bin, "
                "pytorch_model.bin.index.json, nor a TensorFlow checkpoint (.index)",
                directory);
}

Status tensor_file_open(const char *path, TensorFile **file)
{
    Status status = OK;
    TensorFile *f = mem_alloc(sizeof *f);
    *file = NULL;
    if (file_is_directory(path))
        TRY_DONE(find_in_directory(path, &f->path));
    else
        f->path = mem_strdup(path);
    TRY_DONE(read_path(f, f->path));
    if (!f->by_name) TRY_DONE(sort_names(f));
    *file = f;
    f = NULL;
done:
    tensor_file_close(f);
    return status;
}

void tensor_file_close(TensorFile *f)
{
    if (!f) return;
    for (int i = 0; i < f->count; i++) free(f->infos[i].name);
    for (int i = 0; i < f->n_shards; i++) {
        if (f->shards[i].mapped) file_unmap(&f->shards[i].map);
        free(f->shards[i].path);
    }
    MEM_FREE(f->shards, f->sums, f->infos, f->by_name, f->path, f);
}

const char *tensor_shape(char out[TENSOR_SHAPE_BYTES], const int64_t *dims, int n)
{
    int len = snprintf(out, TENSOR_SHAPE_BYTES, "(");
    for (int d = 0; d < n; d++)
        len += snprintf(out + len, TENSOR_SHAPE_BYTES - (size_t)len, "%s%" PRId64, d ? ", " : "", dims[d]);
    snprintf(out + len, TENSOR_SHAPE_BYTES - (size_t)len, ")");
    return out;
}

const char *tensor_format_name(TensorFormat format)
{
    static const char *const names[] = {
        [TENSORS_SAFETENSORS] = "safetensors", [TENSORS_PYTORCH] = "PyTorch", [TENSORS_TF1] = "TensorFlow 1"};
    return names[format];
}

TensorFormat tensor_file_format(const TensorFile *f) { return f->format; }
const char *tensor_file_path(const TensorFile *f) { return f->path; }
int tensor_file_count(const TensorFile *f) { return f->count; }

const TensorInfo *tensor_file_info(const TensorFile *f, int i)
{
    CHECK(i >= 0 && i < f->count, "tensor %d of %d in %s", i, f->count, f->path);
    return &f->infos[i];
}

int tensor_file_find(const TensorFile *f, const char *name)
{
    for (int low = 0, high = f->count; low < high;) {
        int middle = low + (high - low) / 2, order = strcmp(name, f->infos[f->by_name[middle]].name);
        if (order == 0) return f->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}
