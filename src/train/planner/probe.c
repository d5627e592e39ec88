#include "train/planner/probe.h"

#include "base/machine_memory.h"

#define PROBE_SHORT 3e-4 /* seconds: too short to be timed alone; a scheduler's slice is several times as long */
#define PROBE_LONG  0.1  /* enough */

enum { MOST_RUNS = 15, MOST_TOGETHER = 256 };

/* A backend that works in this thread is timed by the processor's time, from which others' work takes nothing. */
static double now(const Backend *b) { return b->device || b->threads > 1 ? clock_monotonic() : clock_thread(); }

/* Runs it n times; 1e30 where it failed. */
static double time_runs(const Backend *b, OpCall *call, const RowCounts *rows, int n)
{
    double start = now(b);
    for (int i = 0; i < n; i++)
        if (b->op[call->op].run(call, rows) != OK) return 1e30;
    if (backend_wait(b) != OK) return 1e30;
    return (now(b) - start) / n;
}

/* The first run fills caches and does not count. Short calls run many times between two readings of the clock, because
   the clock, and on a device launching and waiting, take time too. */
double probe_time(const Backend *b, OpCall *call, const RowCounts *rows)
{
    double best = INFINITY, total = 0, together = ceil(PROBE_SHORT / time_runs(b, call, rows, 1));
    if (!(together < MOST_TOGETHER)) together = MOST_TOGETHER;
    for (int i = 0; i < MOST_RUNS && total < PROBE_LONG; i++) {
        double seconds = time_runs(b, call, rows, (int)together);
        total += together * seconds;
        if (seconds < best) best = seconds;
    }
    return best;
}

static size_t operand_bytes(const Backend *b, const OpCall *call, const Operand *o, const RowCounts *rows)
{
    size_t bytes = (size_t)(rows_in(o->rows, rows) * o->cols) * dtype_size(o->dtype), copy = 0;
    if ((call->op == OP_LINEAR && o == IN(call, LINEAR, w)) ||
        (call->op == OP_LINEAR_DGRAD && o == IN(call, LINEAR_DGRAD, w)))
        for (int transposed = 0; transposed < 2; transposed++) {
            size_t layout = b->copy_bytes(o->dtype, call->attr.linear.n, call->attr.linear.k, transposed);
            copy = layout > copy ? layout : copy;
        }
    return copy > bytes ? copy : bytes;
}

/* Half of the host's free memory holds it, so that no limit ends the process. */
static bool has_room(const Backend *b, size_t bytes) { return b->device || bytes <= machine_free_bytes() / 2; }

bool probe(const Backend *b, OpCall call, const RowCounts *rows, double *seconds)
{
    const OpInfo *info = op_info(call.op);
    void *regions[OP_MAX_IN + OP_MAX_OUT + 1] = {0};
    size_t bytes[OP_MAX_IN + OP_MAX_OUT + 1] = {0};
    int n = 0;
    bool ok = true;
    for (int i = 0; i < info->n_in + info->n_out && ok; i++) {
        Operand *o = i < info->n_in ? &call.in[i] : &call.out[i - info->n_in];
        if (!operand_present(o)) continue;
        bytes[n] = operand_bytes(b, &call, o, rows);
        ok = has_room(b, bytes[n]) && backend_alloc(b, bytes[n], &regions[n]) == OK;
        if (ok && o->data) ok = backend_upload(b, regions[n], o->data, bytes[n]) == OK;
        o->data = regions[n++];
    }
    call.scratch_bytes = bytes[n] = ok ? b->op[call.op].scratch(&call, rows) : 0;
    if (bytes[n] > 0) ok = has_room(b, bytes[n]) && backend_alloc(b, bytes[n], &regions[n]) == OK;
    call.scratch = regions[n];
    ok = ok && b->op[call.op].prepare(&call, rows, 1) == OK;
    if (ok) *seconds = probe_time(b, &call, rows);
    for (int i = 0; i <= n; i++)
        if (regions[i]) backend_release(b, regions[i], bytes[i]);
    return ok;
}
