#include "commands/plan.h"

#include "train/planner/search.h"

static const char *const bound_names[N_BOUNDS] = {"products", "memory", "launches", "link", "network"};

/* Calls of one op in one phase, over a step. */
typedef struct {
    double calls, flops, bytes, seconds, by_bound[N_BOUNDS];
    double measured, compared; /* seconds of measured ops, and the prediction of the same */
} Sum;

static void add_sum(Sum *to, const Sum *x)
{
    to->calls += x->calls;
    to->flops += x->flops;
    to->bytes += x->bytes;
    to->seconds += x->seconds;
    to->measured += x->measured;
    to->compared += x->compared;
    for (int b = 0; b < N_BOUNDS; b++) to->by_bound[b] += x->by_bound[b];
}

/* Rows of all shapes of an op, scaled to the plan's calls. */
static void add_measured(const char *text, const char *phase, const char *op, Sum *s)
{
    double calls = 0, seconds = 0, n, took;
    char *start = mem_printf("\n%s,%s,", op, phase);
    for (const char *at = text; at && (at = strstr(at, start));) {
        at = strchr(at + strlen(start), ',');
        if (!at || sscanf(at, ",%lf,%lf", &n, &took) != 2) continue;
        calls += n;
        seconds += took;
    }
    free(start);
    if (calls <= 0 || s->calls == 0) return;
    s->measured = s->calls * seconds / calls;
    s->compared = s->seconds;
}

static Status read_measured(const char *path, Sum sums[N_PHASES][N_OPS])
{
    enum { MOST_BYTES = 1 << 20 };
    Buf text = {0};
    double compared = 0;
    if (!*path) return OK;
    Status status = file_read(path, MOST_BYTES, &text);
    for (int i = 0; i < N_PHASES * N_OPS && status == OK; i++) {
        Sum *s = &sums[i / N_OPS][i % N_OPS];
        add_measured(text.data, phase_name((Phase)(i / N_OPS)), op_info((Op)(i % N_OPS))->name, s);
        compared += s->compared;
    }
    buf_free(&text);
    if (status == OK && compared == 0)
        return fail(E_FORMAT, "%s has no op of this plan; expected the kernels.csv of a run with --profile", path);
    return status;
}

/* `beside`: instrs of other lanes than compute. */
static void collect(const CostTable *t, Range range, double times, Sum sums[N_PHASES][N_OPS], Sum beside[N_OPS])
{
    for (InstrId i = range.first; i < range.first + range.count; i++) {
        const Instr *instr = &t->plan->instrs[i];
        OpCall call;
        OpCost cost;
        CostBound bound;
        plan_call(t->plan, instr, &call);
        double seconds = times * plan_call_cost(&call, t->rows, t->beside, t->rates, &cost, &bound);
        Sum x = {.calls = times,
                 .flops = times * cost.product_flops,
                 .bytes = times * (cost.bytes + cost.pass_bytes),
                 .seconds = seconds};
        x.by_bound[bound] = seconds;
        add_sum(instr->lane == LANE_COMPUTE ? &sums[instr->phase][instr->op] : &beside[instr->op], &x);
    }
}

static void print_row(Buf *out, const char *phase, const char *name, const Sum *s, double whole)
{
    int most = 0;
    for (int b = 1; b < N_BOUNDS; b++)
        if (s->by_bound[b] > s->by_bound[most]) most = b;
    buf_printf(out, "%-10s %-14s %7.6g %12.3f %12.3f %10.4f %6.2f%% %9.1f %9.1f  %s", phase, name, s->calls,
               s->flops / 1e9, s->bytes / 1e6, s->seconds * 1e3, 100 * s->seconds / whole, s->flops / s->seconds / 1e12,
               s->bytes / s->seconds / 1e9, bound_names[most]);
    if (s->compared > 0)
        buf_printf(out, "%*s %12.4f %8.3f", 8 - (int)strlen(bound_names[most]), "", s->measured * 1e3,
                   s->measured / s->compared);
    buf_puts(out, "\n");
}

static void print_rates(const CostTable *t, Buf *out)
{
    const CostRates *r = t->rates;
    const RowCounts *c = t->rows;
    buf_printf(
        out,
        "a step of %g sequences of %.2f tokens, recompute %s, %s: %.4g micro-batches of %lld tokens, %lld masked "
        "positions, and the update\n",
        t->sequences, t->mean, t->policy, dtype_name(t->plan->compute), t->micros, (long long)c->count[ROWS_TOKENS],
        (long long)c->count[ROWS_MASKED]);
    buf_printf(out, "rates (%s): products %.4g TFLOP/s, memory %.4g TB/s, %.3g µs per %s", r->source,
               r->product_flops / 1e12, (r->stream > 0 ? r->stream : r->bytes) / 1e12, r->overhead * 1e6,
               r->gpu ? "kernel" : "instr");
    if (r->attention_flops[0] > 0) {
        double part = t->beside / (t->beside + r->half_length), forward = part * r->attention_flops[0] / 1e12;
        buf_printf(out, ", attention %.4g forward", forward);
        if (r->gpu) buf_printf(out, " (%.4g with dropout)", forward * r->gpu->attention_dropout);
        buf_printf(out, " and %.4g TFLOP/s backward", part * r->attention_flops[1] / 1e12);
        if (r->gpu)
            buf_printf(out, " (%.4g in one kernel)", part * r->attention_flops[1] * r->gpu->attention_whole / 1e12);
    }
    if (r->link_out > 0 && t->plan->region_bytes[REGION_HOST])
        buf_printf(out, ", link %.4g GB/s to the host and %.4g back", r->link_out / 1e9, r->link_in / 1e9);
    buf_printf(out,
               "\nan instr takes %s its products and its bytes, then its own passes over memory, then the time per "
               "instr or kernel\n",
               r->stream > 0 ? "the sum of" : "the longer of");
    if (t->assumptions) buf_puts(out, t->assumptions);
}

Status cost_table(const CostTable *t, Buf *out)
{
    const Plan *p = t->plan;
    Sum sums[N_PHASES][N_OPS] = {{{0}}}, beside[N_OPS] = {{0}}, all = {0};
    const struct {
        Range range;
        double times;
    } ranges[] = {{p->micro, t->micros},
                  {p->forward, search_forward_again(p, t->rows, t->micros)},
                  {p->couple, 1},
                  {p->begin, 1},
                  {p->update, 1}};
    double lanes = 0; /* with the waits of the compute lane for the others */
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        collect(t, ranges[i].range, ranges[i].times, sums, beside);
        lanes += ranges[i].times * plan_cost(p, ranges[i].range, t->rows, t->beside, t->rates, NULL);
    }
    TRY(read_measured(t->measured, sums));
    for (int phase = 0; phase < N_PHASES; phase++)
        for (int op = 0; op < N_OPS; op++) add_sum(&all, &sums[phase][op]);
    double waits = lanes - all.seconds; /* without other lanes, rounding */
    bool laned = false;
    for (int op = 0; op < N_OPS; op++) laned |= beside[op].calls > 0;
    if (laned) all.seconds = lanes;
    print_rates(t, out);
    buf_printf(out, "%-10s %-14s %7s %12s %12s %10s %7s %9s %9s  %s%s\n", "phase", "op", "calls", "GFLOP", "MB", "ms",
               "share", "TFLOP/s", "GB/s", "bound by", *t->measured ? "  measured ms    ratio" : "");
    for (int phase = 0; phase < N_PHASES; phase++) {
        Sum sum = {0};
        for (int op = 0; op < N_OPS; op++) {
            const Sum *s = &sums[phase][op];
            if (s->calls == 0) continue;
            print_row(out, phase_name((Phase)phase), op_info((Op)op)->name, s, all.seconds);
            add_sum(&sum, s);
        }
        if (sum.calls > 0) print_row(out, phase_name((Phase)phase), "in all", &sum, all.seconds);
    }
    for (int op = 0; op < N_OPS; op++)
        if (beside[op].calls > 0) print_row(out, "beside", op_info((Op)op)->name, &beside[op], all.seconds);
    if (laned)
        buf_printf(out, "%-10s the other lanes work while compute does; it waits %.4f ms for them\n", "",
                   waits > 1e-9 ? waits * 1e3 : 0.0);
    print_row(out, "step", "in all", &all, all.seconds);
    double useful = 0; /* without recomputed products */
    for (int phase = 0; phase < N_PHASES; phase++)
        for (int op = 0; op < N_OPS && phase != PHASE_RECOMPUTE; op++) {
            double share = op == OP_ATTENTION_BWD ? 0.8 : 1; /* backward recomputes the scores */
            useful += share * sums[phase][op].flops;
        }
    buf_printf(out, "%.6g s per step: %.6g sequences/s, %.6g tokens/s\n", all.seconds, t->sequences / all.seconds,
               t->sequences * t->mean / all.seconds);
    buf_printf(out, "%.6g GFLOP a sequence without recomputed work, %.4g TFLOP/s: %.1f %% of the product rate",
               useful / t->sequences / 1e9, useful / all.seconds / 1e12,
               100 * useful / all.seconds / t->rates->product_flops);
    if (t->peak_flops > 0)
        buf_printf(out, ", %.1f %% of the %.4g TFLOP/s peak", 100 * useful / all.seconds / t->peak_flops,
                   t->peak_flops / 1e12);
    buf_puts(out, "\n");
    return OK;
}
