/* Boundaries through the hosts' memory: messages of the places' Comm. A device's buffers are pinned, and copies are its
   downloads and uploads. What was sent last in a pass may still be under way behind it: its ticket stays until its
   buffer is used again. */

#include "exec/pipeline_internal.h"

static Status host_open(ExecPipeline *p, Channel *c)
{
    (void)p;
    c->tickets = mem_array((size_t)c->buffers, sizeof(CommTicket *));
    return OK;
}

/* Nothing may be moved into or out of the buffers any more. */
static void host_close(ExecPipeline *p, Channel *c)
{
    for (int b = 0; c->tickets && b < c->buffers; b++)
        if (comm_wait(p->o.comm, c->tickets[b], "closing") != OK) log_debug("%s", status_message());
    free(c->tickets);
}

static Status host_post(ExecPipeline *p, Channel *c, int micro, size_t bytes)
{
    int b = micro % c->buffers;
    uint32_t tag = (uint32_t)((c->stage * 2 + pipeline_direction(&p->o.shape, c->chunk)) * 2 + c->way);
    return comm_post(p->o.comm, c->peer, tag, !c->in, c->memory + (size_t)b * p->o.boundary, bytes, &c->tickets[b]);
}

static Status host_wait(ExecPipeline *p, Channel *c, int micro, const char *what)
{
    CommTicket **ticket = &c->tickets[micro % c->buffers], *mine = *ticket;
    *ticket = NULL;
    return comm_wait(p->o.comm, mine, what);
}

static Status host_fill(ExecPipeline *p, void *buffer, const void *tensor, size_t bytes)
{
    return backend_download(pipeline_backend(p), buffer, tensor, bytes);
}

static Status host_empty(ExecPipeline *p, void *tensor, const void *buffer, size_t bytes)
{
    return backend_upload(pipeline_backend(p), tensor, buffer, bytes);
}

/* So a work's time is its own, and no wait for a boundary is counted while a device computes. */
static Status host_worked(ExecPipeline *p) { return backend_wait(pipeline_backend(p)); }

const Carrier pipeline_by_hosts = {host_open,  host_close,  host_post, host_wait, host_fill,
                                   host_empty, host_worked, NULL,      NULL};
