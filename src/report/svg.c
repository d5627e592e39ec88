/* Line charts as SVG: axes with round ticks, a legend of as many rows as needed, colours that the colour-blind can
   distinguish. */

#include "report/chart_internal.h"

enum {
    WIDTH = 860,
    NARROW = 600,
    BOTTOM = 52,
    TITLE = 34,
    ABOUT = 18,
    LEGEND_ROW = 20,
    SAMPLE = 28,
    Y_LABEL = 16,
    TICK_GAP = 8
};
#define MOST_TICKS 7
#define FONT       12.0

void svg_begin(Buf *out, int width, int height)
{
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
               "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"%.0f\" fill=\"#333\" role=\"img\">\n"
               "<rect width=\"%d\" height=\"%d\" class=\"paper\" fill=\"#fff\"/>\n",
               width, height, width, height, FONT, width, height);
}

/* ---- axes ---- */

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

/* Puts the places of the dots, if they are few, into `ticks` in ascending order. Returns their count. */
static int data_ticks(const Chart *c, double ticks[MOST_DATA_TICKS])
{
    int n = 0;
    for (int k = 0; k < c->n_series; k++)
        for (int i = 0; i < c->series[k].n; i++) {
            double x = x_of(&c->series[k], i);
            int at = 0;
            if (!drawable(&c->series[k], i)) continue;
            while (at < n && ticks[at] < x) at++;
            if (at < n && ticks[at] == x) continue;
            if (!c->series[k].dots || n == MOST_DATA_TICKS || (!c->fractions && x != floor(x))) return 0;
            memmove(ticks + at + 1, ticks + at, (size_t)(n - at) * sizeof *ticks);
            ticks[at] = x;
            n++;
        }
    return n;
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
    d->n_ticks = data_ticks(c, d->ticks);
    d->x.low = x0; /* no empty margin at the sides */
    d->x.high = x1;
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

/* A tick has no label where it would touch the one before it, which ends at `end`. */
static void put_x_ticks(const Drawing *d, int floor_y)
{
    double first = ceil(d->x.low / d->x.step - 1e-9) * d->x.step, end = -INFINITY;
    int n = d->n_ticks ? d->n_ticks : 1 + (int)floor((d->x.high - first) / d->x.step + 1e-6);
    for (int i = 0; i < n; i++) {
        Buf label = {0};
        double v = d->n_ticks ? d->ticks[i] : first + i * d->x.step, at = place_x(d, v);
        if (d->n_ticks)
            buf_printf(&label, "%.10g", v);
        else
            put_tick(&label, &d->x, v);
        double half = markup_text_width(label.data, FONT) / 2;
        buf_printf(d->out, "<path d=\"M%.1f,%dv5\" stroke=\"#888\"/>\n", at, floor_y);
        if (at - half >= end) {
            buf_printf(d->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", at, floor_y + 20,
                       label.data);
            end = at + half;
        }
        buf_free(&label);
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
    put_x_ticks(d, floor_y);
    buf_printf(out, "<path d=\"M%d,%dH%d\" stroke=\"#888\"/>\n", d->left, floor_y, d->width - d->right);
    buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", d->left + d->plot_width / 2, floor_y + 42);
    markup_fitting(out, d->chart->x_label, FONT, d->plot_width);
    buf_printf(out, "</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" transform=\"rotate(-90 %d %d)\">", Y_LABEL,
               middle, Y_LABEL, middle);
    markup_fitting(out, d->chart->y_label, FONT, d->plot_height);
    buf_puts(out, "</text>\n");
    if (d->empty)
        buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#888\">no data</text>\n",
                   d->left + d->plot_width / 2, middle);
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
            int y = d->legend + 10 + row * LEGEND_ROW;
            chart_put_sample(d, k, at, y);
            buf_printf(out, "<text x=\"%.0f\" y=\"%d\">", at + SAMPLE, y + 4);
            markup_fitting(out, name, FONT, d->plot_width - SAMPLE);
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
    bool narrow = width < NARROW, about = c->about && *c->about;
    Drawing d = {.chart = c,
                 .out = out,
                 .width = width,
                 .left = narrow ? 66 : 78,
                 .right = narrow ? 14 : 28,
                 .title = narrow ? 14 : 16,
                 .plot_height = narrow ? 240 : 302};
    make_axes(&d);
    chart_find_turns(&d);
    widen_margin(&d);
    d.plot_width = width - d.left - d.right;
    d.legend = about ? TITLE + ABOUT : TITLE;
    d.top = d.legend + put_legend(&d, NULL) * LEGEND_ROW + 12;
    int height = d.top + d.plot_height + BOTTOM, title_x = narrow ? 14 : d.left;
    double room = width - title_x - d.right, note = c->note ? fmin(markup_text_width(c->note, FONT), room / 2) : 0;
    if (narrow && markup_text_width(c->title, d.title * 1.08) + note + 20 > room) note = 0; /* the title comes first */
    svg_begin(out, width, height);
    buf_printf(out, "<text x=\"%d\" y=\"24\" font-size=\"%d\" font-weight=\"bold\">", title_x, d.title);
    markup_fitting(out, c->title, d.title * 1.08, room - note - 20); /* bold is wider */
    buf_puts(out, "</text>\n");
    if (note > 0) {
        buf_printf(out, "<text x=\"%d\" y=\"24\" text-anchor=\"end\" class=\"note\" fill=\"#666\">", width - d.right);
        markup_fitting(out, c->note, FONT, room / 2);
        buf_puts(out, "</text>\n");
    }
    if (about) {
        buf_printf(out, "<text x=\"%d\" y=\"%d\" class=\"note\" fill=\"#666\">", title_x, 24 + ABOUT);
        markup_fitting(out, c->about, FONT, width - title_x - d.right);
        buf_puts(out, "</text>\n");
    }
    put_axes(&d);
    for (int k = 0; k < c->n_series; k++) chart_put_series(&d, k);
    put_legend(&d, out);
    buf_puts(out, "</svg>\n");
    free(d.turns);
}
