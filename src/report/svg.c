/* Line charts as SVG: axes with round ticks, a legend of as many rows as needed, colours that the colour-blind can
   distinguish. */

#include "report/report.h"

enum { WIDTH = 860, NARROW = 600, BOTTOM = 52, TITLE = 34, LEGEND_ROW = 20, SAMPLE = 28, Y_LABEL = 16, TICK_GAP = 8 };
#define MOST_TICKS 7
#define FONT       12.0

/* Okabe and Ito (2008). */
static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                      "#56B4E9", "#7F7F7F", "#000000", "#B2A300"};
#define N_COLOURS ((int)(sizeof colours / sizeof *colours))

typedef struct {
    double low, high, step;
} Axis;

typedef struct {
    const Chart *chart;
    Axis x, y;
    bool empty;                    /* there is no point to draw */
    int width, left, right, title; /* of the picture, its margins, and the font of its title */
    int top, plot_width, plot_height;
    Buf *out;
} Drawing;

void svg_begin(Buf *out, int width, int height)
{
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
               "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"%.0f\" fill=\"#333\" role=\"img\">\n"
               "<rect width=\"%d\" height=\"%d\" class=\"paper\" fill=\"#fff\"/>\n",
               width, height, width, height, FONT, width, height);
}

/* ---- text ---- */

void markup_text(Buf *out, const char *text)
{
    Buf valid = {0};
    buf_utf8(&valid, text);
    for (const char *s = valid.data; *s; s++) {
        if (*s == '<')
            buf_puts(out, "&lt;");
        else if (*s == '>')
            buf_puts(out, "&gt;");
        else if (*s == '&')
            buf_puts(out, "&amp;");
        else if (*s == '"')
            buf_puts(out, "&quot;");
        else if ((unsigned char)*s < 0x20 && *s != '\n' && *s != '\t')
            buf_puts(out, "?"); /* XML has no way to write these */
        else
            buf_append(out, s, 1);
    }
    buf_free(&valid);
}

static double letter_width(unsigned char c)
{
    if (c >= 0xc0) return 1.0; /* first byte of a character beyond ASCII */
    if (c >= 0x80) return 0;
    if (strchr("mwMW@%", c)) return 1.0;
    if (strchr("ijlI.,:;'|!()[]", c)) return 0.42;
    return c >= 'A' && c <= 'Z' ? 0.74 : 0.64;
}

double markup_text_width(const char *s, double size)
{
    double sum = 0;
    for (; *s; s++) sum += letter_width((unsigned char)*s) * size;
    return sum;
}

/* `s`, or as much of it as fits with an ellipsis behind it. */
static void put_fitting(Buf *out, const char *s, double size, double room)
{
    size_t len = 0;
    if (markup_text_width(s, size) <= room) {
        markup_text(out, s);
        return;
    }
    for (double sum = size; s[len]; len++) {
        sum += letter_width((unsigned char)s[len]) * size;
        if (sum > room) break;
    }
    char *head = mem_strndup(s, len); /* whole characters: their later bytes have no width */
    markup_text(out, head);
    buf_puts(out, "\xe2\x80\xa6");
    free(head);
}

/* ---- axes ---- */

static double y_of(const ChartSeries *s, int i) { return s->y[i] * (s->scale != 0 ? s->scale : 1); }
static double x_of(const ChartSeries *s, int i) { return s->x ? s->x[i] : (double)i; }

/* Can be drawn: finite, and far enough from the largest number that differences are finite too. */
static bool drawable(const ChartSeries *s, int i) { return fabs(y_of(s, i)) < 1e300 && fabs(x_of(s, i)) < 1e300; }

/* At most `most` steps of 1, 2, 2.5 or 5 times a power of ten; `whole`: no fractions, high - low is at least 1. */
static Axis make_axis(double low, double high, bool whole, int most)
{
    static const double factors[] = {1, 2, 2.5, 5, 10, 20};
    double largest = fmax(fabs(low), fabs(high));
    if (!whole && high - low < fmax(1e-6 * largest, 1e-290)) { /* flat, but for rounding */
        double margin = largest > 1e-290 ? largest / 2 : 0.5;
        low -= margin;
        high += margin;
    }
    double power = pow(10, floor(log10((high - low) / most)));
    if (whole) power = fmax(power, 1);
    Axis a = {0};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        double step = factors[i] * power;
        if (whole && step != floor(step)) continue;
        double first = floor(low / step + 1e-9), last = ceil(high / step - 1e-9);
        a = (Axis){first * step, last * step, step};
        if (last - first <= most) break;
    }
    return a;
}

static void make_axes(Drawing *d)
{
    const Chart *c = d->chart;
    double x0 = INFINITY, x1 = -INFINITY, y0 = INFINITY, y1 = -INFINITY;
    for (int k = 0; k < c->n_series; k++)
        for (int i = 0; i < c->series[k].n; i++) {
            if (!drawable(&c->series[k], i)) continue;
            double x = x_of(&c->series[k], i), y = y_of(&c->series[k], i);
            x0 = fmin(x0, x);
            x1 = fmax(x1, x);
            y0 = fmin(y0, y);
            y1 = fmax(y1, y);
        }
    d->empty = !isfinite(y0);
    if (d->empty) x0 = y0 = 0, x1 = y1 = 1;
    if (c->from_zero) y0 = fmin(0, y0), y1 = fmax(0, y1);
    d->y = make_axis(y0, y1, false, MOST_TICKS);
    if (c->from_zero_x) x0 = fmin(0, x0);
    if (c->fractions ? !(x1 > x0) : x1 - x0 < 1) { /* a single step */
        x0 -= 0.5;
        x1 = fmax(x0 + 1, nextafter(x0, INFINITY));
    }
    if (c->margin) { /* points alone must not lie on the frame */
        double m = (x1 - x0) / 30;
        x0 -= m;
        x1 += m;
    }
    d->x = make_axis(x0, x1, !c->fractions, d->width < NARROW ? MOST_TICKS - 3 : MOST_TICKS);
    d->x.low = x0; /* no empty margin at the sides */
    d->x.high = x1;
}

static double place_x(const Drawing *d, double v)
{
    return d->left + (v - d->x.low) / (d->x.high - d->x.low) * d->plot_width;
}
static double place_y(const Drawing *d, double v)
{
    return d->top + d->plot_height - (v - d->y.low) / (d->y.high - d->y.low) * d->plot_height;
}

/* All ticks of an axis with the same decimals and the same power of ten: 0.5e-5, 1.0e-5 … */
static void put_tick(Buf *out, const Axis *a, double v)
{
    double largest = fmax(fabs(a->low), fabs(a->high));
    int exponent = largest >= 1e6 || (largest > 0 && largest < 1e-3) ? (int)floor(log10(largest) + 1e-9) : 0;
    double unit = pow(10, exponent), step = a->step / unit;
    int decimals = 0;
    while (decimals < 9 && fabs(step - round(step)) > 1e-6 * step) {
        step *= 10;
        decimals++;
    }
    if (fabs(v) < a->step / 1e3) {
        buf_puts(out, "0");
        return;
    }
    buf_printf(out, "%.*f", decimals, v / unit);
    if (exponent) buf_printf(out, "e%d", exponent);
}

/* The margin at the left has room for the label of the y axis and its widest tick. */
static void widen_margin(Drawing *d)
{
    int n = (int)((d->y.high - d->y.low) / d->y.step + 0.5);
    for (int i = 0; i <= n; i++) {
        Buf tick = {0};
        put_tick(&tick, &d->y, d->y.low + i * d->y.step);
        int wanted = Y_LABEL + 8 + (int)ceil(markup_text_width(tick.data, FONT)) + TICK_GAP;
        if (wanted > d->left) d->left = wanted;
        buf_free(&tick);
    }
}

static void put_axes(const Drawing *d)
{
    Buf *out = d->out;
    int floor_y = d->top + d->plot_height, middle = d->top + d->plot_height / 2;
    int n = (int)((d->y.high - d->y.low) / d->y.step + 0.5);
    for (int i = 0; i <= n; i++) {
        double v = d->y.low + i * d->y.step, at = place_y(d, v);
        buf_printf(
            out,
            "<path d=\"M%d,%.1fH%d\" class=\"grid\" stroke=\"#ddd\"/>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
            d->left, at, d->width - d->right, d->left - TICK_GAP, at + 4);
        put_tick(out, &d->y, v);
        buf_puts(out, "</text>\n");
    }
    double first = ceil(d->x.low / d->x.step - 1e-9) * d->x.step;
    n = (int)floor((d->x.high - first) / d->x.step + 1e-6);
    for (int i = 0; i <= n; i++) {
        double v = first + i * d->x.step, at = place_x(d, v);
        buf_printf(out, "<path d=\"M%.1f,%dv5\" stroke=\"#888\"/>\n<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                   at, floor_y, at, floor_y + 20);
        put_tick(out, &d->x, v);
        buf_puts(out, "</text>\n");
    }
    buf_printf(out, "<path d=\"M%d,%dH%d\" stroke=\"#888\"/>\n", d->left, floor_y, d->width - d->right);
    buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", d->left + d->plot_width / 2, floor_y + 42);
    put_fitting(out, d->chart->x_label, FONT, d->plot_width);
    buf_printf(out, "</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 %d %d)\">", Y_LABEL,
               middle, Y_LABEL, middle);
    put_fitting(out, d->chart->y_label, FONT, d->plot_height);
    buf_puts(out, "</text>\n");
    if (d->empty)
        buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#888\">no data</text>\n",
                   d->left + d->plot_width / 2, middle);
}

/* ---- series ---- */

typedef struct {
    double x, y; /* in the picture; y NaN: the line breaks here */
} Point;

/* One group of points per half a pixel is enough. Of each group the lowest and the highest point are drawn. */
static int thin(const Drawing *d, const ChartSeries *s, Point *points) // (3 per group)
{
    int groups = 2 * d->plot_width / (1 + d->chart->n_series / 8), per_group = s->n / groups + 1, n = 0;
    for (int start = 0; start < s->n; start += per_group) {
        int low = -1, high = -1;
        bool gap = false;
        for (int i = start; i < start + per_group && i < s->n; i++) {
            if (!drawable(s, i)) {
                gap = true;
                continue;
            }
            if (low < 0 || y_of(s, i) < y_of(s, low)) low = i;
            if (high < 0 || y_of(s, i) > y_of(s, high)) high = i;
        }
        int first = low < high ? low : high, second = low < high ? high : low;
        if (first >= 0) points[n++] = (Point){place_x(d, x_of(s, first)), place_y(d, y_of(s, first))};
        if (second != first) points[n++] = (Point){place_x(d, x_of(s, second)), place_y(d, y_of(s, second))};
        if (gap) points[n++] = (Point){0, NAN};
    }
    return n;
}

static int colour_of(const Drawing *d, int k)
{
    int chosen = d->chart->series[k].colour;
    return (chosen ? chosen - 1 : k) % N_COLOURS;
}

static void put_dot(const Drawing *d, int k, Point p, double radius)
{
    int colour = colour_of(d, k);
    buf_printf(d->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"f%d\" fill=\"%s\"/>\n", p.x, p.y, radius,
               colour, colours[colour]);
}

static void put_stroke(const Drawing *d, int k)
{
    const ChartSeries *s = &d->chart->series[k];
    buf_printf(d->out, " class=\"c%d\" stroke=\"%s\" stroke-width=\"%.1f\"", colour_of(d, k), colours[colour_of(d, k)],
               s->width > 0 ? s->width : 1.8);
    if (s->pale) buf_puts(d->out, " stroke-opacity=\"0.4\"");
    if (s->dashed) buf_puts(d->out, " stroke-dasharray=\"6 4\"");
}

static void put_line(Buf *out, const Point *p, int n)
{
    for (int i = 0; i < n; i++) buf_printf(out, "%c%.1f,%.1f", i ? 'L' : 'M', p[i].x, p[i].y);
}

/* Points without a gap between them. */
static void put_stretch(const Drawing *d, int k, const Point *p, int n)
{
    const ChartSeries *s = &d->chart->series[k];
    if (n == 1) {
        put_dot(d, k, *p, 2.5);
        return;
    }
    if (s->filled) {
        buf_puts(d->out, "<path d=\"");
        put_line(d->out, p, n);
        buf_printf(d->out, "V%dH%.1fZ\" class=\"f%d\" fill=\"%s\" fill-opacity=\"0.12\"/>\n", d->top + d->plot_height,
                   p->x, colour_of(d, k), colours[colour_of(d, k)]);
    }
    buf_puts(d->out, "<path d=\"");
    put_line(d->out, p, n);
    buf_puts(d->out, "\" fill=\"none\"");
    put_stroke(d, k);
    buf_puts(d->out, " stroke-linejoin=\"round\"/>\n");
}

static void put_series(const Drawing *d, int k)
{
    const ChartSeries *s = &d->chart->series[k];
    for (int i = 0; i < s->n; i++)
        if (drawable(s, i) && (s->dots || s->mark == i + 1))
            put_dot(d, k, (Point){place_x(d, x_of(s, i)), place_y(d, y_of(s, i))}, s->mark ? 4.5 : 3.5);
    if (s->dots && s->unjoined) return;
    Point *points = mem_array(3 * (2 * (size_t)d->plot_width + 1), sizeof *points);
    int n = thin(d, s, points), start = 0;
    for (int i = 0; i <= n; i++)
        if (i == n || isnan(points[i].y)) {
            if (i > start) put_stretch(d, k, points + start, i - start);
            start = i + 1;
        }
    free(points);
}

/* ---- the whole ---- */

/* Draws the legend, which leaves out series without a name, unless `out` is NULL. Returns its number of rows. */
static int put_legend(const Drawing *d, Buf *out)
{
    double at = d->left;
    int row = 0, drawn = 0;
    for (int k = 0; k < d->chart->n_series; k++) {
        const char *name = d->chart->series[k].name;
        if (!name || !*name) continue;
        double room = fmin(markup_text_width(name, FONT), d->plot_width - SAMPLE);
        if (drawn && at + SAMPLE + room > d->width - d->right) {
            at = d->left;
            row++;
        }
        if (out) {
            int y = TITLE + 10 + row * LEGEND_ROW;
            buf_printf(out, "<path d=\"M%.0f,%dh22\"", at, y);
            put_stroke(d, k);
            buf_printf(out, "/>\n<text x=\"%.0f\" y=\"%d\">", at + SAMPLE, y + 4);
            put_fitting(out, name, FONT, d->plot_width - SAMPLE);
            buf_puts(out, "</text>\n");
        }
        at += SAMPLE + room + 18;
        drawn++;
    }
    return row + (drawn > 0);
}

void chart_svg(const Chart *c, Buf *out)
{
    int width = c->width ? c->width : WIDTH;
    bool narrow = width < NARROW;
    Drawing d = {.chart = c,
                 .out = out,
                 .width = width,
                 .left = narrow ? 66 : 78,
                 .right = narrow ? 14 : 28,
                 .title = narrow ? 14 : 16,
                 .plot_height = narrow ? 240 : 302};
    make_axes(&d);
    widen_margin(&d);
    d.plot_width = width - d.left - d.right;
    d.top = TITLE + put_legend(&d, NULL) * LEGEND_ROW + 12;
    int height = d.top + d.plot_height + BOTTOM, title_x = narrow ? 14 : d.left;
    double room = width - title_x - d.right, note = c->note ? fmin(markup_text_width(c->note, FONT), room / 2) : 0;
    if (narrow && markup_text_width(c->title, d.title * 1.08) + note + 20 > room) note = 0; /* the title comes first */
    svg_begin(out, width, height);
    buf_printf(out, "<text x=\"%d\" y=\"24\" font-size=\"%d\" font-weight=\"bold\">", title_x, d.title);
    put_fitting(out, c->title, d.title * 1.08, room - note - 20); /* bold is wider */
    buf_puts(out, "</text>\n");
    if (note > 0) {
        buf_printf(out, "<text x=\"%d\" y=\"24\" text-anchor=\"end\" class=\"note\" fill=\"#666\">", width - d.right);
        put_fitting(out, c->note, FONT, room / 2);
        buf_puts(out, "</text>\n");
    }
    put_axes(&d);
    for (int k = 0; k < c->n_series; k++) put_series(&d, k);
    put_legend(&d, out);
    buf_puts(out, "</svg>\n");
}
