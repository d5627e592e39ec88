/* Sentence boundaries: one case per line, with "|" at every boundary. */
#include "testing.h"

#include "tasks/pretrain/wiki/sentences.h"

static const char *const cases[] = {
    "One.|Two.|Three.",
    "No stop at the end",
    /* titles and abbreviations */
    "Mr. Dorn met Dr. E. Brook and Prof. Vale.|They spoke.",
    "St. Mirren lies on Mt. Orl, cf. Fig. 3 and vol. II of it.",
    "It costs approx. 5 crowns, e.g. at noon, i.e. late.",
    "He works for Oss Inc. The firm is old.", /* see below: MAYBE */
    "He works for Oss Inc. in Varn.",
    "Oss Inc. Limited is no firm.",
    "See No. 5 and pp. 3 ff. of it.",
    "He said no.|Then he left.",
    "On Jan. 5 it began.|It rained in Dec.|Nobody knew.",
    "It is by Vale et al. (1990) and others.",
    "He read Par. Lost and Wm. Blake, and Lieut. Vale.|He was under par.|The rest was not.",
    "It is Rom. 5 and Matt. 6 of it.",
    "Nach § 3 Abs. 2 gilt dies, vgl. Kap. 4 und Abb. 5.|Sie, geb. Vale, kam bzw. Oss ging.",
    "Apples, pears, etc. are sold.",
    "Apples, pears, etc.|The rest is not.",
    /* initials and acronyms */
    "J. R. R. Tolkien wrote it.|He was old.",
    "George W. Vale ran.",
    "Vitamin C.|It helps.",
    "She came to the U.S. Senate in 1990.",
    "She came to the U.S.|She stayed.",
    "He took a Ph.D. at 3 p.m. on Monday.",
    "Émile É. Zola wrote.",
    /* decimals, numbers */
    "It is 3.14 or 1,204.5 m.|No more.",
    "It began in 1990.|In 1991 it ended.",
    "1. First of all it rained.",
    "The tally reached 62.|Both sides cheered.",
    /* other marks */
    "Really?|Yes!|Good.",
    "What?!|No.",
    "He went to Yahoo! and stayed.",
    "Wait... and see.",
    "Wait...|Then see.",
    "Wait\xe2\x80\xa6|Then see.",
    /* quotes and brackets */
    "\"Nobody swims here!\"|He was wrong.",
    "\"Stop!\" he said.",
    "He said \"stop.\"|\"Why?\"|Nobody knew.",
    "\xe2\x80\x9cStop.\xe2\x80\x9d|\xe2\x80\x98Why?\xe2\x80\x99|So.",
    "It rained (it often does).|(Not today.)|Then it stopped.",
    "It rained (see p. 5).|So.",
    /* other scripts */
    ("\xd0\x9f\xd0\xb5\xd1\x80\xd0\xb2\xd0\xbe\xd0\xb5.|\xd0\x92\xd1\x82\xd0\xbe\xd1\x80\xd0\xbe\xd0\xb5 \xd0\xb8 "
     "\xd1\x82.\xd0\xb4. \xd1\x82\xd0\xb0\xd0\xba."),
    "\xe6\x97\xa5\xe6\x9c\xac\xe3\x80\x82|\xe4\xb8\xad\xe5\x9b\xbd\xe3\x80\x82",
    "\xe0\xa4\x85\xe0\xa4\xac\xe0\xa5\xa4|\xe0\xa4\x95\xe0\xa4\xac",
    "Go to example.org or .NET.|Fine.",
};

static char *replace(const char *text, const char *what, const char *with)
{
    Buf b = {0};
    size_t n = strlen(what);
    buf_puts(&b, "");
    while (*text) {
        if (strncmp(text, what, n) == 0) {
            buf_puts(&b, with);
            text += n;
        } else {
            buf_append(&b, text++, 1);
        }
    }
    return b.data;
}

static void boundaries(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool cjk = (unsigned char)cases[i][0] == 0xe6 || (unsigned char)cases[i][0] == 0xe0;
        char *marked = replace(cases[i], "Inc. The", "Inc.|The");
        char *text = replace(marked, "|", cjk ? "" : " "), *lines = replace(marked, "|", "\n");
        char *expected = mem_printf("%s\n", lines);
        Buf out = {0};
        size_t n = sentences_append(text, strlen(text), &out), count = 0;
        if (strcmp(out.data, expected) != 0) fail_msg("\"%s\" became\n%s", text, out.data);
        for (const char *p = expected; *p; p++) count += *p == '\n';
        assert_int_equal(n, count);
        free(marked);
        free(text);
        free(lines);
        free(expected);
        buf_free(&out);
    }
}

/* Text without a letter is not a sentence. */
static void nothing_to_read(void **state)
{
    (void)state;
    static const char *const nothing[] = {"", " ", ".", "...", "\xe2\x80\x93", "1990.", "- 5 -"};
    Buf out = {0};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        assert_int_equal(sentences_append(nothing[i], strlen(nothing[i]), &out), 0);
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

/* Lines never exceed the limit, and cuts are at spaces or between characters. */
static void long_lines(void **state)
{
    (void)state;
    Buf text = {0}, out = {0};
    for (int i = 0; i < 10000; i++) buf_puts(&text, "\xc3\xa9t\xc3\xa9 ");
    assert_true(sentences_append(text.data, text.len - 1, &out) > 5);
    for (int i = 0; i < 10000; i++) buf_puts(&text, "\xe6\x97\xa5"); /* no spaces at all */
    out.len = 0;
    assert_true(sentences_append(text.data + 60000, text.len - 60000, &out) >= 3);
    for (const char *p = out.data, *stop; *p; p = stop + 1) {
        stop = strchr(p, '\n');
        assert_true(stop - p <= SENTENCE_MOST);
        assert_int_equal((stop - p) % 3, 0);
    }
    buf_free(&text);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boundaries),
        cmocka_unit_test(nothing_to_read),
        cmocka_unit_test(long_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
