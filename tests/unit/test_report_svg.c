/* Charts of any series: well-formed and self-contained, every point at the place that the axes give, all text inside
   the picture. */
#include <float.h>
#include <math.h>

#include "markup.h"
#include "report/report.h"

typedef struct {
    Buf text;
    Markup m;
    double width, height;
} Picture;

static const char *attribute(const Element *e, const char *key)
{
    const char *value = markup_attribute(e, key);
    if (!value) fail_msg("<%s> has no %s", e->name, key);
    return value;
}

static double number(const Element *e, const char *key)
{
    char *end;
    const char *text = attribute(e, key);
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v)) fail_msg("<%s %s=\"%s\">", e->name, key, text);
    return v;
}

static bool has(const Element *e, const char *key, const char *value)
{
    const char *found = markup_attribute(e, key);
    return found && strcmp(found, value) == 0;
}

/* ---- every chart ---- */

typedef struct {
    double left, right, y;
} Extent;

/* Where a text is, with letters narrower than those of any usual font, so that what overlaps here does so everywhere.
 */
static Extent extent_of(const Element *e)
{
    double size = markup_attribute(e, "font-size") ? number(e, "font-size") : 12, letters = 0;
    for (const char *c = e->text; *c; c++) letters += (*c & 0xc0) != 0x80;
    double x = number(e, "x"), width = 0.5 * size * letters;
    double left = has(e, "text-anchor", "end") ? x - width : has(e, "text-anchor", "middle") ? x - width / 2 : x;
    return (Extent){left, left + width, number(e, "y")};
}

static void check_texts(const Picture *p)
{
    for (int i = 0; i < p->m.n; i++) {
        const Element *e = &p->m.elements[i];
        if (strcmp(e->name, "text") != 0) continue;
        Extent a = extent_of(e);
        if (markup_attribute(e, "transform")) { /* the y axis' label, upright */
            if (a.right - a.left > p->height) fail_msg("\"%s\" is higher than the picture", e->text);
            continue;
        }
        if (a.left < 0 || a.right > p->width || a.y < 9 || a.y > p->height - 3)
            fail_msg("\"%s\" is outside of the picture: %g to %g, %g", e->text, a.left, a.right, a.y);
        for (int k = i + 1; k < p->m.n; k++) {
            const Element *other = &p->m.elements[k];
            if (strcmp(other->name, "text") != 0 || markup_attribute(other, "transform")) continue;
            Extent b = extent_of(other);
            if (fabs(a.y - b.y) < 9 && a.left < b.right && b.left < a.right)
                fail_msg("\"%s\" and \"%s\" overlap", e->text, other->text);
        }
    }
}

static Picture draw(const Chart *chart)
{
    Picture p = {0};
    chart_svg(chart, &p.text);
    markup_expect(p.text.data, &p.m);
    const Element *root = &p.m.elements[0];
    assert_string_equal(root->name, "svg");
    assert_string_equal(attribute(root, "xmlns"), "http://www.w3.org/2000/svg");
    p.width = number(root, "width");
    p.height = number(root, "height");
    char *box = mem_printf("0 0 %g %g", p.width, p.height);
    assert_string_equal(attribute(root, "viewBox"), box);
    free(box);
    markup_expect_self_contained(&p.m);
    assert_null(strstr(p.text.data, "nan"));
    assert_null(strstr(p.text.data, "inf"));
    check_texts(&p);
    return p;
}

static void picture_free(Picture *p)
{
    buf_free(&p->text);
    markup_free(&p->m);
}

/* ---- the axes and the lines ---- */

typedef struct {
    double at0, value0, at1, value1; /* the first tick and the last: place and label */
    int n;
} Ticks;

/* A tick is a path; its label is the text behind it. */
static Ticks read_ticks(const Picture *p, bool of_x)
{
    Ticks t = {0};
    double last = -INFINITY;
    for (int i = 0; i + 1 < p->m.n; i++) {
        const Element *e = &p->m.elements[i], *label = &p->m.elements[i + 1];
        double x, y;
        int used = 0;
        if (strcmp(e->name, "path") != 0) continue;
        if (of_x ? !has(e, "stroke", "#888") || sscanf(attribute(e, "d"), "M%lf,%lfv5%n", &x, &y, &used) != 2 || !used
                 : !has(e, "stroke", "#ddd") || sscanf(attribute(e, "d"), "M%lf,%lfH%n", &x, &y, &used) != 2 || !used)
            continue;
        assert_string_equal(label->name, "text");
        char *end;
        double value = strtod(label->text, &end);
        if (end == label->text || *end) fail_msg("\"%s\" is not a number", label->text);
        if (!(value > last)) fail_msg("tick %s is not above the one before it", label->text);
        last = value;
        if (t.n++ == 0) t.at0 = of_x ? x : y, t.value0 = value;
        t.at1 = of_x ? x : y;
        t.value1 = value;
    }
    return t;
}

static double place(const Ticks *t, double value)
{
    return t->at0 + (value - t->value0) / (t->value1 - t->value0) * (t->at1 - t->at0);
}

/* The lines of series, not of axes and legend. */
static int next_line(const Picture *p, int from)
{
    for (int i = from; i < p->m.n; i++)
        if (has(&p->m.elements[i], "stroke-linejoin", "round")) return i;
    return -1;
}

static int count_lines(const Picture *p)
{
    int n = 0;
    for (int i = next_line(p, 0); i >= 0; i = next_line(p, i + 1)) n++;
    return n;
}

static int read_points(const Element *line, double (*points)[2], int most)
{
    const char *at = attribute(line, "d");
    int n = 0;
    while (*at) {
        int used = 0;
        assert_true(n < most);
        if (sscanf(at, n ? "L%lf,%lf%n" : "M%lf,%lf%n", &points[n][0], &points[n][1], &used) != 2) fail_msg("%s", at);
        at += used;
        n++;
    }
    return n;
}

static void test_points_are_where_the_axes_say(void **state)
{
    (void)state;
    static const double steps[] = {1, 2, 5, 9, 10, 500}, far[] = {1e6, 1.1e6, 1.5e6, 2e6, 2.5e6, 3e6};
    static const double values[][6] = {{1.25, 0.5, 0.75, -0.3, 2, 0},
                                       {2e-5, 1e-6, 0, 3e-5, 1.7e-5, 5e-5},
                                       {0.0023, 0.0011, 0.0042, 0.0039, 0.002, 0.003},
                                       {48123, 1048, 17, 0, 5000, 22109},
                                       {3e6, 1e7, 2.5e7, 1e5, 9e6, 1.2e7},
                                       {-5e8, 7e8, 1e8, 0, 3e8, -2e8},
                                       {1e-12, 2e-12, 9e-12, 3e-12, 4e-12, 5e-12},
                                       {0.6931, 0.6932, 0.6929, 0.6930, 0.6934, 0.6931},
                                       {5e200, 1e200, 2e200, 3e200, 4e200, 1e199}};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (int variant = 0; variant < 8; variant++) {
            const double *x = variant & 1 ? steps : variant & 2 ? far : NULL, scale = variant & 4 ? 0.25 : 0;
            ChartSeries s = {.name = "loss", .x = x, .y = values[v], .n = 6, .scale = scale};
            Picture p = draw(&(Chart){.title = "Title",
                                      .x_label = "step",
                                      .y_label = "loss",
                                      .series = &s,
                                      .n_series = 1,
                                      .from_zero = variant >= 6});
            Ticks tx = read_ticks(&p, true), ty = read_ticks(&p, false);
            double points[6][2];
            int line = next_line(&p, 0);
            assert_in_range(tx.n, 2, 9);
            assert_in_range(ty.n, 3, 9);
            assert_true(line >= 0);
            assert_int_equal(read_points(&p.m.elements[line], points, 6), 6);
            for (int i = 0; i < 6; i++) {
                double y = place(&ty, values[v][i] * (scale != 0 ? scale : 1)), px = place(&tx, x ? x[i] : i);
                if (fabs(px - points[i][0]) > 0.2 || fabs(y - points[i][1]) > 0.2)
                    fail_msg("values %zu, variant %d: point %d at %g,%g, by the axes %g,%g", v, variant, i,
                             points[i][0], points[i][1], px, y);
            }
            if (variant >= 6) assert_true(ty.value0 <= 0);
            assert_true(ty.at1 < ty.at0); /* up is more */
            picture_free(&p);
        }
}

/* Steps and instrs are counted: no 1.5 on the x axis. */
static void test_whole_steps(void **state)
{
    (void)state;
    static const double y[64];
    double x[64];
    for (int i = 0; i < 64; i++) x[i] = 7 + i;
    for (int n = 1; n <= 64; n++) {
        ChartSeries s = {.x = x, .y = y, .n = n};
        Picture p = draw(&(Chart){.title = "Title", .x_label = "step", .y_label = "loss", .series = &s, .n_series = 1});
        Ticks t = read_ticks(&p, true);
        if (n <= 3) assert_int_equal(t.n, n);
        assert_in_range(t.n, 1, 9);
        double step = t.n > 1 ? (t.value1 - t.value0) / (t.n - 1) : 1;
        assert_true(t.value0 == floor(t.value0) && step == floor(step));
        assert_true(t.value0 >= 7 && t.value1 <= 6 + n);
        picture_free(&p);
    }
}

/* ---- odd series ---- */

static void test_one_point(void **state)
{
    (void)state;
    static const double one[] = {0.7}, zero[] = {0};
    for (int k = 0; k < 2; k++) {
        ChartSeries s = {.name = "none", .y = k ? one : zero, .n = 1};
        Picture p = draw(&(Chart){.title = "Title", .x_label = "step", .y_label = "loss", .series = &s, .n_series = 1});
        Ticks ty = read_ticks(&p, false);
        int dot = markup_find(&p.m, 0, "circle", NULL);
        assert_int_equal(markup_count(&p.m, "circle"), 1);
        assert_int_equal(count_lines(&p), 0);
        assert_true(fabs(number(&p.m.elements[dot], "cy") - place(&ty, *s.y)) < 0.2);
        assert_in_range((long)number(&p.m.elements[dot], "cx"), 300, 600); /* about the middle */
        picture_free(&p);
    }
}

static void test_no_points(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY, NAN};
    static const double x[] = {NAN, INFINITY}, good[] = {1, 2};
    const ChartSeries cases[] = {{.name = "a"},
                                 {.name = "a", .y = bad, .n = 1},
                                 {.name = "a", .y = bad, .n = 4, .filled = true},
                                 {.name = "a", .x = x, .y = good, .n = 2}};
    for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) {
        int n = i < sizeof cases / sizeof *cases;
        Picture p = draw(&(Chart){.title = "Title",
                                  .x_label = "step",
                                  .y_label = "loss",
                                  .series = n ? &cases[i] : NULL,
                                  .n_series = n,
                                  .from_zero = i % 2});
        assert_int_equal(count_lines(&p) + markup_count(&p.m, "circle"), 0);
        assert_true(markup_find(&p.m, 0, "text", "no data") >= 0);
        picture_free(&p);
    }
}

/* A value that is not finite is a gap, neither bridged nor drawn as 0. A single point between gaps is a dot. */
static void test_gaps(void **state)
{
    (void)state;
    static const double y[] = {NAN, 1, 2, NAN, 3, INFINITY, 4, 5, 6, -INFINITY};
    static const int stretches[] = {2, 3};
    ChartSeries s = {.name = "loss", .y = y, .n = 10, .filled = true};
    Picture p = draw(&(Chart){.title = "Title", .x_label = "step", .y_label = "loss", .series = &s, .n_series = 1});
    Ticks tx = read_ticks(&p, true);
    int line = -1, first[] = {1, 6};
    for (int i = 0; i < 2; i++) {
        double points[10][2];
        line = next_line(&p, line + 1);
        assert_true(line >= 0);
        assert_int_equal(read_points(&p.m.elements[line], points, 10), stretches[i]);
        assert_true(fabs(points[0][0] - place(&tx, first[i])) < 0.2);
    }
    assert_int_equal(count_lines(&p), 2);
    assert_int_equal(markup_count(&p.m, "circle"), 1);
    assert_int_equal(markup_find(&p.m, 0, "text", "no data"), -1);
    picture_free(&p);
}

/* None of these may hang, overflow or print NaN. */
static void test_extreme_values(void **state)
{
    (void)state;
    const double pairs[][2] = {{0, 0},
                               {1e17, nextafter(1e17, INFINITY)},
                               {-1e17, nextafter(-1e17, 0)},
                               {1, nextafter(1, 2)},
                               {DBL_MAX, -DBL_MAX},
                               {DBL_MAX, 0},
                               {1e299, -1e299},
                               {0, 5e-324},
                               {DBL_MIN, 2 * DBL_MIN},
                               {-1e-300, 1e-300},
                               {-3, -3},
                               {1e6, 1e6 + 1e-3}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int variant = 0; variant < 4; variant++) {
            double x[2] = {1, 2};
            if (variant & 2 && fabs(pairs[i][0]) == 1e17)
                continue; /* not counts of steps; their labels would be equal */
            if (variant & 2) memcpy(x, pairs[i], sizeof x);
            ChartSeries s = {.name = "a", .x = x, .y = variant & 2 ? (const double[]){1, 2} : pairs[i], .n = 2};
            Picture p = draw(&(Chart){.title = "Title",
                                      .x_label = "step",
                                      .y_label = "loss",
                                      .series = &s,
                                      .n_series = 1,
                                      .from_zero = variant & 1});
            assert_in_range(p.text.len, 500, 20000);
            picture_free(&p);
        }
}

static void test_very_many_points(void **state)
{
    (void)state;
    enum { N = 1000000, SPIKE = 654321, HOLE = 123456 };
    double *y = mem_array(N, sizeof *y), (*points)[2] = mem_array(N, sizeof *points);
    uint64_t seed = 7;
    for (int i = 0; i < N; i++) y[i] = 1 + (double)(testing_random(&seed) >> 11) * 0x1p-53;
    y[SPIKE] = 10; /* a step among 650 of the same pixel */
    y[HOLE] = 0;
    ChartSeries s = {.name = "loss", .y = y, .n = N};
    Picture p = draw(&(Chart){.title = "Title", .x_label = "step", .y_label = "loss", .series = &s, .n_series = 1});
    Ticks tx = read_ticks(&p, true), ty = read_ticks(&p, false);
    assert_in_range(p.text.len, 1000, 60 * 1024);
    int n = read_points(&p.m.elements[next_line(&p, 0)], points, N);
    bool spike = false, hole = false;
    for (int i = 0; i < n; i++) {
        spike |= fabs(points[i][0] - place(&tx, SPIKE)) < 0.2 && fabs(points[i][1] - place(&ty, 10)) < 0.2;
        hole |= fabs(points[i][0] - place(&tx, HOLE)) < 0.2 && fabs(points[i][1] - place(&ty, 0)) < 0.2;
        if (i) assert_true(points[i][0] >= points[i - 1][0]);
    }
    assert_true(spike && hole);
    picture_free(&p);

    for (int i = 0; i < N; i++) /* the worst for size: a gap at every group */
        if (i % 500 == 0) y[i] = NAN;
    s.filled = s.dashed = true;
    p = draw(&(Chart){.title = "Title", .x_label = "step", .y_label = "loss", .series = &s, .n_series = 1});
    assert_in_range(p.text.len, 1000, 400 * 1024);
    picture_free(&p);
    free(y);
    free(points);
}

/* ---- text ---- */

static void test_escaping(void **state)
{
    (void)state;
    Buf out = {0};
    markup_text(&out, "<a b=\"&\">\n\t\x1f");
    assert_string_equal(out.data, "&lt;a b=&quot;&amp;&quot;&gt;\n\t?");
    out.len = 0;
    markup_text(&out, "\xff\xc3\xa4\xc3");
    assert_string_equal(out.data, "\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd");
    buf_free(&out);
    static const char odd[] = "a<b> & \"c\" 'd' ]]> &amp; \x01\x7f \xc3\xa4\xe2\x82\xac";
    static const char shown[] = "a<b> & \"c\" 'd' ]]> &amp; ?\x7f \xc3\xa4\xe2\x82\xac";
    static const double y[] = {1, 2};
    ChartSeries s = {.name = odd, .y = y, .n = 2};
    Picture p = draw(&(Chart){.title = odd, .x_label = odd, .y_label = odd, .series = &s, .n_series = 1, .note = odd});
    int found = 0;
    for (int i = markup_find(&p.m, 0, "text", shown); i >= 0; i = markup_find(&p.m, i + 1, "text", shown)) found++;
    assert_int_equal(found, 5); /* title, note, two axes, legend */
    picture_free(&p);
}

/* The legend has as many rows as it needs. It has all names; `check_texts` checks that they do not overlap. */
static void test_legend_fits(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "lean", "selective", "half-attention", "auto (none×4, selective×8)"};
    static const double y[] = {1, 2};
    double base = 0;
    for (int n = 0; n <= 40; n += n < 10 ? 1 : 10)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            ChartSeries s[40];
            for (int i = 0; i < n; i++) s[i] = (ChartSeries){.name = names[k], .y = y, .n = 2};
            Picture p = draw(&(Chart){.title = "Title",
                                      .x_label = "step",
                                      .y_label = "loss",
                                      .series = s,
                                      .n_series = n,
                                      .from_zero = false});
            int found = 0;
            for (int i = markup_find(&p.m, 0, "text", names[k]); i >= 0;
                 i = markup_find(&p.m, i + 1, "text", names[k])) {
                found++;
                assert_true(number(&p.m.elements[i], "y") < read_ticks(&p, false).at1 - 5); /* above the plot */
            }
            assert_int_equal(found, n);
            Ticks t = read_ticks(&p, false);
            if (n == 0) base = t.at0 - t.at1;
            assert_true(t.at0 - t.at1 == base); /* the plot itself does not shrink */
            picture_free(&p);
        }
}

/* The label of the y axis and the ticks have room beside each other, in a font with digits as wide as DejaVu Sans'. */
static void test_wide_ticks(void **state)
{
    (void)state;
    static const double largest[] = {0.001, 0.00012, 1, 1e5, 999999, 3e7};
    for (size_t k = 0; k < sizeof largest / sizeof *largest; k++)
        for (int width = 380; width <= 860; width += 480) {
            double y[] = {-largest[k], largest[k]};
            ChartSeries s[] = {{.name = "one", .y = y, .n = 2}};
            Picture p = draw(&(Chart){.title = "Title",
                                      .x_label = "step",
                                      .y_label = "learning rate",
                                      .series = s,
                                      .n_series = 1,
                                      .width = width});
            int ticks = 0;
            for (int i = 0; i < p.m.n; i++) {
                const Element *e = &p.m.elements[i];
                if (strcmp(e->name, "text") != 0 || !has(e, "text-anchor", "end")) continue;
                ticks++;
                assert_true(number(e, "x") - 0.6 * 12 * (double)strlen(e->text) > 16 + 4);
            }
            assert_true(ticks > 2);
            picture_free(&p);
        }
}

static void test_long_texts_are_cut(void **state)
{
    (void)state;
    static const double y[] = {1, 2};
    char latin[1000], umlauts[1001];
    memset(latin, 'n', sizeof latin - 1);
    latin[sizeof latin - 1] = 0;
    for (int i = 0; i < 1000; i += 2) memcpy(umlauts + i, "\xc3\xbc", 3);
    for (int k = 0; k < 2; k++) {
        const char *text = k ? umlauts : latin;
        ChartSeries s[] = {{.name = "short", .y = y, .n = 2}, {.name = text, .y = y, .n = 2}, {.y = y, .n = 2}};
        Picture p =
            draw(&(Chart){.title = text, .x_label = text, .y_label = text, .series = s, .n_series = 3, .note = text});
        int cut = 0;
        for (int i = 0; i < p.m.n; i++) {
            const Element *e = &p.m.elements[i];
            size_t len = strlen(e->text);
            if (strcmp(e->name, "text") != 0 || len < 20) continue;
            assert_string_equal(e->text + len - 3, "\xe2\x80\xa6");
            assert_int_equal(strncmp(e->text, text, len - 3), 0);
            assert_in_range(len, 30, 400); /* with some text left */
            cut++;
        }
        assert_int_equal(cut, 5);
        assert_true(markup_find(&p.m, 0, "text", "short") >= 0);
        picture_free(&p);
    }
}

/* ---- styles ---- */

static void test_styles(void **state)
{
    (void)state;
    static const double y[] = {1, 2};
    const ChartSeries s[] = {{.name = "a", .y = y, .n = 2},
                             {.name = "b", .y = y, .n = 2, .dashed = true},
                             {.name = "c", .y = y, .n = 2, .colour = 1, .pale = true, .width = 6},
                             {.name = "", .y = y, .n = 2, .filled = true}};
    Picture p = draw(
        &(Chart){.title = "Title", .x_label = "step", .y_label = "loss", .series = s, .n_series = 4, .note = "a note"});
    const Element *lines[4], *all = p.m.elements;
    int at = -1;
    for (int i = 0; i < 4; i++) {
        at = next_line(&p, at + 1);
        assert_true(at >= 0);
        lines[i] = &all[at];
    }
    assert_null(markup_attribute(lines[0], "stroke-dasharray"));
    assert_non_null(markup_attribute(lines[1], "stroke-dasharray"));
    assert_string_not_equal(attribute(lines[0], "stroke"), attribute(lines[1], "stroke"));
    assert_string_equal(attribute(lines[2], "stroke"), attribute(lines[0], "stroke"));
    assert_true(number(lines[2], "stroke-opacity") < 1 && number(lines[2], "stroke-width") == 6);
    assert_null(markup_attribute(lines[0], "stroke-opacity"));
    assert_non_null(markup_attribute(lines[3] - 1, "fill-opacity")); /* the area lies below its line */
    assert_null(markup_attribute(lines[1] - 1, "fill-opacity"));
    assert_true(markup_find(&p.m, 0, "text", "a note") >= 0);
    int a = markup_find(&p.m, 0, "text", "a"), b = markup_find(&p.m, 0, "text", "b"),
        c = markup_find(&p.m, 0, "text", "c");
    assert_true(a > at && b > a && c > b && markup_find(&p.m, 0, "text", "") < 0);
    assert_string_equal(attribute(&all[b - 1], "stroke"), attribute(lines[1], "stroke")); /* the legend's samples */
    assert_non_null(markup_attribute(&all[b - 1], "stroke-dasharray"));
    assert_non_null(markup_attribute(&all[c - 1], "stroke-opacity"));
    picture_free(&p);
}

/* Where points are few, each has its tick; labels do not touch. Steps that are no whole numbers have none. */
static void test_ticks_at_the_data(void **state)
{
    (void)state;
    static const double sizes[] = {24, 48, 96}, close[] = {1, 2, 4, 8, 16, 1024}, parts[] = {0.5, 1.5, 2.5},
                        y[] = {5, 7, 8, 9, 10, 11};
    ChartSeries s[] = {{.name = "none", .x = sizes, .y = y, .n = 3, .dots = true},
                       {.name = "full", .x = sizes + 1, .y = y, .n = 2, .dots = true}};
    Chart c = {
        .title = "Title", .x_label = "batch-size", .y_label = "speed", .series = s, .n_series = 2, .margin = true};
    c.about = "BERT of 2 layers, length 128";
    Picture p = draw(&c);
    Ticks t = read_ticks(&p, true);
    assert_true(t.n == 3 && t.value0 == 24 && t.value1 == 96);
    assert_true(markup_find(&p.m, 0, "text", "48") >= 0 && markup_find(&p.m, 0, "text", c.about) >= 0);
    picture_free(&p);
    s[0] = (ChartSeries){.x = close, .y = y, .n = 6, .dots = true};
    c.n_series = 1;
    p = draw(&c); /* which checks that no texts overlap */
    assert_true(markup_find(&p.m, 0, "text", "1") >= 0 && markup_find(&p.m, 0, "text", "1024") >= 0);
    assert_int_equal(markup_find(&p.m, 0, "text", "2"), -1);
    picture_free(&p);
    s[0] = (ChartSeries){.x = parts, .y = y, .n = 3, .dots = true};
    p = draw(&c);
    assert_true(markup_find(&p.m, 0, "text", "1") >= 0 && markup_find(&p.m, 0, "text", "1.5") < 0);
    picture_free(&p);
}

/* Two of three curves are equal: their dashes take turns, and the third differs by dashes as well as by its colour. */
static void test_equal_curves_are_both_seen(void **state)
{
    (void)state;
    static const double y[] = {1, 2, 3}, again[] = {1, 2, 3}, other[] = {1, 2, 2.5};
    ChartSeries s[] = {{.name = "a", .y = other, .n = 3, .dots = true},
                       {.name = "b", .y = y, .n = 3, .dots = true},
                       {.name = "c", .y = again, .n = 3, .dots = true}};
    Picture p = draw(&(Chart){.title = "Title", .x_label = "step", .y_label = "loss", .series = s, .n_series = 3});
    int line[3] = {next_line(&p, 0)}, length[2], gap[2], circle[3];
    for (int k = 1; k < 3; k++) line[k] = next_line(&p, line[k - 1] + 1);
    assert_null(markup_attribute(&p.m.elements[line[0]], "stroke-dasharray"));
    for (int k = 0; k < 2; k++)
        assert_int_equal(
            sscanf(attribute(&p.m.elements[line[1 + k]], "stroke-dasharray"), "%d %d", &length[k], &gap[k]), 2);
    assert_true(length[0] == length[1] && gap[0] == gap[1] && gap[0] == 2 * length[0]); /* the third place shows a */
    double first = number(&p.m.elements[line[1]], "stroke-dashoffset"),
           second = number(&p.m.elements[line[2]], "stroke-dashoffset");
    assert_true(first - second == length[0]);
    for (int k = 0; k < 3; k++) /* the first dot of each */
        circle[k] = markup_find(&p.m, k ? line[k - 1] : 0, "circle", NULL);
    double r = number(&p.m.elements[circle[1]], "r");
    assert_true(r > number(&p.m.elements[circle[2]], "r") && r > number(&p.m.elements[circle[0]], "r"));
    picture_free(&p);
    s[1].y = (const double[]){1, 2, 4};
    p = draw(&(Chart){.title = "Title", .x_label = "step", .y_label = "loss", .series = s, .n_series = 3});
    for (int k = 0, at = -1; k < 3; k++) {
        at = next_line(&p, at + 1);
        const char *dashes = markup_attribute(&p.m.elements[at], "stroke-dasharray");
        if (k == 0) assert_null(dashes);
        if (k > 0) assert_string_equal(dashes, k == 1 ? "8 3" : "3 2");
    }
    picture_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_points_are_where_the_axes_say),
        cmocka_unit_test(test_whole_steps),
        cmocka_unit_test(test_one_point),
        cmocka_unit_test(test_no_points),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_extreme_values),
        cmocka_unit_test(test_very_many_points),
        cmocka_unit_test(test_escaping),
        cmocka_unit_test(test_legend_fits),
        cmocka_unit_test(test_wide_ticks),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_styles),
        cmocka_unit_test(test_ticks_at_the_data),
        cmocka_unit_test(test_equal_curves_are_both_seen),
    };
    alarm(300); /* a chart that never ends ends the test */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
