/* Pictures and tables of profiles for pages. */

#include "report/page.h"
#include "report/table.h"

enum {
    LEFT = 78,
    RIGHT = 14,
    TOP = 62,
    LEGEND_ROW = 16,
    ROW = 34,
    BAR = 24,
    BOTTOM = 46,
    MOST_LANES = 8,
    MOST_OPS = 15
};
#define LEAST_WIDTH 0.4 /* pixels of a bar of its own */

/* Phases, with the classes of their colours (svg.c). */
static const struct {
    const char *name, *colour;
    int class;
} phases[] = {{"forward", "#0072B2", 0}, {"recompute", "#E69F00", 4}, {"backward", "#D55E00", 1},
              {"update", "#009E73", 2},  {"begin", "#CC79A7", 3},     {"host", "#7F7F7F", 6}};
enum { N_PHASES = sizeof phases / sizeof *phases };

typedef struct {
    int64_t lane;
    int phase;
    double begin, end; /* microseconds */
} StepSpan;

typedef struct {
    char *names[MOST_LANES];
    double begin, end; /* of the step */
    StepSpan *spans;
    int n, cap;
} StepTimeline;

static int phase_of(const char *name)
{
    for (int i = 0; i < N_PHASES; i++)
        if (strcmp(phases[i].name, name) == 0) return i;
    return N_PHASES - 1;
}

static bool is_span(const Json *e) { return strcmp(js_string(js_get(e, "ph"), ""), "X") == 0; }

static void take_name(StepTimeline *t, const Json *e)
{
    int64_t lane = js_int(js_get(e, "tid"), -1);
    if (strcmp(js_string(js_get(e, "name"), ""), "thread_name") != 0 || lane < 0 || lane >= MOST_LANES) return;
    free(t->names[lane]);
    t->names[lane] = mem_strdup(js_string(js_get(js_get(e, "args"), "name"), ""));
}

/* The events of the first step. False: there is none. */
static bool read_step(const Json *trace, StepTimeline *t)
{
    const Json *events = js_get(trace, "traceEvents");
    for (size_t i = 0; i < js_size(events); i++) {
        const Json *e = js_at(events, i);
        take_name(t, e);
        if (!is_span(e) || strncmp(js_string(js_get(e, "name"), ""), "step ", 5) != 0) continue;
        double begin = js_real(js_get(e, "ts"), 0);
        if (t->end > 0 && begin >= t->begin) continue;
        t->begin = begin;
        t->end = begin + js_real(js_get(e, "dur"), 0);
    }
    if (!(t->end > t->begin)) return false;
    for (size_t i = 0; i < js_size(events); i++) {
        const Json *e = js_at(events, i);
        int64_t lane = js_int(js_get(e, "tid"), -1);
        double begin = js_real(js_get(e, "ts"), NAN), end = begin + js_real(js_get(e, "dur"), NAN);
        bool step = strncmp(js_string(js_get(e, "name"), ""), "step ", 5) == 0;
        if (!is_span(e) || step || lane < 0 || lane >= MOST_LANES || !(begin >= t->begin && end <= t->end)) continue;
        MEM_PUSH(t->spans, t->n, t->cap, (StepSpan){lane, phase_of(js_string(js_get(e, "cat"), "")), begin, end});
    }
    return true;
}

static int by_place(const void *a, const void *b)
{
    const StepSpan *x = a, *y = b;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Makes one of neighbours that would be narrower than LEAST_WIDTH, at `scale` pixels a microsecond. */
static void merge(StepTimeline *t, double scale)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        StepSpan *last = n ? &t->spans[n - 1] : NULL, *s = &t->spans[i];
        bool near = last && last->lane == s->lane && last->phase == s->phase &&
                    (s->begin - last->end) * scale < LEAST_WIDTH &&
                    ((s->end - s->begin) * scale < LEAST_WIDTH || (last->end - last->begin) * scale < LEAST_WIDTH);
        if (near)
            last->end = fmax(last->end, s->end);
        else
            t->spans[n++] = *s;
    }
    t->n = n;
}

static void put_axis(Buf *out, double ms, int width, int top, int floor_y)
{
    double plot = width - LEFT - RIGHT, step = pow(10, floor(log10(ms)));
    if (ms / step > 5) step *= 2;
    if (ms / step < 2)
        step /= 5;
    else if (ms / step < 4)
        step /= 2;
    int digits = step < 1 ? (int)ceil(-log10(step) - 1e-9) : 0;
    for (int i = 0; i * step <= ms * (1 + 1e-9); i++) {
        double x = LEFT + i * step / ms * plot;
        buf_printf(out,
                   "<path d=\"M%.1f,%dV%d\" class=\"grid\" stroke=\"#ddd\"/>\n<text x=\"%.1f\" y=\"%d\" "
                   "text-anchor=\"middle\">%.*f</text>\n",
                   x, top - 6, floor_y, x, floor_y + 16, digits, i * step);
    }
    buf_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">ms</text>\n", LEFT + plot / 2, floor_y + 36);
}

/* Returns the height of its rows after the first. `out` NULL: draws nothing. */
static int put_legend(const StepTimeline *t, int width, Buf *out)
{
    bool seen[N_PHASES] = {false};
    int x = 14, down = 0;
    for (int i = 0; i < t->n; i++) seen[t->spans[i].phase] = true;
    for (int i = 0; i < N_PHASES; i++) {
        if (!seen[i]) continue;
        int room = 14 + (int)ceil(markup_text_width(phases[i].name, 12));
        if (x + room > width - RIGHT) {
            x = 14;
            down += LEGEND_ROW;
        }
        if (out) {
            buf_printf(out, "<rect x=\"%d\" y=\"%d\" width=\"10\" height=\"10\" class=\"f%d\" fill=\"%s\"/>\n", x,
                       36 + down, phases[i].class, phases[i].colour);
            buf_printf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", x + 14, 45 + down, phases[i].name);
        }
        x += room + 8;
    }
    return down;
}

static void put_lanes(const StepTimeline *t, double scale, const int *row, int top, Buf *out)
{
    for (int lane = 0; lane < MOST_LANES; lane++) {
        if (row[lane] < 0) continue;
        buf_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 8, top + row[lane] * ROW + 16);
        markup_text(out, t->names[lane] ? t->names[lane] : "?");
        buf_puts(out, "</text>\n");
    }
    for (int i = 0; i < t->n; i++) {
        const StepSpan *s = &t->spans[i];
        buf_printf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" class=\"f%d\" fill=\"%s\"/>\n",
                   LEFT + (s->begin - t->begin) * scale, top + row[s->lane] * ROW,
                   fmax((s->end - s->begin) * scale, LEAST_WIDTH), BAR, phases[s->phase].class,
                   phases[s->phase].colour);
    }
}

bool timeline_svg(const Json *trace, int width, Buf *out)
{
    StepTimeline t = {0};
    bool there = read_step(trace, &t);
    if (there) {
        int row[MOST_LANES], rows = 0;
        double scale = (width - LEFT - RIGHT) / (t.end - t.begin);
        for (int lane = 0; lane < MOST_LANES; lane++) {
            bool used = false;
            for (int i = 0; i < t.n && !used; i++) used = t.spans[i].lane == lane;
            row[lane] = used ? rows++ : -1;
        }
        int top = TOP + put_legend(&t, width, NULL), floor_y = top + rows * ROW;
        qsort(t.spans, (size_t)t.n, sizeof *t.spans, by_place);
        merge(&t, scale);
        svg_begin(out, width, floor_y + BOTTOM);
        buf_puts(out, "<text x=\"14\" y=\"22\" font-size=\"14\" font-weight=\"bold\">Timeline of one step</text>\n");
        put_legend(&t, width, out);
        put_axis(out, (t.end - t.begin) / 1e3, width, top, floor_y);
        put_lanes(&t, scale, row, top, out);
        buf_puts(out, "</svg>\n");
    }
    for (int i = 0; i < MOST_LANES; i++) free(t.names[i]);
    free(t.spans);
    return there;
}

/* ---- the section of the page ---- */

/* The first rows of kernels.csv, longest first: some of its columns. */
static void put_ops(const char *text, Buf *out)
{
    static const struct {
        int column;
        const char *title;
    } shown[] = {{0, "op"}, {1, "phase"}, {2, "shape"}, {3, "calls"}, {4, "seconds"}, {5, "share"}, {10, "of limit"}};
    enum { N_SHOWN = sizeof shown / sizeof *shown, MOST_CELLS = 16 };
    Table t;
    char *copy = mem_strdup(text), *rest = copy;
    table_init(&t, N_SHOWN, 3);
    for (int k = 0; k < N_SHOWN; k++) table_text(&t, "%s", shown[k].title);
    (void)strsep(&rest, "\n"); /* the header */
    for (int row = 0; row < MOST_OPS && rest && *rest; row++) {
        char *line = strsep(&rest, "\n"), *cells[MOST_CELLS];
        int n = 0;
        while (line && n < MOST_CELLS) cells[n++] = strsep(&line, ",");
        for (int k = 0; k < N_SHOWN; k++) table_text(&t, "%s", shown[k].column < n ? cells[shown[k].column] : "");
    }
    table_html(&t, out);
    table_free(&t);
    free(copy);
}

static void put_profile(const char *kernels, const char *trace, Buf *out)
{
    Buf text = {0}, picture = {0}, narrow = {0};
    Json *doc = NULL;
    if (!file_exists(kernels) || file_read(kernels, 1 << 22, &text) != OK || !text.data) goto done;
    buf_puts(out, "<h2>Profile</h2>\n<p>The ops that took longest, in the steps of --profile.</p>\n");
    put_ops(text.data, out);
    if (!file_exists(trace) || js_read(trace, &doc) != OK || !timeline_svg(doc, 860, &picture)) goto done;
    (void)timeline_svg(doc, PAGE_NARROW, &narrow);
    buf_printf(out, "<div class=\"large\">\n%s</div>\n<div class=\"small\">\n%s</div>\n", picture.data, narrow.data);
done:
    js_free(doc);
    BUF_FREE(&text, &picture, &narrow);
}

static void put_pipeline(const char *path, Buf *out)
{
    Buf picture = {0};
    if (file_exists(path) && file_read(path, 1 << 26, &picture) == OK && picture.data)
        buf_printf(out, "<h2>Timeline of the pipeline</h2>\n%s", picture.data);
    buf_free(&picture);
}

void page_profile(const char *output_dir, Buf *out)
{
    char *kernels = mem_printf("%s/profile/kernels.csv", output_dir),
         *trace = mem_printf("%s/profile/trace-rank0.json", output_dir),
         *pipeline = mem_printf("%s/profile/timeline.svg", output_dir);
    put_pipeline(pipeline, out);
    put_profile(kernels, trace, out);
    MEM_FREE(kernels, trace, pipeline);
}
