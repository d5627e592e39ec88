/* TensorFlow 1 checkpoints: real ones (with slots and global_step; an index without data), one with Snappy blocks and
   two data files, hand-made errors with valid checksums, every truncation, every flipped bit; and the Snappy decoder.
 */
#include "state/models/import.h"

#include "file_builders.h"
#define HOSTILE_NAME "model.ckpt.index"
#include "hostile_file.h"

static char *prefix; /* PREFIX of the file PREFIX.index */

static int setup_prefix(void **state)
{
    int failed = setup(state);
    prefix = file_join(place, "model.ckpt");
    return failed;
}

static int teardown_prefix(void **state)
{
    free(prefix);
    return teardown(state);
}

static char *data_path(int i, int n) { return mem_printf("%s.data-%05d-of-%05d", prefix, i, n); }

/* --- real files --- */

static void test_real_checkpoint(void **state)
{
    (void)state;
    char *real = shared_data("checkpoint/tf1_keras_bert_tiny");
    if (!real) skip();
    char *bare = file_join(real, "bert_model.ckpt"), *index = file_join(real, "bert_model.ckpt.index");
    char *data = file_join(real, "bert_model.ckpt.data-00000-of-00001");
    const char *const spellings[] = {real, bare, index, data};
    for (int k = 0; k < 4; k++) {
        TensorFile *f;
        assert_ok(tensor_file_open(spellings[k], &f));
        assert_int_equal(tensor_file_format(f), TENSORS_TF1);
        assert_int_equal(tensor_file_count(f), 139);
        check_shape(f, "bert/embeddings/word_embeddings", F32, 2, (int64_t[]){15, 4});
        check_shape(f, "bert/encoder/layer_1/attention/self/key/kernel", F32, 2, (int64_t[]){4, 4});
        check_shape(f, "bert/encoder/layer_0/intermediate/dense/kernel/adam_v", F32, 2, (int64_t[]){4, 16});
        check_shape(f, "global_step", I64, 0, NULL);
        int64_t step;
        float as_float, gamma[4];
        assert_ok(tensor_file_read_raw(f, tensor_file_find(f, "global_step"), &step, sizeof step));
        assert_ok(tensor_file_read_f32(f, tensor_file_find(f, "global_step"), &as_float, 1));
        assert_int_equal(step, 20);
        assert_true(as_float == 20.0f);
        assert_ok(tensor_file_read_f32(f, tensor_file_find(f, "bert/embeddings/LayerNorm/gamma"), gamma, 4));
        for (int i = 0; i < 4; i++) assert_true(gamma[i] > 0.99f && gamma[i] < 1.01f); /* 20 steps from 1 */
        assert_true(read_all(f) > 1000);
        tensor_file_close(f);
    }
    free(data);
    free(index);
    free(bare);
    free(real);
}

static void test_index_without_data(void **state)
{
    (void)state;
    char *real = shared_data("checkpoint/tf1_index_only/google_uncased_L-8_H-512_A-8.index");
    if (!real) skip();
    TensorFile *f;
    float x[512];
    assert_ok(tensor_file_open(real, &f));
    assert_int_equal(tensor_file_count(f), 142);
    check_shape(f, "bert/embeddings/word_embeddings", F32, 2, (int64_t[]){30522, 512});
    check_shape(f, "bert/encoder/layer_7/output/dense/kernel", F32, 2, (int64_t[]){2048, 512});
    assert_status(tensor_file_read_f32(f, tensor_file_find(f, "bert/pooler/dense/bias"), x, 512), E_IO);
    assert_message("google_uncased_L-8_H-512_A-8.data-00000-of-00001: no such file");
    assert_message("'bert/pooler/dense/bias'");
    tensor_file_close(f);
    free(real);
}

static void test_snappy_and_two_data_files(void **state)
{
    (void)state;
    TensorFile *f;
    char name[128];
    assert_ok(tensor_file_open(GOLDEN "snappy.ckpt", &f));
    assert_int_equal(tensor_file_count(f), 13 + 12 * 4); /* the string tensor is left out */
    check_plain(f);
    for (int layer = 0; layer < 12; layer++) {
        static const char *const what[] = {"kernel", "bias", "kernel/adam_m", "bias/adam_m"};
        for (int k = 0; k < 4; k++) {
            snprintf(name, sizeof name, "bert/encoder/layer_%d/attention/output/dense/%s", layer, what[k]);
            check_values(f, name, name);
        }
    }
    assert_int_equal(tensor_file_find(f, "zz_object_graph"), -1);
    tensor_file_close(f);
}

/* --- copies of the golden checkpoint, damaged --- */

static void copy_golden(void)
{
    static const char *const endings[] = {"index", "data-00000-of-00002", "data-00001-of-00002"};
    for (int i = 0; i < 3; i++) {
        char *from = mem_printf(GOLDEN "snappy.ckpt.%s", endings[i]), *to = mem_printf("%s.%s", prefix, endings[i]);
        Buf b = load_bytes(from);
        store_bytes(to, b.data, b.len);
        buf_free(&b);
        free(from);
        free(to);
    }
}

static void test_damaged_data(void **state)
{
    (void)state;
    copy_golden();
    char *data = data_path(1, 2);
    Buf b = load_bytes(data);
    int damaged = 0;
    TensorFile *f;
    b.data[100] ^= 1;
    store_bytes(data, b.data, b.len);
    assert_ok(tensor_file_open(prefix, &f));
    for (int i = 0; i < tensor_file_count(f); i++) {
        const TensorInfo *t = tensor_file_info(f, i);
        float x[16];
        if (tensor_file_read_f32(f, i, x, t->count) == OK) continue;
        assert_message(t->name);
        assert_message("the masked CRC-32C");
        assert_message(file_basename(data));
        damaged++;
    }
    assert_int_equal(damaged, 1);
    tensor_file_close(f);

    store_bytes(data, b.data, b.len - 1);
    assert_status(tensor_file_open(prefix, &f), E_FORMAT);
    assert_message("the file has only");
    assert_message(file_basename(data));
    assert_int_equal(unlink(data), 0);
    assert_ok(tensor_file_open(prefix, &f)); /* the other file can be read */
    assert_true(read_all(f) > 10);
    tensor_file_close(f);
    buf_free(&b);
    free(data);
}

static void test_every_truncation(void **state)
{
    (void)state;
    copy_golden();
    Buf whole = load_bytes(GOLDEN "snappy.ckpt.index");
    for (size_t n = 0; n < whole.len; n++) {
        TensorFile *f = open_hostile(path, path, whole.data, n);
        if (f) fail_msg("the first %zu of %zu bytes were accepted", n, whole.len);
    }
    buf_free(&whole);
}

static void test_every_flipped_bit(void **state)
{
    (void)state;
    copy_golden();
    Buf whole = load_bytes(GOLDEN "snappy.ckpt.index");
    TensorFile *good;
    size_t accepted = 0;
    assert_ok(tensor_file_open(GOLDEN "snappy.ckpt", &good));
    for (size_t bit = 0; bit < 8 * whole.len; bit++) {
        whole.data[bit / 8] ^= (char)(1 << bit % 8);
        TensorFile *f = open_hostile(path, path, whole.data, whole.len);
        if (f) {
            accepted++;
            if (!same_values(good, f, true)) fail_msg("bit %zu of byte %zu changed a value", bit % 8, bit / 8);
            tensor_file_close(f);
        }
        whole.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    assert_in_range(accepted, 1, 8 * 60); /* the metaindex and padding, which are not used */
    tensor_file_close(good);
    buf_free(&whole);
}

/* --- hand-made tables --- */

/* Appends BundleEntryProto {1 dtype, 2 shape {dims}, 3 shard, 4 offset, 5 size, 6 crc32c}. */
static void put_entry(Buf *b, const char *name, uint64_t type, int n, const int64_t *dims, uint64_t shard,
                      uint64_t offset, uint64_t size, const void *extra, size_t extra_len)
{
    Buf e = {0}, shape = {0}, dim = {0};
    for (int d = 0; d < n; d++) {
        put_varint(&dim, 1 << 3);
        put_varint(&dim, (uint64_t)dims[d]);
        put_varint(&shape, 2 << 3 | 2);
        put_varint(&shape, dim.len);
        buf_append(&shape, dim.data, dim.len);
        buf_free(&dim);
    }
    const uint64_t fields[][2] = {{1, type}, {3, shard}, {4, offset}, {5, size}};
    for (int i = 0; i < 4; i++) {
        put_varint(&e, fields[i][0] << 3);
        put_varint(&e, fields[i][1]);
    }
    put_varint(&e, 2 << 3 | 2);
    put_varint(&e, shape.len);
    if (shape.len > 0) buf_append(&e, shape.data, shape.len);
    put_varint(&e, 6 << 3 | 5);
    put_le(&e, crc32c_mask(crc32c(0, "\0\0\0\0\0\0\0", 8)), 4);
    if (extra_len > 0) buf_append(&e, extra, extra_len);
    table_entry(b, name, strlen(name), e.data, e.len);
    buf_free(&e);
    buf_free(&shape);
}

static void put_header(Buf *b, const char *header, size_t len) { table_entry(b, "", 0, header, len); }

static void expect_table(const Buf *entries, const char *part)
{
    Buf t = table_of(entries, 0);
    TensorFile *f = open_hostile(path, prefix, t.data, t.len);
    if (part) {
        if (f) fail_msg("accepted; expected \"%s\"", part);
        assert_message(part);
    } else {
        if (!f) fail_msg("refused: %s", status_message());
        assert_true(read_all(f) > 0);
        tensor_file_close(f);
    }
    buf_free(&t);
}

#define HEADER "\x08\x01\x1a\x02\x08\x01" /* one data file, version 1 */

static void test_wrong_entries(void **state)
{
    (void)state;
    char *data = data_path(0, 1);
    store_bytes(data, "\0\0\0\0\0\0\0", 8);
    static const struct {
        uint64_t type;
        int n;
        int64_t dims[9];
        uint64_t shard, offset, size;
        const char *extra;
        size_t extra_len;
        const char *part; /* NULL: good */
    } cases[] = {
        {1, 1, {2}, 0, 0, 8, "", 0, NULL},
        {9, 0, {0}, 0, 0, 8, "\x82\x01\x01x", 4, NULL}, /* an unknown field 16 */
        {1, 1, {2}, 0, 1, 8, "", 0, "'t' is 8 bytes at 1, the file has only 8"},
        {1, 1, {2}, 0, UINT64_MAX, 8, "", 0, "the file has only 8"},
        {1, 1, {3}, 0, 0, 12, "", 0, "the file has only 8"},
        {1, 1, {INT64_C(1) << 40}, 0, 0, UINT64_C(4) << 40, "", 0, "the file has only 8"},
        {1, 1, {2}, 0, 0, 4, "", 0, "its shape takes 8 bytes as f32, the index gives it 4"},
        {1, 2, {INT64_C(1) << 32, INT64_C(1) << 32}, 0, 0, 0, "", 0, "2^63"},
        {1, 1, {-1}, 0, 0, 8, "", 0, "dimension 0 is -1"},
        {1, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 0, 4, "", 0, "'t' has 9 dimensions"},
        {8, 1, {1}, 0, 0, 8, "", 0, "TensorFlow's type 8"}, /* complex */
        {20, 0, {0}, 0, 0, 8, "", 0, "TensorFlow's type 20"},
        {101, 1, {2}, 0, 0, 8, "", 0, "TensorFlow's type 101"},
        {1, 1, {2}, 1, 0, 8, "", 0, "'t' is in data file 1 of 1"},
        {1, 1, {2}, UINT64_MAX, 0, 8, "", 0, "is in data file 18446744073709551615 of 1"},
        {1, 1, {2}, 0, 0, 8, "\x3a\0", 2, "tensor 't' is stored in slices (a partitioned variable)"},
        {1, 1, {2}, 0, 0, 8, "\x12\x02\x18\x01", 4, "'t' has no known shape"},
        {1, 1, {2}, 0, 0, 8, "\x12\x05\x08", 3, "(BundleEntryProto) does not parse"},
        {1, 1, {2}, 0, 0, 8, "\x12\x02\x12\x05", 4, "(BundleEntryProto) does not parse"},
        {1, 1, {2}, 0, 0, 8, "\x0a\x01\x01", 3, "(BundleEntryProto) does not parse"},
        {1, 1, {2}, 0, 0, 8, "\x0b", 1, "(BundleEntryProto) does not parse"},
        {1, 1, {2}, 0, 0, 8, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 11, "(BundleEntryProto) does not parse"},
        {1, 1, {2}, 0, 0, 8, "\0\0", 2, "(BundleEntryProto) does not parse"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf b = {0};
        put_header(&b, HEADER, 6);
        put_entry(&b, "t", cases[i].type, cases[i].n, cases[i].dims, cases[i].shard, cases[i].offset, cases[i].size,
                  cases[i].extra, cases[i].extra_len);
        Buf t = table_of(&b, 0);
        TensorFile *f = open_hostile(path, prefix, t.data, t.len);
        buf_free(&t);
        buf_free(&b);
        if (!cases[i].part && !f) fail_msg("case %zu was refused: %s", i, status_message());
        if (cases[i].part && f) fail_msg("case %zu was accepted; expected \"%s\"", i, cases[i].part);
        if (f) assert_true(read_all(f) > 0);
        if (cases[i].part) assert_message(cases[i].part);
        tensor_file_close(f);
    }
    free(data);
}

/* Beside the encoder's parameters and its heads a single number counts something; an array may be a head. */
static void test_single_numbers_are_counters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int n;
        SourceKind kind;
    } cases[] = {{"Variable", 0, SOURCE_IGNORED},
                 {"Variable_1", 1, SOURCE_UNKNOWN},
                 {"bert/encoder/layer_0/alpha", 0, SOURCE_WEIGHT},
                 {"bert/loss_scale", 0, SOURCE_IGNORED},
                 {"loss_scale", 0, SOURCE_IGNORED}};
    const int count = sizeof cases / sizeof *cases;
    char *data = data_path(0, 1);
    store_bytes(data, "\0\0\0\0\0\0\0", 8);
    Buf b = {0};
    put_header(&b, HEADER, 6);
    for (int i = 0; i < count; i++) put_entry(&b, cases[i].name, 1, cases[i].n, (int64_t[]){1}, 0, 0, 4, "", 0);
    Buf t = table_of(&b, 0);
    TensorFile *f = open_hostile(path, prefix, t.data, t.len);
    assert_non_null(f);
    for (int i = 0; i < count; i++) {
        SourceName s;
        import_tensor(f, tensor_file_find(f, cases[i].name), &s);
        if (s.kind != cases[i].kind) fail_msg("%s: kind %d", cases[i].name, s.kind);
    }
    tensor_file_close(f);
    BUF_FREE(&b, &t);
    free(data);
}

static void test_wrong_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t len;
        const char *part;
    } cases[] = {
        {"\x08\x01\x10\x01", 4, "big-endian machine"},
        {"", 0, "the header claims 0 data files"},
        {"\x08\xff\xff\xff\xff\x07", 6, "the header claims 2147483647 data files"},
        {"\x08\x81\x20", 3, "the header claims 4097 data files"},
        {"\x08\x01\x1a\x04\x08\x02\x10\x02", 8, "needs a reader of bundle version 2"},
        {"\x08\x01\x1a\x04\x08", 5, "(BundleHeaderProto) does not parse"},
        {"\x08\x01\x1a\x01\x08", 5, "(BundleHeaderProto) does not parse"},
        {"\x08", 1, "(BundleHeaderProto) does not parse"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf b = {0};
        put_header(&b, cases[i].header, cases[i].len);
        expect_table(&b, cases[i].part);
        buf_free(&b);
    }
    Buf b = {0};
    expect_table(&b, "a table without entries");
    put_entry(&b, "t", 1, 0, NULL, 0, 0, 4, "", 0);
    expect_table(&b, "its first key is not a checkpoint's header");
    buf_free(&b);
}

static void test_keys_and_blocks(void **state)
{
    (void)state;
    Buf b = {0}, name = {0};
    put_header(&b, HEADER, 6);
    put_entry(&b, "t", 1, 0, NULL, 0, 0, 4, "", 0);
    size_t one = b.len;
    put_entry(&b, "t", 1, 0, NULL, 0, 0, 4, "", 0);
    expect_table(&b, "the key after 't' is not greater");
    b.len = one;
    put_entry(&b, "s/longer", 1, 0, NULL, 0, 0, 4, "", 0);
    expect_table(&b, "the key after 't' is not greater");
    b.len = one;
    put_header(&b, HEADER, 6);
    expect_table(&b, "the key after 't' is not greater");
    b.len = one;
    put_entry(&b, "t\nt", 1, 0, NULL, 0, 0, 4, "", 0);
    expect_table(&b, "without control characters");
    b.len = one;
    for (int i = 0; i < 1025; i++) buf_puts(&name, "u");
    put_entry(&b, name.data, 1, 0, NULL, 0, 0, 4, "", 0);
    expect_table(&b, "has 1025 bytes, expected at most 1024");
    b.len = one;
    buf_append(&b, "\x02\x01\x00u", 4); /* shares two bytes with a key of one */
    expect_table(&b, "does not fit its block");
    b.len = one;
    buf_append(&b, "\x00\x7f\x00u", 4);
    expect_table(&b, "does not fit its block");
    b.len = one;
    buf_append(&b, "\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01u", 13);
    expect_table(&b, "does not fit its block");
    buf_free(&name);
    buf_free(&b);
}

/* `contents` as one block that the index names, with the given type byte and a right CRC. */
static void expect_block(const char *contents, size_t len, uint8_t type, const char *part)
{
    Buf out = {0}, index = {0}, handle = {0}, places = {0};
    table_block(&out, &handle, contents, len, type);
    table_block(&out, &places, "\0\0\0", 4, 0);
    table_entry(&index, "k", 1, handle.data, handle.len);
    buf_append(&index, "\0\0\0", 4);
    table_block(&out, &places, index.data, index.len, 0);
    table_footer(&out, &places);
    expect_refused(path, out.data, out.len, part);
    buf_free(&out);
    buf_free(&index);
    buf_free(&handle);
    buf_free(&places);
}

static void test_broken_blocks(void **state)
{
    (void)state;
    expect_block("\0\0\0", 3, 0, "lacks its restart points");
    expect_block("\1\0\0\0", 4, 0, "lacks its restart points");
    expect_block("\xff\xff\xff\xff", 4, 0, "lacks its restart points");
    expect_block("\0\0\0", 4, 0, "a table without entries");
    expect_block("\4\x0c\0\0\0", 6, 1, "a table without entries"); /* the same four bytes, as Snappy */
    expect_block("\0\0\0", 4, 2, "has compression 2, expected 0 (none) or 1 (Snappy)");
    expect_block("\xff\xff\xff\xff\x0f\0\0\0", 8, 1, "is not valid Snappy data"); /* claims 4 GiB */
    expect_block("\5\x0c\0\0\0", 6, 1, "is not valid Snappy data");

    /* An index with places outside of the file, or without any. */
    Buf out = {0}, index = {0}, handle = {0}, places = {0};
    static const uint64_t lies[][2] = {{0, 1 << 20}, {UINT64_MAX, 5}, {5, UINT64_MAX}, {1 << 20, 0}};
    for (int i = 0; i < 4; i++) {
        put_varint(&handle, lies[i][0]);
        put_varint(&handle, lies[i][1]);
        table_entry(&index, "k", 1, handle.data, handle.len);
        buf_append(&index, "\0\0\0", 4);
        table_block(&out, &places, "\0\0\0", 4, 0);
        table_block(&out, &places, index.data, index.len, 0);
        table_footer(&out, &places);
        expect_refused(path, out.data, out.len, "a block of");
        buf_free(&out);
        buf_free(&index);
        buf_free(&handle);
        buf_free(&places);
    }
    expect_refused(path, "", 0, "magic number");

    /* An index entry that is not a place, and a footer without places. */
    table_entry(&index, "k", 1, "\1", 1);
    buf_append(&index, "\0\0\0", 4);
    table_block(&out, &places, "\0\0\0", 4, 0);
    table_block(&out, &places, index.data, index.len, 0);
    table_footer(&out, &places);
    expect_refused(path, out.data, out.len, "the index entry 'k' is not the place of a block");
    memset(out.data + out.len - 48, 0xff, 40);
    expect_refused(path, out.data, out.len, "the table's footer does not parse");
    buf_free(&out);
    buf_free(&index);
    buf_free(&places);
}

/* --- Snappy --- */

static void check_snappy(const char *packed, size_t packed_len, const char *expected)
{
    size_t length, header;
    char out[256];
    assert_true(snappy_length((const uint8_t *)packed, packed_len, &length, &header));
    assert_int_equal(length, strlen(expected));
    assert_true(snappy_decode((const uint8_t *)packed, packed_len, (uint8_t *)out, length));
    assert_memory_equal(out, expected, length);
    for (size_t n = 0; n < packed_len; n++) /* every truncation */
        assert_false(snappy_decode((const uint8_t *)packed, n, (uint8_t *)out, length));
}

static void test_snappy(void **state)
{
    (void)state;
    static const char a60[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    check_snappy("\0", 1, "");
    check_snappy("\3\x08"
                 "abc",
                 5, "abc");
    check_snappy("\7\x08"
                 "abc\1\3",
                 7, "abcabca"); /* copy with 1 byte, overlapping itself */
    check_snappy("\6\x08"
                 "abc\x0a\3\0",
                 8, "abcabc"); /* copy with 2 bytes */
    check_snappy("\6\x08"
                 "abc\x0b\3\0\0\0",
                 10, "abcabc"); /* copy with 4 bytes */
    check_snappy("\6\xf0\2"
                 "abc\x0a\3\0",
                 9, "abcabc"); /* a literal whose length takes 1, 2, 3, 4 bytes */
    check_snappy("\6\xf4\2\0"
                 "abc\x0a\3\0",
                 10, "abcabc");
    check_snappy("\6\xf8\2\0\0"
                 "abc\x0a\3\0",
                 11, "abcabc");
    check_snappy("\6\xfc\2\0\0\0"
                 "abc\x0a\3\0",
                 12, "abcabc");
    check_snappy("\x3c\0a\xea\1\0", 6, a60); /* 59 bytes from one */
    static const struct {
        const char *packed;
        size_t len;
    } bad[] = {
        {"\4\x08"
         "abc",
         5}, /* too few bytes */
        {"\2\x08"
         "abc",
         5}, /* too many bytes */
        {"\7\x08"
         "abc\1\4",
         7}, /* before the start */
        {"\7\x08"
         "abc\1\0",
         7}, /* from its own position */
        {"\6\x08"
         "abc\x0b\3\0\0\xff",
         10},
        {"\6\xfc\xff\xff\xff\xff"
         "abc",
         9},                           /* a literal of 4 GiB */
        {"\x80\x80\x80\x80\x80\0", 6}, /* a length that does not end */
        {"\xff\xff\xff\xff\x1f"
         "a",
         6}, /* beyond 32 bits */
        {"\xff\xff\xff\xff\x0f"
         "a",
         6}, /* 4 GiB from six bytes */
        {"", 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t out[16] = {0};
        size_t length = 0, header;
        bool plausible = snappy_length((const uint8_t *)bad[i].packed, bad[i].len, &length, &header);
        if (plausible && snappy_decode((const uint8_t *)bad[i].packed, bad[i].len, out, length))
            fail_msg("case %zu was decoded", i);
        assert_true(length <= sizeof out || !plausible);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_checkpoint),
        cmocka_unit_test(test_index_without_data),
        cmocka_unit_test(test_snappy_and_two_data_files),
        cmocka_unit_test(test_damaged_data),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_every_flipped_bit),
        cmocka_unit_test(test_wrong_entries),
        cmocka_unit_test(test_single_numbers_are_counters),
        cmocka_unit_test(test_wrong_headers),
        cmocka_unit_test(test_keys_and_blocks),
        cmocka_unit_test(test_broken_blocks),
        cmocka_unit_test(test_snappy),
    };
    return cmocka_run_group_tests(tests, setup_prefix, teardown_prefix);
}
