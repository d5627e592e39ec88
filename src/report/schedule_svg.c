/* Timelines as SVG: a panel for each, a row per place, time to the right, all panels on one axis. */

#include "report/report.h"

enum { WIDTH = 1100, LEFT = 78, RIGHT = 24, ROW = 20, GAP = 3, PANEL_TITLE = 26, LEGEND = 30, AXIS = 40 };
#define PLOT (WIDTH - LEFT - RIGHT)

/* Okabe and Ito (2008), and lighter ones of the same hues. */
static const struct {
    const char *name, *colour;
} kinds[N_BARS] = {
    [BAR_FORWARD] = {"forward", "#56B4E9"},
    [BAR_BACKWARD] = {"backward", "#0072B2"},
    [BAR_INPUT] = {"input gradients", "#0072B2"},
    [BAR_WEIGHT] = {"weight gradients", "#009E73"},
    [BAR_CURVATURE] = {"curvature", "#E69F00"},
    [BAR_INVERSE] = {"inverses", "#D55E00"},
    [BAR_SUM] = {"sums", "#CC79A7"},
    [BAR_UPDATE] = {"update", "#7F7F7F"},
};

void timeline_add(TimelinePanel *panel, TimelineBar bar) { MEM_PUSH(panel->bars, panel->n, panel->cap, bar); }

void timeline_panels_free(TimelinePanel *panels, int n)
{
    for (int k = 0; k < n; k++) free(panels[k].bars);
}

static double place_x(double seconds, double end) { return LEFT + seconds / end * PLOT; }

static void put_bar(Buf *out, const TimelineBar *b, double end, int y)
{
    double x = place_x(b->start, end), width = place_x(b->end, end) - x;
    if (width <= 0) return;
    buf_printf(out, "<path d=\"M%.2f,%dh%.2fv%dh-%.2fz\" fill=\"%s\"%s/>\n", x, y, width, ROW - GAP, width,
               kinds[b->kind].colour, width > 2 ? " stroke=\"#fff\" stroke-width=\"0.4\"" : "");
    if (b->number >= 0 && width > 14)
        buf_printf(out, "<text x=\"%.1f\" y=\"%d\" font-size=\"9\" fill=\"#fff\" text-anchor=\"middle\">%d</text>\n",
                   x + width / 2, y + 12, b->number);
}

static void put_panel(Buf *out, const TimelinePanel *p, double end, int y)
{
    buf_printf(out, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">", LEFT, y + 17);
    markup_text(out, p->title);
    buf_puts(out, "</text>\n");
    y += PANEL_TITLE;
    for (int row = 0; row < p->rows; row++) {
        buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text>\n", LEFT - 8, y + row * ROW + 13, row);
        buf_printf(out, "<path d=\"M%d,%dh%dv%dh-%dz\" fill=\"#888\" fill-opacity=\"0.12\"/>\n", LEFT, y + row * ROW,
                   PLOT, ROW - GAP, PLOT);
    }
    for (int i = 0; i < p->n; i++) put_bar(out, &p->bars[i], end, y + p->bars[i].row * ROW);
}

static void put_axis(Buf *out, double end, const char *rows, int y)
{
    double step = pow(10, floor(log10(end)));
    while (end / step < 5) step /= 2;
    for (double t = 0; t <= end * (1 + 1e-9); t += step)
        buf_printf(
            out,
            "<path d=\"M%.1f,%dv5\" stroke=\"#888\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g</text>\n",
            place_x(t, end), y, place_x(t, end), y + 18, t * 1e3);
    buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">ms; rows are %s</text>\n", LEFT + PLOT / 2, y + 34,
               rows);
}

void schedule_svg(const TimelinePanel *panels, int n, const char *rows, Buf *out)
{
    double end = 0;
    int height = LEGEND + AXIS;
    bool used[N_BARS] = {false};
    for (int k = 0; k < n; k++) {
        height += PANEL_TITLE + panels[k].rows * ROW;
        for (int i = 0; i < panels[k].n; i++) {
            end = fmax(end, panels[k].bars[i].end);
            used[panels[k].bars[i].kind] |= panels[k].bars[i].end > panels[k].bars[i].start;
        }
    }
    if (!(end > 0)) end = 1;
    svg_begin(out, WIDTH, height);
    int x = LEFT, y = LEGEND;
    for (int kind = 0; kind < N_BARS; kind++) {
        if (!used[kind]) continue;
        buf_printf(out, "<path d=\"M%d,10h14v12h-14z\" fill=\"%s\"/><text x=\"%d\" y=\"20\">%s</text>\n", x,
                   kinds[kind].colour, x + 19, kinds[kind].name);
        x += 40 + 7 * (int)strlen(kinds[kind].name);
    }
    for (int k = 0; k < n; k++) {
        put_panel(out, &panels[k], end, y);
        y += PANEL_TITLE + panels[k].rows * ROW;
    }
    put_axis(out, end, rows, y + 4);
    buf_puts(out, "</svg>\n");
}
