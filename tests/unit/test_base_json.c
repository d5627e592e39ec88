/* Reading JSON: values, and refusals with line and column. */
#include <sys/resource.h>

#include "asan.h"
#include "testing.h"

static Json *parse(const char *text)
{
    Json *doc;
    assert_ok(js_parse("test.json", text, strlen(text), &doc));
    return doc;
}

static void refuse(const char *text, size_t len, const char *part)
{
    Json *doc = (Json *)(uintptr_t)1;
    Status status = js_parse("test.json", text, len, &doc);
    if (status != E_FORMAT) fail_msg("%.*s gave %s", (int)len, text, status_name(status));
    assert_null(doc);
    assert_int_equal(strncmp(status_message(), "test.json: ", 11), 0);
    assert_message(part);
}

static void test_values(void **state)
{
    (void)state;
    Json *doc = parse("{\"text\": \"a\\u00e4\\n\", \"int\": -9223372036854775808, \"big\": 9223372036854775807,\n"
                      " \"real\": 0.5, \"exp\": 1E3, \"yes\": true, \"no\": false, \"null\": null,\n"
                      " \"list\": [1, [2], {}], \"\": \"empty key\"}");
    assert_int_equal(js_kind(doc), JSON_KIND_OBJECT);
    assert_int_equal(js_size(doc), 10);
    assert_string_equal(js_string(js_get(doc, "text"), "?"), "a\xc3\xa4\n");
    assert_true(js_int(js_get(doc, "int"), 0) == INT64_MIN);
    assert_true(js_int(js_get(doc, "big"), 0) == INT64_MAX);
    assert_true(js_real(js_get(doc, "real"), 0) == 0.5);
    assert_true(js_real(js_get(doc, "exp"), 0) == 1000);
    assert_true(js_real(js_at(js_get(doc, "list"), 0), 0) == 1);
    assert_true(js_bool(js_get(doc, "yes"), false));
    assert_false(js_bool(js_get(doc, "no"), true));
    assert_int_equal(js_kind(js_get(doc, "int")), JSON_KIND_INT);
    assert_int_equal(js_kind(js_get(doc, "exp")), JSON_KIND_REAL);
    assert_int_equal(js_kind(js_get(doc, "no")), JSON_KIND_BOOL);
    assert_int_equal(js_kind(js_get(doc, "null")), JSON_KIND_NULL);
    assert_int_equal(js_kind(js_get(doc, "text")), JSON_KIND_STRING);
    assert_int_equal(js_kind(js_get(doc, "list")), JSON_KIND_ARRAY);
    assert_int_equal(js_size(js_get(doc, "list")), 3);
    assert_string_equal(js_string(js_get(doc, ""), "?"), "empty key");
    js_free(doc);
}

static void test_scalars_as_json(void **state)
{
    (void)state;
    Json *doc = parse("[null, true, false, -3, 0.5, 2.0, \"a\\\"b\", [], {}]");
    static const char *const expected[] = {"null", "true", "false", "-3", "0.5", "2.0", "\"a\\\"b\"", "", ""};
    for (size_t i = 0; i < js_size(doc); i++) {
        Buf out = {0};
        buf_puts(&out, "");
        assert_int_equal(js_put_scalar(&out, js_at(doc, i)), i < 7);
        assert_string_equal(out.data, expected[i]);
        buf_free(&out);
    }
    js_free(doc);
}

static void test_missing_and_wrong_kinds(void **state)
{
    (void)state;
    Json *doc = parse("{\"list\": [1], \"text\": \"x\", \"real\": 2.5, \"int\": 3}");
    const Json *wrong[] = {NULL, doc, js_get(doc, "list"), js_get(doc, "missing"), js_get(doc, "real")};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_string_equal(js_string(wrong[i], "fallback"), "fallback");
        assert_int_equal(js_int(wrong[i], 42), 42); /* a real is not an integer */
        assert_true(js_bool(wrong[i], true));
        if (i < 4) assert_true(js_real(wrong[i], 1.5) == 1.5);
    }
    assert_null(js_string(NULL, NULL));
    assert_null(js_get(js_get(doc, "list"), "x"));
    assert_null(js_get(NULL, "x"));
    assert_null(js_at(doc, 0));
    assert_null(js_at(NULL, 0));
    assert_null(js_at(js_get(doc, "list"), 1));
    assert_int_equal(js_size(NULL) + js_size(js_get(doc, "text")), 0);
    assert_int_equal(js_kind(NULL), JSON_KIND_NULL);
    assert_null(js_first(NULL));
    assert_null(js_first(js_get(doc, "list")));
    js_free(doc);
    js_free(NULL);
}

/* What Python's json reads and other readers refuse. */
static void test_reads_as_python(void **state)
{
    (void)state;
    static const struct {
        const char *text; /* of an array's one element */
        JsonKind kind;
        const char *expected;
    } cases[] = {
        {"9223372036854775807", JSON_KIND_INT, NULL},
        {"9223372036854775808", JSON_KIND_REAL, NULL},
        {"-9223372036854775809", JSON_KIND_REAL, NULL},
        {"123456789012345678901234567890", JSON_KIND_REAL, NULL},
        {"1e15", JSON_KIND_REAL, NULL},
        {"2.50", JSON_KIND_REAL, NULL},
        {"-0.0", JSON_KIND_REAL, NULL},
        {"1e400", JSON_KIND_NOT_FINITE, NULL},
        {"-1E+999", JSON_KIND_NOT_FINITE, NULL},
        {"1e-999", JSON_KIND_REAL, NULL},
        {"NaN", JSON_KIND_NOT_FINITE, NULL},
        {"Infinity", JSON_KIND_NOT_FINITE, NULL},
        {"-Infinity", JSON_KIND_NOT_FINITE, NULL},
        {"null", JSON_KIND_NULL, NULL},
        {"\"a\\u0000b\"", JSON_KIND_STRING,
         "a\xef\xbf\xbd"
         "b"},
        {"\"\\ud800\"", JSON_KIND_STRING, "\xef\xbf\xbd"},
        {"\"\\udc00\\ud800x\"", JSON_KIND_STRING, "\xef\xbf\xbd\xef\xbf\xbdx"},
        {"\"\\ud83d\\ude00\\ud83d\\u0041\"", JSON_KIND_STRING,
         "\xf0\x9f\x98\x80\xef\xbf\xbd"
         "A"},
        {"\"\\/\\b\\f\\n\\r\\t\\\"\\\\\\u00E9\\u20ac\"", JSON_KIND_STRING, "/\b\f\n\r\t\"\\\xc3\xa9\xe2\x82\xac"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = mem_printf("[%s,%s]", cases[i].text, cases[i].text);
        Json *doc = parse(text);
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(js_kind(js_at(doc, k)), cases[i].kind);
            assert_string_equal(js_text(js_at(doc, k)), cases[i].expected ? cases[i].expected : cases[i].text);
        }
        js_free(doc);
        free(text);
    }
    Json *doc = parse("[9223372036854775808, 1e400, NaN, {\"a\": [1, {}], \"\": -0}]");
    assert_true(js_real(js_at(doc, 0), 0) == 9223372036854775808.0);
    assert_true(js_real(js_at(doc, 1), 7) == 7 && js_real(js_at(doc, 2), 7) == 7);
    assert_null(js_text(js_at(doc, 3)));
    Buf out = {0};
    js_put(&out, doc);
    assert_string_equal(out.data, "[9223372036854775808, 1e400, NaN, {\"a\": [1, {}], \"\": -0}]");
    buf_free(&out);
    js_free(doc);
}

/* The last of equal keys counts, at the place of the first, in objects of any size. */
static void test_repeated_keys(void **state)
{
    (void)state;
    for (int n = 2; n < 3000; n = n * 3 / 2 + 1) {
        Buf text = {0};
        buf_puts(&text, "{");
        for (int i = 0; i < n; i++) buf_printf(&text, "\"key %d\": %d, ", i, i);
        buf_printf(&text, "\"k\\u0065y %d\": {\"x\": 1}, \"last\": null}", n / 2);
        Json *doc = parse(text.data);
        char key[32];
        int i = 0;
        assert_int_equal(js_size(doc), n + 1);
        for (void *it = js_first(doc); it; it = js_next(doc, it), i++) {
            snprintf(key, sizeof key, "key %d", i);
            assert_string_equal(js_key(it), i < n ? key : "last");
            assert_ptr_equal(js_get(doc, js_key(it)), js_value(it));
            assert_int_equal(js_int(js_value(it), -1), i == n / 2 || i == n ? -1 : i);
        }
        snprintf(key, sizeof key, "key %d", n / 2);
        assert_string_equal(js_repeated(doc), key);
        assert_null(js_repeated(js_get(doc, key)));
        assert_null(js_get(doc, "key"));
        js_free(doc);
        buf_free(&text);
    }
}

static void test_walks_in_order(void **state)
{
    (void)state;
    Json *doc = parse("{\"z\": 0, \"a\": 1, \"m\": 2, \"b\": 3}");
    Buf keys = {0};
    int64_t expected = 0;
    for (void *it = js_first(doc); it; it = js_next(doc, it)) {
        buf_puts(&keys, js_key(it));
        assert_int_equal(js_int(js_value(it), -1), expected++);
    }
    assert_string_equal(keys.data, "zamb");
    buf_free(&keys);
    js_free(doc);
    doc = parse("{}");
    assert_null(js_first(doc));
    js_free(doc);
    doc = parse("\xef\xbb\xbf[7]"); /* after a byte order mark */
    assert_int_equal(js_int(js_at(doc, 0), 0), 7);
    js_free(doc);
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "empty"},
        {"\xef\xbb\xbf", "empty"},
        {"  \n ", "line 2"},
        {"5", "line 1"},
        {"\"text\"", "line 1"},
        {"null", "line 1"},
        {"{", "line 1"},
        {"[1, 2", "line 1"},
        {"[1, 2]]", "line 1"},
        {"[1] x", "line 1"},
        {"{\"a\": 1,\n \"b\": }", "line 2, column 7"},
        {"{\"a\": 1,}", "line 1"},
        {"[1,]", "line 1"},
        {"{a: 1}", "line 1"},
        {"{'a': 1}", "line 1"},
        {"{\"a\" 1}", "line 1"},
        {"{1: 2}", "line 1"},
        {"[01]", "line 1"},
        {"[1.]", "line 1"},
        {"[+1]", "line 1"},
        {"[\"a\nb\"]", "line 1"},
        {"[\"\\x\"]", "line 1"},
        {"[\"\xff\"]", "line 1"},
        {"[\"\xc0\xaf\"]", "line 1"},
        {"[1] // comment", "line 1, column 5: not valid JSON: expected the end of the text, found '/'"},
        {"[\"\\u00g0\"]", "line 1, column 4: not valid JSON: expected an escape"},
        {"[\"ä\", -]", "line 1, column 8: not valid JSON: expected a digit, found ']'"},
        {"[-Inf]", "expected a value, found '-'"},
        {"[1e]", "line 1, column 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refuse(cases[i].text, strlen(cases[i].text), cases[i].part);
    }
    refuse("[1]\0", 4, "line 1");
    refuse("[\"a\0b\"]", 7, "line 1");
    refuse("{\"a\0\": 1}", 9, "line 1");
}

/* Opens `depth` arrays and objects in turn, closes them again. */
static void nest(Buf *text, int depth, bool close)
{
    text->len = 0;
    for (int i = 0; i < depth; i++) buf_puts(text, i % 2 ? "{\"k\":\n" : "[");
    if (close) buf_puts(text, depth % 2 ? "" : "0");
    for (int i = depth - 1; close && i >= 0; i--) buf_puts(text, i % 2 ? "}" : "]");
}

static void test_depth(void **state)
{
    (void)state;
    Buf text = {0};
    for (int depth = 1; depth <= 500; depth += 1 + depth / 8) {
        nest(&text, depth, true);
        js_free(parse(text.data));
    }
    nest(&text, 500, true);
    js_free(parse(text.data));
    nest(&text, 501, true);
    refuse(text.data, text.len, "line 251, column 1: arrays and objects nested deeper than 500");
    nest(&text, 1000000, true);
    refuse(text.data, text.len, "deeper than 500");
    nest(&text, 1000000, false);
    refuse(text.data, text.len, "deeper than 500");
    text.len = 0; /* brackets in strings, and many side by side */
    buf_puts(&text, "[\"\\\\\", \"\\\"");
    for (int i = 0; i < 200; i++) buf_puts(&text, "[{");
    buf_puts(&text, "\"");
    for (int i = 0; i < 200; i++) buf_puts(&text, ",[{}]");
    buf_puts(&text, "]");
    Json *doc = parse(text.data);
    assert_int_equal(js_size(doc), 202);
    js_free(doc);
    buf_free(&text);
}

static const char sample[] =
    "{\"model_type\": \"bert\", \"hidden_size\": 768, \"p\": 0.1, \"x\": [true, null, {\"\\u00e4\": "
    "[-1.5e-3, \"\\\"\\\\\"]}], \"id2label\": {\"0\": \"entail\", \"1\": \"neutral\"}}";

static void test_every_beginning_is_refused(void **state)
{
    (void)state;
    js_free(parse(sample));
    for (size_t len = 0; len < sizeof sample - 1; len++) {
        char *cut = mem_strndup(sample, len); /* a copy, so that a sanitizer finds a read beyond the end */
        refuse(cut, len, "");
        free(cut);
    }
}

/* No text may crash the reader. Accepted text has a root, refused text a line and column. */
static void test_garbage(void **state)
{
    (void)state;
    uint64_t seed = 5;
    int refused = 0;
    for (int round = 0; round < 20000; round++) {
        char *text = mem_strdup(sample);
        size_t len = sizeof sample - 1;
        for (uint64_t n = 1 + testing_random(&seed) % 3; n > 0; n--) {
            uint64_t r = testing_random(&seed) >> 8;
            text[r % len] = r >> 63 ? (char)(r >> 32) : "{}[]\",:\\0e.\n\xff u"[(r >> 32) % 15];
        }
        Json *doc;
        Status status = js_parse("garbage", text, len, &doc);
        if (status == OK) {
            assert_int_equal(js_kind(doc), JSON_KIND_OBJECT);
        } else {
            assert_status(status, E_FORMAT);
            assert_null(doc);
            assert_message("garbage: line ");
            refused++;
        }
        js_free(doc);
        free(text);
    }
    assert_in_range(refused, 10000, 19999);
}

static void test_reads_files(void **state)
{
    (void)state;
    char *directory = testing_directory(), *path = file_join(directory, "config.json");
    Json *doc;
    assert_status(js_read(path, &doc), E_IO);
    assert_null(doc);
    assert_message(path);
    assert_message("No such file");
    assert_ok(file_write_durable(path, "{\"a\":\n1", 7));
    assert_status(js_read(path, &doc), E_FORMAT);
    assert_message(path);
    assert_message("line 2");
    assert_ok(file_write_durable(path, sample, sizeof sample - 1));
    assert_ok(js_read(path, &doc));
    assert_int_equal(js_int(js_get(doc, "hidden_size"), 0), 768);
    js_free(doc);
    assert_ok(file_write_durable(path, "", 0));
    assert_status(js_read(path, &doc), E_FORMAT);
    assert_status(js_read(directory, &doc), E_IO);
    assert_message("expected a regular file, found a folder");
    assert_int_equal(truncate(path, (64 << 20) + 1), 0); /* a sparse file */
    assert_status(js_read(path, &doc), E_FORMAT);
    assert_message("larger than the 67108864 bytes");
    assert_ok(file_remove_tree(directory));
    free(path);
    free(directory);
}

/* A million numbers in 16 MiB of new addresses. */
static int parses_without_memory(void *arg)
{
    const Buf *text = arg;
    struct rlimit none = {.rlim_cur = 16 << 20, .rlim_max = 16 << 20};
    Json *doc;
    if (setrlimit(RLIMIT_DATA, &none) != 0) return 1;
    return js_parse("test.json", text->data, text->len, &doc) == OK ? 2 : 3;
}

static void test_no_memory_ends_with_76(void **state)
{
    (void)state;
    Buf text = {0}, errors = {0};
    if (TESTING_ASAN) skip(); /* it needs addresses of its own */
    buf_puts(&text, "[0");
    for (int i = 0; i < 1000000; i++) buf_puts(&text, ",1");
    buf_puts(&text, "]");
    int wait_status = testing_child(parses_without_memory, &text, &errors);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(WEXITSTATUS(wait_status), 76);
    assert_non_null(strstr(errors.data, "MiB of memory"));
    buf_free(&errors);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_scalars_as_json),
        cmocka_unit_test(test_missing_and_wrong_kinds),
        cmocka_unit_test(test_reads_as_python),
        cmocka_unit_test(test_repeated_keys),
        cmocka_unit_test(test_walks_in_order),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_every_beginning_is_refused),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_reads_files),
        cmocka_unit_test(test_no_memory_ends_with_76),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
