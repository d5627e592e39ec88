/* What a plan exchanges with other ranks: by a thread of the host beside a host backend; after the micro-batch where a
   device's gradients go through the host's memory; or queued on the device's own comm lane, from GPU to GPU. Nothing of
   it is captured in a graph: what stands between is, piece by piece. */
#include <stdlib.h>

#include "exec/exec_internal.h"

Status exec_open_comm(Exec *e)
{
    const Plan *p = e->plan;
    const ExecRanks *ranks = e->options.ranks;
    TensorId grads = plan_find(p, "grads"), stats = plan_find(p, "stats");
    int most = 0;
    for (InstrId i = 0; i < p->n_instrs; i++) most += p->instrs[i].op == OP_REDUCE;
    if (most == 0) return OK;
    CHECK(ranks && grads != NONE && stats != NONE, "a plan for ranks, and no ranks");
    if (!ranks->comm_device)
        return comm_lane_open(&e->comm, ranks, e->memory, exec_data(e, grads), exec_data(e, stats), most);
    CHECK(e->events, "ranks on a device without lanes");
    e->queue =
        device_lane_open(ranks, e->memory->backend->device, exec_data(e, grads), exec_data(e, stats), e->n_events);
    return OK;
}

/* A REDUCE is of a step's last micro-batch. What it waits for stands before it, and a backend that computes on the host
   has done it; of a device it comes later. */
Status exec_exchange(const Exec *e, InstrId i)
{
    const Instr *instr = &e->plan->instrs[i];
    if (instr->op == OP_SHARE)
        return comm_lane_share(e->comm, OUT(&e->calls[i], SHARE, x)->data, instr->attr.share.weights);
    if (e->reducing && e->comm && !e->memory->backend->device) comm_lane_post(e->comm, i, instr->attr.reduce.bucket);
    return OK;
}

/* ---- in pieces ---- */

static bool has(const Exec *e, Range range, Op op)
{
    for (InstrId i = range.first; i < range.first + range.count; i++)
        if (e->plan->instrs[i].op == op) return true;
    return false;
}

bool exec_in_pieces(const Exec *e, Range range)
{
    if (e->queue && e->reducing) return true;
    return e->memory->backend->device && has(e, range, OP_SHARE);
}

static Status queue_one(Exec *e, InstrId i, const RowCounts *rows)
{
    (void)rows;
    const Instr *instr = &e->plan->instrs[i];
    if (instr->op == OP_REDUCE) return device_lane_sum(e->queue, instr->attr.reduce.bucket);
    return device_lane_share(e->queue, OUT(&e->calls[i], SHARE, x)->data, instr->attr.share.weights);
}

/* Compute reads at once what was shared, and nothing of what was reduced before the range's end. */
static Status queue_instr(Exec *e, InstrId i, const RowCounts *rows)
{
    if (e->plan->instrs[i].op == OP_REDUCE && !e->reducing) return OK;
    TRY(device_lane_enter(e->queue));
    TRY(e->tracing ? exec_run_noted(e, i, rows, LANE_COMM, queue_one) : queue_one(e, i, rows));
    return device_lane_leave(e->queue, e->plan->instrs[i].op == OP_SHARE);
}

/* A graph has no place for an event of another lane before it, or behind it. */
static Status run_piece(Exec *e, Range piece, const RowCounts *rows)
{
    return e->copies && !exec_watched(e) ? exec_run_plain(e, piece, rows) : exec_run_range(e, piece, rows);
}

Status exec_run_pieces(Exec *e, Range range, const RowCounts *rows)
{
    InstrId end = range.first + range.count;
    for (InstrId i = range.first; i < end;) {
        if (op_is_exchange(e->plan->instrs[i].op)) {
            TRY(e->queue ? queue_instr(e, i, rows ? rows : &e->plan->capacity) : exec_exchange(e, i));
            i++;
            continue;
        }
        InstrId first = i;
        while (i < end && !op_is_exchange(e->plan->instrs[i].op)) i++;
        if (rows) TRY(run_piece(e, (Range){first, i - first}, rows));
    }
    if (!e->queue) return OK;
    TRY(device_lane_leave(e->queue, true));
    return device_lane_wait(e->queue, &e->comm_waited);
}

/* ---- by the host ---- */

/* What the comm lane did, for the trace. */
static void note_sums(Exec *e, const CommLaneRecord *records, int n, const RowCounts *rows)
{
    for (int r = 0; r < n; r++) {
        const CommLaneRecord *x = &records[r];
        e->comm_busy += x->end - x->begin;
        if (e->tracing) exec_add_record(e, (ExecRecord){x->instr, *rows, x->begin, x->end, x->posted, x->posted}, 0);
    }
}

/* All that was posted is awaited, also where the micro-batch failed: it lies in memory that may go. */
static Status end_sums(Exec *e, Status status, const RowCounts *rows)
{
    const CommLaneRecord *records;
    int n;
    char *why = status == OK ? NULL : mem_strdup(status_message());
    double start = clock_monotonic();
    Status sums = comm_lane_wait(e->comm, &records, &n);
    e->comm_waited += clock_monotonic() - start;
    if (sums == OK) note_sums(e, records, n, rows);
    if (why) sums = fail(status, "%s", why);
    free(why);
    return sums;
}

/* Those of a micro-batch that does not run here, or that a device has run. */
static void post_all(const Exec *e)
{
    const Range micro = e->plan->micro;
    for (InstrId i = micro.first; i < micro.first + micro.count; i++)
        if (e->plan->instrs[i].op == OP_REDUCE) comm_lane_post(e->comm, i, e->plan->instrs[i].attr.reduce.bucket);
}

Status exec_run_last(Exec *e, const RowCounts *rows)
{
    Status status = OK;
    if (!e->comm && !e->queue) return exec_run(e, e->plan->micro, rows);
    e->reducing = rows != NULL || e->queue;
    if (e->reducing) status = exec_run(e, e->plan->micro, rows);
    e->reducing = false;
    if (e->queue) return status;
    if (status == OK && (!rows || e->memory->backend->device)) post_all(e);
    return end_sums(e, status, rows ? rows : &e->plan->capacity);
}

void exec_comm_seconds(const Exec *e, double *busy, double *waited)
{
    *busy = e->comm_busy;
    *waited = e->comm_waited;
}
