/* Tables for a terminal, as CSV and HTML; the timeline of a trace. */
#include <math.h>

#include "markup.h"
#include "report/page.h"
#include "report/table.h"

static void fill(Table *t)
{
    table_init(t, 4, 1);
    for (int i = 0; i < 4; i++) table_text(t, "%s", i ? "a head" : "");
    table_text(t, "größe");
    table_figure(t, "%.2f", 1.0 / 3);
    table_figure(t, "%.2f", NAN);
    table_text(t, "x, \"y\" <z>");
}

static void expect_print(const Table *t, int width, const char *expected)
{
    Buf out = {0};
    table_print(t, width, &out);
    assert_string_equal(out.data, expected);
    buf_free(&out);
}

static void test_print(void **state)
{
    Table t;
    (void)state;
    fill(&t);
    expect_print(&t, 100, "       a head  a head      a head\ngröße    0.33       –  x, \"y\" <z>\n");
    expect_print(&t, 25, "       a head  a head\ngröße    0.33       –\n\n           a head\ngröße  x, \"y\" <z>\n");
    /* A column that is wider than the terminal is alone. */
    expect_print(
        &t, 3,
        "       a head\ngröße    0.33\n\n       a head\ngröße       –\n\n           a head\ngröße  x, \"y\" <z>\n");
    table_free(&t);
    table_free(&t);
    table_init(&t, 1, 1); /* a name of a folder */
    table_text(&t, "a\nb\x1b\xff");
    expect_print(&t, 100, "a\\nb\\x1b\\xff\n");
    table_free(&t);
}

static void test_csv(void **state)
{
    Table t;
    Buf out = {0};
    (void)state;
    fill(&t);
    table_csv(&t, false, &out);
    assert_string_equal(out.data, ",a head,a head,a head\r\ngröße,0.3333333333333333,,\"x, \"\"y\"\" <z>\"\r\n");
    out.len = 0;
    table_csv(&t, true, &out);
    assert_string_equal(out.data, ",größe\r\na head,0.3333333333333333\r\na head,\r\na head,\"x, \"\"y\"\" <z>\"\r\n");
    out.len = 0;
    Markup m = {0};
    table_html(&t, &out);
    markup_expect(out.data, &m);
    assert_int_equal(markup_count(&m, "th"), 4);
    assert_true(markup_find(&m, 0, "td", "x, \"y\" <z>") >= 0);
    markup_free(&m);
    table_free(&t);
    /* A name in the head breaks behind its underscores. */
    out.len = 0;
    table_init(&t, 1, 1);
    table_text(&t, "a_<b_");
    table_text(&t, "a_b");
    table_html(&t, &out);
    assert_non_null(strstr(out.data, ">a_<wbr/>&lt;b_</th>"));
    assert_non_null(strstr(out.data, ">a_b</td>"));
    buf_free(&out);
    table_free(&t);
}

/* ---- the timeline ---- */

#define EVENT(tid, ts, dur, cat, name)                                                                                 \
    "{\"ph\": \"X\", \"tid\": " tid ", \"ts\": " ts ", \"dur\": " dur ", \"cat\": \"" cat "\", \"name\": \"" name "\"" \
    "}"

static Json *trace_of(const char *events)
{
    Json *doc;
    char *text = mem_printf("{\"traceEvents\": [%s]}", events);
    assert_ok(js_parse("trace", text, strlen(text), &doc));
    free(text);
    return doc;
}

static int bars(const Markup *m, const char *class)
{
    int n = 0;
    for (int i = 0; i < m->n; i++) {
        const char *found = markup_attribute(&m->elements[i], "class"),
                   *height = markup_attribute(&m->elements[i], "height");
        n += found && height && strcmp(found, class) == 0 && strcmp(height, "24") == 0;
    }
    return n;
}

static void test_timeline(void **state)
{
    (void)state;
    Json *doc =
        trace_of("{\"ph\": \"M\", \"tid\": 1, \"name\": \"thread_name\", \"args\": {\"name\": \"compute "
                 "<1>\"}}," EVENT("0", "1000", "1000", "host", "step 4") "," EVENT(
                     "0", "3000", "1000", "host",
                     "step 5") "," EVENT("1", "1000", "400", "forward",
                                         "a") "," EVENT("1", "1400", "0.1", "forward",
                                                        "b") "," EVENT("1", "1500", "200", "backward",
                                                                       "c") "," EVENT("1", "1700", "200", "backward",
                                                                                      "d") "," EVENT("1", "3100", "100",
                                                                                                     "update",
                                                                                                     "of the other "
                                                                                                     "step"));
    Buf out = {0};
    Markup m = {0};
    assert_true(timeline_svg(doc, 860, &out));
    markup_expect(out.data, &m);
    markup_expect_self_contained(&m);
    assert_int_equal(bars(&m, "f0"), 1); /* b is too narrow, and joined to a */
    assert_int_equal(bars(&m, "f1"), 2);
    assert_int_equal(bars(&m, "f2"), 0);
    assert_true(markup_find(&m, 0, "text", "compute <1>") >= 0 && markup_find(&m, 0, "text", "backward") >= 0);
    assert_true(markup_find(&m, 0, "text", "1.0") >= 0); /* a step of 1 ms */
    markup_free(&m);
    js_free(doc);
    doc = trace_of(EVENT("1", "0", "1", "forward", "a"));
    assert_false(timeline_svg(doc, 860, &out));
    js_free(doc);
    buf_free(&out);
}

/* All phases, in a wide picture and in a narrow one: no name reaches the sample behind it, and none lies on a lane. */
static void test_legend_of_a_timeline(void **state)
{
    (void)state;
    static const char *const names[] = {"forward", "recompute", "backward", "update", "begin"};
    Buf events = {0};
    buf_puts(&events, EVENT("0", "0", "1000", "host", "step 4"));
    for (int i = 0; i < 5; i++) buf_printf(&events, "," EVENT("1", "%d", "100", "%s", "x"), 100 * i, names[i]);
    Json *doc = trace_of(events.data);
    for (int width = 360; width <= 860; width += 100) {
        Buf out = {0};
        Markup m = {0};
        int found = 0;
        double lowest = 0;
        assert_true(timeline_svg(doc, width, &out));
        markup_expect(out.data, &m);
        for (int i = 0; i < m.n; i++) {
            const Element *sample = &m.elements[i];
            const char *height = markup_attribute(sample, "height");
            if (!height || strcmp(height, "10") != 0) {
                if (height && strcmp(height, "24") == 0) assert_true(atof(markup_attribute(sample, "y")) > lowest);
                continue;
            }
            const Element *name = &m.elements[i + 1], *next = &m.elements[i + 2];
            double x = atof(markup_attribute(name, "x")), y = atof(markup_attribute(sample, "y")),
                   end = x + 0.58 * 12 * (double)strlen(name->text); /* as wide as DejaVu Sans */
            found++;
            lowest = fmax(lowest, y + 10);
            assert_true(end <= width);
            if (markup_attribute(next, "y") && atof(markup_attribute(next, "y")) == y)
                assert_true(end < atof(markup_attribute(next, "x")));
        }
        assert_int_equal(found, 5);
        markup_free(&m);
        buf_free(&out);
    }
    js_free(doc);
    buf_free(&events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_legend_of_a_timeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
