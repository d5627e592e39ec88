/* Exchanges with other ranks. Graphs hold the pieces between exchanges, never an exchange. */
#include <stdlib.h>

#include "base/test_switch.h"
#include "exec/exec_internal.h"

Status exec_open_lane(Exec *e)
{
    const Plan *p = e->plan;
    TensorId stats = plan_find(p, "stats");
    int most = 0;
    for (InstrId i = 0; i < p->n_instrs; i++) {
        most += p->instrs[i].op == OP_REDUCE;
        e->shares |= p->instrs[i].op == OP_SHARE;
    }
    CHECK(most == 0 || e->options.ranks, "a plan for ranks, and no ranks");
    if (!e->options.ranks || (most == 0 && !e->shares)) return OK;
    CHECK(stats != NONE, "a plan for ranks without stats");
    return e->options.ranks->comm_device ? comm_lane_open_device(e, exec_data(e, stats), &e->comm_lane)
                                         : comm_lane_open_host(e, exec_data(e, stats), most, &e->comm_lane);
}

static bool range_has(const Exec *e, Range range, Op op)
{
    for (InstrId i = range.first; i < range.first + range.count; i++)
        if (e->plan->instrs[i].op == op) return true;
    return false;
}

bool exec_in_pieces(const Exec *e, Range range) { return e->reducing || (e->shares && range_has(e, range, OP_SHARE)); }

/* A graph has no place for an event of another lane before it, or behind it. */
static Status run_piece(Exec *e, Range piece, const RowCounts *rows)
{
    return e->copies && !exec_watched(e) ? exec_run_plain(e, piece, rows) : exec_run_range(e, piece, rows);
}

/* The instr at `i`, or all up to the next that is exchanged; *next is the one after. */
static Status run_from(Exec *e, InstrId i, InstrId end, const RowCounts *rows, InstrId *next)
{
    const RowCounts *all = rows ? rows : &e->plan->capacity;
    Op op = e->plan->instrs[i].op;
    *next = i + 1;
    if (op == OP_SHARE) return e->comm_lane ? e->comm_lane->share(e->comm_lane, i, all) : OK; /* one rank has all */
    if (op == OP_REDUCE) return e->reducing ? e->comm_lane->post(e->comm_lane, i, all) : OK;
    while (*next < end && !op_is_exchange(e->plan->instrs[*next].op)) ++*next;
    return rows ? run_piece(e, (Range){i, *next - i}, rows) : OK;
}

Status exec_run_pieces(Exec *e, Range range, const RowCounts *rows)
{
    Status status = OK;
    InstrId end = range.first + range.count;
    for (InstrId i = range.first; i < end && status == OK;) status = run_from(e, i, end, rows, &i);
    char *why = status == OK ? NULL : mem_strdup(status_message());
    Status ended = status;
    if (e->comm_lane) ended = e->comm_lane->wait(e->comm_lane, status != OK, rows ? rows : &e->plan->capacity);
    if (why) ended = fail(status, "%s", why);
    free(why);
    return ended;
}

Status exec_run_last(Exec *e, const RowCounts *rows)
{
    if (!rows) TRY(exec_complete(e));
    e->reducing = e->comm_lane != NULL;
    Status status = rows || e->comm_lane ? exec_run(e, e->plan->micro, rows) : OK;
    e->reducing = false;
    if (status != OK) return status;
    return e->comm_lane ? exec_virtual_complete(e) /* the lane added, bucket by bucket */ : exec_virtual_end(e, true);
}

/* ---- for both kinds of lane ---- */

Comm *exec_holders(const ExecRanks *r, int stage)
{
    const Grid *g = &r->holding->grid;
    return r->holders[g->directions == 2 && stage >= g->stages / 2];
}

static Holders holders_of(const Exec *e, const Holders *all, const Pieces *p, int piece)
{
    Holders h = *all;
    h.comm = exec_holders(e->options.ranks, p->pieces[piece].stage);
    return h;
}

Status comm_lane_sum(const Exec *e, const Holders *all, int32_t bucket)
{
    const Pieces *p = &e->options.ranks->holding->mine;
    const Holders h = holders_of(e, all, p, bucket);
    TRY(exec_virtual_add(e, p->pieces[bucket].begin, p->pieces[bucket].end));
    return holding_sum(&h, &e->sums.grads, p, bucket);
}

Status comm_lane_share(const Exec *e, const Holders *all, InstrId i)
{
    const ExecRanks *r = e->options.ranks;
    ShareKind what = e->plan->instrs[i].attr.share.what;
    const Pieces *p = what >= SHARE_FACTORS ? r->factors : &r->holding->mine;
    const Operand *x = OUT(&e->calls[i], SHARE, x);
    if (what == SHARE_INVERSES) test_at("inverses", r->comm->rank);
    if (what == SHARE_SUMS) return holding_share_parts(all, x->data, 2 * x->rows.extra, r->holding->sums);
    for (int k = 0; k < p->n; k++) {
        const Holders h = holders_of(e, all, p, k);
        TRY(what == SHARE_FACTORS ? holding_sum(&h, &e->sums.factors, p, k) : holding_share(&h, x->data, p, k));
    }
    return OK;
}

void exec_comm_seconds(const Exec *e, double *busy, double *waited)
{
    *busy = e->comm_busy;
    *waited = e->comm_waited;
}
