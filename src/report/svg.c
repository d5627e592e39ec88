/* Line charts as SVG: axes with round ticks, a legend below the title that takes the rows it needs, colours that can be
   told apart by the colour-blind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

enum { WIDTH = 860, LEFT = 78, RIGHT = 28, PLOT_HEIGHT = 302, BOTTOM = 52, TITLE = 34, LEGEND_ROW = 20, SAMPLE = 28 };
#define PLOT_WIDTH (WIDTH - LEFT - RIGHT)
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
    bool empty; /* there is no point to draw */
    int top;    /* of the plot */
    Buf *out;
} Drawing;

/* ---- text ---- */

void markup_text(Buf *out, const char *s)
{
    for (; *s; s++) {
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
}

/* About as wide as the wider of the usual sans-serif fonts draw it; never too small by much. */
static double letter_width(unsigned char c)
{
    if (c >= 0xc0) return 1.0; /* first byte of a character beyond ASCII */
    if (c >= 0x80) return 0;
    if (strchr("mwMW@%", c)) return 1.0;
    if (strchr("ijlI.,:;'|!()[]", c)) return 0.42;
    return c >= 'A' && c <= 'Z' ? 0.74 : 0.64;
}

static double text_width(const char *s, double size)
{
    double sum = 0;
    for (; *s; s++) sum += letter_width((unsigned char)*s) * size;
    return sum;
}

/* `s`, or as much of it as fits with an ellipsis behind it. */
static void put_fitting(Buf *out, const char *s, double size, double room)
{
    size_t len = 0;
    if (text_width(s, size) <= room) {
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

/* At most seven steps of 1, 2, 2.5 or 5 times a power of ten; `whole`: no fractions, high - low is at least 1. */
static Axis make_axis(double low, double high, bool whole)
{
    static const double factors[] = {1, 2, 2.5, 5, 10, 20};
    double largest = fmax(fabs(low), fabs(high));
    if (!whole && high - low < fmax(1e-6 * largest, 1e-290)) { /* flat, but for rounding */
        double margin = largest > 1e-290 ? largest / 2 : 0.5;
        low -= margin;
        high += margin;
    }
    double power = pow(10, floor(log10((high - low) / MOST_TICKS)));
    if (whole) power = fmax(power, 1);
    Axis a = {0};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        double step = factors[i] * power;
        if (whole && step != floor(step)) continue;
        double first = floor(low / step + 1e-9), last = ceil(high / step - 1e-9);
        a = (Axis){first * step, last * step, step};
        if (last - first <= MOST_TICKS) break;
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
    d->y = make_axis(y0, y1, false);
    if (x1 - x0 < 1) { /* a single step */
        x0 -= 0.5;
        x1 = fmax(x0 + 1, nextafter(x0, INFINITY));
    }
    d->x = make_axis(x0, x1, true);
    d->x.low = x0; /* no empty margin at the sides */
    d->x.high = x1;
}

static double place_x(const Drawing *d, double v)
{
    return LEFT + (v - d->x.low) / (d->x.high - d->x.low) * PLOT_WIDTH;
}
static double place_y(const Drawing *d, double v)
{
    return d->top + PLOT_HEIGHT - (v - d->y.low) / (d->y.high - d->y.low) * PLOT_HEIGHT;
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

static void put_axes(const Drawing *d)
{
    Buf *out = d->out;
    int floor_y = d->top + PLOT_HEIGHT, middle = d->top + PLOT_HEIGHT / 2;
    int n = (int)((d->y.high - d->y.low) / d->y.step + 0.5);
    for (int i = 0; i <= n; i++) {
        double v = d->y.low + i * d->y.step, at = place_y(d, v);
        buf_printf(out, "<path d=\"M%d,%.1fH%d\" stroke=\"#ddd\"/>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                   LEFT, at, WIDTH - RIGHT, LEFT - 8, at + 4);
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
    buf_printf(out, "<path d=\"M%d,%dH%d\" stroke=\"#888\"/>\n", LEFT, floor_y, WIDTH - RIGHT);
    buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", LEFT + PLOT_WIDTH / 2, floor_y + 42);
    put_fitting(out, d->chart->x_label, FONT, PLOT_WIDTH);
    buf_printf(out, "</text>\n<text x=\"16\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 16 %d)\">", middle,
               middle);
    put_fitting(out, d->chart->y_label, FONT, PLOT_HEIGHT);
    buf_puts(out, "</text>\n");
    if (d->empty)
        buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#888\">no data</text>\n",
                   LEFT + PLOT_WIDTH / 2, middle);
}

/* ---- series ---- */

typedef struct {
    double x, y; /* in the picture; y NaN: the line breaks here */
} Point;

/* One point per half a pixel is enough: of the points that fall together the lowest and the highest are drawn. */
static int thin(const Drawing *d, const ChartSeries *s, Point *points) // (3 per group)
{
    int per_group = s->n / (2 * PLOT_WIDTH) + 1, n = 0;
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

static const char *colour_of(const Drawing *d, int k)
{
    int chosen = d->chart->series[k].colour;
    return colours[(chosen ? chosen - 1 : k) % N_COLOURS];
}

static void put_stroke(const Drawing *d, int k)
{
    const ChartSeries *s = &d->chart->series[k];
    buf_printf(d->out, " stroke=\"%s\" stroke-width=\"%.1f\"", colour_of(d, k), s->width > 0 ? s->width : 1.8);
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
        buf_printf(d->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", p->x, p->y, colour_of(d, k));
        return;
    }
    if (s->filled) {
        buf_puts(d->out, "<path d=\"");
        put_line(d->out, p, n);
        buf_printf(d->out, "V%dH%.1fZ\" fill=\"%s\" fill-opacity=\"0.12\"/>\n", d->top + PLOT_HEIGHT, p->x,
                   colour_of(d, k));
    }
    buf_puts(d->out, "<path d=\"");
    put_line(d->out, p, n);
    buf_puts(d->out, "\" fill=\"none\"");
    put_stroke(d, k);
    buf_puts(d->out, " stroke-linejoin=\"round\"/>\n");
}

static void put_series(const Drawing *d, int k)
{
    Point *points = mem_array(3 * (2 * PLOT_WIDTH + 1), sizeof *points);
    int n = thin(d, &d->chart->series[k], points), start = 0;
    for (int i = 0; i <= n; i++)
        if (i == n || isnan(points[i].y)) {
            if (i > start) put_stretch(d, k, points + start, i - start);
            start = i + 1;
        }
    free(points);
}

/* ---- the whole ---- */

/* The rows that it takes; with `out` not NULL it is drawn. Series without a name are not in it. */
static int legend(const Drawing *d, Buf *out)
{
    double at = LEFT;
    int row = 0, drawn = 0;
    for (int k = 0; k < d->chart->n_series; k++) {
        const char *name = d->chart->series[k].name;
        if (!name || !*name) continue;
        double room = fmin(text_width(name, FONT), PLOT_WIDTH - SAMPLE);
        if (drawn && at + SAMPLE + room > WIDTH - RIGHT) {
            at = LEFT;
            row++;
        }
        if (out) {
            int y = TITLE + 10 + row * LEGEND_ROW;
            buf_printf(out, "<path d=\"M%.0f,%dh22\"", at, y);
            put_stroke(d, k);
            buf_printf(out, "/>\n<text x=\"%.0f\" y=\"%d\">", at + SAMPLE, y + 4);
            put_fitting(out, name, FONT, PLOT_WIDTH - SAMPLE);
            buf_puts(out, "</text>\n");
        }
        at += SAMPLE + room + 18;
        drawn++;
    }
    return row + (drawn > 0);
}

void chart_svg(const Chart *c, Buf *out)
{
    Drawing d = {.chart = c, .out = out};
    make_axes(&d);
    d.top = TITLE + legend(&d, NULL) * LEGEND_ROW + 12;
    int height = d.top + PLOT_HEIGHT + BOTTOM;
    double note = c->note ? fmin(text_width(c->note, FONT), PLOT_WIDTH / 2) : 0;
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
               "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"%.0f\" fill=\"#333\" role=\"img\">\n"
               "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
               "<text x=\"%d\" y=\"24\" font-size=\"16\" font-weight=\"bold\">",
               WIDTH, height, WIDTH, height, FONT, WIDTH, height, LEFT);
    put_fitting(out, c->title, 16 * 1.08, PLOT_WIDTH - note - 20); /* bold is wider */
    buf_puts(out, "</text>\n");
    if (c->note) {
        buf_printf(out, "<text x=\"%d\" y=\"24\" text-anchor=\"end\" fill=\"#666\">", WIDTH - RIGHT);
        put_fitting(out, c->note, FONT, PLOT_WIDTH / 2);
        buf_puts(out, "</text>\n");
    }
    put_axes(&d);
    for (int k = 0; k < c->n_series; k++) put_series(&d, k);
    legend(&d, out);
    buf_puts(out, "</svg>\n");
}
