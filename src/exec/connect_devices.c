/* The first messages between GPUs, and whether an event on one has ended. */

#include "exec/exec_internal.h"

Status exec_event_done(void *event, bool *done)
{
    const ExecEvent *e = event;
    return e->device->event_done(e->device, e->event, done);
}

static Status pass_first(Device *d, CommDevice *comm, const CommPass *passes, int n)
{
    TRY(d->choose_lane(d, DEVICE_LINKS));
    TRY(d->event_record(d, 0)); /* makes the event */
    Status status = comm_device_pass(comm, passes, n, d->stream(d));
    if (status == OK) status = d->event_record(d, 0);
    if (status == OK) status = comm_device_wait(comm, exec_event_done, &(ExecEvent){d, 0});
    if (status != OK) comm_device_abort(comm);
    return status == OK ? d->choose_lane(d, 0) : status;
}

Status exec_connect_devices(Device *d, CommDevice *comm, const CommPass *passes, int n, void *room)
{
    CommPass *own = mem_array((size_t)n, sizeof *own);
    for (int i = 0; i < n; i++) own[i] = (CommPass){passes[i].send, passes[i].peer, (char *)room + i, 1};
    Status status = pass_first(d, comm, own, n);
    free(own);
    return status;
}

Status exec_connect_all(Device *d, CommDevice *comm, void *room)
{
    int n = 0, size = comm_device_size(comm);
    CommPass *all = mem_array(2 * (size_t)size, sizeof *all);
    for (int r = 0; r < size; r++)
        for (int send = 0; send < 2 && r != comm_device_rank(comm); send++)
            all[n++] = (CommPass){.send = send, .peer = r};
    Status status = exec_connect_devices(d, comm, all, n, room);
    free(all);
    return status;
}
