/* Line charts as SVG: axes with round ticks, a legend below the title, colours that can be told apart by the
 * colour-blind. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/observe.h"

enum { WIDTH = 860, HEIGHT = 420, LEFT = 78, RIGHT = 20, TOP = 66, BOTTOM = 52 };

/* Okabe and Ito (2008). */
static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                      "#56B4E9", "#7F7F7F", "#000000", "#B2A300"};
#define N_COLOURS ((int)(sizeof colours / sizeof *colours))

typedef struct {
    double low, high, step;
} Axis;

static void put_text(Buf *out, const char *s)
{
    for (; *s; s++) {
        if (*s == '<')
            buf_puts(out, "&lt;");
        else if (*s == '>')
            buf_puts(out, "&gt;");
        else if (*s == '&')
            buf_puts(out, "&amp;");
        else
            buf_append(out, s, 1);
    }
}

/* About five steps of 1, 2 or 5 times a power of ten. */
static Axis make_axis(double low, double high)
{
    if (!(high > low)) high = low + (low != 0 ? fabs(low) : 1);
    double rough = (high - low) / 5, power = pow(10, floor(log10(rough))), digit = rough / power;
    double step = power * (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10);
    return (Axis){floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step, step};
}

static double y_of(const ChartSeries *s, int i) { return s->y[i] * (s->scale != 0 ? s->scale : 1); }
static double x_of(const ChartSeries *s, int i) { return s->x ? s->x[i] : (double)i; }

static void ranges(const Chart *c, Axis *x, Axis *y)
{
    double x0 = INFINITY, x1 = -INFINITY, y0 = INFINITY, y1 = -INFINITY;
    for (int k = 0; k < c->n_series; k++)
        for (int i = 0; i < c->series[k].n; i++) {
            double px = x_of(&c->series[k], i), py = y_of(&c->series[k], i);
            if (!isfinite(py)) continue;
            x0 = fmin(x0, px);
            x1 = fmax(x1, px);
            y0 = fmin(y0, py);
            y1 = fmax(y1, py);
        }
    if (!isfinite(y0)) x0 = y0 = 0, x1 = y1 = 1;
    if (c->from_zero) y0 = fmin(0, y0);
    *x = make_axis(x0, x1);
    x->low = x0; /* no empty margin at the sides */
    x->high = x1 > x0 ? x1 : x0 + 1;
    *y = make_axis(y0, y1);
}

static double place_x(const Axis *a, double v)
{
    return LEFT + (v - a->low) / (a->high - a->low) * (WIDTH - LEFT - RIGHT);
}
static double place_y(const Axis *a, double v)
{
    return HEIGHT - BOTTOM - (v - a->low) / (a->high - a->low) * (HEIGHT - TOP - BOTTOM);
}

static void put_axes(const Chart *c, const Axis *x, const Axis *y, Buf *out)
{
    for (double v = y->low; v <= y->high + y->step / 2; v += y->step) {
        double at = place_y(y, v);
        buf_printf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT, at,
                   WIDTH - RIGHT, at);
        buf_printf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8, at + 4,
                   fabs(v) < y->step / 1e6 ? 0 : v);
    }
    for (double v = ceil(x->low / x->step) * x->step; v <= x->high + x->step * 1e-6; v += x->step) {
        double at = place_x(x, v);
        buf_printf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#888\"/>\n", at, HEIGHT - BOTTOM,
                   at, HEIGHT - BOTTOM + 5);
        buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", at, HEIGHT - BOTTOM + 20, v);
    }
    buf_printf(out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#888\"/>\n", LEFT, HEIGHT - BOTTOM,
               WIDTH - RIGHT, HEIGHT - BOTTOM);
    buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
    put_text(out, c->x_label);
    buf_printf(out, "</text>\n<text x=\"16\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 16 %d)\">",
               (TOP + HEIGHT - BOTTOM) / 2, (TOP + HEIGHT - BOTTOM) / 2);
    put_text(out, c->y_label);
    buf_puts(out, "</text>\n");
}

/* One point per pixel column is enough: of the points that fall together the lowest and the highest are drawn. */
static void put_series(const ChartSeries *s, int index, const Axis *x, const Axis *y, Buf *out)
{
    int per_column = s->n / (2 * (WIDTH - LEFT - RIGHT)) + 1;
    buf_puts(out, "<polyline points=\"");
    for (int i = 0; i < s->n; i += per_column) {
        int low = i, high = i;
        for (int j = i; j < i + per_column && j < s->n; j++) {
            if (y_of(s, j) < y_of(s, low)) low = j;
            if (y_of(s, j) > y_of(s, high)) high = j;
        }
        int first = low < high ? low : high, second = low < high ? high : low;
        if (isfinite(y_of(s, first)))
            buf_printf(out, "%.1f,%.1f ", place_x(x, x_of(s, first)), place_y(y, y_of(s, first)));
        if (second != first && isfinite(y_of(s, second)))
            buf_printf(out, "%.1f,%.1f ", place_x(x, x_of(s, second)), place_y(y, y_of(s, second)));
    }
    buf_printf(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" stroke-linejoin=\"round\"%s/>\n",
               colours[index % N_COLOURS], s->dashed ? " stroke-dasharray=\"6 4\"" : "");
}

static void put_legend(const Chart *c, Buf *out)
{
    double at = LEFT;
    for (int k = 0; k < c->n_series; k++) {
        buf_printf(out, "<line x1=\"%.0f\" y1=\"44\" x2=\"%.0f\" y2=\"44\" stroke=\"%s\" stroke-width=\"3\"%s/>\n", at,
                   at + 22, colours[k % N_COLOURS], c->series[k].dashed ? " stroke-dasharray=\"6 4\"" : "");
        buf_printf(out, "<text x=\"%.0f\" y=\"48\">", at + 28);
        put_text(out, c->series[k].name);
        buf_puts(out, "</text>\n");
        at += 28 + 7.2 * (double)strlen(c->series[k].name) + 20;
    }
}

void chart_svg(const Chart *c, Buf *out)
{
    Axis x, y;
    ranges(c, &x, &y);
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
               "font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n"
               "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"24\" font-size=\"16\" "
               "font-weight=\"bold\">",
               WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    put_text(out, c->title);
    buf_puts(out, "</text>\n");
    put_axes(c, &x, &y, out);
    for (int k = 0; k < c->n_series; k++) put_series(&c->series[k], k, &x, &y, out);
    put_legend(c, out);
    buf_puts(out, "</svg>\n");
}
