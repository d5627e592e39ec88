#include "report/box.h"

#include "base/sort.h"
#include "base/terminal.h"
#include "report/report.h"

enum { RIGHT = 20, TOP = 58, ROW = 26, HALF = 8, BOTTOM = 46 };

static double quantile(const double *sorted, int n, double share)
{
    double at = share * (n - 1);
    int below = (int)at;
    return below + 1 < n ? sorted[below] + (at - below) * (sorted[below + 1] - sorted[below]) : sorted[n - 1];
}

Quantiles quantiles_of(double *values, int n)
{
    if (n == 0) return (Quantiles){NAN, NAN, NAN, NAN, NAN};
    qsort(values, (size_t)n, sizeof *values, sort_by_value);
    return (Quantiles){quantile(values, n, 0.05), quantile(values, n, 0.25), quantile(values, n, 0.5),
                       quantile(values, n, 0.75), quantile(values, n, 0.95)};
}

static void put_box(const Box *b, double left, double scale, double y, Buf *out)
{
    double x[] = {left + b->q.p5 * scale, left + b->q.p25 * scale, left + b->q.median * scale, left + b->q.p75 * scale,
                  left + b->q.p95 * scale};
    int class = b->marked ? 1 : 0;
    const char *colour = b->marked ? "#D55E00" : "#0072B2";
    buf_printf(out, "<path d=\"M%.1f,%.1fH%.1f\" class=\"c%d\" stroke=\"%s\"/>\n", x[0], y, x[4], class, colour);
    buf_printf(out,
               "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" class=\"f%d\" fill=\"%s\" "
               "fill-opacity=\"0.45\"/>\n",
               x[1], y - HALF, fmax(x[3] - x[1], 0.5), 2 * HALF, class, colour);
    for (int i = 0; i < 5; i += 2) {
        double half = i == 2 ? HALF : HALF / 2.0;
        buf_printf(out, "<path d=\"M%.1f,%.1fv%.1f\" class=\"c%d\" stroke=\"%s\" stroke-width=\"%d\"/>\n", x[i],
                   y - half, 2 * half, class, colour, i == 2 ? 2 : 1);
    }
}

void box_svg(const char *title, const char *about, const Box *boxes, int n, double scale, const char *unit, int width,
             Buf *out)
{
    double most = 0, longest = 0;
    for (int i = 0; i < n; i++) {
        longest = fmax(longest, terminal_width(boxes[i].name, strlen(boxes[i].name)));
        if (isfinite(boxes[i].q.p95)) most = fmax(most, boxes[i].q.p95 * scale);
    }
    double left = fmin(24 + 7.2 * longest, 0.45 * width), plot = width - left - RIGHT;
    int height = TOP + n * ROW + BOTTOM, floor_y = TOP + n * ROW;
    if (!(most > 0)) most = 1;
    svg_begin(out, width, height);
    buf_puts(out, "<text x=\"14\" y=\"22\" font-size=\"14\" font-weight=\"bold\">");
    markup_text(out, title);
    buf_puts(out, "</text>\n<text x=\"14\" y=\"40\" class=\"note\" fill=\"#666\">");
    markup_fitting(out, about, 12, width - 14 - RIGHT);
    buf_puts(out, "</text>\n");
    double step = pow(10, floor(log10(most)));
    if (most / step > 5) step *= 2;
    while (most / step < 4) step /= 2;
    for (int i = 0; i * step <= most * 1.02; i++) {
        double x = left + i * step / (1.02 * most) * plot;
        buf_printf(out,
                   "<path d=\"M%.1f,%dV%d\" class=\"grid\" stroke=\"#ddd\"/>\n<text x=\"%.1f\" y=\"%d\" "
                   "text-anchor=\"middle\">%.3g</text>\n",
                   x, TOP - 6, floor_y, x, floor_y + 16, i * step);
    }
    buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", left + plot / 2, floor_y + 36);
    markup_text(out, unit);
    buf_puts(out, "</text>\n");
    for (int i = 0; i < n; i++) {
        double y = TOP + (i + 0.5) * ROW;
        buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", left - 8, y + 4);
        markup_text(out, boxes[i].name);
        buf_puts(out, "</text>\n");
        if (isfinite(boxes[i].q.median)) put_box(&boxes[i], left, scale * plot / (1.02 * most), y, out);
    }
    buf_puts(out, "</svg>\n");
}
