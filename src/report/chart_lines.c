#include "report/report.h"

int chart_line(ChartLines *l, const char *name)
{
    int cap = l->cap, line = l->n;
    char *own = mem_strdup(name);
    MEM_GROW(l->points, l->n, cap);
    l->points[line] = (ChartPoints){.name = own};
    MEM_PUSH(l->series, l->n, l->cap, (ChartSeries){.name = own});
    return line;
}

int chart_line_named(ChartLines *l, const char *name)
{
    for (int k = 0; k < l->n; k++)
        if (strcmp(l->points[k].name, name) == 0) return k;
    return chart_line(l, name);
}

void chart_point(ChartLines *l, int line, double x, double y)
{
    ChartPoints *p = &l->points[line];
    ChartSeries *s = &l->series[line];
    int cap = p->cap;
    MEM_GROW(p->x, s->n, cap);
    MEM_GROW(p->y, s->n, p->cap);
    p->x[s->n] = x;
    p->y[s->n++] = y;
    s->x = p->x;
    s->y = p->y;
}

void chart_lines_free(ChartLines *l)
{
    for (int k = 0; k < l->n; k++) MEM_FREE(l->points[k].name, l->points[k].x, l->points[k].y);
    MEM_FREE(l->points, l->series);
}
