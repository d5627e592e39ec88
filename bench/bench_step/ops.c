/* Single calls: the machine's own rates, and the instrs of a plan one kind after the other. */
#include <math.h>
#include <stdlib.h>

#include "bench/bench_step/rig.h"

/* Seconds of one run among many: as a graph where there are graphs. */
static double time_call(OpCall *call, const RowCounts *rows, int repeat)
{
    const OpImpl *impl = &backend->op[call->op];
    Device *d = backend->device;
    void *graph = NULL;
    double best = INFINITY;
    must(impl->run(call, rows));
    if (d && d->capture_begin) {
        must(d->capture_begin(d));
        for (int i = 0; i < repeat; i++) must(impl->run(call, rows));
        must(d->capture_end(d, &graph));
    }
    for (int round = 0; round < 3; round++) {
        must(wait_for_all());
        double start = clock_monotonic();
        for (int i = 0; i < (graph ? 1 : repeat); i++) must(graph ? d->graph_launch(d, graph) : impl->run(call, rows));
        must(wait_for_all());
        double seconds = (clock_monotonic() - start) / repeat;
        if (seconds < best) best = seconds;
    }
    if (graph) d->graph_free(d, graph);
    return best;
}

static double prepare_and_time(OpCall *call, const RowCounts *rows, int repeat)
{
    must(backend->op[call->op].prepare(call, rows, 1));
    return time_call(call, rows, repeat);
}

/* ---- the machine's own rates, measured in the same run: a large product, a pass over memory ---- */

static Operand random_operand(Dtype dtype, Rows rows, int64_t n_rows, int64_t cols, size_t bytes)
{
    Operand o = {.dtype = dtype, .rows = rows, .cols = cols};
    int64_t n = n_rows * cols;
    void *host = mem_array((size_t)n, dtype_size(dtype));
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(int32_t)((uint32_t)i * 2654435761u ^ (uint32_t)i << 7) * 0x1p-31f;
        if (dtype == F32)
            ((float *)host)[i] = x;
        else
            ((uint16_t *)host)[i] = bf16_from_f32(x);
    }
    must(backend_alloc(backend, bytes ? bytes : (size_t)n * dtype_size(dtype), &o.data));
    must(backend_upload(backend, o.data, host, (size_t)n * dtype_size(dtype)));
    free(host);
    return o;
}

static void with_scratch(OpCall *call, const RowCounts *rows)
{
    call->scratch_bytes = backend->op[call->op].scratch(call, rows);
    if (call->scratch_bytes) must(backend_alloc(backend, call->scratch_bytes, &call->scratch));
}

MachineRates measure_machine(void)
{
    MachineRates machine;
    int64_t size = want.product ? want.product : backend->device ? 4096 : 0;
    int64_t m = machine.m = size ? size : 1024, k = machine.k = size ? size : 768, n = machine.n = size ? size : 3072;
    RowCounts rows = {.count = {[ROWS_TOKENS] = m, [ROWS_SEQS] = 1}};
    Rows tokens = {ROWS_TOKENS, 0}, fixed = {ROWS_FIXED, n};
    size_t copy_bytes = backend->copy_bytes(want.compute, n, k, false);
    Operand x = random_operand(want.compute, tokens, m, k, 0), w = random_operand(F32, fixed, n, k, 0);
    Operand bias = random_operand(backend->device ? want.compute : F32, fixed, n, 1, 0),
            y = random_operand(want.compute, tokens, m, n, 0);
    Operand z = random_operand(want.compute, tokens, m, n, 0), copy = w;
    copy.dtype = want.compute;
    must(backend_alloc(backend, copy_bytes, &copy.data));
    OpCall pack = {.op = OP_PACK, .attr = {.pack = {n, k, false}}, .in = {w}, .out = {copy}};
    OpCall linear = {.op = OP_LINEAR, .attr = {.linear = {k, n}}, .in = {x, copy, bias}, .out = {y}};
    OpCall gelu = {.op = OP_GELU, .in = {y}, .out = {z}};
    OpCall *calls[] = {&pack, &linear, &gelu};
    double seconds[3];
    for (int i = 0; i < 3; i++) {
        with_scratch(calls[i], &rows);
        seconds[i] = prepare_and_time(calls[i], &rows, 4);
    }
    machine.flops = 2.0 * (double)m * (double)n * (double)k / seconds[1];
    machine.bytes = 2.0 * (double)(m * n) * (double)dtype_size(want.compute) / seconds[2];
    Operand all[] = {x, w, bias, y, z};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        backend_release(backend, all[i].data,
                        (size_t)(rows_in(all[i].rows, &rows) * all[i].cols) * dtype_size(all[i].dtype));
    backend_release(backend, copy.data, copy_bytes);
    for (int i = 0; i < 3; i++)
        if (calls[i]->scratch) backend_release(backend, calls[i]->scratch, calls[i]->scratch_bytes);
    return machine;
}

/* ---- the instrs of a plan, one kind after the other ---- */

typedef struct {
    OpCall call;
    Phase phase;
    int times;
    double seconds;
    OpCost cost;
} Kind;

static bool same_operands(const Operand *a, const Operand *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i].cols != b[i].cols || a[i].dtype != b[i].dtype || a[i].rows.kind != b[i].rows.kind ||
            a[i].rows.extra != b[i].rows.extra)
            return false;
    return true;
}

static bool same_kind(const Kind *x, const OpCall *c, Phase phase)
{
    return x->call.op == c->op && x->phase == phase && same_operands(x->call.in, c->in, OP_MAX_IN) &&
           same_operands(x->call.out, c->out, OP_MAX_OUT);
}

static void bind(const Rig *r, const Instr *instr, OpCall *call)
{
    for (int k = 0; k < OP_MAX_IN; k++)
        if (instr->in[k] != NONE) call->in[k].data = exec_data(r->exec, instr->in[k]);
    for (int k = 0; k < OP_MAX_OUT; k++)
        if (instr->out[k] != NONE) call->out[k].data = exec_data(r->exec, instr->out[k]);
    call->scratch_bytes = instr->scratch;
    call->scratch = instr->scratch ? r->memory.base[REGION_SCRATCH] : NULL;
}

static int slower_first(const void *a, const void *b)
{
    const Kind *x = a, *y = b;
    double p = x->times * x->seconds, q = y->times * y->seconds;
    return p < q ? 1 : p > q ? -1 : 0;
}

static bool is_linear(Op op) { return op == OP_LINEAR || op == OP_LINEAR_DGRAD || op == OP_LINEAR_WGRAD; }

static long long columns_in(const Kind *k)
{
    return is_linear(k->call.op) ? k->call.attr.linear.k : k->call.in[0].cols;
}

static long long columns_out(const Kind *k)
{
    return is_linear(k->call.op) ? k->call.attr.linear.n : k->call.out[0].cols;
}

static double bytes_of(const Kind *k) { return k->cost.bytes + k->cost.pass_bytes; }

static void print_kind(const Kind *k, double whole)
{
    printf("%-10s %-14s %6lld %6lld %6d %10.4f %9.2f %9.1f %6.2f%%\n", phase_name(k->phase), op_info(k->call.op)->name,
           columns_in(k), columns_out(k), k->times, k->seconds * 1e3, k->cost.product_flops / k->seconds * 1e-12,
           bytes_of(k) / k->seconds * 1e-9, 100 * k->times * k->seconds / whole);
}

/* At once: a later instr may fail. */
static void write_kind(const Kind *k, FILE *csv)
{
    const char *op = op_info(k->call.op)->name, *phase = phase_name(k->phase);
    if (csv) {
        fprintf(csv, "%s,%s,%lldx%lld,%d,%.9g\n", op, phase, columns_out(k), columns_in(k), k->times,
                k->times * k->seconds);
        fflush(csv);
    }
    if (!json) return;
    fprintf(json,
            "{\"kind\": \"op\", \"case\": \"%s\", \"phase\": \"%s\", \"op\": \"%s\", \"in\": %lld, \"out\": %lld, "
            "\"calls\": %d, \"seconds\": %.9g, \"flops\": %.9g, \"bytes\": %.9g}\n",
            want.name, phase, op, columns_in(k), columns_out(k), k->times, k->seconds, k->cost.product_flops,
            bytes_of(k));
    fflush(json);
}

void measure_ops(const char *policy, double step)
{
    Rig r;
    int n = 0, cap = 0, repeat = want.steps > 1 ? 20 : 1;
    Kind *kinds = NULL;
    double whole = 0;
    must(rig_open(&r, policy));
    must(rig_step(&r, 0));
    must(wait_for_all());
    for (InstrId i = 0; i < r.plan.n_instrs; i++) {
        OpCall call;
        int k = 0;
        plan_call(&r.plan, &r.plan.instrs[i], &call);
        while (k < n && !same_kind(&kinds[k], &call, r.plan.instrs[i].phase)) k++;
        if (k == n) {
            MEM_GROW(kinds, n, cap);
            call.largest = &r.plan.capacity;
            kinds[n++] = (Kind){.call = call, .phase = r.plan.instrs[i].phase};
            bind(&r, &r.plan.instrs[i], &kinds[k].call);
        }
        kinds[k].times++;
    }
    RowCounts rows = r.plan.capacity;
    rows.bucket = 0;
    FILE *csv = want.kernels ? fopen(want.kernels, "we") : NULL;
    if (csv) fputs("op,phase,shape,calls,seconds\n", csv);
    for (int k = 0; k < n; k++) {
        kinds[k].seconds = prepare_and_time(&kinds[k].call, &rows, repeat);
        kinds[k].cost = op_cost(&kinds[k].call, &rows, beside);
        whole += kinds[k].times * kinds[k].seconds;
        write_kind(&kinds[k], csv);
    }
    if (want.kernels && (!csv || fclose(csv) != 0)) must(fail(E_IO, "cannot write %s", want.kernels));
    qsort(kinds, (size_t)n, sizeof *kinds, slower_first);
    printf("\ninstrs of %s, each %d times back to back\n%-10s %-14s %6s %6s %6s %10s %9s %9s %7s\n", policy, repeat,
           "phase", "op", "in", "out", "calls", "ms", "TFLOP/s", "GB/s", "share");
    for (int k = 0; k < n; k++) print_kind(&kinds[k], whole);
    printf("in all %.3f ms; the step took %.3f ms: %.2f %% of it between instrs\n", whole * 1e3, step * 1e3,
           100 * (1 - whole / step));
    if (json)
        fprintf(json, "{\"kind\": \"idle\", \"case\": \"%s\", \"ops_s\": %.9g, \"step_s\": %.9g, \"idle\": %.5g}\n",
                want.name, whole, step, 1 - whole / step);
    free(kinds);
    rig_close(&r);
}
