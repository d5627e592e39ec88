#include <stdlib.h>

#include "exec/exec_internal.h"

typedef struct {
    CommLane lane;
    Exec *exec;
    const ExecRanks *ranks;
    Device *device;
    Holders holders;
    Stats *stats;
    bool losses_due;                 /* with a tree: the host adds them when it waits */
    int32_t given, computed, queued; /* events: of lane_enter; of both lanes in lane_join */
    bool met;
} DeviceLane;

static DeviceLane *device_lane(CommLane *l) { return (DeviceLane *)l; }

/* The comm lane continues after all that the compute lane was given so far. */
static Status lane_enter(const DeviceLane *l)
{
    Device *d = l->device;
    TRY(d->choose_lane(d, LANE_COMPUTE));
    TRY(d->event_record(d, l->given));
    TRY(d->choose_lane(d, LANE_COMM));
    return d->event_wait(d, l->given);
}

/* The compute lane continues after all that was queued so far. */
static Status lane_join(const DeviceLane *l)
{
    Device *d = l->device;
    TRY(d->choose_lane(d, LANE_COMM));
    TRY(d->event_record(d, l->queued));
    TRY(d->choose_lane(d, LANE_COMPUTE));
    TRY(d->event_record(d, l->computed));
    return d->event_wait(d, l->queued);
}

/* ---- collectives ---- */

static Status sum_stats(const DeviceLane *l, void *stream)
{
    TRY(comm_device_sum(l->ranks->comm_device, l->stats->loss, 2, F64, stream));
    return comm_device_sum(l->ranks->comm_device, l->stats->correct, 2, I64, stream);
}

static Status queue_sum(Exec *e, InstrId i, const RowCounts *rows)
{
    DeviceLane *l = device_lane(e->comm_lane);
    const ExecRanks *r = l->ranks;
    int32_t bucket = e->plan->instrs[i].attr.reduce.bucket;
    (void)rows;
    if (!l->met && r->meet) TRY(r->meet(r->self));
    l->met = true;
    if (bucket >= 0) return comm_lane_sum(e, &l->holders, bucket);
    l->losses_due = r->holding->mine.tree > 0;
    return l->losses_due ? OK : sum_stats(l, l->device->stream(l->device));
}

static Status queue_share(Exec *e, InstrId i, const RowCounts *rows)
{
    (void)rows;
    return comm_lane_share(e, &device_lane(e->comm_lane)->holders, i);
}

static Status device_post(CommLane *lane, InstrId i, const RowCounts *rows)
{
    const DeviceLane *l = device_lane(lane);
    TRY(lane_enter(l));
    TRY(exec_run_noted(l->exec, i, rows, LANE_COMM, queue_sum));
    return l->device->choose_lane(l->device, LANE_COMPUTE);
}

static Status device_share(CommLane *lane, InstrId i, const RowCounts *rows)
{
    const DeviceLane *l = device_lane(lane);
    TRY(lane_enter(l));
    TRY(exec_run_noted(l->exec, i, rows, LANE_COMM, queue_share));
    return lane_join(l);
}

/* ---- waiting ---- */

static Status is_computed(void *self, bool *done)
{
    const DeviceLane *l = self;
    return l->device->event_done(l->device, l->computed, done);
}

static Status is_queued(void *self, bool *done)
{
    const DeviceLane *l = self;
    return l->device->event_done(l->device, l->queued, done);
}

static Status device_wait(CommLane *lane, bool broken, const RowCounts *rows)
{
    DeviceLane *l = device_lane(lane);
    (void)rows;
    bool losses = l->losses_due && !broken;
    l->met = l->losses_due = false;
    if (broken) {
        comm_device_abort(l->ranks->comm_device); /* it might wait for ever */
        return OK;
    }
    TRY(lane_join(l));
    TRY(comm_device_wait(l->ranks->comm_device, is_computed, l));
    double start = clock_monotonic();
    TRY(comm_device_wait(l->ranks->comm_device, is_queued, l));
    if (losses) TRY(comm_lane_sum_losses(l->exec, l->stats));
    l->exec->comm_waited += clock_monotonic() - start;
    return OK;
}

static void device_close(CommLane *lane) { free(lane); }

Status comm_lane_open_device(Exec *e, Stats *stats, CommLane **lane)
{
    DeviceLane *l = mem_alloc(sizeof *l);
    const ExecRanks *r = e->options.ranks;
    TensorId received = plan_find(e->plan, PLAN_RECEIVED);
    CHECK(e->events, "ranks on a device without lanes");
    *l = (DeviceLane){.lane = {device_post, device_share, device_wait, device_close},
                      .exec = e,
                      .ranks = r,
                      .device = e->memory->backend->device,
                      .holders = {.backend = e->memory->backend,
                                  .device = r->comm_device,
                                  .received = received == NONE ? NULL : exec_data(e, received)},
                      .stats = stats,
                      .given = e->n_events,
                      .computed = e->n_events + 1,
                      .queued = e->n_events + 2};
    r->comm->tree = (CommTree){.terms = r->holding->mine.tree};
    *lane = &l->lane;
    return OK;
}
