/* Records of the instrs that ran: when each was issued, began and ended. */

#include "exec/exec_internal.h"

void exec_add_record(Exec *e, ExecRecord record, int mark)
{
    int at = e->n_records;
    MEM_GROW(e->marks, at, e->cap_marks);
    MEM_GROW(e->records, e->n_records, e->cap_records);
    e->marks[at] = mark;
    e->records[e->n_records++] = record;
}

/* The device has one row of marks for all chunks of a place. */
static int *marks_of(const Exec *e) { return e->memory->first ? &e->memory->first->marks : &e->memory->marks; }

Status exec_run_noted(Exec *e, InstrId i, const RowCounts *rows, int lane, ExecStep run)
{
    Device *d = e->memory->backend->device;
    if (!e->tracing) return run(e, i, rows);
    int *marks = marks_of(e), mark = d && d->mark ? 1 + 2 * *marks : 0;
    if (mark) TRY(d->mark(d, lane, mark));
    double issued = clock_monotonic();
    TRY(run(e, i, rows));
    double returned = clock_monotonic();
    if (mark) TRY(d->mark(d, lane, mark + 1));
    *marks += mark > 0; /* both are set */
    exec_add_record(e, (ExecRecord){i, *rows, issued, returned, issued, returned}, mark);
    return OK;
}

Status exec_trace_start(Exec *e)
{
    Device *d = e->memory->backend->device;
    e->n_records = *marks_of(e) = 0;
    e->tracing = true;
    return d && d->mark ? d->mark(d, LANE_COMPUTE, 0) : OK;
}

Status exec_trace_end(Exec *e, const ExecRecord **records, int *n)
{
    Device *d = e->memory->backend->device;
    e->tracing = false;
    if (*marks_of(e) > 0) {
        int marks = 1 + 2 * *marks_of(e);
        double *times = mem_array((size_t)marks, sizeof *times);
        Status status = d->mark_times(d, times, marks);
        for (int r = 0; r < e->n_records && status == OK; r++) {
            if (!e->marks[r]) continue;
            e->records[r].begin = times[e->marks[r]];
            e->records[r].end = times[e->marks[r] + 1];
        }
        free(times);
        TRY(status);
    }
    *records = e->records;
    *n = e->n_records;
    return OK;
}
