/* The reader of the tests of pages and pictures finds what is wrong in them. */
#include "markup.h"

static void test_reader_finds_what_is_wrong(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "text",
                                        "<a>",
                                        "<a><b></a></b>",
                                        "<a/><b/>",
                                        "<a x=1/>",
                                        "<a x=\"1/>",
                                        "<a x=\"<\"/>",
                                        "<a>&</a>",
                                        "<a>&nbsp;</a>",
                                        "<a>\x01</a>",
                                        "<a>\xc3(</a>",
                                        "<a>\xff</a>",
                                        "<a>< b</a>",
                                        "<a x=\"1\" x=\"2\"/>",
                                        "<a x=\"1\"y=\"2\"/>",
                                        "<a></a>x",
                                        "<a><!-- --></a>"};
    static const char right[] = "<!DOCTYPE html>\n<a x=\"&lt;\" y=\"\"><b/>t&amp;<c>\xe2\x82\xac</c>u</a>\n";
    Markup m;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        markup_parse(wrong[i], &m);
        if (!*m.error) fail_msg("taken for well-formed: %s", wrong[i]);
        markup_free(&m);
    }
    markup_expect(right, &m);
    assert_int_equal(m.n, 3);
    assert_string_equal(m.elements[0].text, "t&u");
    assert_string_equal(markup_attribute(&m.elements[0], "x"), "<");
    assert_int_equal(m.elements[2].parent, 0);
    markup_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reader_finds_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
