/* Inside the charts: a picture while it is drawn. */
#pragma once

#include "report/report.h"

#define MOST_DATA_TICKS 9

typedef struct {
    double low, high, step;
} Axis;

/* A series among those with the same points: its number, from 0, their count, and how many different curves are before
   them. */
typedef struct {
    int place, count, before;
} Turn;

typedef struct {
    const Chart *chart;
    Axis x, y;
    double ticks[MOST_DATA_TICKS]; // (n_ticks) of x, at the data; none: those of the axis
    int n_ticks;
    Turn *turns;                   // (n_series)
    bool apart;                    /* several series with names, which the caller does not tell apart */
    bool empty;                    /* there is no point to draw */
    int width, left, right, title; /* of the picture, its margins, and the font of its title */
    int legend, top, plot_width, plot_height;
    Buf *out;
} Drawing;

static inline double y_of(const ChartSeries *s, int i) { return s->y[i] * (s->scale != 0 ? s->scale : 1); }
static inline double x_of(const ChartSeries *s, int i) { return s->x ? s->x[i] : (double)i; }

/* Can be drawn: finite, and far enough from the largest number that differences are finite too. */
static inline bool drawable(const ChartSeries *s, int i)
{
    return fabs(y_of(s, i)) < 1e300 && fabs(x_of(s, i)) < 1e300;
}
static inline double place_x(const Drawing *d, double v)
{
    return d->left + (v - d->x.low) / (d->x.high - d->x.low) * d->plot_width;
}
static inline double place_y(const Drawing *d, double v)
{
    return d->top + d->plot_height - (v - d->y.low) / (d->y.high - d->y.low) * d->plot_height;
}

/* ---- chart_series.c ---- */
void chart_find_turns(Drawing *d);                                  /* the caller frees d->turns */
void chart_put_sample(const Drawing *d, int k, double x, double y); /* for the legend */
void chart_put_series(const Drawing *d, int k);
