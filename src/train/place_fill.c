/* What a place needs to fill its bubbles with K-FAC's work: the costs that rank 0 planned with, its own timelines for
   every number of micro-batches, and slots. */
#include <stdlib.h>
#include <string.h>

#include "train/place.h"

static const Pipeline *shape(const PipelinePlace *p) { return &p->grid.shape; }

static void take_plan(PipelinePlace *p, const PipelinePlan *plan)
{
    PlaceFill *f = &p->fill;
    int stages = p->grid.stages;
    f->latency = plan->latency;
    f->boundary = plan->boundary_s;
    f->costs = plan->costs;
    f->gathered = plan->fill.gathered;
    for (int kind = 0; kind < N_WORKS; kind++)
        for (int s = 0; s < stages; s++) f->seconds[kind * stages + s] = plan->stage[s].seconds[kind];
    memcpy(f->late, plan->late, (size_t)p->whole->config.layers * sizeof *f->late);
    memcpy(f->slots, plan->curve_slots, (size_t)(shape(p)->places * shape(p)->chunks) * sizeof *f->slots);
}

Status place_share_fill(PipelinePlace *p, const PipelinePlan *plan, Ranks *ranks)
{
    PlaceFill *f = &p->fill;
    size_t works = (size_t)N_WORKS * (size_t)p->grid.stages, layers = (size_t)p->whole->config.layers;
    size_t chunks = (size_t)(shape(p)->places * shape(p)->chunks);
    if (!kfac_sets(&p->kfac)) return OK;
    f->seconds = mem_array(works, sizeof *f->seconds);
    f->late = mem_array(layers, sizeof *f->late);
    f->slots = mem_array(chunks, sizeof *f->slots);
    if (ranks_first(ranks)) take_plan(p, plan);
    double numbers[] = {f->latency, f->boundary, f->gathered};
    TRY(ranks_broadcast(ranks, numbers, sizeof numbers));
    f->latency = numbers[0];
    f->boundary = numbers[1];
    f->gathered = (int)numbers[2];
    TRY(ranks_broadcast(ranks, &f->costs, sizeof f->costs));
    TRY(ranks_broadcast(ranks, f->seconds, works * sizeof *f->seconds));
    TRY(ranks_broadcast(ranks, f->late, layers * sizeof *f->late));
    return ranks_broadcast(ranks, f->slots, chunks * sizeof *f->slots);
}

/* Other numbers of micro-batches than the planned one may need more. */
static void take_slots(PipelinePlace *p, int chunk)
{
    for (SlotKind kind = SLOT_CURVE_A; kind < N_SLOTS; kind++) {
        int least = fill_least_slots(p->slots[chunk], kind, pipeline_splits_backward(shape(p)->kind));
        int planned = p->fill.slots[p->number * shape(p)->chunks + chunk][kind - SLOT_CURVE_A];
        p->slots[chunk][kind] = planned > least ? planned : least;
    }
}

void place_simulate(PipelinePlace *p)
{
    PlaceFill *f = &p->fill;
    ScheduleCosts costs = {.latency = f->latency, .boundary = f->boundary};
    if (!kfac_sets(&p->kfac)) return;
    for (int kind = 0; kind < N_WORKS; kind++) costs.seconds[kind] = f->seconds + kind * p->grid.stages;
    f->timelines = mem_array((size_t)shape(p)->micros + 1, sizeof *f->timelines);
    for (int n = 1; n <= shape(p)->micros; n++) schedule_simulate(&p->schedules[n], &costs, &f->timelines[n]);
    for (int chunk = 0; chunk < place_chunks(p); chunk++) take_slots(p, chunk);
}

void place_fill_free(PipelinePlace *p)
{
    PlaceFill *f = &p->fill;
    for (int n = 0; f->timelines && n <= shape(p)->micros; n++) timeline_free(&f->timelines[n]);
    free(f->timelines);
    free(f->seconds);
    free(f->late);
    free(f->slots);
    *f = (PlaceFill){0};
}
