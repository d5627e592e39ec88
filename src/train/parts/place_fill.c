/* What a place needs to fill its bubbles with K-FAC's work: the costs that rank 0 planned with, its own timelines for
   every number of micro-batches, and slots. */

#include "train/parts/place.h"

static const Pipeline *shape(const RankPlace *p) { return &p->grid.shape; }

/* Other numbers of micro-batches than the planned one may need more. */
static void take_slots(RankPlace *p, int chunk)
{
    for (SlotKind kind = SLOT_CURVE_A; kind < N_SLOTS; kind++) {
        int least = fill_least_slots(p->slots[chunk], kind, pipeline_splits_backward(shape(p)->kind));
        int planned = p->fill.slots[p->number * shape(p)->chunks + chunk][kind - SLOT_CURVE_A];
        p->slots[chunk][kind] = planned > least ? planned : least;
    }
}

static void simulate(const RankPlace *p, PlaceFill *f)
{
    ScheduleCosts costs = {.latency = f->latency, .boundary = f->boundary};
    for (int kind = 0; kind < N_WORKS; kind++) costs.seconds[kind] = f->seconds + kind * p->grid.stages;
    f->timelines = mem_array((size_t)shape(p)->micros + 1, sizeof *f->timelines);
    for (int n = 1; n <= shape(p)->micros; n++) schedule_simulate(&p->schedules[n], &costs, &f->timelines[n]);
}

void place_simulate(RankPlace *p)
{
    if (!kfac_sets(&p->kfac)) return;
    simulate(p, &p->fill);
    for (int chunk = 0; chunk < place_chunks(p); chunk++) take_slots(p, chunk);
}

void place_fill_init(PlaceFill *f, const Grid *g, const Model *whole)
{
    *f = (PlaceFill){.seconds = mem_array((size_t)(N_WORKS * g->stages), sizeof *f->seconds),
                     .late = mem_array((size_t)whole->config.layers, sizeof *f->late),
                     .slots = mem_array((size_t)(g->shape.places * g->shape.chunks), sizeof *f->slots)};
}

void place_fill_free(const RankPlace *p, PlaceFill *f)
{
    for (int n = 0; f->timelines && n <= shape(p)->micros; n++) timeline_free(&f->timelines[n]);
    MEM_FREE(f->timelines, f->seconds, f->late, f->slots);
    *f = (PlaceFill){0};
}

/* ---- made anew from measured times ---- */

int place_n_costs(const RankPlace *p) { return N_WORKS * p->grid.stages + 4; }

int place_work_cost(const RankPlace *p, WorkKind kind, int stage) { return (int)kind * p->grid.stages + stage; }

int place_kfac_cost(const RankPlace *p, FillKind kind, bool wide)
{
    return N_WORKS * p->grid.stages + (int)kind + (kind == FILL_INVERSE && wide);
}

static void take(double *seconds, double measured)
{
    if (measured > 0) *seconds = measured;
}

static void take_measured(const RankPlace *p, const double *measured, PlaceFill *f)
{
    int works = N_WORKS * p->grid.stages;
    size_t layers = (size_t)p->whole->config.layers;
    *f = p->fill;
    f->slots = NULL; /* the place has taken them */
    f->seconds = mem_array((size_t)works, sizeof *f->seconds);
    f->late = mem_array(layers, sizeof *f->late);
    memcpy(f->late, p->fill.late, layers * sizeof *f->late);
    for (int i = 0; i < works; i++) {
        f->seconds[i] = p->fill.seconds[i];
        take(&f->seconds[i], measured[i]);
    }
    for (FillKind kind = FILL_INPUTS; kind <= FILL_GRADIENTS; kind++)
        take(&f->costs.statistics[kind], measured[place_kfac_cost(p, kind, false)]);
    for (int i = 0; i < f->costs.factors; i++)
        take(&f->costs.inverse[i], measured[place_kfac_cost(p, FILL_INVERSE, kfac_is_wide(i))]);
    simulate(p, f);
}

static Status verify(const RankPlace *p, const FillProblem *problem, const Fill *made)
{
    FillOrders orders;
    TRY(fill_verify(problem, made));
    fill_make_orders(problem, made, p->number, p->slots, &orders);
    Status status = fill_verify_orders(problem, p->number, p->slots, &orders);
    fill_orders_free(&orders);
    return status;
}

Status place_refill(const RankPlace *p, const double *measured, PlaceFill *f, Fill *made)
{
    int stages = p->grid.stages, *first = mem_array((size_t)stages + 1, sizeof *first);
    take_measured(p, measured, f);
    for (int s = 0; s < stages; s++) first[s + 1] = first[s] + p->stages[s].layers;
    const Timeline *timeline = &f->timelines[shape(p)->micros];
    const FillProblem problem = {.schedule = &p->schedules[shape(p)->micros],
                                 .timeline = timeline,
                                 .first = first,
                                 .late = f->late,
                                 .statistics = {f->costs.statistics[0], f->costs.statistics[1]},
                                 .inverse = f->costs.inverse,
                                 .factors = f->costs.factors,
                                 .replicas = p->grid.replicas,
                                 .sum = f->sum,
                                 .step = timeline->works_s + f->behind,
                                 .steps = p->kfac.lag > 0 ? p->kfac.lag : 1,
                                 .whole = true};
    fill_make(&problem, made);
    f->gathered = made->gathered;
    Status status = verify(p, &problem, made);
    free(first);
    return status;
}
