/* Exchanges with other ranks. Graphs hold the pieces between exchanges, never an exchange. */

#include "base/test_switch.h"
#include "exec/exec_internal.h"

/* ---- the lane ---- */

static bool has_works(const Exec *e) { return e->plan->slots[SLOT_ACTIVATION] > 0; }

static int by_turn(const void *a, const void *b)
{
    const CommTurn *x = a, *y = b;
    if (x->later != y->later) return x->later ? 1 : -1;
    return x->stage != y->stage ? y->stage - x->stage : x->bucket - y->bucket;
}

/* A place sums all its pieces; without works a plan leaves out those to which no instr adds. */
static void add_pieces(Exec *e, CommTurn *turns)
{
    const ExecRanks *r = e->options.ranks;
    const Pieces *all = &r->holding->mine;
    for (int b = 0; b < all->n; b++) {
        const Piece *x = &all->pieces[b];
        bool later = x->begin < r->later.end && r->later.begin < x->end;
        turns[b] = (CommTurn){.exec = e, .instr = NONE, .bucket = b, .stage = x->stage, .later = later};
    }
}

static CommTurn *find_turns(Exec *const *chunks, int n_chunks, int *n)
{
    const Pieces *all = &chunks[0]->options.ranks->holding->mine;
    CommTurn *turns = mem_array((size_t)all->n + 1, sizeof *turns);
    int kept = 0;
    add_pieces(chunks[0], turns);
    turns[all->n] = (CommTurn){.instr = NONE, .bucket = -1};
    for (int k = 0; k < n_chunks; k++)
        for (InstrId i = 0; i < chunks[k]->plan->n_instrs; i++) {
            const Instr *instr = &chunks[k]->plan->instrs[i];
            if (instr->op != OP_REDUCE) continue;
            int32_t b = instr->attr.reduce.bucket;
            turns[b < 0 ? all->n : b].exec = chunks[k];
            turns[b < 0 ? all->n : b].instr = i;
        }
    bool every = has_works(chunks[0]) && all->holders > 1;
    for (int b = 0; b <= all->n; b++)
        if (turns[b].instr != NONE || (every && b < all->n)) turns[kept++] = turns[b];
    qsort(turns, (size_t)kept, sizeof *turns, by_turn);
    *n = kept;
    return turns;
}

Status exec_open_lane(Exec *const *chunks, int n)
{
    Exec *e = chunks[0];
    const Plan *p = e->plan;
    CommLane as = {.exec = e}, *lane = NULL;
    TensorId received = plan_find(p, PLAN_RECEIVED);
    for (InstrId i = 0; i < p->n_instrs; i++) e->shares |= p->instrs[i].op == OP_SHARE;
    if (!e->options.ranks) return OK;
    if (received != NONE) e->received = exec_data(e, received);
    as.turns = find_turns(chunks, n, &as.n);
    if (as.n > 0 && as.turns[0].bucket < 0) /* losses */
        e->options.ranks->comm->tree = (CommTree){.terms = e->options.ranks->holding->mine.tree};
    if (as.n == 0 && !e->shares) {
        free(as.turns);
        return OK;
    }
    TRY(e->options.ranks->comm_device ? comm_lane_open_device(as, &lane) : comm_lane_open_host(as, &lane));
    for (int k = 0; k < n; k++) chunks[k]->comm_lane = lane;
    return OK;
}

void exec_close_lane(Exec *e)
{
    if (e->comm_lane && e->comm_lane->exec == e) e->comm_lane->close(e->comm_lane);
}

static Status post(Exec *e, InstrId i, const RowCounts *rows)
{
    CommLane *l = e->comm_lane;
    CommTurn *t = l->turns;
    while (t < l->turns + l->n && (t->exec != e || t->instr != i)) t++;
    CHECK(t < l->turns + l->n && !t->posted, "instr %d: a sum that the lane does not have, or has already", i);
    return t->later ? OK : l->post(l, t, rows);
}

/* The failure that ended the range comes before one of its sums. */
static Status end_sums(Exec *e, Status status, const RowCounts *rows)
{
    if (!e->comm_lane) return status;
    char *why = status == OK ? NULL : mem_strdup(status_message());
    Status ended = e->comm_lane->wait(e->comm_lane, status != OK, rows);
    if (why) ended = fail(status, "%s", why);
    free(why);
    return ended;
}

/* ---- ranges ---- */

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

Status exec_reduce(Exec *e, InstrId i, const RowCounts *rows) { return e->reducing ? post(e, i, rows) : OK; }

/* The instr at `i`, or all up to the next that is exchanged; *next is the one after. */
static Status run_from(Exec *e, InstrId i, InstrId end, const RowCounts *rows, InstrId *next)
{
    const RowCounts *all = rows ? rows : &e->plan->capacity;
    Op op = e->plan->instrs[i].op;
    *next = i + 1;
    if (op == OP_SHARE) return e->comm_lane ? e->comm_lane->share(e->comm_lane, i, all) : OK; /* one rank has all */
    if (op == OP_REDUCE) return exec_reduce(e, i, all);
    while (*next < end && !op_is_exchange(e->plan->instrs[*next].op)) ++*next;
    return rows ? run_piece(e, (Range){i, *next - i}, rows) : OK;
}

Status exec_run_pieces(Exec *e, Range range, const RowCounts *rows)
{
    Status status = OK;
    InstrId end = range.first + range.count;
    for (InstrId i = range.first; i < end && status == OK;) status = run_from(e, i, end, rows, &i);
    return end_sums(e, status, rows ? rows : &e->plan->capacity);
}

Status exec_run_last(Exec *e, Range range, const RowCounts *rows)
{
    if (!rows) TRY(exec_complete(e));
    e->reducing = e->comm_lane != NULL;
    Status status = rows || e->comm_lane ? exec_run(e, range, rows) : OK;
    e->reducing = false;
    if (status != OK) return status;
    return e->comm_lane ? exec_virtual_complete(e) /* the lane added, bucket by bucket */ : exec_virtual_end(e, true);
}

/* ---- behind works ---- */

Status exec_sum(Exec *e, bool later)
{
    CommLane *l = e->comm_lane;
    Status status = OK;
    for (int i = 0; l && i < l->n && status == OK; i++)
        if (!l->turns[i].posted && l->turns[i].later == later) status = l->post(l, &l->turns[i], &e->plan->capacity);
    return end_sums(e, status, &e->plan->capacity);
}

Status exec_end_sums(Exec *e, Status status) { return status == OK ? OK : end_sums(e, status, &e->plan->capacity); }

/* ---- for both kinds of lane ---- */

/* The region COMM: scratch of the collectives, then on a device a piece's copy. */
Holders exec_holders(const Exec *e, int stage)
{
    const ExecRanks *r = e->options.ranks;
    const Grid *g = &r->holding->grid;
    bool turned = g->directions == 2 && stage >= g->stages / 2; /* chimera's two stages of a rank have two orders */
    char *buffer = e->memory->base[REGION_COMM];
    return (Holders){.backend = e->memory->backend,
                     .comm = r->holders[turned],
                     .scratch = buffer,
                     .copy = buffer ? (float *)(void *)(buffer + r->scratch) : NULL,
                     .stride = r->stride,
                     .device = r->comm_device,
                     .turned = turned,
                     .received = e->received};
}

Status comm_lane_sum(const Exec *e, int32_t bucket)
{
    const Pieces *p = &e->options.ranks->holding->mine;
    const Holders h = exec_holders(e, p->pieces[bucket].stage);
    TRY(exec_virtual_add(e, p->pieces[bucket].begin, p->pieces[bucket].end));
    return holding_sum(&h, &e->sums.grads, p, bucket);
}

/* GPUs of a pipeline are connected between holders alone, so that its table of all ranks goes through the hosts. */
static Status share_table(const Exec *e, const Operand *x)
{
    const ExecRanks *r = e->options.ranks;
    Holders all = exec_holders(e, 0);
    all.comm = r->comm;
    if (has_works(e)) all.device = NULL;
    return holding_share_parts(&all, x->data, 2 * x->rows.extra, r->holding->sums);
}

Status comm_lane_share(Exec *e, InstrId i, const RowCounts *rows)
{
    (void)rows;
    const ExecRanks *r = e->options.ranks;
    ShareKind what = e->plan->instrs[i].attr.share.what;
    const Pieces *p = what >= SHARE_FACTORS ? r->factors : &r->holding->mine;
    const Operand *x = OUT(&e->calls[i], SHARE, x);
    if (what == SHARE_INVERSES) test_at("inverses", r->comm->rank);
    if (what == SHARE_SUMS) return share_table(e, x);
    for (int k = 0; k < p->n; k++) {
        const Holders h = exec_holders(e, p->pieces[k].stage);
        TRY(what == SHARE_FACTORS ? holding_sum(&h, &e->sums.factors, p, k) : holding_share(&h, x->data, p, k));
    }
    return OK;
}

void exec_comm_seconds(const Exec *e, double *busy, double *waited)
{
    *busy = e->comm_busy;
    *waited = e->comm_waited;
}
