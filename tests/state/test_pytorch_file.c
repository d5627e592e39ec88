/* PyTorch's files, zip form and old form: real ones, storages that do not fit, broken zips, every truncation and
   flipped bits. Forbidden pickles are in test_pickle.c. */
#include "file_builders.h"
#define HOSTILE_NAME "hostile.pt"
#include "hostile_file.h"

/* --- real files --- */

static void test_plain(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "plain_zip.bin", GOLDEN "plain_old.bin", GOLDEN "plain_protocol4.bin"};
    for (int i = 0; i < 3; i++) {
        TensorFile *f;
        assert_ok(tensor_file_open(files[i], &f));
        assert_int_equal(tensor_file_format(f), TENSORS_PYTORCH);
        assert_int_equal(tensor_file_count(f), 13);
        assert_string_equal(tensor_file_info(f, 0)->name, "f32"); /* in the state_dict's order */
        check_plain(f);
        tensor_file_close(f);
    }
}

static void test_views(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "views_zip.pt", GOLDEN "views_old.pt"};
    for (int i = 0; i < 2; i++) {
        TensorFile *f;
        float x[12];
        assert_ok(tensor_file_open(files[i], &f));
        assert_int_equal(tensor_file_count(f), 9);
        check_shape(f, "transposed", F32, 2, (int64_t[]){4, 3});
        check_shape(f, "permuted", F32, 3, (int64_t[]){2, 3, 4});
        check_shape(f, "stepped", F32, 2, (int64_t[]){2, 6});
        static const char *const as_named[] = {"transposed", "permuted", "part.a", "part.b", "stepped", "tied"};
        for (size_t k = 0; k < sizeof as_named / sizeof *as_named; k++) check_values(f, as_named[k], as_named[k]);
        check_values(f, "tied.again", "tied");
        check_values(f, "tied.view", "tied");
        check_shape(f, "expanded", F32, 2, (int64_t[]){3, 4});
        assert_ok(tensor_file_read_f32(f, tensor_file_find(f, "expanded"), x, 12));
        for (int k = 0; k < 12; k++) assert_true(x[k] == (float)golden_value("expanded", k % 4));
        assert_int_equal(tensor_file_info(f, tensor_file_find(f, "transposed"))->strides[0], 1);
        float rows[12], raw[12];
        assert_ok(tensor_file_read_f32(f, tensor_file_find(f, "transposed"), rows, 12));
        assert_ok(tensor_file_read_raw(f, tensor_file_find(f, "transposed"), raw, sizeof raw));
        assert_memory_equal(rows, raw, sizeof raw);
        tensor_file_close(f);
    }
}

static void test_training_checkpoint(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "training_zip.pt", GOLDEN "training_old.pt"};
    static const char *const names[] = {"dense.weight", "dense.bias", "norm.weight", "norm.bias"};
    for (int i = 0; i < 2; i++) {
        TensorFile *f;
        assert_ok(tensor_file_open(files[i], &f));
        assert_int_equal(tensor_file_count(f), 4); /* of the model, not of the optimizer */
        check_shape(f, "dense.weight", F32, 2, (int64_t[]){2, 3});
        for (int k = 0; k < 4; k++) check_values(f, names[k], names[k]);
        tensor_file_close(f);
    }
}

static void test_parameters(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "parameters.pt", GOLDEN "raw_parameter.pt", GOLDEN "device.pt"};
    for (int i = 0; i < 3; i++) {
        TensorFile *f;
        assert_ok(tensor_file_open(files[i], &f));
        assert_int_equal(tensor_file_count(f), 1); /* a number and a torch.device beside it are ignored */
        check_values(f, "weight", "weight");
        tensor_file_close(f);
    }
}

static void test_real_files_refused(void **state)
{
    (void)state;
    TensorFile *f;
    assert_status(tensor_file_open(GOLDEN "module.pt", &f), E_FORMAT);
    assert_message("module.pt: its top value is made by '__main__.Net'");
    assert_message("nothing was executed");
    assert_status(tensor_file_open(GOLDEN "no_crc.pt", &f), E_FORMAT);
    assert_message("set_crc32_options(False)");
}

/* --- hand-made files --- */

/* Storages that only the zip form can describe. */
static void test_storages_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        const char *type, *key;
        int64_t count;
        const char *part;
    } cases[] = {
        {"FloatStorage", "1", 6, "tensor 't': the entry 'data/1' of its storage is missing"},
        {"FloatStorage", "../0", 6, "the entry 'data/../0' of its storage is missing"},
        {"FloatStorage", "0", 7, "its storage 'data/0' has 24 bytes, the pickle says 7 elements of f32"},
        {"FloatStorage", "0", 5, "24 bytes"},
        {"FloatStorage", "0", INT64_MAX, "24 bytes"},
        {"FloatStorage", "0", (int64_t)1 << 62, "24 bytes"}, /* × 4 wraps to 0 */
        {"DoubleStorage", "0", 6, "24 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf pickle = {0};
        buf_puts(&pickle, "\x80\x02}");
        pickle_string(&pickle, "t");
        pickle_tensor(&pickle, cases[i].type, cases[i].key, cases[i].count, 0, 1, (int64_t[]){1}, (int64_t[]){1});
        buf_puts(&pickle, "s.");
        Buf zip = pytorch_zip_of(pickle.data, pickle.len, 24);
        expect_refused(path, zip.data, zip.len, cases[i].part);
        buf_free(&zip);
        buf_free(&pickle);
    }
}

/* Two tensors 'a' over storage '0'; the old form's raw part is given. */
static void expect_old(int64_t count_a, int64_t count_b, const char *keys, uint64_t count, size_t bytes,
                       const char *part)
{
    Buf b = pytorch_old_start();
    buf_puts(&b, "\x80\x02}(");
    pickle_string(&b, "a");
    pickle_tensor(&b, "FloatStorage", "0", count_a, 0, 1, (int64_t[]){2}, (int64_t[]){1});
    pickle_string(&b, "b");
    pickle_tensor(&b, "FloatStorage", "0", count_b, 2, 1, (int64_t[]){2}, (int64_t[]){1});
    buf_puts(&b, "u.\x80\x02](");
    for (const char *k = keys; *k; k++) pickle_string(&b, (char[]){*k, 0});
    buf_puts(&b, "e.");
    put_le(&b, count, 8);
    buf_append(&b, elements, bytes);
    if (part) {
        expect_refused(path, b.data, b.len, part);
    } else {
        TensorFile *f = open_hostile(path, path, b.data, b.len);
        if (!f) fail_msg("refused: %s", status_message());
        assert_int_equal(read_all(f), 4);
        tensor_file_close(f);
    }
    buf_free(&b);
}

static void test_old_form_storages(void **state)
{
    (void)state;
    expect_old(6, 6, "0", 6, 24, NULL);
    expect_old(6, 6, "0", 6, 23, "only 23 bytes are left: the file is truncated");
    expect_old(6, 6, "0", 6, 25, "1 bytes follow the last storage");
    expect_old(6, 6, "0", 5, 24, "has 5 elements, the pickle says 6");
    expect_old(6, 5, "0", 6, 24, "storage '0' has two sizes or types");
    expect_old(6, 6, "", 6, 24, "bytes follow the last storage");
    expect_old(6, 6, "00", 6, 24, "storage key 1 is listed twice");
    expect_old(6, 6, "01", 6, 24, "storage key 1 is unknown");
    expect_old(INT64_MAX, INT64_MAX, "0", INT64_MAX, 24, "claims 9223372036854775807 elements");
}

static void test_old_form_preamble(void **state)
{
    (void)state;
    Buf good = load_bytes(GOLDEN "plain_old.bin");
    good.data[4] ^= 1;
    expect_refused(path, good.data, good.len, "PyTorch's magic number");
    good.data[4] ^= 1;
    good.data[18] ^= 1;
    expect_refused(path, good.data, good.len, "protocol version 1001");
    good.data[18] ^= 1;
    char *flag = memmem(good.data, good.len, "little_endianq\x02\x88", 16);
    assert_non_null(flag);
    flag[15] = (char)0x89;
    expect_refused(path, good.data, good.len, "big-endian machine");
    flag[15] = (char)'N';
    expect_refused(path, good.data, good.len, "little_endian");
    buf_free(&good);
    expect_refused(path, "\x80\x02N.", 4, "PyTorch's magic number");
    Buf no_keys = pytorch_old_start();
    buf_puts(&no_keys, "}.N.");
    expect_refused(path, no_keys.data, no_keys.len, "the fifth pickle must be the list of storage keys");
    buf_free(&no_keys);
    expect_refused(path, "\x80\x02", 2, "truncated");
}

/* --- broken zips --- */

static Buf tensor_pickle(void)
{
    Buf pickle = {0};
    buf_puts(&pickle, "\x80\x02}");
    pickle_string(&pickle, "t");
    pickle_tensor(&pickle, "FloatStorage", "0", 6, 0, 1, (int64_t[]){6}, (int64_t[]){1});
    buf_puts(&pickle, "s.");
    return pickle;
}

static void test_zip64_fields(void **state)
{
    (void)state;
    Buf pickle = tensor_pickle();
    ZipBuilder z = {.wide = true};
    zip_add(&z, "model/data.pkl", pickle.data, pickle.len);
    zip_add(&z, "model/data/0", elements, 24);
    zip_add(&z, "model/byteorder", "little", 6);
    zip_add(&z, "model/version", "3\n", 2);
    zip_end(&z);
    TensorFile *f = open_hostile(path, path, z.out.data, z.out.len);
    if (!f) fail_msg("refused: %s", status_message());
    assert_int_equal(read_all(f), 6);
    tensor_file_close(f);
    /* The extra field is cut: its 24 bytes become 16. */
    char *extra = memmem(z.out.data, z.out.len, "\1\0\x18\0", 4);
    assert_non_null(extra);
    extra[2] = 16;
    expect_refused(path, z.out.data, z.out.len, "extra fields do not fit");
    buf_free(&z.out);
    buf_free(&pickle);
}

/* Writes `value` at `offset` from the directory entry of `name` (or, where `local`, from its local header). */
static void bend(Buf *zip, const char *name, bool local, size_t offset, uint64_t value, int bytes)
{
    size_t fixed = local ? 30 : 46;
    for (size_t i = 0; i + fixed + strlen(name) <= zip->len; i++) {
        if (memcmp(zip->data + i, local ? "PK\3\4" : "PK\1\2", 4) != 0) continue;
        if (memcmp(zip->data + i + fixed, name, strlen(name)) != 0) continue;
        for (int k = 0; k < bytes; k++) zip->data[i + offset + (size_t)k] = (char)(value >> (8 * k));
        return;
    }
    fail_msg("no header of %s", name);
}

static void test_broken_zips(void **state)
{
    (void)state;
    static const struct {
        bool local;
        size_t offset;
        uint64_t value;
        int bytes;
        const char *part;
    } cases[] = {
        {false, 8, 1, 2, "entry 'x/data/0' is encrypted"},
        {false, 10, 8, 2, "is compressed (method 8)"},
        {false, 20, 23, 4, "is compressed"},
        {false, 20, 0xffffffff, 4, "extra fields do not fit"},
        {false, 42, 0, 4, "differs from the directory's entry"},
        {false, 42, 0x7fffffff, 4, "is outside the file's data"},
        {false, 28, 7, 2, "differs from the directory's entry"},
        {false, 0, 0, 1, "no zip directory entry at byte"},
        {false, 28, 0xffff, 2, "is cut off"},
        {false, 32, 1, 2, "is cut off"},
        {true, 0, 0, 1, "differs from the directory's entry"},
        {true, 8, 8, 2, "differs from the directory's entry"},
        {true, 26, 7, 2, "differs from the directory's entry"},
        {true, 28, 0xffff, 2, "differs from the directory's entry"},
        {true, 28, 1, 2, "only 23 precede the directory"},
        {true, 14, 0, 4, "differ from those in the directory"},
        {true, 18, 23, 4, "differ from those in the directory"},
        {true, 22, 25, 4, "differ from those in the directory"},
    };
    Buf pickle = tensor_pickle();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf zip = pytorch_zip_of(pickle.data, pickle.len, 24);
        bend(&zip, "x/data/0", cases[i].local, cases[i].offset, cases[i].value, cases[i].bytes);
        TensorFile *f = open_hostile(path, path, zip.data, zip.len);
        if (f) fail_msg("case %zu was accepted; expected \"%s\"", i, cases[i].part);
        assert_message(cases[i].part);
        buf_free(&zip);
    }

    /* The end record: 22 bytes, the last of the file. */
    static const struct {
        size_t offset;
        uint64_t value;
        int bytes;
        const char *part;
    } ends[] = {
        {4, 1, 2, "in several parts"},
        {10, 1, 2, "bytes follow the last zip directory entry"},
        {10, 3, 2, "claims 3 entries in"},
        {10, 0xffff, 2, "the zip64 end record is missing"},
        {12, 1, 4, "the zip directory claims 1 bytes"},
        {12, 0xfffffffe, 4, "the zip directory claims 4294967294 bytes"},
        {16, 0x7fffffff, 4, "the zip directory claims"},
        {20, 1, 2, "without its directory at the end"},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        Buf zip = pytorch_zip_of(pickle.data, pickle.len, 24);
        for (int k = 0; k < ends[i].bytes; k++)
            zip.data[zip.len - 22 + ends[i].offset + (size_t)k] = (char)(ends[i].value >> (8 * k));
        expect_refused(path, zip.data, zip.len, ends[i].part);
        buf_free(&zip);
    }

    /* Sizes in all three places: the storage then overlaps the next entry, or is too short. */
    for (uint64_t size = 20; size <= 28; size += 8) {
        ZipBuilder z = {0};
        zip_add(&z, "x/data/0", elements, 24);
        zip_add(&z, "x/data.pkl", pickle.data, pickle.len);
        zip_end(&z);
        bend(&z.out, "x/data/0", false, 20, size | size << 32, 8);
        bend(&z.out, "x/data/0", true, 18, size | size << 32, 8);
        expect_refused(path, z.out.data, z.out.len,
                       size > 24 ? "entry 'x/data.pkl' overlaps" : "has 20 bytes, the pickle says 6");
        buf_free(&z.out);
    }
    buf_free(&pickle);
}

static void expect_archive(int n, const char *const *names, const char *const *contents, const char *part)
{
    ZipBuilder z = {0};
    for (int i = 0; i < n; i++) zip_add(&z, names[i], contents[i], strlen(contents[i]));
    zip_end(&z);
    expect_refused(path, z.out.data, z.out.len, part);
    buf_free(&z.out);
}

#define ARCHIVE(part, n, names, contents)                                                                              \
    expect_archive(n, (const char *const[])names, (const char *const[])contents, part)
#define LIST(...)                                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static void test_strange_archives(void **state)
{
    (void)state;
    ARCHIVE("without an entry NAME/data.pkl", 1, LIST("x/version"), LIST("3\n"));
    ARCHIVE("without an entry NAME/data.pkl", 1, LIST("data.pkl"), LIST("N."));
    ARCHIVE("without an entry NAME/data.pkl", 1, LIST("a/b/data.pkl"), LIST("N."));
    ARCHIVE("two entries NAME/data.pkl", 2, LIST("x/data.pkl", "y/data.pkl"), LIST("N.", "N."));
    ARCHIVE("occurs twice", 2, LIST("x/data.pkl", "x/data.pkl"), LIST("N.", "N."));
    ARCHIVE("byte order is 'big'", 2, LIST("x/data.pkl", "x/byteorder"), LIST("}.", "big"));
    ARCHIVE("archive version '11", 2, LIST("x/data.pkl", "x/version"), LIST("}.", "11\n"));
    ARCHIVE("archive version ''", 2, LIST("x/data.pkl", "x/version"), LIST("}.", ""));
    ARCHIVE("the pickle ends at byte 2 of 3", 1, LIST("x/data.pkl"), LIST("}.N"));
    ARCHIVE("top value is not a dict", 1, LIST("x/data.pkl"), LIST("N."));
    ARCHIVE("found no named tensor", 1, LIST("x/data.pkl"), LIST("}."));
    ARCHIVE("found no named tensor", 1, LIST("x/data.pkl"), LIST("}U\5model}s."));
    ARCHIVE("truncated", 1, LIST("x/data.pkl"), LIST(""));
    expect_refused(path, "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22, "without an entry");
    expect_refused(path, "PK\3\4", 4, "without its directory");
}

/* Reading damaged elements fails, and the message names tensor and file. */
static void test_damaged_storage(void **state)
{
    (void)state;
    Buf pickle = tensor_pickle(), zip = pytorch_zip_of(pickle.data, pickle.len, 24);
    char *data = memmem(zip.data, zip.len, elements, 24);
    assert_non_null(data);
    data[5] ^= 16;
    TensorFile *f = open_hostile(path, path, zip.data, zip.len);
    float x[6];
    assert_non_null(f);
    assert_status(tensor_file_read_f32(f, 0, x, 6), E_FORMAT);
    assert_message("hostile.pt: tensor 't': the CRC-32 of its 24 bytes");
    tensor_file_close(f);
    buf_free(&zip);
    buf_free(&pickle);
}

/* --- every truncation, every flipped bit --- */

static void test_every_truncation(void **state)
{
    (void)state;
    static const char *const files[] = {GOLDEN "parameters.pt", GOLDEN "plain_old.bin", GOLDEN "views_old.pt"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Buf whole = load_bytes(files[i]);
        for (size_t n = 0; n < whole.len; n++) {
            TensorFile *f = open_hostile(path, path, whole.data, n);
            if (f) fail_msg("%s: the first %zu of %zu bytes were accepted", files[i], n, whole.len);
        }
        buf_free(&whole);
    }
}

static void flip(const char *file, size_t begin, size_t end, bool must_agree)
{
    Buf whole = load_bytes(file);
    TensorFile *good;
    assert_ok(tensor_file_open(file, &good));
    size_t accepted = 0;
    for (size_t bit = 8 * begin; bit < 8 * end && bit < 8 * whole.len; bit++) {
        whole.data[bit / 8] ^= (char)(1 << bit % 8);
        TensorFile *f = open_hostile(path, path, whole.data, whole.len);
        if (f) {
            accepted++;
            bool readable = true; /* damaged elements are refused later */
            for (int i = 0; i < tensor_file_count(f) && readable; i++) {
                const TensorInfo *t = tensor_file_info(f, i);
                assert_in_range(t->count, 0, whole.len);
                float *x = mem_array((size_t)t->count, sizeof *x);
                readable = tensor_file_read_f32(f, i, x, t->count) == OK;
                free(x);
            }
            if (readable && must_agree && !same_values(good, f, true))
                fail_msg("%s: bit %zu of byte %zu changed a value", file, bit % 8, bit / 8);
            tensor_file_close(f);
        }
        whole.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_true(accepted < 8 * (end - begin));
    tensor_file_close(good);
    buf_free(&whole);
}

static void test_every_flipped_bit(void **state)
{
    (void)state;
    flip(GOLDEN "parameters.pt", 0, 4096, true);
    flip(GOLDEN "views_zip.pt", 0, 1300, true);  /* the pickle and its header */
    flip(GOLDEN "views_old.pt", 0, 1500, false); /* no checksums: only crashes are detected */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_training_checkpoint),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_real_files_refused),
        cmocka_unit_test(test_storages_that_do_not_fit),
        cmocka_unit_test(test_old_form_storages),
        cmocka_unit_test(test_old_form_preamble),
        cmocka_unit_test(test_zip64_fields),
        cmocka_unit_test(test_broken_zips),
        cmocka_unit_test(test_strange_archives),
        cmocka_unit_test(test_damaged_storage),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_every_flipped_bit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
