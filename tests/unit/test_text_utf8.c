/* UTF-8: every scalar encoded and decoded, every lead and second byte, and the reported place of errors. */
#include "testing.h"

#include "text/text.h"
#include "text/utf8.h"

static void test_every_scalar(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        char bytes[4];
        const char *at = bytes;
        int len = utf8_encode(c, bytes);
        assert_int_equal(len, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        assert_int_equal(utf8_decode(&at, bytes + len), c);
        assert_int_equal(at - bytes, len);
        assert_int_equal(text_utf8_error(bytes, (size_t)len), -1);
        for (int cut = 1; cut < len; cut++) { /* a cut sequence is decoded byte by byte */
            at = bytes;
            assert_int_equal(utf8_decode(&at, bytes + cut), UTF8_BAD);
            assert_int_equal(at - bytes, 1);
            assert_int_equal(text_utf8_error(bytes, (size_t)cut), 0);
        }
    }
}

/* Every two bytes, followed by two continuation bytes: the length of the sequence that they begin, by Unicode's table
   3-7. */
static void test_every_beginning(void **state)
{
    (void)state;
    for (int lead = 0; lead < 256; lead++) {
        for (int second = 0; second < 256; second++) {
            const char bytes[4] = {(char)lead, (char)second, (char)0x80, (char)0xBF};
            const char *at = bytes;
            bool follows = second >= 0x80 && second <= 0xBF;
            int len = 1;
            if (lead >= 0xC2 && lead <= 0xDF)
                len = follows ? 2 : 0;
            else if (lead == 0xE0)
                len = second >= 0xA0 && second <= 0xBF ? 3 : 0;
            else if (lead == 0xED)
                len = second >= 0x80 && second <= 0x9F ? 3 : 0;
            else if (lead >= 0xE1 && lead <= 0xEF)
                len = follows ? 3 : 0;
            else if (lead == 0xF0)
                len = second >= 0x90 && second <= 0xBF ? 4 : 0;
            else if (lead >= 0xF1 && lead <= 0xF3)
                len = follows ? 4 : 0;
            else if (lead == 0xF4)
                len = second >= 0x80 && second <= 0x8F ? 4 : 0;
            else if (lead >= 0x80)
                len = 0;
            uint32_t c = utf8_decode(&at, bytes + 4);
            assert_int_equal(at - bytes, len ? len : 1);
            if (len == 0) assert_int_equal(c, UTF8_BAD);
            if (len > 1) assert_true(c >= (len == 2 ? 0x80u : len == 3 ? 0x800u : 0x10000u));
        }
    }
}

static void test_place_of_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        int64_t at;
    } cases[] = {
        {"", 0, -1},
        {"a\0b", 3, -1},
        {"\x80", 1, 0},
        {"abcdefgh\xC3", 9, 8},
        {"abcdefg\xC3\xA9 \xFFz", 12, 10},
        {"\xC0\xAF", 2, 0},
        {"ok \xED\xA0\x80", 6, 3},
        {"\xF4\x90\x80\x80", 4, 0},
        {"\xE2\x82\xAC\xE2\x82", 5, 3},
        {"0123456701234567\xE2\x82\xAC"
         "01234567\xFE",
         28, 27},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *copy = mem_alloc(cases[i].len); /* of exact size, so that sanitizers detect reads beyond its end */
        memcpy(copy, cases[i].text, cases[i].len);
        assert_int_equal(text_utf8_error(copy, cases[i].len), cases[i].at);
        free(copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_scalar),
        cmocka_unit_test(test_every_beginning),
        cmocka_unit_test(test_place_of_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
