/* The memory accounts: what is given up where a plan does not fit, warnings of it, and refusals. */

#include "train/parts/place.h"
#include "train/planner/planner.h"

bool planner_can_stream(const PlanInput *in)
{
    const Holding *h = &in->place->holding;
    for (int kind = 0; kind < N_HELD; kind++)
        if (h->rank == 0 && holding_brings(h, (HeldKind)kind)) return false;
    return !planner_for_device(in);
}

bool planner_own_snapshots(const Config *c) { return strcmp(c->snapshot_steps, "auto") != 0; }

/* ---- fitting the accounts ---- */

/* Where the plan fits without a save buffer: another for the time of a save, the fastest beside which the buffer has
   room. p->other stays NULL where there is none. When one is made the process may hold more than was known, so a second
   one is tried. */
static Status add_other(const SearchProblem *search, RunPlan *p)
{
    Account *first = &p->accounts.row[0];
    SearchResult r;
    for (int round = 0; round < 2 && first->peak - p->bytes[REGION_SAVE] <= first->budget; round++) {
        TRY(search_layers(search, &r));
        Status status = r.fits ? run_plan_make_other(p, &r.layers) : OK;
        layer_choice_free(&r.layers);
        TRY(status);
        if (!p->other) return OK;
        p->other->step_s = search_step_seconds(&p->other->chunk->train, &search->rows, &search->rates, search->seq_len,
                                               search->micros);
        accounts_update(&p->accounts);
        if (!accounts_set_peaks(&p->accounts, p->bytes)) return OK;
        run_plan_drop_other(p);
        (void)accounts_set_peaks(&p->accounts, p->bytes);
    }
    return OK;
}

Status planner_fit(const Config *c, const SearchProblem *search, RunPlan *p)
{
    Account *over;
    p->fits = false;
    p->snapshots_given_up = 0;
    while ((over = accounts_set_peaks(&p->accounts, p->bytes))) {
        bool saves = p->bytes[REGION_SAVE] && account_has(over, REGION_SAVE) && planner_can_stream(&p->input);
        if (saves && search) TRY(add_other(search, p));
        if (p->other && saves) continue;
        if (over->snapshots && !planner_own_snapshots(c)) {
            p->snapshots_given_up = over->snapshots;
            over->snapshots = 0;
        } else if (saves) {
            run_plan_set_buffer(p, false);
        } else {
            return OK;
        }
    }
    if (p->other) p->other->accounts = p->accounts;
    p->fits = true;
    return OK;
}

void planner_warn(const Config *c, const RunPlan *p)
{
    const Account *first = &p->accounts.row[0], *of = &p->accounts.row[p->accounts.n - 1];
    if (planner_one_grain(&p->input) && strcmp(c->micro_batch_tokens, "default") != 0)
        log_warn("--micro-batch-tokens is without effect: on a GPU with --virtual-ranks a micro-batch is one grain of "
                 "at most %lld tokens; --grain-tokens is its size",
                 (long long)p->micro.tokens);
    if (p->snapshots_given_up)
        log_warn("no room for snapshots (%.1f MiB) beside the %.1f MiB that training takes of %.1f MiB: none are taken",
                 MIB(p->snapshots_given_up), MIB(of->peak), MIB(of->budget));
    if (run_plan_waits(p))
        log_warn("no room for the save buffer within %.0f MiB: training will wait while the state is saved",
                 MIB(first->budget));
}

/* ---- what does not fit ---- */

static Status refuse_machine(const RunPlan *p, const Account *a)
{
    char snapshots[96] = "";
    if (a->snapshots)
        snprintf(snapshots, sizeof snapshots, ", snapshots: %.1f MiB, and --snapshot-steps 0 takes none",
                 MIB(a->snapshots));
    return fail(
        E_MEMORY,
        "beside the device the machine's memory holds %.1f MiB (the state that is being saved: %.1f MiB, what is "
        "offloaded: %.1f MiB%s), and %.1f MiB are free. End what else runs here, offload less, or use a smaller "
        "model",
        MIB(a->peak), MIB(p->bytes[REGION_SAVE]), MIB(p->bytes[REGION_HOST]), snapshots, MIB(a->budget));
}

static void put_budget(Buf *text, bool automatic, size_t bytes)
{
    buf_printf(text, "%s%zu%sMiB", automatic ? "" : "--memory-budget ", MIB_UP(bytes), automatic ? " " : "");
}

/* `enough`: a budget for all ranks; `of_auto`: the same with --recompute auto, 0: no less. */
static Status refuse(const RunPlan *p, size_t enough, size_t of_auto)
{
    const Account *first = &p->accounts.row[0];
    const RankPlace *place = p->input.place;
    Buf text = {0};
    if (p->fits) return OK;
    if (first->peak <= first->budget) return refuse_machine(p, &p->accounts.row[p->accounts.n - 1]);
    if (p->input.training)
        buf_printf(&text, "--recompute %s takes %.1f MiB", p->layers.policy, MIB(first->peak));
    else
        buf_printf(&text, "evaluation takes %.1f MiB", MIB(first->peak));
    if (place->grid.stages > 1) buf_printf(&text, " on place %d of the pipeline", place->number);
    if (first->snapshots)
        buf_printf(&text, " (%.1f MiB of it for snapshots; --snapshot-steps 0 takes none)", MIB(first->snapshots));
    buf_printf(&text, ", more than %s of %.1f MiB. It fits with ", first->limit, MIB(first->budget));
    put_budget(&text, first->automatic, enough);
    if (MIB_UP(of_auto) == MIB_UP(enough)) of_auto = 0;
    if (of_auto) buf_puts(&text, ", with --recompute auto");
    if (of_auto > first->budget) {
        buf_puts(&text, " and ");
        put_budget(&text, first->automatic, of_auto);
    }
    if (place->grid.stages > 1) buf_puts(&text, ", with fewer layers on this place (--stage-layers)");
    buf_printf(&text, ", or with a smaller %s",
               p->input.training ? "--micro-batch-tokens, --batch-size or --max-seq-length" : "--eval-batch-size");
    if (p->bound.least > first->budget)
        buf_printf(&text, "; no schedule of these micro-batches takes less than %.1f MiB", MIB(p->bound.least));
    Status status = fail(E_MEMORY, "%s", text.data);
    buf_free(&text);
    return status;
}

static Status ranks_most(Ranks *ranks, int64_t *n)
{
    *n = -*n;
    TRY(ranks_least(ranks, n));
    *n = -*n;
    return OK;
}

Status planner_refuse(const RunPlan *p, int64_t least, Ranks *ranks)
{
    const Account *first = &p->accounts.row[0];
    int64_t held = (int64_t)(first->held + p->input.later_bytes), needs = (int64_t)(first->peak - first->held);
    size_t of_auto = 0;
    TRY(ranks_most(ranks, &held));
    TRY(ranks_most(ranks, &needs));
    TRY(ranks_most(ranks, &least));
    if (least >= 0 && least < needs) of_auto = accounts_enough(&p->accounts, (size_t)(held + least));
    return ranks_all(ranks, refuse(p, accounts_enough(&p->accounts, (size_t)(held + needs)), of_auto));
}
