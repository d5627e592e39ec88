/* safetensors: a file of the original library, hostile headers, every truncation and every flipped bit of a header, and
   the writer's bytes. */
#define HOSTILE_NAME "hostile.safetensors"
#include "hostile_file.h"

static void test_reads_the_librarys_file(void **state)
{
    (void)state;
    TensorFile *f;
    assert_ok(tensor_file_open(GOLDEN "plain.safetensors", &f));
    assert_int_equal(tensor_file_format(f), TENSORS_SAFETENSORS);
    assert_string_equal(tensor_file_path(f), GOLDEN "plain.safetensors");
    assert_int_equal(tensor_file_count(f), 13);
    check_plain(f);
    assert_int_equal(tensor_file_find(f, "f3"), -1);
    assert_int_equal(tensor_file_find(f, ""), -1);
    tensor_file_close(f);
    tensor_file_close(NULL);
}

static void test_reads_a_real_model(void **state)
{
    (void)state;
    char *model = shared_data("checkpoint/st_coldfire_tiny_bert/model.safetensors");
    if (!model) skip();
    TensorFile *f;
    assert_ok(tensor_file_open(model, &f));
    assert_int_equal(tensor_file_count(f), 37);
    check_shape(f, "embeddings.word_embeddings.weight", F32, 2, (int64_t[]){256, 32});
    check_shape(f, "encoder.layer.1.output.dense.weight", F32, 2, (int64_t[]){32, 64});
    float weight[32];
    assert_ok(tensor_file_read_f32(f, tensor_file_find(f, "embeddings.LayerNorm.weight"), weight, 32));
    for (int i = 0; i < 32; i++) assert_true(weight[i] == 1.0f);
    assert_true(read_all(f) > 20000);
    tensor_file_close(f);
    free(model);
}

/* Writes a file of `header` and `data` zero bytes. */
static Buf make_file(const char *header, size_t data)
{
    Buf b = {0};
    uint64_t n = strlen(header);
    for (int i = 0; i < 8; i++) buf_append(&b, &(char){(char)(n >> (8 * i))}, 1);
    buf_puts(&b, header);
    for (size_t i = 0; i < data; i++) buf_append(&b, "", 1);
    return b;
}

#define T(name, dtype, shape, begin, end)                                                                              \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void test_refuses_wrong_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *part; /* of the message */
    } cases[] = {
        {"", 0, "begins with '{'"},
        {"[]", 0, "begins with '{'"},
        {" {}", 0, "begins with '{'"},
        {"{", 0, "begins with '{'"},
        {"{]", 0, "not valid JSON"},
        {"{} x", 0, "not valid JSON"},
        {"{}", 4, "the last tensor ends at byte 10, the file at 14"},
        {"{" T("a", "F32", "[1]", 0, 4) "}", 3, "'a' ends at byte 4 of the data, the file has only 3"},
        {"{" T("a", "F32", "[1]", 0, 4) "}", 5, "the file at"},
        {"{" T("a", "F32", "[1]", 4, 8) "}", 8, "there is a hole after 'the header'"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 8, 12) "}", 12,
         "'b' begins at byte 8 of the data, expected 4"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[1]", 4, 8) "}", 8, "it overlaps 'a'"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("b", "F32", "[1]", 0, 4) "}", 4, "it overlaps 'a'"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("a", "F32", "[1]", 4, 8) "}", 8, "names 'a' twice"},
        {"{" T("a", "F32", "[1]", 0, 4) "," T("\\u0061", "F32", "[1]", 4, 8) "}", 8, "names 'a' twice"},
        {"{" T("a", "F32", "[1]", 4, 0) "}", 4, "begin ≤ end"},
        {"{" T("a", "F32", "[1]", -4, 0) "}", 4, "data_offsets"},
        {"{" T("a", "F32", "[1]", 0, 18446744073709551615) "}", 4, "data_offsets"},
        {"{" T("a", "F32", "[1]", 0, 9223372036854775807) "}", 4, "it is truncated, or its header is wrong"},
        {"{" T("a", "F32", "[1]", 0, 4.0) "}", 4, "data_offsets"},
        {"{" T("a", "F32", "[2]", 0, 4) "}", 4, "takes 8 bytes as F32, data_offsets give it 4"},
        {"{" T("a", "F32", "[]", 0, 8) "}", 8, "takes 4 bytes"},
        {"{" T("a", "F32", "[-1]", 0, 4) "}", 4, "shape"},
        {"{" T("a", "F32", "[1.5]", 0, 4) "}", 4, "shape"},
        {"{" T("a", "F32", "[true]", 0, 4) "}", 4, "shape"},
        {"{" T("a", "F32", "{}", 0, 4) "}", 4, "shape"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "shape"},
        {"{" T("a", "F32", "[4294967296,4294967296]", 0, 4) "}", 4, "2^63"},
        {"{" T("a", "F32", "[4611686018427387905,4]", 0, 16) "}", 16, "2^63"}, /* × 4 × 4 wraps to 16 */
        {"{" T("a", "F32", "[0,4294967296,4294967296]", 0, 0) "}", 0, "2^63"},
        {"{" T("a", "F8_E4M3", "[4]", 0, 4) "}", 4, "dtype is 'F8_E4M3'"},
        {"{" T("a", "f32", "[1]", 0, 4) "}", 4, "dtype is 'f32'"},
        {"{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is 'not a string'"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "exactly dtype, shape and data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "exactly dtype"},
        {"{\"a\":[]}", 0, "exactly dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 8, "data_offsets"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not a JSON object"},
        {"{\"__metadata__\":{\"format\":1}}", 0, "the value of 'format' is not a string"},
        {"{" T("", "F32", "[1]", 0, 4) "}", 4, "tensor name ''"},
        {"{" T("a\\nb", "F32", "[1]", 0, 4) "}", 4, "without control characters"},
        {"{" T("a\xff", "F32", "[1]", 0, 4) "}", 4, "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf b = make_file(cases[i].header, cases[i].data);
        expect_refused(path, b.data, b.len, cases[i].part);
        buf_free(&b);
    }
}

/* A header of a hundred nested arrays; names that are too long or end in the middle of a character. */
static void test_refuses_deep_and_long(void **state)
{
    (void)state;
    Buf header = {0};
    for (int i = 0; i < 5000; i++) buf_puts(&header, "{\"a\":");
    Buf b = make_file(header.data, 0);
    expect_refused(path, b.data, b.len, "nested deeper");
    buf_free(&b);
    buf_free(&header);
    buf_puts(&header, "{\"");
    for (int i = 0; i < 1025; i++) buf_puts(&header, "n");
    buf_puts(&header, "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}");
    b = make_file(header.data, 1);
    expect_refused(path, b.data, b.len, "(1025 bytes): expected 1 to 1024");
    buf_free(&b);
    buf_free(&header);
}

static void test_refuses_wrong_lengths(void **state)
{
    (void)state;
    Buf good = make_file("{" T("a", "F32", "[1]", 0, 4) "}", 4);
    static const uint64_t lengths[] = {
        0, 1, 60, 61, 100000000, 100000001, UINT32_MAX, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (int k = 0; k < 8; k++) good.data[k] = (char)(lengths[i] >> (8 * k));
        TensorFile *f = open_hostile(path, path, good.data, good.len);
        if (f) fail_msg("a header length of %llu was accepted", (unsigned long long)lengths[i]);
    }
    assert_message("the header claims 18446744073709551615 bytes, expected at most 100000000");
    buf_free(&good);
}

static void test_odd_but_valid(void **state)
{
    (void)state;
    /* Trailing spaces, empty tensors between others, no tensors at all, an order other than the file's. */
    Buf b = make_file(
        "{" T("b", "U8", "[2]", 1, 3) "," T("none", "F64", "[0,7]", 1, 1) "," T("a", "BOOL", "[1]", 0, 1) "}   ", 3);
    TensorFile *f = open_hostile(path, path, b.data, b.len);
    assert_non_null(f);
    assert_int_equal(tensor_file_count(f), 3);
    assert_string_equal(tensor_file_info(f, 0)->name, "a");
    assert_string_equal(tensor_file_info(f, 1)->name, "none");
    assert_string_equal(tensor_file_info(f, 2)->name, "b");
    assert_int_equal(read_all(f), 3);
    tensor_file_close(f);
    buf_free(&b);
    b = make_file("{}", 0);
    f = open_hostile(path, path, b.data, b.len);
    assert_non_null(f);
    assert_int_equal(tensor_file_count(f), 0);
    tensor_file_close(f);
    buf_free(&b);
}

/* The first bytes of a pickle, 0x80 and the protocol, are also the length of a header: 640, 896, 1152 … */
static void test_a_length_that_looks_like_a_pickle(void **state)
{
    (void)state;
    for (size_t protocol = 0; protocol <= 5; protocol++) {
        char header[0x600];
        int n = snprintf(header, sizeof header, "{%s", T("a", "F32", "[2]", 0, 8));
        memset(header + n, ' ', sizeof header - (size_t)n);
        header[0x80 + 0x100 * protocol - 1] = '}';
        header[0x80 + 0x100 * protocol] = 0;
        Buf file = make_file(header, 8);
        TensorFile *f = open_hostile(path, path, file.data, file.len);
        assert_non_null(f);
        assert_int_equal(tensor_file_count(f), 1);
        tensor_file_close(f);
        buf_free(&file);
    }
}

static void test_every_truncation(void **state)
{
    (void)state;
    Buf whole = load_bytes(GOLDEN "plain.safetensors");
    for (size_t n = 0; n < whole.len; n++) {
        TensorFile *f = open_hostile(path, path, whole.data, n);
        if (f) fail_msg("the first %zu of %zu bytes were accepted", n, whole.len);
    }
    buf_append(&whole, "", 1);
    expect_refused(path, whole.data, whole.len, "the last tensor ends at byte");
    buf_free(&whole);
}

/* A flipped bit of the header may only change a name or metadata. */
static void test_every_flipped_bit(void **state)
{
    (void)state;
    Buf whole = load_bytes(GOLDEN "plain.safetensors");
    TensorFile *good;
    assert_ok(tensor_file_open(GOLDEN "plain.safetensors", &good));
    size_t header = 8 + (unsigned char)whole.data[0] + 256u * (unsigned char)whole.data[1], accepted = 0;
    assert_true(header < whole.len);
    for (size_t bit = 0; bit < 8 * header; bit++) {
        whole.data[bit / 8] ^= (char)(1 << bit % 8);
        TensorFile *f = open_hostile(path, path, whole.data, whole.len);
        if (f) {
            accepted++;
            if (!same_values(good, f, false)) fail_msg("bit %zu of byte %zu changed a value", bit % 8, bit / 8);
            tensor_file_close(f);
        }
        whole.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_in_range(accepted, 1, header); /* nearly all are flips in names */
    tensor_file_close(good);
    buf_free(&whole);
}

/* --- the writer --- */

static void write_copy(const TensorFile *from, const char *to, size_t chunk, Digest *digest)
{
    int n = tensor_file_count(from);
    TensorInfo *infos = mem_array((size_t)n, sizeof *infos);
    static const char *const metadata[] = {"format", "pt", "quote \"", "\xc3\xa9\n"};
    SafetensorsWriter *w;
    for (int i = 0; i < n; i++) infos[i] = *tensor_file_info(from, i);
    assert_ok(safetensors_writer_open(&w, to, infos, n, metadata, 2));
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)infos[i].count * dtype_size(infos[i].dtype);
        char *raw = mem_alloc(bytes);
        assert_ok(tensor_file_read_raw(from, i, raw, bytes));
        for (size_t at = 0; at < bytes; at += chunk)
            assert_ok(safetensors_writer_write(w, raw + at, bytes - at < chunk ? bytes - at : chunk));
        free(raw);
    }
    assert_ok(safetensors_writer_close(w, digest));
    free(infos);
}

static void test_round_trip(void **state)
{
    (void)state;
    TensorFile *golden, *copy;
    Digest first, second, of_file;
    uint64_t size;
    char *other = file_join(place, "other.safetensors");
    assert_ok(tensor_file_open(GOLDEN "plain.safetensors", &golden));
    write_copy(golden, path, 1000, &first);
    write_copy(golden, other, 3, &second);
    assert_true(digest_equal(first, second)); /* the same bytes with any chunks */
    assert_ok(file_digest(path, &of_file, &size));
    assert_true(digest_equal(first, of_file));
    assert_ok(tensor_file_open(path, &copy));
    assert_true(same_values(golden, copy, true));
    check_plain(copy);
    assert_true(testing_file_has(path, "\"__metadata__\":{\"format\":\"pt\",\"quote \\\"\":\"\xc3\xa9\\n\"}"));
    tensor_file_close(copy);
    tensor_file_close(golden);
    free(other);
}

static void test_exact_bytes(void **state)
{
    (void)state;
    const TensorInfo infos[] = {{.name = (char *)"b", .dtype = F32, .n_dims = 2, .dims = {1, 2}},
                                {.name = (char *)"a", .dtype = BF16}};
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
                                 "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[8,10]}}";
    SafetensorsWriter *w;
    assert_ok(safetensors_writer_open(&w, path, infos, 2, (const char *const[]){"format", "pt"}, 1));
    assert_ok(safetensors_writer_write(w, "0123456789", 10));
    assert_ok(safetensors_writer_close(w, NULL));
    Buf b = load_bytes(path);
    size_t length = (unsigned char)b.data[0];
    assert_int_equal(length % 8, 0);
    assert_in_range(length, strlen(header), strlen(header) + 7);
    assert_int_equal(b.len, 8 + length + 10);
    for (int i = 1; i < 8; i++) assert_int_equal(b.data[i], 0);
    assert_memory_equal(b.data + 8, header, strlen(header));
    for (size_t i = strlen(header); i < length; i++) assert_int_equal(b.data[8 + i], ' ');
    assert_memory_equal(b.data + 8 + length, "0123456789", 10);
    buf_free(&b);
}

static void test_writer_refusals(void **state)
{
    (void)state;
    char *new = file_join(place, "new.safetensors");
    TensorInfo infos[] = {{.name = (char *)"a", .dtype = F32, .n_dims = 1, .dims = {2}},
                          {.name = (char *)"b", .dtype = U8, .n_dims = 1, .dims = {3}}};
    SafetensorsWriter *w;
    assert_ok(safetensors_writer_open(&w, new, infos, 2, NULL, 0));
    assert_ok(safetensors_writer_write(w, "01234567", 8));
    assert_status(safetensors_writer_write(w, "0123", 4), E_FAIL);
    assert_message("the header has room for 3");
    assert_status(safetensors_writer_close(w, NULL), E_FAIL);
    assert_message("3 bytes that the header promises were not written");
    assert_false(file_exists(new));
    assert_ok(safetensors_writer_open(&w, new, infos, 2, NULL, 0));
    safetensors_writer_abandon(w);
    safetensors_writer_abandon(NULL);
    assert_false(file_exists(new));

    infos[1].name = (char *)"a";
    assert_status(safetensors_writer_open(&w, new, infos, 2, NULL, 0), E_FAIL);
    assert_message("two tensors to write are named 'a'");
    infos[1].name = (char *)"__metadata__";
    assert_status(safetensors_writer_open(&w, new, infos, 2, NULL, 0), E_FAIL);
    infos[1].name = (char *)"b\xff";
    assert_status(safetensors_writer_open(&w, new, infos, 2, NULL, 0), E_FAIL);
    infos[1] = (TensorInfo){.name = (char *)"b", .dtype = F64, .n_dims = 2, .dims = {INT64_MAX / 8, 2}};
    assert_status(safetensors_writer_open(&w, new, infos, 2, NULL, 0), E_FAIL);
    assert_null(w);
    assert_status(safetensors_writer_open(&w, "/nonexistent/x.safetensors", infos, 1, NULL, 0), E_IO);
    free(new);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_the_librarys_file),
        cmocka_unit_test(test_reads_a_real_model),
        cmocka_unit_test(test_refuses_wrong_headers),
        cmocka_unit_test(test_refuses_deep_and_long),
        cmocka_unit_test(test_refuses_wrong_lengths),
        cmocka_unit_test(test_odd_but_valid),
        cmocka_unit_test(test_a_length_that_looks_like_a_pickle),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_every_flipped_bit),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_exact_bytes),
        cmocka_unit_test(test_writer_refusals),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
