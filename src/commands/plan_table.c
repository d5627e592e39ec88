#include "commands/plan.h"

#include <unistd.h>

#include "base/terminal.h"
#include "report/report.h"

/* Regions that are shown as one. */
typedef struct {
    const char *key; /* JSON's */
    unsigned regions;
} ShownRegions;

#define BIT(r) (1u << REGION_##r)
enum { WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS, SCRATCH, INPUT, SAVE, N_PARTS };
static const ShownRegions parts[N_PARTS] = {
    [WEIGHTS] = {"weights", BIT(WEIGHT) | BIT(COPY)},
    [GRADIENTS] = {"gradients", BIT(GRAD)},
    [OPTIMIZER] = {"optimizer", BIT(MOMENT) | BIT(KFAC)},
    [ACTIVATIONS] = {"activations", BIT(ACT)},
    [SCRATCH] = {"scratch", BIT(SCRATCH)},
    [INPUT] = {"input", BIT(INPUT) | BIT(OUTPUT) | BIT(CONST)},
    [SAVE] = {"save", BIT(SAVE)},
};

/* In the memory that holds activations. */
static size_t part_bytes(const RunPlan *p, int part)
{
    size_t sum = 0;
    for (int r = 0; r < N_REGIONS; r++)
        if (parts[part].regions >> r & 1 && account_has(&p->accounts.row[0], (Region)r)) sum += p->bytes[r];
    return sum;
}

static double per_second(const PlanRun *r, const RunPlan *p) { return (double)r->c->batch_size / p->step_s; }

enum { NAME_COLUMNS = 14 }; /* a row has 80 */

static const char *coloured(const char *colour) { return terminal_colours(STDOUT_FILENO) ? colour : ""; }

/* A longer name has a line of its own. */
static void put_name(const char *name, Buf *out)
{
    int width = terminal_width(name, strlen(name));
    buf_puts(out, name);
    if (width > NAME_COLUMNS) buf_puts(out, "\n");
    buf_printf(out, "%*s", width > NAME_COLUMNS ? NAME_COLUMNS : NAME_COLUMNS - width, "");
}

static void put_row(const PlanRun *r, const PlanRow *row, Buf *out)
{
    const RunPlan *p = &row->plan;
    put_name(p->layers.policy, out);
    buf_printf(out, " %9.1f %9.1f %9.1f", mib(part_bytes(p, ACTIVATIONS)), mib(part_bytes(p, SCRATCH)),
               mib(part_bytes(p, INPUT) + part_bytes(p, SAVE)));
    buf_printf(out, " %9.1f%s", mib(run_plan_peak(p)), p->chunk->train.exact ? " " : "~");
    if (p->fits)
        buf_printf(out, " %8.4g %7.4g", p->step_s, per_second(r, p));
    else
        buf_printf(out, " %s%16s%s", coloured(TERMINAL_RED), "does not fit", coloured(TERMINAL_PLAIN));
    buf_printf(out, " %7lld\n", (long long)row->max_batch);
}

static void put_text(const char *text, Buf *out) { terminal_wrap(out, text, 0, terminal_columns(STDOUT_FILENO)); }

void plan_put_batch(const PlanRun *r, Buf *out)
{
    buf_printf(out, "batch %lld × ", (long long)r->given->batch_size);
    if (r->input.coupling) buf_printf(out, "%d texts × ", r->input.coupling->texts);
    buf_printf(out, "%lld tokens", (long long)r->input.max_length);
}

void plan_put_model(const PlanRun *r, Buf *out)
{
    const ModelConfig *m = &r->model.config;
    buf_printf(out, "%s of %d layers, hidden %d, %.1f M parameters; %s, %s; ", model_kinds[m->kind].name, m->layers,
               m->hidden, (double)r->model.params.size / 1e6, r->machine, dtype_name(r->input.compute));
    plan_put_batch(r, out);
}

static void put_head(const PlanRun *r, const RunPlan *p, Buf *out)
{
    const PlanInput *in = &p->input;
    Buf text = {0};
    plan_put_model(r, &text);
    buf_printf(&text, ", micro-batches of %lld tokens%s", (long long)p->micro.tokens,
               in->max_masked ? ", pretraining" : "");
    put_text(text.data, out);
    buf_free(&text);
    if (in->packed)
        buf_printf(out, "packed: %.2f tokens in a sequence, %.2f beside a token\n", in->mean_length, in->beside);
    buf_printf(&text, "budget %.0f MiB; rates: %.1f GFLOP/s, %.1f GB/s (%s)", mib(p->accounts.row[0].budget),
               in->rates.product_flops / 1e9, in->rates.bytes / 1e9, in->rates.source);
    put_text(text.data, out);
    buf_free(&text);
    buf_printf(&text, "every policy: weights %.1f MiB, gradients %.1f MiB, optimizer %.1f MiB, %s %.1f MiB",
               mib(part_bytes(p, WEIGHTS)), mib(part_bytes(p, GRADIENTS)), mib(part_bytes(p, OPTIMIZER)),
               p->accounts.n > 1 ? "the device's context and libraries" : "the process itself",
               mib(p->accounts.row[0].held));
    put_text(text.data, out);
    buf_free(&text);
}

/* The plan's certificate, for people. */
static void put_certificate(const RunPlan *p, Buf *out)
{
    const double above = run_plan_above_bound(p);
    Buf text = {0};
    if (above < 0) return;
    buf_printf(&text, "%s: no schedule of these micro-batches within the budget takes less than %.4g s, so that ",
               p->layers.policy, p->bound.step_s);
    if (above < BOUND_IS_MET)
        buf_puts(&text, "this one is the best possible");
    else
        buf_printf(&text, "this one is at most %.1f %% above the best possible", 100 * above);
    buf_printf(&text,
               "; without a save buffer none that is as fast peaks below %.1f MiB, none at any speed below %.1f MiB",
               mib(p->bound.peak), mib(p->bound.least));
    put_text(text.data, out);
    buf_free(&text);
}

/* Where there is no room for the save buffer beside the plan. */
static void put_saves(const RunPlan *p, Buf *out)
{
    Buf text = {0};
    if (!p->fits || (!p->other && !run_plan_waits(p))) return;
    buf_printf(&text, "%s: no room for the save buffer of %.1f MiB beside it: while a save is written ",
               p->layers.policy, mib(run_plan_saved_bytes(p)));
    run_plan_put_saves(p, &text);
    if (p->other) buf_puts(&text, "; its activations have room for the buffer");
    put_text(text.data, out);
    buf_free(&text);
}

void plan_table_print(const PlanRun *r, const PlanRow *rows, int n, Buf *out)
{
    put_head(r, &rows[0].plan, out);
    buf_printf(out, "\n%s%-*s %9s %9s %9s %9s  %8s %7s %7s%s\n", coloured(TERMINAL_BOLD), NAME_COLUMNS, "MiB",
               "activat.", "scratch", "other", "peak", "step (s)", "seq/s", "most", coloured(TERMINAL_PLAIN));
    for (int i = 0; i < n; i++) put_row(r, &rows[i], out);
    buf_puts(out, "\n");
    put_text(SHORT_TEXT("peak: all of it; other: input, output and the save buffer; most: %s in one micro-batch within "
                        "the budget, with the row's choice of layers; --largest batch chooses them for each size",
                        r->input.coupling ? "rows of texts" : "sequences"),
             out);
    if (!rows[0].plan.chunk->train.exact) buf_puts(out, "~ scratch is estimated\n");
    put_certificate(&rows[n - 1].plan, out);
    put_saves(&rows[n - 1].plan, out);
    for (int i = 0; i < n; i++) {
        const RunPlan *p = &rows[i].plan;
        if (!p->bytes[REGION_HOST]) continue;
        Buf text = {0};
        buf_printf(&text, "%s: %.1f MiB of pinned memory of the host beside that, by a link of %.1f and %.1f GB/s",
                   p->layers.policy, mib(p->bytes[REGION_HOST]), p->input.rates.link_out / 1e9,
                   p->input.rates.link_in / 1e9);
        put_text(text.data, out);
        buf_free(&text);
    }
}

static void account_json(const Account *a, Buf *out)
{
    buf_printf(out, "{\"name\": \"%s\", \"budget\": ", a->name);
    if (a->budget == SIZE_MAX)
        buf_puts(out, "null");
    else
        buf_printf(out, "%zu", a->budget);
    buf_printf(out, ", \"held\": %zu, \"snapshots\": %zu, \"peak\": %zu}", a->held, a->snapshots, a->peak);
}

void plan_row_json(const RunPlan *p, Buf *out)
{
    const Accounts *a = &p->accounts;
    buf_member_text(out, "name", p->layers.policy);
    buf_puts(out, ", \"bytes\": {");
    for (int i = 0; i < N_PARTS; i++) buf_printf(out, "\"%s\": %zu, ", parts[i].key, part_bytes(p, i));
    buf_printf(out, "\"host\": %zu}, \"peak\": %zu, \"offloaded\": %zu, \"micro_batch\": [%lld, %lld, %lld]",
               a->row[0].held, run_plan_peak(p), p->bytes[REGION_HOST], (long long)p->micro.tokens,
               (long long)p->micro.seqs, (long long)p->micro.masked);
    buf_puts(out, ", \"accounts\": [");
    for (int i = 0; i < a->n; i++) {
        if (i) buf_puts(out, ", ");
        account_json(&a->row[i], out);
    }
    buf_puts(out, "]");
    buf_member(out, "step_s", p->step_s);
    if (p->other) {
        buf_key(out, "while_saving");
        buf_puts(out, "{");
        buf_member_text(out, "name", p->other->layers.policy);
        buf_member(out, "step_s", p->other->step_s);
        buf_puts(out, "}");
    }
    if (p->fits && run_plan_waits(p)) buf_puts(out, ", \"while_saving\": null"); /* training waits */
    buf_printf(out, ", \"bound\": {\"peak\": %zu, \"least\": %zu", p->bound.peak, p->bound.least);
    buf_member(out, "step_s", p->bound.step_s);
    buf_puts(out, "}");
    buf_printf(out, ", \"fits\": %s, \"exact\": %s", p->fits ? "true" : "false",
               p->chunk->train.exact ? "true" : "false");
}

void plan_table_json(const PlanRun *r, const PlanRow *rows, int n, Buf *out)
{
    const RunPlan *p = &rows[0].plan;
    buf_puts(out, "{");
    buf_member_text(out, "backend", r->device ? r->device->name : r->input.backend->name);
    buf_printf(out, ", \"micro_batch_tokens\": %lld, \"budget\": %zu, \"policies\": [", (long long)p->micro.tokens,
               p->accounts.row[0].budget);
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s\n {", i ? "," : "");
        plan_row_json(&rows[i].plan, out);
        buf_printf(out, ", \"max_batch\": %lld", (long long)rows[i].max_batch);
        buf_member(out, "seq_per_s", per_second(r, &rows[i].plan));
        buf_puts(out, "}");
    }
    buf_puts(out, "\n]}\n");
}

/* The predicted seconds of each instr of a micro-batch, which the caller frees, and the compute lane's in all. */
static double *micro_seconds(const RunPlan *plan, double *all)
{
    const Plan *p = &plan->chunk->train;
    double *seconds = mem_array((size_t)p->micro.count, sizeof *seconds);
    (void)plan_cost(p, p->micro, &plan->usual, plan_input_beside(&plan->input), &plan->input.rates, seconds);
    *all = 0;
    for (int i = 0; i < p->micro.count; i++)
        if (p->instrs[p->micro.first + i].lane == LANE_COMPUTE) *all += seconds[i]; /* others go on beside it */
    return seconds;
}

/* A micro-batch of a plan over its predicted time: two points an instr, at its begin and its end. */
static void add_curve(const RunPlan *plan, const char *unit, double scale, ChartLines *l)
{
    const Plan *p = &plan->chunk->train;
    int count;
    double all, *seconds = micro_seconds(plan, &all), *live, at = 0, peak = 0;
    plan_memory_series(p, &live, &count);
    for (int i = 0; i < count; i++) peak = peak > live[i] ? peak : live[i];
    char *name = mem_printf("%s: peak %.1f MiB, %.4g %s", plan->layers.policy, peak / (1 << 20), all * scale, unit);
    int line = chart_line(l, name);
    l->series[line].scale = 1.0 / (1 << 20);
    for (int i = 0; i < count; i++) {
        const Instr *instr = &p->instrs[p->micro.first + i];
        if (!l->series[line].mark && instr->phase != PHASE_FORWARD)
            l->series[line].mark = 2 * i + 1; /* backward begins */
        chart_point(l, line, at * scale, live[i]);
        if (instr->lane == LANE_COMPUTE) at += seconds[i];
        chart_point(l, line, at * scale, live[i]);
    }
    MEM_FREE(name, live, seconds);
}

void plan_table_draw(const PlanRun *r, const PlanRow *rows, int n, Buf *out)
{
    ChartLines lines = {0};
    double longest = 0;
    for (int i = 0; i < n; i++) {
        double all;
        free(micro_seconds(&rows[i].plan, &all));
        if (all > longest) longest = all;
    }
    const char *unit = longest < 10 ? "ms" : "s";
    for (int i = 0; i < n; i++) add_curve(&rows[i].plan, unit, longest < 10 ? 1e3 : 1, &lines);
    Buf batch = {0};
    plan_put_batch(r, &batch);
    char *title = mem_printf("%s %d × %d; %s, %s", model_kinds[r->model.config.kind].name, r->model.config.layers,
                             r->model.config.hidden, batch.data, dtype_name(r->input.compute)),
         *note = mem_printf("micro-batch: %lld tokens", (long long)rows[0].plan.micro.tokens),
         *label = mem_printf("%s of one micro-batch, predicted for %s; dots: backward begins", unit, r->machine);
    chart_svg(&(Chart){.title = title,
                       .x_label = label,
                       .y_label = "MiB of activations and scratch",
                       .series = lines.series,
                       .n_series = n,
                       .note = note,
                       .from_zero = true,
                       .fractions = true},
              out);
    chart_lines_free(&lines);
    MEM_FREE(batch.data, title, note, label);
}
