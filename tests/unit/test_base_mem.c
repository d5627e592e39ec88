/* Allocation, growable buffers, and JSON written into them. */
#include <math.h>

#include "testing.h"

/* AddressSanitizer itself ends the process for a size that no system has. */
#if defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define WITH_ASAN 1
#    endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#    define WITH_ASAN 1
#endif
#if defined(WITH_ASAN)
enum { N_WORK = 3 };
#else
enum { N_WORK = 4 };
#endif

static void test_allocates_zeroed(void **state)
{
    (void)state;
    unsigned char *p = mem_array(7, 100);
    for (int i = 0; i < 700; i++) assert_int_equal(p[i], 0);
    memset(p, 1, 700);
    p = mem_resize(p, 20, 100);
    for (int i = 0; i < 700; i++) assert_int_equal(p[i], 1);
    free(p);
    void *nothing[] = {mem_alloc(0), mem_array(0, 8), mem_array(8, 0), mem_resize(NULL, 0, 8)};
    for (int i = 0; i < 4; i++) {
        assert_non_null(nothing[i]);
        free(nothing[i]);
    }
}

static int overflows_array(void *arg)
{
    free(mem_array(SIZE_MAX / 2, *(size_t *)arg));
    return 0;
}

static int overflows_resize(void *arg)
{
    free(mem_resize(NULL, SIZE_MAX / 2, *(size_t *)arg));
    return 0;
}

static int overflows_buffer(void *arg)
{
    Buf b = {0};
    buf_puts(&b, "some");
    buf_append(&b, "x", SIZE_MAX - *(size_t *)arg);
    return 0;
}

static int asks_too_much(void *arg)
{
    free(mem_alloc((size_t)1 << 60 | *(size_t *)arg));
    return 0;
}

static void test_no_memory_ends_with_76(void **state)
{
    (void)state;
    int (*work[])(void *) = {overflows_array, overflows_resize, overflows_buffer, asks_too_much};
    size_t three = 3;
    for (size_t i = 0; i < N_WORK; i++) {
        Buf errors = {0};
        int wait_status = testing_child(work[i], &three, &errors);
        assert_true(WIFEXITED(wait_status));
        assert_int_equal(WEXITSTATUS(wait_status), 76);
        assert_int_equal(strncmp(errors.data, "error: the system has no memory left", 36), 0);
        buf_free(&errors);
    }
}

static void test_strings(void **state)
{
    (void)state;
    char *a = mem_strdup("abc"), *b = mem_strndup("abcdef", 4), *c = mem_strndup("ab", 10),
         *d = mem_printf("%d-%s", 5, "x"), *e = mem_printf("%s", "");
    assert_string_equal(a, "abc");
    assert_string_equal(b, "abcd");
    assert_string_equal(c, "ab");
    assert_string_equal(d, "5-x");
    assert_string_equal(e, "");
    free(a), free(b), free(c), free(d), free(e);
}

static void test_grows_arrays(void **state)
{
    (void)state;
    int *values = NULL, count = 0, cap = 0;
    for (int i = 0; i < 1000; i++) {
        MEM_GROW(values, count, cap);
        values[count++] = 3 * i;
    }
    for (int i = 0; i < 1000; i++) assert_int_equal(values[i], 3 * i);
    assert_int_equal(cap, 1024);
    free(values);
}

static void test_buffers_grow(void **state)
{
    (void)state;
    Buf b = {0}, empty = {0};
    buf_append(&b, NULL, 0);
    assert_string_equal(b.data, "");
    size_t expected = 0;
    for (int i = 0; i < 3000; i++) {
        char number[16];
        expected += (size_t)snprintf(number, sizeof number, "%d,", i);
        if (i % 2)
            buf_printf(&b, "%d,", i);
        else
            buf_puts(&b, number);
        assert_int_equal(b.len, expected);
        assert_int_equal(b.data[b.len], '\0');
    }
    assert_int_equal(strncmp(b.data, "0,1,2,3,4,5,", 12), 0);
    assert_string_equal(b.data + b.len - 10, "2998,2999,");
    for (int width = 0; width < 300; width++) { /* every difference between size and capacity */
        size_t before = b.len;
        buf_printf(&b, "%*s", width, "");
        assert_int_equal(b.len, before + (size_t)width);
    }
    buf_append(&b, "a\0b", 3);
    assert_memory_equal(b.data + b.len - 3, "a\0b", 4);
    buf_free(&b);
    assert_null(b.data);
    assert_int_equal(b.len + b.cap, 0);
    buf_free(&b);
    buf_free(&empty);
}

/* Neither a second message nor an order to the terminal comes of what a message quotes. */
static void test_messages_show_what_they_quote(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {{"", ""},
                 {"plain \xc3\xa9 \xf0\x9f\x90\xa7, a\ttab\n", "plain \xc3\xa9 \xf0\x9f\x90\xa7, a\ttab\n"},
                 {"a\nerror: b\n c", "a\\nerror: b\\n c"},
                 {"a table\n  row\n  row", "a table\n  row\n  row"},
                 {"\x1b[31m\r\x7f", "\\x1b[31m\\x0d\\x7f"},
                 {"\xff\xc3 \xed\xa0\x80", "\\xff\\xc3 \\xed\\xa0\\x80"},
                 {"\xc2\x9b"
                  "1m \xc2\xa0",
                  "\\xc2\\x9b1m \xc2\xa0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf b = {0};
        buf_message(&b, cases[i].in);
        assert_string_equal(b.data ? b.data : "", cases[i].out);
        buf_free(&b);
    }
}

#define REPLACED "\xef\xbf\xbd"

static void test_json_strings(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", ""},
        {"plain text /", "plain text /"},
        {"\"quoted\" \\ back", "\\\"quoted\\\" \\\\ back"},
        {"\b\f\n\r\t", "\\b\\f\\n\\r\\t"},
        {"\x01\x1f\x7f", "\\u0001\\u001f\x7f"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf"},
        {"a\x80z", "a" REPLACED "z"},                              /* a continuation alone */
        {"\xff\xfe", REPLACED REPLACED},                           /* never valid */
        {"\xc0\xaf", REPLACED REPLACED},                           /* an overlong form */
        {"\xe0\x80\x80", REPLACED REPLACED REPLACED},              /* the same, three bytes */
        {"\xed\xa0\x80", REPLACED REPLACED REPLACED},              /* a surrogate */
        {"\xf4\x90\x80\x80", REPLACED REPLACED REPLACED REPLACED}, /* above U+10FFFF */
        {"\xf0\x9f\x98", REPLACED},                                /* cut short: one mark */
        {"\xf0\x9f\x98\"", REPLACED "\\\""},                       /* and the next character stays */
        {"\xe2\x82\n\xc3", REPLACED "\\n" REPLACED},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", REPLACED REPLACED REPLACED REPLACED "A"}, /* Unicode 15, table 3-11 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf b = {0};
        buf_json(&b, cases[i].in);
        char *expected = mem_printf("\"%s\"", cases[i].out);
        assert_string_equal(b.data, expected);
        free(expected);
        buf_free(&b);
    }
}

static void test_words_of_a_command_line(void **state)
{
    (void)state;
    Buf b = {0};
    buf_word(&b, "--seed=1,2");
    buf_puts(&b, " ");
    buf_word(&b, "a b");
    buf_puts(&b, " ");
    buf_word(&b, "it's");
    buf_puts(&b, " ");
    buf_word(&b, "");
    assert_string_equal(b.data, "--seed=1,2 'a b' 'it'\"'\"'s' ''");
    buf_free(&b);
}

static void test_json_strings_are_always_json(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int round = 0; round < 5000; round++) {
        char text[24] = {0};
        for (int i = 0; i < 23; i++) text[i] = (char)(testing_random(&seed) >> (round % 2 ? 56 : 55));
        Buf b = {0};
        Json *doc;
        buf_puts(&b, "[");
        buf_json(&b, text);
        buf_puts(&b, "]");
        assert_ok(js_parse("generated", b.data, b.len, &doc));
        assert_int_equal(js_size(doc), 1);
        js_free(doc);
        buf_free(&b);
    }
}

static void check_double(double x, const char *expected)
{
    Buf b = {0};
    buf_double(&b, x);
    assert_string_equal(b.data, expected);
    buf_free(&b);
}

static void test_doubles(void **state)
{
    (void)state;
    check_double(0, "0");
    check_double(-0.0, "-0.0");
    check_double(1, "1");
    check_double(100, "100");
    check_double(-65536, "-65536");
    check_double(0.1, "0.1");
    check_double(1.0 / 3, "0.3333333333333333");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(2e-5, "2e-05");
    check_double(5e-324, "5e-324");
    check_double(1e300, "1e+300");
    check_double(1.7976931348623157e308, "1.7976931348623157e+308");
    check_double((double)NAN, "null");
    check_double((double)INFINITY, "null");
    check_double(-(double)INFINITY, "null");
}

static void test_doubles_read_back(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = testing_random(&seed);
        double x;
        memcpy(&x, &bits, sizeof x);
        if (i % 3 == 0) x = (double)(float)(1e-9 * (double)(int64_t)bits); /* a loss, which is a float */
        if (!isfinite(x)) continue;
        Buf b = {0};
        Json *doc;
        buf_puts(&b, "[");
        buf_double(&b, x);
        buf_puts(&b, "]");
        assert_ok(js_parse("generated", b.data, b.len, &doc));
        double y = js_real(js_at(doc, 0), (double)NAN);
        assert_memory_equal(&x, &y, sizeof x);
        js_free(doc);
        buf_free(&b);
    }
}

/* A comma is missing before the first member of an object alone, also of one within another. */
static void test_members(void **state)
{
    Buf b = {0};
    (void)state;
    buf_puts(&b, "{");
    buf_member_text(&b, "a", "x\"y");
    buf_member(&b, "b", 1.5);
    buf_key(&b, "c\n");
    buf_puts(&b, "{");
    buf_member(&b, "d", 2);
    buf_puts(&b, "}}");
    assert_string_equal(b.data, "{\"a\": \"x\\\"y\", \"b\": 1.5, \"c\\n\": {\"d\": 2}}");
    BUF_FREE(&b);
    assert_null(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocates_zeroed),
        cmocka_unit_test(test_no_memory_ends_with_76),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_grows_arrays),
        cmocka_unit_test(test_buffers_grow),
        cmocka_unit_test(test_messages_show_what_they_quote),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_words_of_a_command_line),
        cmocka_unit_test(test_json_strings_are_always_json),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_doubles_read_back),
        cmocka_unit_test(test_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
