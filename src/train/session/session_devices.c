/* Exchanges of a session from GPU to GPU, on the comm lane. */

#include "train/session/session_pipeline.h"

enum { GIVEN, PASSED }; /* events */

static Status is_passed(void *device, bool *done) { return ((Device *)device)->event_done(device, PASSED, done); }

Status devices_enter(const Session *s)
{
    Device *d = s->options.backend->device;
    TRY(d->choose_lane(d, LANE_COMPUTE));
    TRY(d->event_record(d, GIVEN));
    TRY(d->choose_lane(d, LANE_COMM));
    return d->event_wait(d, GIVEN);
}

static Status join(Device *d, CommDevice *between)
{
    TRY(d->event_record(d, PASSED));
    TRY(d->choose_lane(d, LANE_COMPUTE));
    return comm_device_wait(between, is_passed, d);
}

Status devices_join(const Session *s, CommDevice *between, Status status)
{
    if (status == OK) status = join(s->options.backend->device, between);
    if (status != OK) comm_device_abort(between);
    return status;
}
