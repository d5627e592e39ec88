/* Pickles other than a state_dict's: classes and functions that are not on the list (ignored beside the weights, named
   in their place), misuse of those on it, invalid sequences of opcodes, limits, tensors outside their storage. Each is
   tried in the zip form and in the old form. */
#include "file_builders.h"
#define HOSTILE_NAME "hostile.pt"
#include "hostile_file.h"

/* A pickle of {"t": body}. */
static Buf dict_of(const void *body, size_t len)
{
    Buf pickle = {0};
    buf_puts(&pickle, "\x80\x02}");
    pickle_string(&pickle, "t");
    buf_append(&pickle, body, len);
    buf_puts(&pickle, "s.");
    return pickle;
}

/* The pickle's body in both forms, each as the only value of {"t": body}. */
static void expect_pickle_refused(const void *body, size_t len, const char *part)
{
    Buf pickle = dict_of(body, len);
    Buf zip = pytorch_zip_of(pickle.data, pickle.len, 24), old = pytorch_old_start();
    expect_refused(path, zip.data, zip.len, part);
    buf_append(&old, pickle.data, pickle.len);
    buf_puts(&old, "\x80\x02]");
    pickle_string(&old, "0");
    buf_puts(&old, "a.");
    put_le(&old, 6, 8);
    buf_append(&old, elements, 24);
    expect_refused(path, old.data, old.len, part);
    buf_free(&zip);
    buf_free(&old);
    buf_free(&pickle);
}

/* As that, for a value that takes no storage. */
static void expect_opaque_refused(const void *body, size_t len, const char *part)
{
    Buf pickle = dict_of(body, len);
    Buf zip = pytorch_zip_of(pickle.data, pickle.len, 24), old = pytorch_old_start();
    buf_append(&old, pickle.data, pickle.len);
    buf_puts(&old, "\x80\x02].");
    expect_refused(path, zip.data, zip.len, part);
    assert_message("nothing was executed");
    expect_refused(path, old.data, old.len, part);
    assert_message("nothing was executed");
    buf_free(&zip);
    buf_free(&old);
    buf_free(&pickle);
}

#define EXPECT_OPAQUE_REFUSED(body, part) expect_opaque_refused(body, sizeof(body) - 1, part)
#define EXPECT_PICKLE_REFUSED(body, part) expect_pickle_refused(body, sizeof(body) - 1, part)

static void test_forbidden_globals(void **state)
{
    (void)state;
    /* os.system("true") in four spellings: by REDUCE, by STACK_GLOBAL, by INST and by OBJ. */
    EXPECT_OPAQUE_REFUSED("cposix\nsystem\nX\4\0\0\0true\x85R", "its value 't' is made by 'posix.system'");
    EXPECT_OPAQUE_REFUSED("\x8c\5posix\x8c\6system\x93\x8c\4true\x85R", "'posix.system'");
    EXPECT_PICKLE_REFUSED("(X\4\0\0\0trueiposix\nsystem\n", "opcode 0x69");
    EXPECT_PICKLE_REFUSED("(cposix\nsystem\nX\4\0\0\0trueo", "opcode 0x6f");
    EXPECT_OPAQUE_REFUSED("c__builtin__\neval\nX\1\0\0\0001\x85R", "'__builtin__.eval'");
    EXPECT_OPAQUE_REFUSED("ctorch.storage\n_load_from_bytes\n", "'torch.storage._load_from_bytes'");
    EXPECT_OPAQUE_REFUSED("ctorch.FloatStorage\n__reduce__\n", "'torch.FloatStorage.__reduce__'");
    EXPECT_OPAQUE_REFUSED("ccollections\nOrderedDict.fromkeys\n", "'collections.OrderedDict.fromkeys'");
    EXPECT_OPAQUE_REFUSED("c\n\n", "is made by '.'");
    EXPECT_OPAQUE_REFUSED("cevil\x1b[2J\nx\n", "'evil?[2J.x'"); /* no control characters */
    EXPECT_PICKLE_REFUSED("K\1K\2\x93", "expected a string, found an integer");
    EXPECT_PICKLE_REFUSED("cposix\nsystem", "a global's name does not end");
    /* Opcodes that import or call in other ways: EXT1, NEWOBJ, NEWOBJ_EX, PERSID, DUP, GET. */
    EXPECT_PICKLE_REFUSED("\x82\1", "opcode 0x82");
    EXPECT_PICKLE_REFUSED("ccollections\nOrderedDict\n)\x81", "it makes an object of 'collections.OrderedDict'");
    EXPECT_PICKLE_REFUSED("ccollections\nOrderedDict\n)}\x92", "it makes an object of 'collections.OrderedDict'");
    EXPECT_PICKLE_REFUSED("cposix\nsystem\n)N\x92", "expected a dict, found None");
    EXPECT_PICKLE_REFUSED("Pabc\n", "opcode 0x50");
    EXPECT_PICKLE_REFUSED("N2", "opcode 0x32");
    EXPECT_PICKLE_REFUSED("g0\n", "opcode 0x67");
}

static void test_allowed_globals_misused(void **state)
{
    (void)state;
    EXPECT_PICKLE_REFUSED("ctorch\nFloatStorage\n)R", "it calls 'torch.FloatStorage'");
    EXPECT_PICKLE_REFUSED("ccollections\nOrderedDict\nNR", "expected a tuple, found None");
    EXPECT_PICKLE_REFUSED("N)R", "expected a global, found None");
    EXPECT_PICKLE_REFUSED("ccollections\nOrderedDict\nK\1\x85R", "expected a list of pairs as its argument");
    EXPECT_PICKLE_REFUSED("ccollections\nOrderedDict\n]K\1a\x85R", "item 0 is not a pair");
    EXPECT_PICKLE_REFUSED("ccollections\nOrderedDict\n]]K\1aa\x85R", "item 0 is not a pair");
    EXPECT_PICKLE_REFUSED("ctorch._utils\n_rebuild_tensor_v2\n)R", "_rebuild_tensor_v2: expected");
    EXPECT_PICKLE_REFUSED("ctorch._utils\n_rebuild_parameter\n)R", "_rebuild_parameter: expected");
    EXPECT_PICKLE_REFUSED("}Nb", "expected a dict, found None");
    EXPECT_PICKLE_REFUSED("N}b", "expected a dict, found None");
    EXPECT_PICKLE_REFUSED("NQ", "expected a tuple, found None");
    EXPECT_PICKLE_REFUSED(")Q", "a persistent id is not");
    EXPECT_PICKLE_REFUSED("(U\6modulectorch\nFloatStorage\nU\1"
                          "0U\3cpuK\6tQ",
                          "a persistent id is not");
    EXPECT_PICKLE_REFUSED("(U\7storageccollections\nOrderedDict\nU\1"
                          "0U\3cpuK\6tQ",
                          "is not a storage type");
    EXPECT_PICKLE_REFUSED("(U\7storagectorch\nFloatStorage\nU\1"
                          "0U\3cpuJ\xff\xff\xff\xfftQ",
                          "a storage of -1 elements");
    EXPECT_PICKLE_REFUSED("(U\7storagectorch\nFloatStorage\nU\1"
                          "0U\3cpuK\6U\1vK\4K\3\x87tQ",
                          "exceeds the storage");
    EXPECT_PICKLE_REFUSED("(U\7storagectorch\nFloatStorage\nU\1"
                          "0U\3cpuK\6K\1tQ",
                          "exceeds the storage");
}

static void test_broken_machines(void **state)
{
    (void)state;
    EXPECT_PICKLE_REFUSED("t", "no mark");
    EXPECT_PICKLE_REFUSED("NNa", "expected a list under the items, found None");
    EXPECT_PICKLE_REFUSED("h\7", "memo slot 7 holds nothing");
    EXPECT_PICKLE_REFUSED("]r\xff\xff\xff\xff", "memo slot 4294967295 in so small a pickle");
    EXPECT_PICKLE_REFUSED("}(Nu", "a key without a value");
    EXPECT_PICKLE_REFUSED("(a", "a list is missing under the items");
    EXPECT_PICKLE_REFUSED("N(s", "a dict is missing under the items");
    EXPECT_PICKLE_REFUSED("(q\1", "the stack is empty");
    EXPECT_PICKLE_REFUSED("(\x85", "fewer than the tuple's 1 items");
    EXPECT_PICKLE_REFUSED("X\xff\xff\xff\x7f", "2147483647 bytes expected");
    EXPECT_PICKLE_REFUSED("\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615 bytes expected");
    EXPECT_PICKLE_REFUSED("T\xff\xff\xff\xff", "4294967295 bytes expected");
    EXPECT_PICKLE_REFUSED("\x8b\xff\xff\xff\xff", "4294967295 bytes expected");
    EXPECT_PICKLE_REFUSED("\x95\xff\xff\xff\xff\xff\xff\xff\xff", "a frame of 18446744073709551615 bytes");
    EXPECT_PICKLE_REFUSED("\x80\6", "protocol 6");
    EXPECT_PICKLE_REFUSED("NN", "expected a dict under the items, found");
    EXPECT_PICKLE_REFUSED("}.", "values remain on the stack at its end");
    Buf deep = {0};
    for (int i = 0; i < 101; i++) buf_puts(&deep, "(");
    expect_pickle_refused(deep.data, deep.len, "nested deeper than 100");
    buf_free(&deep);
    for (int i = 0; i < 500001; i++) buf_puts(&deep, "]");
    expect_pickle_refused(deep.data, deep.len, "more than 500000 values");
    buf_free(&deep);
    /* OrderedDict doubles a list again and again: the items are counted. */
    buf_puts(&deep, "](");
    for (int i = 0; i < 1000; i++) buf_puts(&deep, "]K\1aK\2a");
    buf_puts(&deep, "e\x85q\1");
    for (int i = 0; i < 3000; i++) buf_puts(&deep, "ccollections\nOrderedDict\nh\1R");
    expect_pickle_refused(deep.data, deep.len, "more than 2000000 items");
    buf_free(&deep);
}

/* A list inside itself is parsed and ignored. */
static void test_cycle_and_ignored_values(void **state)
{
    (void)state;
    Buf pickle = {0};
    buf_puts(&pickle, "\x80\x02}(");
    pickle_string(&pickle, "cycle");
    buf_append(&pickle, "]q\0h\0a", 6);
    pickle_string(&pickle, "float");
    buf_append(&pickle, "G\0\0\0\0\0\0\0\0", 9);
    buf_append(&pickle, "K\3N", 3); /* the key 3 */
    pickle_string(&pickle, "weight");
    pickle_tensor(&pickle, "FloatStorage", "0", 6, 2, 2, (int64_t[]){2, 2}, (int64_t[]){1, 2});
    buf_puts(&pickle, "u.");
    Buf zip = pytorch_zip_of(pickle.data, pickle.len, 24);
    TensorFile *f = open_hostile(path, path, zip.data, zip.len);
    if (!f) fail_msg("refused: %s", status_message());
    assert_int_equal(tensor_file_count(f), 1);
    uint8_t raw[16], expected[16];
    for (int i = 0; i < 4; i++) memcpy(expected + 4 * i, elements + 4 * (2 + i / 2 + 2 * (i % 2)), 4);
    assert_ok(tensor_file_read_raw(f, 0, raw, sizeof raw));
    assert_memory_equal(raw, expected, sizeof raw);
    tensor_file_close(f);
    buf_free(&zip);
    buf_free(&pickle);
}

/* A file with `beside` next to the weights under DeepSpeed's key, in both forms: the weights are found. */
static void expect_ignored(const char *beside, size_t len)
{
    Buf pickle = {0};
    buf_puts(&pickle, "\x80\x02}(");
    pickle_string(&pickle, "beside");
    buf_append(&pickle, beside, len);
    pickle_string(&pickle, "module");
    buf_puts(&pickle, "}");
    pickle_string(&pickle, "weight");
    pickle_tensor(&pickle, "FloatStorage", "0", 6, 0, 1, (int64_t[]){6}, (int64_t[]){1});
    buf_puts(&pickle, "su.");
    Buf zip = pytorch_zip_of(pickle.data, pickle.len, 24), old = pytorch_old_start();
    buf_append(&old, pickle.data, pickle.len);
    buf_puts(&old, "\x80\x02]");
    pickle_string(&old, "0");
    buf_puts(&old, "a.");
    put_le(&old, 6, 8);
    buf_append(&old, elements, 24);
    const Buf *files[] = {&zip, &old};
    for (int i = 0; i < 2; i++) {
        TensorFile *f = open_hostile(path, path, files[i]->data, files[i]->len);
        if (!f) fail_msg("refused: %s", status_message());
        assert_int_equal(tensor_file_count(f), 1);
        assert_int_equal(tensor_file_find(f, "weight"), 0);
        tensor_file_close(f);
    }
    buf_free(&zip);
    buf_free(&old);
    buf_free(&pickle);
}

/* An average of the weights beside them: which one is wanted is unknown. */
static void test_two_models(void **state)
{
    (void)state;
    static const char *const names[] = {"weight", "module.weight"};
    for (int i = 0; i < 2; i++) {
        Buf pickle = {0};
        buf_puts(&pickle, "\x80\x02}(");
        for (int k = 0; k < 2; k++) {
            pickle_string(&pickle, k ? "ema" : "model");
            buf_puts(&pickle, "}");
            pickle_string(&pickle, k ? names[i] : "weight");
            pickle_tensor(&pickle, "FloatStorage", "0", 6, 0, 1, (int64_t[]){6}, (int64_t[]){1});
            buf_puts(&pickle, "s");
        }
        buf_puts(&pickle, "u.");
        Buf zip = pytorch_zip_of(pickle.data, pickle.len, 24);
        assert_null(open_hostile(path, path, zip.data, zip.len));
        assert_message("more than one model, another under 'ema'");
        buf_free(&zip);
        buf_free(&pickle);
    }
}

#define EXPECT_IGNORED(body) expect_ignored(body, sizeof(body) - 1)

/* What training programs keep beside the weights, as Python 3.11 writes it with protocols 2 and 4. */
static void test_classes_beside_the_model(void **state)
{
    (void)state;
    /* argparse.Namespace(lr=0.1, name="x", n=None) */
    EXPECT_IGNORED("cargparse\nNamespace\n)\x81}(X\2\0\0\0lrG?\xb9\x99\x99\x99\x99\x99\x9aX\4\0\0\0nameX\1\0\0\0x"
                   "X\1\0\0\0nNub");
    /* numpy.float64 */
    EXPECT_IGNORED("cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\2\0\0\0f8\x89\x88\x87R(K\3X\1\0\0\0<NNNJ\xff\xff"
                   "\xff\xffJ\xff\xff\xff\xffK\0tbc_codecs\nencode\nX\2\0\0\0xyX\6\0\0\0latin1\x86R\x86R");
    EXPECT_IGNORED("\x8c\x16numpy._core.multiarray\x8c\6scalar\x93\x8c\5numpy\x8c\5dtype\x93\x8c\2f8\x89\x88\x87R(K\3"
                   "\x8c\1<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tbC\2xy\x86R");
    /* defaultdict(dict, {"a": {}}), deque([1, 2]), {1, 2}, frozenset({1}), bytearray(b"x"), a namedtuple's class */
    EXPECT_IGNORED("ccollections\ndefaultdict\nc__builtin__\ndict\n\x85RX\1\0\0\0a}s");
    EXPECT_IGNORED("ccollections\ndeque\n)R(K\1K\2e");
    EXPECT_IGNORED("\x8f(K\1K\2\x90");
    EXPECT_IGNORED("(K\1\x91");
    EXPECT_IGNORED("\x96\1\0\0\0\0\0\0\0x");
    EXPECT_IGNORED("c__main__\nPoint\nK\1K\2\x86\x81");
    /* an object whose __getnewargs_ex__ has keywords; a method that is looked up and called; a state that is a tuple */
    EXPECT_IGNORED("cdeepspeed.x\nConfig\n)}X\1\0\0\0aK\1s\x92");
    EXPECT_IGNORED("c__builtin__\ngetattr\ncenum\nE\nX\1\0\0\0a\x86RK\1\x85R");
    EXPECT_IGNORED("cfunctools\npartial\nc__main__\nf\n\x85R(c__main__\nf\n)}Ntb");
    EXPECT_IGNORED("ctorch\ndevice\nX\3\0\0\0cpu\x85R");
    /* a tensor of a kind that Cairn does not read, */
    EXPECT_IGNORED("ctorch._utils\n_rebuild_qtensor\n)R");
}

/* An opaque value in place of the weights is refused by its name. */
static void test_classes_in_place_of_weights(void **state)
{
    (void)state;
    static const char storage[] = "ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nQInt8Storage\nU\1"
                                  "0U\3cpuK\6tQK\0K\1\x85K\1\x85\x89"
                                  "ccollections\nOrderedDict\n)RtR";
    Buf body = {0};
    EXPECT_OPAQUE_REFUSED("ctorch._utils\n_rebuild_tensor_v3\n)R", "'torch._utils._rebuild_tensor_v3'");
    EXPECT_OPAQUE_REFUSED("cnumpy\nndarray\n)R", "its value 't' is made by 'numpy.ndarray'");
    buf_puts(&body, "}");
    pickle_string(&body, "model");
    buf_puts(&body, "ccollections\ndefaultdict\n)Rs.");
    Buf zip = pytorch_zip_of(body.data, body.len, 24);
    expect_refused(path, zip.data, zip.len, "its value 'model' is made by 'collections.defaultdict'");
    buf_free(&zip);
    buf_free(&body);
    buf_puts(&body, "ccollections\ndefaultdict\n)R.");
    zip = pytorch_zip_of(body.data, body.len, 24);
    expect_refused(path, zip.data, zip.len, "its top value is made by 'collections.defaultdict'");
    buf_free(&zip);
    /* One tensor of an unknown kind among others is not skipped. */
    for (int parameter = 0; parameter < 2; parameter++) {
        buf_free(&body);
        buf_puts(&body, "}(");
        pickle_string(&body, "a");
        pickle_tensor(&body, "FloatStorage", "0", 6, 0, 1, (int64_t[]){6}, (int64_t[]){1});
        pickle_string(&body, "b");
        if (parameter) buf_puts(&body, "ctorch._utils\n_rebuild_parameter\n");
        buf_append(&body, storage, sizeof storage - 1);
        if (parameter)
            buf_puts(&body, "\x89"
                            "ccollections\nOrderedDict\n)R\x87R");
        buf_puts(&body, "u.");
        zip = pytorch_zip_of(body.data, body.len, 24);
        expect_refused(path, zip.data, zip.len, "its value 'b' is made by 'torch.QInt8Storage'");
        buf_free(&zip);
    }
    buf_free(&body);
}

static void test_python2_old_form(void **state)
{
    (void)state;
    /* OrderedDict([["w", tensor]]) with byte strings; the storage is a view of elements 1…4 of six. */
    static const char object[] = "\x80\x02"
                                 "ccollections\nOrderedDict\n]](U\1wctorch._utils\n_rebuild_tensor_v2\n("
                                 "(T\7\0\0\0storagectorch\nIntStorage\nU\1"
                                 "0U\3cpuK\6U\1vK\1K\4\x87tQ"
                                 "K\1K\3\x85K\1\x85\x89"
                                 "ccollections\nOrderedDict\n]\x85RtRea\x85R."
                                 "\x80\x02]U\1"
                                 "0a.";
    Buf b = pytorch_old_start();
    buf_append(&b, object, sizeof object - 1);
    put_le(&b, 6, 8);
    buf_append(&b, elements, 24);
    TensorFile *f = open_hostile(path, path, b.data, b.len);
    if (!f) fail_msg("refused: %s", status_message());
    uint8_t raw[12];
    check_shape(f, "w", I32, 1, (int64_t[]){3});
    assert_ok(tensor_file_read_raw(f, 0, raw, sizeof raw));
    assert_memory_equal(raw, elements + 8, sizeof raw); /* the view's element 1 is the storage's element 2 */
    tensor_file_close(f);
    buf_free(&b);
}

/* One tensor over a storage of six elements. */
static void expect_tensor(const char *type, const char *key, int64_t count, int64_t offset, int n, const int64_t *dims,
                          const int64_t *strides, const char *part)
{
    Buf body = {0};
    pickle_tensor(&body, type, key, count, offset, n, dims, strides);
    expect_pickle_refused(body.data, body.len, part);
    assert_message("tensor 't'");
    buf_free(&body);
}

static void test_tensors_outside_their_storage(void **state)
{
    (void)state;
    static const struct {
        int64_t offset;
        int n;
        int64_t dims[9], strides[9];
        const char *part;
    } cases[] = {
        {1, 1, {6}, {1}, "reaches element 6, its storage has 6"},
        {0, 1, {7}, {1}, "reaches element 6, its storage has 6"},
        {0, 2, {2, 2}, {5, 1}, "reaches element 6"},
        {0, 2, {3, 2}, {1, 4}, "reaches element 6"},
        {-1, 1, {1}, {1}, "offset -1"},
        {INT64_MIN, 1, {0}, {1}, "offset -9223372036854775808"},
        {7, 1, {0}, {1}, "offset 7"},
        {INT64_MAX, 1, {2}, {1}, "reaches element -1"},
        {0, 1, {2}, {-1}, "reaches element -1"},
        {5, 1, {2}, {-1}, "reaches element -1"},
        {0, 2, {3, 2}, {INT64_MAX, 1}, "reaches element -1"},
        {0, 2, {2, 2}, {INT64_MAX, INT64_MAX}, "reaches element -1"},
        {0, 1, {-1}, {1}, "dimension 0 is -1"},
        {0, 1, {INT64_MAX}, {0}, "2^63"},
        {0, 2, {INT64_MAX / 2, 4}, {0, 0}, "2^63"},
        {0, 1, {1 << 30}, {0}, "the file has only"}, /* one element, repeated 2^30 times */
        {0, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, "at most 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_tensor("FloatStorage", "0", 6, cases[i].offset, cases[i].n, cases[i].dims, cases[i].strides,
                      cases[i].part);
}

static void test_names(void **state)
{
    (void)state;
    Buf pickle = {0};
    buf_puts(&pickle, "\x80\x02}(");
    for (int i = 0; i < 2; i++) {
        pickle_string(&pickle, "same");
        pickle_tensor(&pickle, "FloatStorage", "0", 6, i, 1, (int64_t[]){1}, (int64_t[]){1});
    }
    buf_puts(&pickle, "u.");
    Buf zip = pytorch_zip_of(pickle.data, pickle.len, 24);
    expect_refused(path, zip.data, zip.len, "tensor 'same' occurs twice");
    buf_free(&zip);
    static const char *const bad[] = {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "a\tb", "\x7f",     "\xe2\x82",     ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        buf_free(&pickle);
        buf_puts(&pickle, "\x80\x02}");
        pickle_string(&pickle, bad[i]);
        pickle_tensor(&pickle, "FloatStorage", "0", 6, 0, 1, (int64_t[]){1}, (int64_t[]){1});
        buf_puts(&pickle, "s.");
        zip = pytorch_zip_of(pickle.data, pickle.len, 24);
        expect_refused(path, zip.data, zip.len, "UTF-8 without control characters");
        buf_free(&zip);
    }
    buf_free(&pickle);
    buf_puts(&pickle, "}N");
    pickle_tensor(&pickle, "FloatStorage", "0", 6, 0, 1, (int64_t[]){1}, (int64_t[]){1});
    buf_puts(&pickle, "s.");
    zip = pytorch_zip_of(pickle.data, pickle.len, 24);
    expect_refused(path, zip.data, zip.len, "key in the state_dict is not a string");
    buf_free(&zip);
    buf_free(&pickle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forbidden_globals),
        cmocka_unit_test(test_allowed_globals_misused),
        cmocka_unit_test(test_broken_machines),
        cmocka_unit_test(test_cycle_and_ignored_values),
        cmocka_unit_test(test_classes_beside_the_model),
        cmocka_unit_test(test_two_models),
        cmocka_unit_test(test_classes_in_place_of_weights),
        cmocka_unit_test(test_python2_old_form),
        cmocka_unit_test(test_tensors_outside_their_storage),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
