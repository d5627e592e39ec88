/* Which file is opened: directories, indexes of sharded models, suffixes and contents, and files of other kinds. */
#include "file_builders.h"
#include "place.h"
#include "tensor_testing.h"

/* Every test begins with an empty directory. */
static int empty(void **state)
{
    (void)state;
    return file_remove_tree(place) == OK && file_make_directories(place) == OK ? 0 : -1;
}

static void put(const char *name, const void *data, size_t len)
{
    char *path = file_join(place, name);
    store_bytes(path, data, len);
    free(path);
}

static void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

static void put_golden(const char *name, const char *golden)
{
    char *from = mem_printf(GOLDEN "%s", golden);
    Buf b = load_bytes(from);
    put(name, b.data, b.len);
    buf_free(&b);
    free(from);
}

/* A safetensors file with one U8 tensor of one element. */
static void put_one(const char *name, const char *tensor, char value)
{
    Buf b = {0}, header = {0};
    buf_printf(&header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", tensor);
    put_le(&b, header.len, 8);
    buf_append(&b, header.data, header.len);
    buf_append(&b, &value, 1);
    put(name, b.data, b.len);
    buf_free(&b);
    buf_free(&header);
}

static Status open_at(const char *name, TensorFile **f)
{
    char *path = *name ? file_join(place, name) : mem_strdup(place);
    Status status = tensor_file_open(path, f);
    free(path);
    return status;
}

static void expect_opens(const char *name, const char *opened, TensorFormat format, int count)
{
    TensorFile *f;
    assert_ok(open_at(name, &f));
    assert_string_equal(file_basename(tensor_file_path(f)), opened);
    assert_int_equal(tensor_file_format(f), format);
    assert_int_equal(tensor_file_count(f), count);
    tensor_file_close(f);
}

static void expect_fails(const char *name, Status status, const char *part)
{
    TensorFile *f;
    assert_status(open_at(name, &f), status);
    assert_null(f);
    assert_message(part);
    assert_message(place);
}

static void test_order_in_a_directory(void **state)
{
    (void)state;
    expect_fails("", E_IO, "holds none of model.safetensors");
    put_golden("c.ckpt.index", "snappy.ckpt.index");
    put_golden("c.ckpt.data-00000-of-00002", "snappy.ckpt.data-00000-of-00002");
    put_golden("c.ckpt.data-00001-of-00002", "snappy.ckpt.data-00001-of-00002");
    expect_opens("", "c.ckpt.index", TENSORS_TF1, 61);
    put_golden("d.ckpt.index", "snappy.ckpt.index");
    expect_fails("", E_FORMAT, "holds 2 TensorFlow checkpoints (.index files); give the prefix");
    put_golden("pytorch_model-1.bin", "parameters.pt");
    put_text("pytorch_model.bin.index.json", "{\"metadata\":{},\"weight_map\":{\"weight\":\"pytorch_model-1.bin\"}}");
    expect_opens("", "pytorch_model.bin.index.json", TENSORS_PYTORCH, 1);
    put_golden("pytorch_model.bin", "plain_old.bin");
    expect_opens("", "pytorch_model.bin", TENSORS_PYTORCH, 13);
    put_one("s1.safetensors", "a", 1);
    put_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"s1.safetensors\"}}");
    expect_opens("", "model.safetensors.index.json", TENSORS_SAFETENSORS, 1);
    put_golden("model.safetensors", "plain.safetensors");
    expect_opens("", "model.safetensors", TENSORS_SAFETENSORS, 13);
    put_text("model.safetensors", ""); /* a broken file is not skipped */
    expect_fails("", E_FORMAT, "model.safetensors: 0 bytes, too short");
}

static void test_spellings_of_a_tf1_prefix(void **state)
{
    (void)state;
    put_golden("c.ckpt.index", "snappy.ckpt.index");
    put_golden("c.ckpt.data-00000-of-00002", "snappy.ckpt.data-00000-of-00002");
    put_golden("c.ckpt.data-00001-of-00002", "snappy.ckpt.data-00001-of-00002");
    expect_opens("c.ckpt", "c.ckpt", TENSORS_TF1, 61);
    expect_opens("c.ckpt.index", "c.ckpt.index", TENSORS_TF1, 61);
    expect_opens("c.ckpt.data-00001-of-00002", "c.ckpt.data-00001-of-00002", TENSORS_TF1, 61);
    expect_fails("c", E_IO, "no such file, and no TensorFlow checkpoint");
    expect_fails("absent.index", E_IO, "absent.index: cannot open");
}

static void test_known_by_content(void **state)
{
    (void)state;
    put_golden("weights", "plain.safetensors");
    expect_opens("weights", "weights", TENSORS_SAFETENSORS, 13);
    put_golden("weights", "plain_zip.bin");
    expect_opens("weights", "weights", TENSORS_PYTORCH, 13);
    put_golden("weights", "plain_old.bin");
    expect_opens("weights", "weights", TENSORS_PYTORCH, 13);
    put_golden("weights", "snappy.ckpt.index");
    expect_fails("weights", E_FORMAT, "the V1 form");
    put_text("weights", "\x89HDF\r\n\x1a\n");
    expect_fails("weights", E_FORMAT, "an HDF5 file");
    char tar[512] = {0};
    memcpy(tar + 257, "ustar", 5);
    put("weights", tar, sizeof tar);
    expect_fails("weights", E_FORMAT, "a tar file");
    put_text("weights", "hello, this is text");
    expect_fails("weights", E_FORMAT, "19 bytes that begin neither as safetensors");
    put_text("weights", "");
    expect_fails("weights", E_FORMAT, "0 bytes that begin neither");
    put_text("x.safetensors", "hello, this is text");
    expect_fails("x.safetensors", E_FORMAT, "the header claims");
}

static void test_sharded(void **state)
{
    (void)state;
    TensorFile *f;
    uint8_t value;
    put_one("s1.safetensors", "a", 11);
    put_one("s2.safetensors", "b", 22);
    put_text("m.index.json",
             "{\"metadata\":{\"total_size\":2},\"weight_map\":{\"b\":\"s2.safetensors\",\"a\":\"s1.safetensors\"}}");
    assert_ok(open_at("m.index.json", &f));
    assert_int_equal(tensor_file_count(f), 2);
    assert_ok(tensor_file_read_raw(f, tensor_file_find(f, "a"), &value, 1));
    assert_int_equal(value, 11);
    assert_ok(tensor_file_read_raw(f, tensor_file_find(f, "b"), &value, 1));
    assert_int_equal(value, 22);
    tensor_file_close(f);

    static const struct {
        const char *index, *part;
        Status status;
    } cases[] = {
        {"{}", "expected \"weight_map\"", E_FORMAT},
        {"[1]", "expected \"weight_map\"", E_FORMAT},
        {"{\"weight_map\":[]}", "expected \"weight_map\"", E_FORMAT},
        {"{\"weight_map\":{}}", "expected \"weight_map\"", E_FORMAT},
        {"{\"weight_map\":{\"a\":1}}", "gives tensor 'a' a value that is not a string", E_FORMAT},
        {"{\"weight_map\":{\"a\":\"\"}}", "gives tensor 'a' ''", E_FORMAT},
        {"{\"weight_map\":{\"a\":\"../s1.safetensors\"}}", "the name of a file beside the index", E_FORMAT},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "the name of a file beside the index", E_FORMAT},
        {"{\"weight_map\":{\"a\":\"..\"}}", "the name of a file beside the index", E_FORMAT},
        {"{\"weight_map\":{\"a\":\"s3.safetensors\"}}", "s3.safetensors: cannot open", E_IO},
        {"{\"weight_map\":{\"c\":\"s1.safetensors\"}}", "lacks tensor 'a', which 's1.safetensors' holds", E_FORMAT},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"c\":\"s1.safetensors\"}}",
         "names tensor 'c' in 's1.safetensors', which does not hold it", E_FORMAT},
        {"{\"weight_map\":{\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}}",
         "looks for tensor 'a' in 's2.safetensors', it is in 's1.safetensors'", E_FORMAT},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"weight\":\"x.bin\"}}", "has another format than", E_FORMAT},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"A\":\"s1copy.safetensors\"}}", "tensor 'a' occurs twice",
         E_FORMAT},
        {"{\"weight_map\"", "not valid JSON", E_FORMAT},
    };
    put_one("s1copy.safetensors", "a", 11);
    put_golden("x.bin", "parameters.pt");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text("m.index.json", cases[i].index);
        expect_fails("m.index.json", cases[i].status, cases[i].part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_order_in_a_directory, empty),
        cmocka_unit_test_setup(test_spellings_of_a_tf1_prefix, empty),
        cmocka_unit_test_setup(test_known_by_content, empty),
        cmocka_unit_test_setup(test_sharded, empty),
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
