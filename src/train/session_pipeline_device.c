/* Sums of a pipeline from GPU to GPU, on the comm lane. */
#include "train/session_pipeline.h"

enum { GIVEN, SUMMED }; /* events */

static Status is_summed(void *device, bool *done) { return ((Device *)device)->event_done(device, SUMMED, done); }

static Status queue_sums(const Session *s, CommDevice *between, float *x, const Intervals *list)
{
    Device *d = s->options.backend->device;
    TRY(d->choose_lane(d, LANE_COMPUTE));
    TRY(d->event_record(d, GIVEN));
    TRY(d->choose_lane(d, LANE_COMM));
    TRY(d->event_wait(d, GIVEN));
    for (int i = 0; i < list->count; i++) {
        Interval v = list->intervals[i];
        TRY(comm_device_sum(between, x + v.begin, (size_t)(v.end - v.begin), F32, d->stream(d)));
    }
    TRY(d->event_record(d, SUMMED));
    return d->choose_lane(d, LANE_COMPUTE);
}

Status pipeline_sum_on_devices(const Session *s, CommDevice *between, float *x, const Intervals *list)
{
    Status status = queue_sums(s, between, x, list);
    if (status == OK) status = comm_device_wait(between, is_summed, s->options.backend->device);
    if (status != OK) comm_device_abort(between);
    return status;
}
