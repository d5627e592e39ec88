#include "commands/plan.h"

#include "train/parts/network.h"
#include "train/planner/planner.h"
#include "train/planner/search.h"
#include "train/planner/snapshot_room.h"

#define GOAL 0.9 /* of linear */

/* One number of ranks; seconds are of a step. */
typedef struct {
    int ranks;
    size_t optimizer, exchange;      /* bytes on each rank */
    double alone, step;              /* one rank with the same share; this many */
    double network, hidden, waiting; /* the exchange, its part behind backward, the rest */
    double efficiency;
    double micros;             /* per step, so that GOAL is reached */
    int64_t batch;             /* sequences of such a step, over all ranks */
    uint64_t snapshot, copies; /* bytes of the host's memory for a rank, at most: its own slice, copies of others */
    uint64_t snapshots;        /* of the own slices of all ranks */
} Row;

typedef struct {
    const PlanRun *r;
    const RunPlan *plan;
    Network network;
    int64_t share; /* sequences of a step, on each rank */
    int replicas;  /* copies of each rank's snapshot on other hosts, where there are several */
    Row rows[64];  // (n)
    int n;
} RankTable;

static double exchange_seconds(const Plan *p, Range range, const double *seconds)
{
    double sum = 0;
    for (InstrId i = 0; i < range.count; i++)
        if (op_is_exchange(p->instrs[range.first + i].op)) sum += seconds[i];
    return sum;
}

static Status add_row(RankTable *r, int ranks)
{
    Row *row = &r->rows[r->n++];
    Status status = OK;
    Plan p = {0};
    ModelTensors t;
    Holding h;
    const Grid grid = grid_of_ranks(ranks);
    const PlanInput *in = &r->plan->input;
    const RowCounts *rows = &r->plan->usual;
    CostRates rates = in->rates;
    PlanRequest q = run_plan_request(r->plan, true);
    double micros = r->plan->micros, beside = plan_input_beside(in);
    *row = (Row){.ranks = ranks};
    holding_init(&h, r->r->c, q.model, &grid, NULL, 0);
    if (ranks > 1) network_rates(&r->network, &h, &rates);
    q.holding = ranks > 1 ? &h : NULL;
    q.room = ranks > 1 ? exchanges_room(q.kfac, &h, false) : (PiecesRoom){0};
    q.slice = holding_slice(&h);
    TRY_DONE(plan_make(&q, &p, &t, NULL));
    double *each = mem_array((size_t)p.micro.count + (size_t)p.update.count, sizeof *each);
    double micro = plan_cost(&p, p.micro, rows, beside, &in->rates, NULL);
    double last = plan_cost(&p, p.micro, rows, beside, &rates, each);
    plan_cost(&p, p.update, rows, beside, &rates, each + p.micro.count);
    double reduce = exchange_seconds(&p, p.micro, each), share = exchange_seconds(&p, p.update, each + p.micro.count);
    free(each);
    row->optimizer = p.region_bytes[REGION_MOMENT];
    row->exchange = p.region_bytes[REGION_COMM];
    row->snapshot = snapshots_rank_bytes(&h, 0, &row->snapshots);
    row->copies = snapshots_rank_bytes(&h, r->replicas, NULL) - row->snapshot;
    row->network = reduce + share;
    row->waiting = last - micro + share;
    row->hidden = row->network - row->waiting;
    row->alone = search_step_seconds(&p, rows, &in->rates, beside, micros); /* these rates have no exchange */
    row->step = row->alone + row->waiting;
    row->efficiency = row->alone / row->step;
    /* k more micro-batches add the same to both */
    double more = ceil((GOAL * row->step - row->alone) / ((1 - GOAL) * micro) - 1e-9);
    row->micros = ceil(micros) + (more > 0 ? more : 0);
    row->batch = (int64_t)ceil(row->micros / (micros > 1 ? micros : 1) * (double)r->share) * ranks;
done:
    plan_free(&p);
    holding_free(&h);
    return status;
}

/* Slices × two generations. The number of ranks of a host is unknown. */
static void print_snapshots(const RankTable *r, const Row *w)
{
    printf(
        "snapshots: %.1f MiB of the host's memory for each of %d ranks at most, %.1f MiB with all of them on one host",
        mib(w->snapshot), w->ranks, mib(w->snapshots));
    if (r->replicas)
        printf("; on several, with %d cop%s\nof each slice on other hosts, %.1f MiB for each rank, so for a host that "
               "times its ranks",
               r->replicas, r->replicas == 1 ? "y" : "ies", mib(w->snapshot + w->copies));
    printf(" (--snapshot-replicas, --snapshot-steps)\n");
}

static void print_table(const RankTable *r)
{
    const Config *c = r->r->c;
    const Network *n = &r->network;
    const Row *rows = r->rows, *last = &rows[r->n - 1];
    printf("%s; each rank %lld sequences of a step, recompute %s; sums as %s in buckets of %.0f MiB%s\n", r->r->machine,
           (long long)r->share, c->recompute, c->wire, mib((size_t)c->bucket_size),
           strcmp(c->shard, "optimizer") == 0 ? ", the optimizer sharded" : "");
    printf("network %s: %.3g GB/s each way and %.3g µs for every rank\n\n", n->name, n->bytes / 1e9, n->latency * 1e6);
    printf("%7s %11s %11s %11s %10s %10s %8s %10s %10s %14s %12s\n", "ranks", "moments", "saved", "exchange", "network",
           "waiting", "hidden", "step", "seq/s", "of linear", "for 90 %");
    printf("%7s %11s %11s %11s %10s %10s %8s %10s %10s %14s %12s\n", "", "MiB", "MiB", "MiB", "s", "s", "", "s", "", "",
           "micros/step");
    for (int i = 0; i < r->n; i++) {
        const Row *w = &rows[i];
        printf("%7d %11.1f %11.1f %11.1f %10.4g %10.4g %7.0f%% %10.4g %10.4g %13.1f%% %12.0f\n", w->ranks,
               mib(w->optimizer), mib(rows[0].optimizer - w->optimizer), mib(w->exchange), w->network, w->waiting,
               w->network > 0 ? 100 * w->hidden / w->network : 0, w->step, (double)(r->share * w->ranks) / w->step,
               100 * w->efficiency, w->micros);
    }
    printf(
        "\nmoments, exchange: memory of each rank; hidden: behind backward; for 90 %%: with so many micro-batches to a "
        "step,\nso a batch of %lld sequences at %d ranks\n",
        (long long)last->batch, last->ranks);
    print_snapshots(r, last);
}

static void print_json(const RankTable *r)
{
    const Row *rows = r->rows;
    Buf out = {0};
    buf_puts(&out, "{\"network\": {");
    buf_member_text(&out, "name", r->network.name);
    buf_member(&out, "bytes_per_s", r->network.bytes);
    buf_member(&out, "latency_s", r->network.latency);
    buf_printf(&out, "}, \"sequences_per_rank\": %lld, \"ranks\": [", (long long)r->share);
    for (int i = 0; i < r->n; i++) {
        const Row *w = &rows[i];
        const struct {
            const char *name;
            double value;
        } reals[] = {{"network_s", w->network}, {"waiting_s", w->waiting},     {"hidden_s", w->hidden},
                     {"step_s", w->step},       {"efficiency", w->efficiency}, {"micros_for_90_percent", w->micros},
                     {"alone_s", w->alone}};
        buf_printf(&out, "%s\n {\"ranks\": %d, \"optimizer\": %zu, \"saved\": %zu, \"exchange\": %zu", i ? "," : "",
                   w->ranks, w->optimizer, rows[0].optimizer - w->optimizer, w->exchange);
        for (size_t k = 0; k < sizeof reals / sizeof *reals; k++) buf_member(&out, reals[k].name, reals[k].value);
        buf_printf(
            &out,
            ", \"batch_for_90_percent\": %lld, \"snapshot\": %llu, \"snapshot_copies\": %llu, \"snapshots\": %llu}",
            (long long)w->batch, (unsigned long long)w->snapshot, (unsigned long long)w->copies,
            (unsigned long long)w->snapshots);
    }
    buf_puts(&out, "\n]}\n");
    buf_print(&out);
}

Status plan_ranks(const PlanRun *run, const RunPlan *plan)
{
    const Config *c = run->c;
    RankTable r = {.r = run, .plan = plan, .share = planner_share(c, (int)c->ranks)};
    TRY(snapshots_replicas(c, (int)c->ranks, &r.replicas));
    TRY(network_find(*c->network ? c->network : "10GbE", &r.network));
    for (int64_t ranks = 1; ranks < c->ranks; ranks *= 2) TRY(add_row(&r, (int)ranks));
    TRY(add_row(&r, (int)c->ranks));
    (c->json ? print_json : print_table)(&r);
    return OK;
}
