/* Graphs of ranges, for a device that has them: a range is captured at its second run in a row bucket, and in the slots
   of a work, and replayed from then on. */

#include "exec/exec_internal.h"

static bool leaves_out(const Exec *e, Range range)
{
    for (InstrId i = range.first; !e->gathers && i < range.first + range.count; i++)
        if (e->plan->instrs[i].op == OP_CURVATURE) return true;
    return false;
}

static const int no_slots[N_SLOTS] = {0};

/* The replay of this range and bucket, in these slots; NULL: it never ran. */
static Replay *find_replay(Exec *e, Range range, const RowCounts *rows)
{
    const int *slots = e->slots ? e->slots : no_slots;
    bool without = leaves_out(e, range);
    for (int i = 0; i < e->n_replays; i++) {
        Replay *r = &e->replays[i];
        if (r->range.first == range.first && r->range.count == range.count && r->rows.bucket == rows->bucket &&
            r->first == e->first && r->without == without &&
            memcmp(r->rows.count, rows->count, sizeof rows->count) == 0 &&
            memcmp(r->slots, slots, sizeof r->slots) == 0)
            return r;
    }
    return NULL;
}

static void add_replay(Exec *e, Range range, const RowCounts *rows)
{
    MEM_GROW(e->replays, e->n_replays, e->cap_replays);
    Replay *r = &e->replays[e->n_replays++];
    *r = (Replay){.range = range, .rows = *rows, .first = e->first, .without = leaves_out(e, range)};
    memcpy(r->slots, e->slots ? e->slots : no_slots, sizeof r->slots);
}

ExecGraphs exec_graphs(const Exec *e) { return e->graphs; }

/* No op runs while a graph is captured: after a failure its range runs op by op from then on. */
static Status make_graph(Exec *e, Replay *r)
{
    Device *d = e->memory->backend->device;
    Status status = d->capture_begin(d);
    if (status == OK) {
        status = exec_run_plain(e, r->range, &r->rows);
        if (status == OK) {
            status = d->capture_end(d, &r->graph);
        } else {
            char *why = mem_strdup(status_message());
            void *part = NULL;
            if (d->capture_end(d, &part) == OK && part) d->graph_free(d, part);
            status = fail(status, "%s", why);
            free(why);
        }
    }
    if (status == E_STOPPED) return status;
    r->plain = status != OK;
    e->graphs.captured += !r->plain;
    e->graphs.refused += r->plain;
    if (r->plain)
        log_debug("instrs %d to %d in %lld rows run one by one: %s", r->range.first,
                  r->range.first + r->range.count - 1, (long long)r->rows.count[ROWS_TOKENS], status_message());
    return OK;
}

Status exec_prepare_graph(Exec *e, Range range, const RowCounts *rows)
{
    Replay *r = find_replay(e, range, rows);
    return r && !r->graph && !r->plain ? make_graph(e, r) : OK;
}

/* The first run lets libraries initialise. */
Status exec_run_graph(Exec *e, Range range, const RowCounts *rows)
{
    Device *d = e->memory->backend->device;
    Replay *r = find_replay(e, range, rows);
    bool again = r && r->graph;
    if (!r) add_replay(e, range, rows);
    if (r && !again && !r->plain && e->captures) TRY(make_graph(e, r));
    if (!r || !r->graph) return exec_run_plain(e, range, rows);
    if (again && exec_stopped(e, range)) return fail(E_STOPPED, "stopped before a micro-batch");
    e->graphs.replayed += again;
    return d->graph_launch(d, r->graph);
}
