/* The lines and dots of a chart, and how series are told apart. */
#include "report/chart_internal.h"

/* Okabe and Ito (2008). */
static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                      "#56B4E9", "#7F7F7F", "#000000", "#B2A300"};
#define N_COLOURS ((int)(sizeof colours / sizeof *colours))
/* Without a common factor with the colours, so that each of 45 series looks different. */
static const char *const dashes[] = {"", "8 3", "3 2", "10 3 2 3", "5 6"};
#define N_DASHES ((int)(sizeof dashes / sizeof *dashes))
enum { SAMPLE_LENGTH = 22 };

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

static bool same_points(const ChartSeries *a, const ChartSeries *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++) {
        bool both = drawable(a, i) && x_of(a, i) == x_of(b, i) && y_of(a, i) == y_of(b, i);
        if (!both && (drawable(a, i) || drawable(b, i))) return false;
    }
    return true;
}

void chart_find_turns(Drawing *d)
{
    const ChartSeries *s = d->chart->series;
    int n = d->chart->n_series, named = 0, different = 0;
    d->turns = mem_array((size_t)n, sizeof *d->turns);
    for (int k = 0; k < n; k++) named += s[k].name && *s[k].name && !s[k].dashed && !s[k].pale && !s[k].colour;
    d->apart = named == n && n > 1;
    for (int k = 0; k < n; k++) {
        Turn *t = &d->turns[k];
        for (int j = 0; j < n; j++) {
            if (j != k && !(d->apart && same_points(&s[j], &s[k]))) continue;
            if (j < k && t->place++ == 0) t->before = d->turns[j].before;
            t->count++;
        }
        if (t->place == 0) t->before = different++;
    }
}

/* Series with the same points are dashes one behind the other, with a gap that shows different ones below. */
static void put_dashes(const Drawing *d, int k)
{
    const char *own = d->chart->series[k].dashed ? "6 4" : d->apart ? dashes[k % N_DASHES] : "";
    Turn t = d->turns[k];
    int places = t.count + (t.before > 0),
        length = 14 + 3 * (t.before % 4); /* no gap is always above the same colour */
    if (t.count > 1)
        buf_printf(d->out, " stroke-dasharray=\"%d %d\" stroke-dashoffset=\"%d\"", length, (places - 1) * length,
                   (places - t.place) * length);
    else if (*own)
        buf_printf(d->out, " stroke-dasharray=\"%s\"", own);
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
}

void chart_put_sample(const Drawing *d, int k, double x, double y)
{
    const ChartSeries *s = &d->chart->series[k];
    if (s->dots) put_dot(d, k, (Point){x + SAMPLE_LENGTH / 2.0, y}, 3.5);
    if (s->dots && s->unjoined) return;
    buf_printf(d->out, "<path d=\"M%.0f,%.0fh%d\"", x, y, SAMPLE_LENGTH);
    put_stroke(d, k);
    if (d->turns[k].count == 1) put_dashes(d, k);
    buf_puts(d->out, "/>\n");
}

static void put_line(Buf *out, const Point *p, int n)
{
    for (int i = 0; i < n; i++) buf_printf(out, "%c%.1f,%.1f", i ? 'L' : 'M', p[i].x, p[i].y);
}

/* A dot of the data: of equal series the later ones lie within the earlier ones. */
static void put_ring(const Drawing *d, int k, Point p, double radius)
{
    Turn t = d->turns[k];
    put_dot(d, k, p, radius + fmin(2.5, 6.0 / t.count) * (t.count - 1 - t.place));
}

/* Points without a gap between them. */
static void put_stretch(const Drawing *d, int k, const Point *p, int n)
{
    const ChartSeries *s = &d->chart->series[k];
    if (n == 1) {
        put_ring(d, k, *p, 2.5);
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
    put_dashes(d, k);
    buf_puts(d->out, " stroke-linejoin=\"round\"/>\n");
}

void chart_put_series(const Drawing *d, int k)
{
    const ChartSeries *s = &d->chart->series[k];
    for (int i = 0; i < s->n; i++)
        if (drawable(s, i) && (s->dots || s->mark == i + 1))
            put_ring(d, k, (Point){place_x(d, x_of(s, i)), place_y(d, y_of(s, i))}, s->mark ? 4.5 : 3.5);
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
