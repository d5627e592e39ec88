#include "exec/device_lane_internal.h"

#include <stdlib.h>

struct DeviceLane {
    const ExecRanks *ranks;
    Device *device;
    float *grads; // (the flat space)
    Stats *stats;
    int32_t given, computed, queued; /* events: of enter; of both lanes when they are joined */
    bool met, joined;
};

DeviceLane *device_lane_open(const ExecRanks *ranks, Device *device, float *grads, Stats *stats, int32_t event)
{
    DeviceLane *l = mem_alloc(sizeof *l);
    *l = (DeviceLane){ranks, device, grads, stats, event, event + 1, event + 2, false, false};
    return l;
}

void device_lane_close(DeviceLane *l) { free(l); }

Status device_lane_enter(DeviceLane *l)
{
    Device *d = l->device;
    TRY(d->lane(d, LANE_COMPUTE));
    TRY(d->event_record(d, l->given));
    TRY(d->lane(d, LANE_COMM));
    return d->event_wait(d, l->given);
}

static Status sum_stats(const DeviceLane *l, void *stream)
{
    TRY(comm_device_sum(l->ranks->comm_device, l->stats->loss, 2, F64, stream));
    return comm_device_sum(l->ranks->comm_device, l->stats->correct, 2, I64, stream);
}

static const Intervals *parts_of(const ExecRanks *r, int32_t bucket)
{
    return r->parts + (size_t)bucket * (size_t)r->comm->size;
}

Status device_lane_sum(DeviceLane *l, int32_t bucket)
{
    const ExecRanks *r = l->ranks;
    void *stream = l->device->stream(l->device);
    if (!l->met && r->meet) TRY(r->meet(r->self));
    l->met = true;
    if (bucket < 0) return sum_stats(l, stream);
    if (r->sums) return comm_device_sum_parts(r->comm_device, l->grads, parts_of(r, bucket), stream);
    int64_t begin = r->starts[bucket], size = r->starts[bucket + 1] - begin;
    return comm_device_sum(r->comm_device, l->grads + begin, (size_t)size, F32, stream);
}

Status device_lane_share(DeviceLane *l, float *x, bool weights)
{
    const ExecRanks *r = l->ranks;
    void *stream = l->device->stream(l->device);
    if (!weights) return comm_device_gather_parts(r->comm_device, x, r->sums, stream);
    for (int b = 0; b < r->n_buckets; b++) TRY(comm_device_gather_parts(r->comm_device, x, parts_of(r, b), stream));
    return OK;
}

Status device_lane_leave(DeviceLane *l, bool join)
{
    Device *d = l->device;
    if (join) {
        TRY(d->lane(d, LANE_COMM));
        TRY(d->event_record(d, l->queued));
    }
    TRY(d->lane(d, LANE_COMPUTE));
    if (!join) return OK;
    TRY(d->event_record(d, l->computed));
    l->joined = true;
    return d->event_wait(d, l->queued);
}

/* ---- waiting ---- */

static Status computed(void *self, bool *done)
{
    const DeviceLane *l = self;
    return l->device->event_done(l->device, l->computed, done);
}

static Status ended(void *self, bool *done)
{
    const DeviceLane *l = self;
    return l->device->event_done(l->device, l->queued, done);
}

Status device_lane_wait(DeviceLane *l, double *waited)
{
    l->met = false;
    if (!l->joined) return OK;
    l->joined = false;
    TRY(comm_device_wait(l->ranks->comm_device, computed, l));
    double start = clock_monotonic();
    TRY(comm_device_wait(l->ranks->comm_device, ended, l));
    *waited += clock_monotonic() - start;
    return OK;
}
