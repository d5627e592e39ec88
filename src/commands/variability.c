/* `cairn variability RUN…`: the pace of every rank of runs (OUT/ranks.jsonl), the slow ones, and what differs. */

#include "commands/commands.h"
#include "report/box.h"
#include "report/compare.h"
#include "report/page.h"
#include "report/table.h"

#define SLOW       1.05 /* times the median of all ranks' means, */
#define ERRORS     3    /* and above it by so many standard errors of the rank's own mean */
#define FEWER_TIME 0.9  /* a share of processor time below so many times the others' is named */
#define LOWER      0.97 /* a clock below so many times the others' is named */
#define HOTTER     5    /* degrees above the others' that are named */
#define SLOWED     0.05 /* a share of samples, above the others', that is named */

/* Figures of a rank that are compared with those of others: seconds of its own work a step, the share of processor time
   while it worked, and of its GPU the clock, the temperature and the share of throttled samples (NaN: unknown). */
typedef enum { MEAN, PROCESSOR, MHZ, CELSIUS, THROTTLED, N_FIGURES } Figure;

typedef struct {
    char *name; /* "run rank 1" */
    const char *run;
    int work;                             /* the first run, from 0, of the same work: only these are compared */
    char host[64], gpu[80], throttle[80]; /* "": no GPU; its throttle reasons */
    int64_t rank, threads, steps;
    double waited;                           /* a share of the time */
    double switches;                         /* involuntary, a second */
    double watts;                            /* its GPU's mean; NaN: unknown */
    Quantiles own;                           /* seconds of its own work a step */
    double error;                            /* of their mean, by the spread of the steps */
    double is[N_FIGURES], others[N_FIGURES]; /* the medians of those that are not slow */
    bool slow;
} RankPace;

typedef struct {
    RankPace *items;
    int n, cap;
} Paces;

/* ---- reading ---- */

/* What a run computed. */
static void describe_work(const RunRecord *r, Buf *out)
{
    static const int options[] = {OPTION_batch_size, OPTION_max_seq_length, OPTION_micro_batch_tokens,
                                  OPTION_model,      OPTION_model_config,   OPTION_data_dir};
    buf_printf(out, "%s %s %s %d", r->s.task, r->s.precision, r->s.recompute, r->s.ranks > 0 ? r->s.ranks : 1);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        buf_puts(out, " ");
        (void)js_put_scalar(out, js_get(js_get(r->doc, "config"), config_flag(options[i])));
    }
}

/* For each run the first one of the same work; runs without run.json are of one. Returns the facts that
   all share; the caller frees. */
static char *find_works(char *const *dirs, int n, int *works)
{
    RunRecord *records = mem_array((size_t)n, sizeof *records);
    const RunRecord *all[COMPARE_MOST] = {NULL};
    Buf texts[COMPARE_MOST] = {0};
    bool other = false;
    for (int i = 0; i < n; i++) {
        buf_puts(&texts[i], "");
        if (run_record_read(dirs[i], &records[i]) == OK) describe_work(&records[i], &texts[i]);
        all[i] = &records[i];
        for (works[i] = 0; strcmp(texts[works[i]].data, texts[i].data) != 0;) works[i]++;
        other = other || works[i] > 0;
    }
    if (other)
        log_info("the runs differ in their work (task, model, data, ranks, batch, length, precision or policy); ranks "
                 "are compared within the same work alone");
    char *about = run_records_about(all, n);
    for (int i = 0; i < n; i++) {
        buf_free(&texts[i]);
        run_record_free(&records[i]);
    }
    free(records);
    return about;
}

static void take(Paces *p, const char *run, int work, const Json *d)
{
    const Json *own = js_get(d, "own_s");
    size_t n = js_size(own);
    double *values = mem_array(n, sizeof *values), seconds = js_real(js_get(d, "seconds"), NAN);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        values[i] = js_real(js_at(own, i), NAN);
        sum += values[i] / (double)n;
        squares += values[i] * values[i] / (double)n;
    }
    MEM_GROW(p->items, p->n, p->cap);
    RankPace *x = &p->items[p->n++];
    *x = (RankPace){.run = run,
                    .work = work,
                    .rank = js_int(js_get(d, "rank"), -1),
                    .threads = js_int(js_get(d, "threads"), 0),
                    .steps = js_int(js_get(d, "steps"), 0),
                    .waited = js_real(js_get(d, "waited_s"), NAN) / seconds,
                    .switches = js_real(js_get(d, "switches"), NAN) / seconds,
                    .watts = js_real(js_get(d, "watts"), NAN),
                    .is = {[MHZ] = js_real(js_get(d, "sm_mhz"), NAN),
                           [CELSIUS] = js_real(js_get(d, "celsius"), NAN),
                           [THROTTLED] = js_real(js_get(d, "slowed"), NAN)},
                    .own = quantiles_of(values, (int)n),
                    .error = sqrt(fmax(squares - sum * sum, 0) / (double)n)};
    x->is[MEAN] = seconds * (1 - x->waited) / (double)x->steps;
    x->is[PROCESSOR] = js_real(js_get(d, "processor_s"), NAN) / seconds / (1 - x->waited);
    snprintf(x->host, sizeof x->host, "%s", js_string(js_get(d, "host"), "?"));
    snprintf(x->gpu, sizeof x->gpu, "%s", js_string(js_get(d, "gpu"), ""));
    snprintf(x->throttle, sizeof x->throttle, "%s", js_string(js_get(d, "throttle"), ""));
    x->name = mem_printf("%s rank %lld", run, (long long)x->rank);
    free(values);
}

static Status read_run(const char *dir, const char *name, int work, Paces *p)
{
    char *path = file_join(dir, "ranks.jsonl");
    Buf text = {0};
    Status status = OK;
    int before = p->n;
    if (!file_exists(path))
        TRY_DONE(
            fail(E_IO, "%s: expected the folder of a run with ranks.jsonl, which training writes when it ends", dir));
    TRY_DONE(file_read(path, (size_t)1 << 30, &text));
    char *rest = text.data ? text.data : (char *)"";
    for (int number = 1; rest && *rest; number++) {
        Json *doc;
        char *line = strsep(&rest, "\n");
        TRY_DONE(js_parse_at(path, number, line, strlen(line), &doc));
        take(p, name, work, doc);
        js_free(doc);
    }
    if (p->n == before) status = fail(E_FORMAT, "%s: empty; expected a line for each rank", path);
done:
    buf_free(&text);
    free(path);
    return status;
}

/* ---- slow ranks ---- */

/* The median over the ranks of a work that are not slow; of two the smaller, which a slow rank does not move. */
static double middle_of(const Paces *p, int work, int figure)
{
    double *values = mem_array((size_t)p->n, sizeof *values);
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const RankPace *x = &p->items[i];
        if (x->work == work && !x->slow && isfinite(x->is[figure])) values[n++] = x->is[figure];
    }
    Quantiles q = quantiles_of(values, n);
    double middle = n == 2 ? values[0] : q.median;
    free(values);
    return middle;
}

static void find_slow(Paces *p)
{
    for (int i = 0; i < p->n; i++) p->items[i].others[MEAN] = middle_of(p, p->items[i].work, MEAN);
    for (int i = 0; i < p->n; i++) {
        RankPace *x = &p->items[i];
        x->slow = x->is[MEAN] > SLOW * x->others[MEAN] && x->is[MEAN] > x->others[MEAN] + ERRORS * x->error;
    }
    for (int i = 0; i < p->n; i++)
        for (int f = MEAN + 1; f < N_FIGURES; f++) p->items[i].others[f] = middle_of(p, p->items[i].work, f);
}

/* What differs in its GPU's state. A comparison with NaN is false. */
static void put_slow_gpu(const RankPace *x, Buf *out)
{
    size_t before = out->len;
    if (x->is[MHZ] < LOWER * x->others[MHZ])
        buf_printf(out, "; its GPU's clock was %.0f MHz, others %.0f", x->is[MHZ], x->others[MHZ]);
    if (x->is[CELSIUS] > x->others[CELSIUS] + HOTTER)
        buf_printf(out, "; its GPU had %.0f degrees, others %.0f", x->is[CELSIUS], x->others[CELSIUS]);
    if (x->is[THROTTLED] > x->others[THROTTLED] + SLOWED)
        buf_printf(out, "; its GPU was throttled (%s) in %.0f %% of the samples, others in %.0f %%", x->throttle,
                   100 * x->is[THROTTLED], 100 * x->others[THROTTLED]);
    if (out->len > before) return;
    if (isfinite(x->is[MHZ]))
        buf_puts(out, "; its GPU's clock, temperature and throttle reasons are as the others'");
    else
        buf_puts(out, "; --gpu-metrics would say whether its GPU's clock or temperature differ");
}

static void put_slow(const RankPace *x, Buf *out)
{
    double share = x->is[PROCESSOR];
    buf_printf(out, "slow: %s on %s%s%s: %.2f times the others' time of its own work", x->name, x->host,
               *x->gpu ? ", " : "", x->gpu, x->is[MEAN] / x->others[MEAN]);
    if (*x->gpu) put_slow_gpu(x, out);
    if (share < FEWER_TIME * x->others[PROCESSOR])
        buf_printf(
            out,
            "; while it worked it had %.0f %% of its core's time, others %.0f %%, and was interrupted %.0f times "
            "a second: a quota, or a neighbour on its cores",
            100 * share, 100 * x->others[PROCESSOR], x->switches);
    else if (!*x->gpu)
        buf_printf(out,
                   "; it had as much of its core's time as others (%.0f %%), so its cores or memory are slower, or its "
                   "work is more",
                   100 * share);
    buf_puts(out, "\n");
}

/* ---- output ---- */

static void fill_table(const Paces *p, Table *t)
{
    static const char *const heads[] = {"run",    "rank",        "host",       "threads", "steps",
                                        "mean s", "median s",    "p5 s",       "p95 s",   "of others",
                                        "waited", "core's time", "switches/s", "GPU",     "SM MHz",
                                        "W",      "degrees C",   "throttled",  "reasons", ""};
    enum { N_HEADS = sizeof heads / sizeof *heads, FIRST_GPU = 13, N_GPU = 6 };
    bool gpus = false;
    for (int i = 0; i < p->n; i++) gpus = gpus || *p->items[i].gpu;
    table_init(t, gpus ? N_HEADS : N_HEADS - N_GPU, 3);
    for (int i = 0; i < N_HEADS; i++)
        if (gpus || i < FIRST_GPU || i >= FIRST_GPU + N_GPU) table_text(t, "%s", heads[i]);
    for (int i = 0; i < p->n; i++) {
        const RankPace *x = &p->items[i];
        table_text(t, "%s", x->run);
        table_text(t, "%lld", (long long)x->rank);
        table_text(t, "%s", x->host);
        table_text(t, "%lld", (long long)x->threads);
        table_text(t, "%lld", (long long)x->steps);
        table_figure(t, "%.4g", x->is[MEAN]);
        table_figure(t, "%.4g", x->own.median);
        table_figure(t, "%.4g", x->own.p5);
        table_figure(t, "%.4g", x->own.p95);
        table_figure(t, "%.3f", x->is[MEAN] / x->others[MEAN]);
        table_figure(t, "%.2f", x->waited);
        table_figure(t, "%.2f", x->is[PROCESSOR]);
        table_figure(t, "%.0f", x->switches);
        if (gpus) {
            table_text(t, "%s", x->gpu);
            table_figure(t, "%.0f", x->is[MHZ]);
            table_figure(t, "%.0f", x->watts);
            table_figure(t, "%.0f", x->is[CELSIUS]);
            table_figure(t, "%.2f", x->is[THROTTLED]);
            table_text(t, "%s", x->throttle);
        }
        table_text(t, "%s", x->slow ? "slow" : "");
    }
}

static void draw(const Paces *p, const char *about, int width, Buf *out)
{
    Box *boxes = mem_array((size_t)p->n, sizeof *boxes);
    for (int i = 0; i < p->n; i++) boxes[i] = (Box){p->items[i].name, p->items[i].own, p->items[i].slow};
    box_svg("Each rank's own work in a step", about, boxes, p->n, 1e3,
            "ms; boxes: half of the steps, whiskers: 5 to 95 %", width, out);
    free(boxes);
}

static Status write_all(const Config *c, const Paces *p, const Table *t, const char *slow, const char *about)
{
    Buf svg = {0}, page = {0};
    if (*c->csv) {
        TRY(table_write_csv(t, false, NULL, c->csv));
        log_info("written: %s", c->csv);
    }
    if (!*c->output_dir) return OK;
    Status status = file_make_directories(c->output_dir);
    draw(p, about, 860, &svg);
    page_begin(&page, "Variability", about);
    table_html(t, &page);
    page_lines(&page, slow);
    buf_printf(&page, "<div class=\"large\">\n%s</div>\n<div class=\"small\">\n", svg.data);
    draw(p, about, PAGE_NARROW, &page);
    buf_puts(&page, "</div>\n");
    page_end(&page);
    if (status == OK) status = svg_write(c->output_dir, "variability.svg", &svg);
    if (status == OK) status = file_write_text(c->output_dir, "variability.html", &page);
    if (status == OK) log_info("written to %s: variability.html, variability.svg", c->output_dir);
    BUF_FREE(&svg, &page);
    return status;
}

Status command_variability(const Config *c)
{
    int n = c->n_positional;
    char *names[COMPARE_MOST] = {NULL};
    int works[COMPARE_MOST];
    Paces p = {0};
    Table table = {0};
    Buf text = {0}, slow = {0};
    Status status = OK;
    if (n < 1 || n > COMPARE_MOST)
        return fail(E_USAGE, "give the output folders of 1 to %d runs: cairn variability DIR1 DIR2", COMPARE_MOST);
    compare_names(c->positional, n, names);
    char *about = find_works(c->positional, n, works);
    for (int i = 0; i < n; i++) TRY_DONE(read_run(c->positional[i], names[i], works[i], &p));
    find_slow(&p);
    fill_table(&p, &table);
    table_print(&table, table_terminal_width(), &text);
    buf_puts(&slow, "");
    for (int i = 0; i < p.n; i++)
        if (p.items[i].slow) put_slow(&p.items[i], &slow);
    buf_puts(&text, slow.len ? slow.data
                             : "no rank is slow: no mean is both above 1.05 times the median and more than three "
                               "standard errors above it\n");
    buf_print(&text);
    status = write_all(c, &p, &table, slow.data, about);
done:
    for (int i = 0; i < p.n; i++) free(p.items[i].name);
    MEM_FREE(p.items, about);
    for (int i = 0; i < n; i++) free(names[i]);
    table_free(&table);
    buf_free(&slow);
    return status;
}
