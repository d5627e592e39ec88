/* Boundaries from GPU to GPU, by NCCL. Each wire has a lane of its own, where a message waits for its peer without
   keeping anything else from going on. The host looks for ends, and never waits for the device's other lanes: a receive
   that was posted ahead may need a later work of this rank. Behind a pass nothing is under way. */

#include "exec/pipeline_internal.h"

_Static_assert((int)N_LANES == (int)DEVICE_LINKS && PIPELINE_WIRES <= DEVICE_LANES - DEVICE_LINKS,
               "a lane for each wire behind those of plans");

static Device *device_of(const ExecPipeline *p) { return pipeline_backend(p)->device; }

static const PipelineWire *wire_of(const ExecPipeline *p, const Channel *c) { return &p->o.wires[c->wire]; }

/* The slots of the plans' own events come first, then that of the compute lane. */
static int32_t compute_event(const ExecPipeline *p)
{
    int32_t slots = 0;
    for (int k = 0; k < p->o.shape.chunks; k++)
        if (p->o.chunks[k]->n_events > slots) slots = p->o.chunks[k]->n_events;
    return slots;
}

static Status link_open(ExecPipeline *p, Channel *c)
{
    CHECK(c->wire < p->o.n_wires, "a boundary without its wire");
    c->pending = mem_array((size_t)c->buffers, sizeof *c->pending);
    c->event = compute_event(p) + 1 + p->n_events;
    p->n_events += c->buffers;
    for (int b = 0; b < c->buffers; b++) TRY(device_of(p)->event_record(device_of(p), c->event + b)); /* exists now */
    return OK;
}

static void link_close(ExecPipeline *p, Channel *c)
{
    (void)p;
    free(c->pending);
}

/* ---- messages ---- */

/* Behind what the compute lane was given so far: the copy into a buffer that is sent, or out of one that receives. */
static Status queue_message(ExecPipeline *p, const Channel *c, int b, size_t bytes)
{
    Device *d = device_of(p);
    TRY(d->event_record(d, compute_event(p)));
    TRY(d->choose_lane(d, DEVICE_LINKS + c->wire));
    TRY(d->event_wait(d, compute_event(p)));
    const CommPass pass = {!c->in, c->in ? 0 : 1, c->memory + (size_t)b * p->o.boundary, bytes};
    TRY(comm_device_pass(wire_of(p, c)->device, &pass, 1, d->stream(d)));
    return d->event_record(d, c->event + b);
}

static Status link_post(ExecPipeline *p, Channel *c, int micro, size_t bytes)
{
    Device *d = device_of(p);
    int b = micro % c->buffers;
    TRY(d->choose_lane(d, LANE_COMPUTE));
    TRY(queue_message(p, c, b, bytes));
    c->pending[b] = true;
    return d->choose_lane(d, LANE_COMPUTE);
}

typedef struct {
    const ExecPipeline *pipeline;
    int32_t event;
} Awaited;

/* What is awaited may need a message of another wire that failed. */
static Status is_done(void *self, bool *done)
{
    const Awaited *a = self;
    Device *d = device_of(a->pipeline);
    for (int i = 0; i < a->pipeline->o.n_wires; i++) TRY(comm_device_check(a->pipeline->o.wires[i].device));
    return d->event_done(d, a->event, done);
}

static Status link_wait(ExecPipeline *p, Channel *c, int micro, const char *what)
{
    int b = micro % c->buffers;
    if (!c->pending[b]) return OK;
    c->pending[b] = false;
    Status status = comm_device_await(wire_of(p, c)->device, is_done, &(Awaited){p, c->event + b});
    return status == OK ? OK : status_context(status, "%s", what);
}

static Status link_copy(ExecPipeline *p, void *to, const void *from, size_t bytes)
{
    Device *d = device_of(p);
    TRY(d->choose_lane(d, LANE_COMPUTE));
    return d->copy(d, to, from, bytes);
}

/* ---- a pass ---- */

static Status link_worked(ExecPipeline *p)
{
    Device *d = device_of(p);
    TRY(d->choose_lane(d, LANE_COMPUTE));
    TRY(d->event_record(d, compute_event(p)));
    return comm_device_await(p->o.wires[0].device, is_done, &(Awaited){p, compute_event(p)});
}

static Status at_once(void *self, bool *done)
{
    (void)self;
    *done = true;
    return OK;
}

static Status link_ended(ExecPipeline *p)
{
    double start = clock_monotonic();
    for (int k = 0; k < 4 * p->o.shape.chunks; k++) {
        Channel *c = pipeline_channel(p, k);
        for (int b = 0; c->pending && b < c->buffers; b++) TRY(link_wait(p, c, b, "the end of a step's works"));
    }
    for (int i = 0; i < p->o.n_wires; i++) TRY(comm_device_wait(p->o.wires[i].device, at_once, NULL));
    p->idle += clock_monotonic() - start;
    return OK;
}

static void link_broken(ExecPipeline *p)
{
    for (int i = 0; i < p->o.n_wires; i++) comm_device_abort(p->o.wires[i].device);
}

const Carrier pipeline_by_devices = {link_open, link_close,  link_post,  link_wait,  link_copy,
                                     link_copy, link_worked, link_ended, link_broken};
