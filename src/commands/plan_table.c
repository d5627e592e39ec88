#include "commands/plan_table.h"

#include <stdlib.h>

#include "report/report.h"

static double mib(size_t bytes) { return (double)bytes / (1 << 20); }

/* The columns: regions that are shown as one. */
typedef struct {
    const char *name, *key; /* the table's and JSON's */
    int width, digits;
    unsigned regions;
} Column;

#define BIT(r) (1u << REGION_##r)
static const Column columns[] = {
    {"weights", "weights", 9, 1, BIT(WEIGHT) | BIT(COPY)},
    {"gradients", "gradients", 9, 1, BIT(GRAD)},
    {"optimizer", "optimizer", 9, 1, BIT(MOMENT)},
    {"activat.", "activations", 9, 1, BIT(ACT)},
    {"scratch", "scratch", 9, 1, BIT(SCRATCH)},
    {"input", "input", 8, 2, BIT(INPUT) | BIT(OUTPUT) | BIT(CONST)},
    {"save", "save", 8, 1, BIT(SAVE)},
};
enum { N_COLUMNS = sizeof columns / sizeof *columns };

/* Of the memory that activations lie in. */
static size_t column_bytes(const RunPlan *p, const Column *c)
{
    size_t sum = 0;
    for (int r = 0; r < N_REGIONS; r++)
        if (c->regions >> r & 1 && account_has(&p->accounts.row[0], (Region)r)) sum += p->bytes[r];
    return sum;
}

static bool exact(const RunPlan *p) { return p->train.exact; }

static double per_second(const PlanTable *t, const RunPlan *p) { return (double)t->batch_size / p->step_s; }

/* In 26 columns: × is one of them and two bytes. */
static void put_name(const char *name, Buf *out)
{
    int width = 26;
    for (const char *p = name; *p; p++) width += (*p & 0xC0) == 0x80;
    buf_printf(out, "%-*s", width, name);
}

void plan_table_print(const PlanTable *t, const PlanRow *rows, int n, Buf *out)
{
    const RunPlan *p = &rows[0].plan;
    const PlanInput *in = &p->input;
    const ModelConfig *m = &in->model->config;
    const Account *first = &p->accounts.row[0];
    buf_printf(out,
               "BERT of %d layers, hidden %d, %.1f M parameters; %s, %s; batch %lld × %lld tokens, micro-batches of ",
               m->layers, m->hidden, (double)in->model->params.size / 1e6, t->machine, dtype_name(in->compute),
               (long long)t->batch_size, (long long)in->max_length);
    buf_printf(out, "%lld tokens%s\n", (long long)p->micro.tokens, in->max_masked ? ", pretraining" : "");
    if (in->packed)
        buf_printf(out, "packed: %.2f tokens in a sequence, %.2f beside a token\n", in->mean_length, in->beside);
    buf_printf(out, "budget %.0f MiB; rates: %.1f GFLOP/s, %.1f GB/s (%s)\n\n", mib(first->budget),
               in->rates.product_flops / 1e9, in->rates.bytes / 1e9, in->rates.source);
    buf_printf(out, "%-26s", "MiB");
    for (int c = 0; c < N_COLUMNS; c++) buf_printf(out, " %*s", columns[c].width, columns[c].name);
    buf_printf(out, " %10s %9s %9s %9s\n", "peak", "step (s)", "seq/s", "max batch");
    for (int i = 0; i < n; i++) {
        p = &rows[i].plan;
        put_name(p->policy, out);
        for (int c = 0; c < N_COLUMNS; c++)
            buf_printf(out, " %*.*f", columns[c].width, columns[c].digits, mib(column_bytes(p, &columns[c])));
        buf_printf(out, " %9.1f%s %9.4g %9.4g %9lld%s\n", mib(run_plan_peak(p)), exact(p) ? " " : "~", p->step_s,
                   per_second(t, p), (long long)rows[i].max_batch, p->fits ? "" : "  does not fit");
    }
    buf_printf(out, "\npeak includes %.1f MiB %s; max batch: sequences in one micro-batch within the budget%s\n",
               mib(first->held),
               rows[0].plan.accounts.n > 1 ? "of the device's context and libraries" : "of the process itself",
               exact(&rows[0].plan) ? "" : "; ~ scratch is estimated");
    for (int i = 0; i < n; i++)
        if (rows[i].plan.bytes[REGION_HOST])
            buf_printf(out, "%s: %.1f MiB of pinned memory of the host beside that, by a link of %.1f and %.1f GB/s\n",
                       rows[i].plan.policy, mib(rows[i].plan.bytes[REGION_HOST]), in->rates.link_out / 1e9,
                       in->rates.link_in / 1e9);
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
    buf_puts(out, "\"name\": ");
    buf_json(out, p->policy);
    buf_puts(out, ", \"bytes\": {");
    for (int c = 0; c < N_COLUMNS; c++) buf_printf(out, "\"%s\": %zu, ", columns[c].key, column_bytes(p, &columns[c]));
    buf_printf(out, "\"host\": %zu}, \"peak\": %zu, \"offloaded\": %zu, \"micro_batch\": [%lld, %lld, %lld]",
               a->row[0].held, run_plan_peak(p), p->bytes[REGION_HOST], (long long)p->micro.tokens,
               (long long)p->micro.seqs, (long long)p->micro.masked);
    buf_puts(out, ", \"accounts\": [");
    for (int i = 0; i < a->n; i++) {
        if (i) buf_puts(out, ", ");
        account_json(&a->row[i], out);
    }
    buf_puts(out, "], \"step_s\": ");
    buf_double(out, p->step_s);
    buf_printf(out, ", \"fits\": %s, \"exact\": %s", p->fits ? "true" : "false", exact(p) ? "true" : "false");
}

void plan_table_json(const PlanTable *t, const PlanRow *rows, int n, Buf *out)
{
    const RunPlan *p = &rows[0].plan;
    buf_puts(out, "{\"backend\": ");
    buf_json(out, t->backend);
    buf_printf(out, ", \"micro_batch_tokens\": %lld, \"budget\": %zu, \"policies\": [", (long long)p->micro.tokens,
               p->accounts.row[0].budget);
    for (int i = 0; i < n; i++) {
        buf_printf(out, "%s\n {", i ? "," : "");
        plan_row_json(&rows[i].plan, out);
        buf_printf(out, ", \"max_batch\": %lld, \"seq_per_s\": ", (long long)rows[i].max_batch);
        buf_double(out, per_second(t, &rows[i].plan));
        buf_puts(out, "}");
    }
    buf_puts(out, "\n]}\n");
}

void plan_table_draw(const PlanRow *rows, int n, Buf *out)
{
    ChartSeries *series = mem_array((size_t)n, sizeof *series);
    Chart chart = {.title = "Memory over one micro-batch",
                   .x_label = "instr",
                   .y_label = "MiB of activations and scratch",
                   .series = series,
                   .n_series = n};
    double **bytes = mem_array((size_t)n, sizeof *bytes);
    for (int i = 0; i < n; i++) {
        series[i] = (ChartSeries){.name = rows[i].plan.policy, .scale = 1.0 / (1 << 20)};
        plan_memory_series(&rows[i].plan.train, &bytes[i], &series[i].n);
        series[i].y = bytes[i];
    }
    chart_svg(&chart, out);
    for (int i = 0; i < n; i++) free(bytes[i]);
    free(bytes);
    free(series);
}
