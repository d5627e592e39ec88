/* What the tests of tensor files share: the golden files' values, hostile copies of a file, reading everything. */
#pragma once

#include <fcntl.h>

#include "formats/tensor_file.h"
#include "testing.h"

#define GOLDEN "tests/golden/tensor_files/"

/* Element i of the golden tensor `name`, as tests/golden/make_tensor_files.py says. */
static inline int golden_value(const char *name, int64_t i)
{
    int64_t sum = 0;
    for (const char *c = name; *c; c++) sum += (unsigned char)*c;
    return (int)((7 * i + sum) % 61) - 30;
}

static inline void check_values(const TensorFile *f, const char *name, const char *values_of)
{
    int i = tensor_file_find(f, name);
    if (i < 0) fail_msg("%s: no tensor '%s'", tensor_file_path(f), name);
    const TensorInfo *t = tensor_file_info(f, i);
    assert_string_equal(t->name, name);
    float *x = mem_array((size_t)t->count + 1, sizeof *x);
    assert_ok(tensor_file_read_f32(f, i, x, t->count));
    bool is_bool = strcmp(values_of, "bool") == 0, is_u8 = strcmp(values_of, "u8") == 0;
    for (int64_t k = 0; k < t->count; k++) {
        int v = golden_value(values_of, k);
        if (is_bool) v = v % 2 == 0;
        if (is_u8) v &= 255;
        if (x[k] != (float)v)
            fail_msg("%s: %s[%lld] is %g, expected %d", tensor_file_path(f), name, (long long)k, x[k], v);
    }
    free(x);
}

static inline void check_shape(const TensorFile *f, const char *name, Dtype dtype, int n_dims, const int64_t *dims)
{
    int i = tensor_file_find(f, name);
    if (i < 0) fail_msg("%s: no tensor '%s'", tensor_file_path(f), name);
    const TensorInfo *t = tensor_file_info(f, i);
    int64_t count = 1;
    assert_string_equal(dtype_name(t->dtype), dtype_name(dtype));
    assert_int_equal(t->n_dims, n_dims);
    for (int d = 0; d < n_dims; d++) {
        assert_int_equal(t->dims[d], dims[d]);
        count *= dims[d];
    }
    assert_int_equal(t->count, count);
}

/* The 13 tensors that the plain files have in common, with types, shapes and values. */
static inline void check_plain(const TensorFile *f)
{
    static const struct {
        const char *name;
        Dtype dtype;
        int n_dims;
        int64_t dims[2];
    } expected[] = {
        {"f32", F32, 2, {3, 4}},
        {"f16", F16, 2, {2, 5}},
        {"bf16", BF16, 1, {7}},
        {"f64", F64, 2, {2, 2}},
        {"i64", I64, 2, {1, 6}},
        {"i32", I32, 1, {3}},
        {"i16", I16, 1, {4}},
        {"i8", I8, 1, {5}},
        {"u8", U8, 1, {6}},
        {"bool", U8, 1, {9}},
        {"scalar", F32, 0, {0}},
        {"empty", F32, 2, {0, 3}},
        {"gr\xc3\xb6\xc3\x9f"
         "e.weight",
         F32,
         2,
         {2, 3}},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        check_shape(f, expected[i].name, expected[i].dtype, expected[i].n_dims, expected[i].dims);
        check_values(f, expected[i].name, expected[i].name);
    }
}

static inline Buf load_bytes(const char *path)
{
    Buf b = {0};
    assert_ok(file_read(path, (size_t)1 << 24, &b));
    return b;
}

/* Overwrites a file, not durably, because tests write thousands. */
static inline void store_bytes(const char *path, const void *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len || ftruncate(fd, (off_t)len) != 0 || close(fd) != 0)
        fail_msg("cannot write %s", path);
}

/* Every tensor's raw bytes and fp32 values must be readable or refused as bad input. Returns the elements read. */
static inline int64_t read_all(const TensorFile *f)
{
    int64_t total = 0;
    for (int i = 0; i < tensor_file_count(f); i++) {
        const TensorInfo *t = tensor_file_info(f, i);
        assert_true(t->count >= 0 && t->count < (1 << 24));
        assert_int_equal(tensor_file_find(f, t->name), i);
        float *x = mem_array((size_t)t->count + 1, sizeof *x);
        void *raw = mem_array((size_t)t->count + 1, 8);
        Status a = tensor_file_read_f32(f, i, x, t->count);
        Status b = tensor_file_read_raw(f, i, raw, (size_t)t->count * dtype_size(t->dtype));
        assert_true(a == OK || a == E_FORMAT || a == E_IO);
        assert_int_equal(a, b);
        if (a == OK) total += t->count;
        free(x);
        free(raw);
    }
    return total;
}

/* Opens `data` written to `path` (opened as `open_as`). A refusal must be E_FORMAT. Returns NULL if refused. */
static inline TensorFile *open_hostile(const char *path, const char *open_as, const void *data, size_t len)
{
    TensorFile *f = NULL;
    store_bytes(path, data, len);
    Status status = tensor_file_open(open_as, &f);
    if (status == OK) return f;
    assert_null(f);
    if (status != E_FORMAT) fail_msg("expected bad input, got %s: %s", status_name(status), status_message());
    char *stem =
        mem_strndup(path, (size_t)(strrchr(path, '.') - path)); /* of a TF1 checkpoint it may be the data file */
    if (!strstr(status_message(), stem)) fail_msg("the message does not name the file: %s", status_message());
    free(stem);
    return NULL;
}

static inline void expect_refused(const char *path, const void *data, size_t len, const char *part)
{
    TensorFile *f = open_hostile(path, path, data, len);
    if (f) fail_msg("%s was accepted; expected \"%s\"", path, part);
    assert_message(part);
}

/* Whether both files hold the same values, tensor by tensor in order; names may differ where `names` is false. */
static inline bool same_values(const TensorFile *a, const TensorFile *b, bool names)
{
    if (tensor_file_count(a) != tensor_file_count(b)) return false;
    bool same = true;
    for (int i = 0; i < tensor_file_count(a) && same; i++) {
        const TensorInfo *x = tensor_file_info(a, i), *y = tensor_file_info(b, i);
        size_t bytes = (size_t)x->bytes;
        same = x->dtype == y->dtype && x->count == y->count && (!names || strcmp(x->name, y->name) == 0);
        if (!same) break;
        char *p = mem_alloc(bytes), *q = mem_alloc(bytes);
        same = tensor_file_read_raw(a, i, p, bytes) == OK && tensor_file_read_raw(b, i, q, bytes) == OK &&
               memcmp(p, q, bytes) == 0;
        free(p);
        free(q);
    }
    return same;
}

/* A file in the shared test data, or NULL with a word that it is absent. Caller frees. */
static inline char *shared_data(const char *name)
{
    const char *root = getenv("CAIRN_TEST_DATA");
    char *path = file_join(root && *root ? root : "../shared/data", name);
    if (file_exists(path) || file_is_directory(path)) return path;
    print_message("skipped: %s is absent\n", path);
    free(path);
    return NULL;
}
