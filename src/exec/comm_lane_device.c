#include "exec/exec_internal.h"

typedef struct {
    CommLane lane;
    Device *device;
    CommDevice *between;
    bool losses_due;                 /* with a tree: the host adds them when it waits */
    int32_t given, computed, queued; /* events: of lane_enter; of both lanes in lane_join */
    bool met;
} DeviceLane;

static DeviceLane *device_lane(CommLane *l) { return (DeviceLane *)l; }

static const ExecRanks *ranks_of(const DeviceLane *l) { return l->lane.exec->options.ranks; }

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
    Stats *stats = exec_data(l->lane.exec, plan_find(l->lane.exec->plan, "stats"));
    TRY(comm_device_sum(l->between, stats->loss, 2, F64, stream));
    return comm_device_sum(l->between, stats->correct, 2, I64, stream);
}

static Status queue_turn(DeviceLane *l, int32_t bucket)
{
    const ExecRanks *r = ranks_of(l);
    if (!l->met && r->meet) TRY(r->meet(r->self));
    l->met = true;
    if (bucket >= 0) return comm_lane_sum(l->lane.exec, bucket);
    l->losses_due = r->holding->mine.tree > 0;
    return l->losses_due ? OK : sum_stats(l, l->device->stream(l->device));
}

static Status queue_reduce(Exec *e, InstrId i, const RowCounts *rows)
{
    (void)rows;
    return queue_turn(device_lane(e->comm_lane), e->plan->instrs[i].attr.reduce.bucket);
}

/* The sums of a pipeline's works have no instr. */
static Status device_post(CommLane *lane, CommTurn *t, const RowCounts *rows)
{
    DeviceLane *l = device_lane(lane);
    t->posted = true;
    TRY(lane_enter(l));
    TRY(t->instr == NONE ? queue_turn(l, t->bucket) : exec_run_noted(t->exec, t->instr, rows, LANE_COMM, queue_reduce));
    return l->device->choose_lane(l->device, LANE_COMPUTE);
}

static Status device_share(CommLane *lane, InstrId i, const RowCounts *rows)
{
    const DeviceLane *l = device_lane(lane);
    TRY(lane_enter(l));
    TRY(exec_run_noted(lane->exec, i, rows, LANE_COMM, comm_lane_share));
    return lane_join(l);
}

/* ---- waiting ---- */

static Status device_wait(CommLane *lane, bool broken, const RowCounts *rows)
{
    DeviceLane *l = device_lane(lane);
    (void)rows;
    bool losses = l->losses_due && !broken;
    l->met = l->losses_due = false;
    for (int i = 0; i < lane->n; i++) lane->turns[i].posted = false;
    if (broken) {
        comm_device_abort(l->between); /* it might wait for ever */
        return OK;
    }
    TRY(lane_join(l));
    TRY(comm_device_wait(l->between, exec_event_done, &(ExecEvent){l->device, l->computed}));
    double start = clock_monotonic();
    TRY(comm_device_wait(l->between, exec_event_done, &(ExecEvent){l->device, l->queued}));
    if (losses) TRY(comm_lane_sum_losses(lane->exec));
    lane->exec->comm_waited += clock_monotonic() - start;
    return OK;
}

static void device_close(CommLane *lane) { MEM_FREE(lane->turns, lane); }

Status comm_lane_open_device(CommLane as, CommLane **lane)
{
    DeviceLane *l = mem_alloc(sizeof *l);
    Exec *e = as.exec;
    *l = (DeviceLane){.lane = as,
                      .device = e->memory->backend->device,
                      .between = e->options.ranks->comm_device,
                      .given = e->n_events,
                      .computed = e->n_events + 1,
                      .queued = e->n_events + 2};
    l->lane.post = device_post;
    l->lane.share = device_share;
    l->lane.wait = device_wait;
    l->lane.close = device_close;
    e->n_events += 3;
    *lane = &l->lane;
    return OK;
}
