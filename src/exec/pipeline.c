#include "exec/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec_internal.h"

enum { AHEAD = 2 };

/* Boundaries of one chunk that come, or go, forward or backward, in ascending order of micro-batches. */
typedef struct {
    int peer;  /* place; −1: there is no such boundary; this place: handed over in memory */
    int stage; /* that receives */
    int buffers;
    char *memory;         /* (buffers, boundary) */
    CommTicket **tickets; /* (buffers) */
    int posted, taken;    /* micro-batches of this step: posted, and copied in or out */
} Channel;

enum { BACKWARD, FORWARD }; /* ways */

struct ExecPipeline {
    ExecPipelineOptions o;
    Channel *in[2], *out[2]; /* (ways), (chunks) */
    const RowCounts *const *rows;
    int chunk, micro; /* of the work that runs */
};

static const Pipeline *shape(const ExecPipeline *p) { return &p->o.schedule->shape; }

static int direction_of(const ExecPipeline *p, int chunk) { return shape(p)->kind == PIPELINE_CHIMERA ? chunk : 0; }

/* ---- life ---- */

/* The chunk's neighbour, as peer and stage of what it receives: `in` that it sends us, else that we send. */
static void open_channel(ExecPipeline *p, Channel *c, int chunk, bool in, int way)
{
    int own = pipeline_stage(shape(p), p->o.place, chunk), step = (way == FORWARD) == in ? -1 : 1, other = own + step,
        k;
    c->peer = -1;
    if (other < 0 || other >= pipeline_stages(shape(p))) return;
    pipeline_home(shape(p), other, direction_of(p, chunk), &c->peer, &k);
    c->stage = in ? own : other;
    if (c->peer == p->o.place && in) return; /* the sender's buffers are read */
    c->buffers = c->peer == p->o.place ? shape(p)->micros + 1 : AHEAD;
    c->memory = mem_alloc((size_t)c->buffers * p->o.boundary);
    c->tickets = mem_array((size_t)c->buffers, sizeof(CommTicket *));
}

void exec_pipeline_open(const ExecPipelineOptions *options, ExecPipeline **pipeline)
{
    ExecPipeline *p = mem_alloc(sizeof *p);
    p->o = *options;
    for (int way = 0; way < 2; way++) {
        p->in[way] = mem_array((size_t)shape(p)->chunks, sizeof(Channel));
        p->out[way] = mem_array((size_t)shape(p)->chunks, sizeof(Channel));
        for (int chunk = 0; chunk < shape(p)->chunks; chunk++) {
            open_channel(p, &p->in[way][chunk], chunk, true, way);
            open_channel(p, &p->out[way][chunk], chunk, false, way);
        }
    }
    *pipeline = p;
}

static void close_channel(ExecPipeline *p, Channel *c)
{
    for (int b = 0; b < c->buffers; b++) /* nothing may be moved into or out of the buffers any more */
        if (comm_wait(p->o.comm, c->tickets[b], "closing") != OK) log_debug("%s", status_message());
    free(c->memory);
    free(c->tickets);
}

void exec_pipeline_close(ExecPipeline *p)
{
    if (!p) return;
    for (int way = 0; way < 2; way++) {
        for (int chunk = 0; chunk < shape(p)->chunks; chunk++) {
            close_channel(p, &p->in[way][chunk]);
            close_channel(p, &p->out[way][chunk]);
        }
        free(p->in[way]);
        free(p->out[way]);
    }
    free(p);
}

size_t exec_pipeline_bytes(const ExecPipeline *p)
{
    size_t buffers = 0;
    for (int way = 0; way < 2; way++)
        for (int chunk = 0; chunk < shape(p)->chunks; chunk++)
            buffers += (size_t)p->in[way][chunk].buffers + (size_t)p->out[way][chunk].buffers;
    return buffers * p->o.boundary;
}

/* ---- boundaries ---- */

static uint32_t tag_of(const ExecPipeline *p, const Channel *c, int chunk, int way)
{
    return (uint32_t)((c->stage * 2 + direction_of(p, chunk)) * 2 + way);
}

/* Bytes of a boundary, which all places know beforehand. */
static size_t boundary_bytes(const ExecPipeline *p, int chunk, int micro)
{
    const Plan *plan = p->o.chunks[chunk]->plan;
    const RowCounts *rows = &p->rows[direction_of(p, chunk)][micro];
    for (InstrId i = plan->micro.first; i < plan->micro.first + plan->micro.count; i++) {
        const Instr *instr = &plan->instrs[i];
        if (op_is_link(instr->op))
            return plan_tensor_bytes(plan, instr->op == OP_SEND ? instr->in[SEND_IN_x] : instr->out[RECEIVE_OUT_x],
                                     rows);
    }
    return 0;
}

static void name_boundary(char out[96], const Channel *c, int way, int micro, bool in)
{
    snprintf(out, 96, "the %s of micro-batch %d %s place %d", way == FORWARD ? "activations" : "gradients", micro,
             in ? "from" : "to", c->peer);
}

static Status await(const ExecPipeline *p, CommTicket *ticket, const Channel *c, int way, int micro, bool in)
{
    char what[96];
    name_boundary(what, c, way, micro, in);
    return comm_wait(p->o.comm, ticket, what);
}

static Status post(const ExecPipeline *p, const Channel *c, int chunk, int way, int micro, bool in, size_t bytes,
                   CommTicket **ticket)
{
    char what[96];
    char *data = c->memory + (size_t)(micro % c->buffers) * p->o.boundary;
    Status status = comm_post(p->o.comm, c->peer, tag_of(p, c, chunk, way), !in, data, bytes, ticket);
    if (status == OK) return OK;
    name_boundary(what, c, way, micro, in);
    return status_context(status, "%s", what);
}

static char *buffer(const ExecPipeline *p, const Channel *c, int micro)
{
    return c->memory + (size_t)(micro % c->buffers) * p->o.boundary;
}

/* Posts receives as long as a buffer is free. */
static Status post_receives(ExecPipeline *p, int chunk, int way)
{
    Channel *c = &p->in[way][chunk];
    if (c->buffers == 0) return OK;
    for (; c->posted < c->taken + AHEAD && c->posted < pipeline_micros(shape(p), chunk); c->posted++)
        TRY(post(p, c, chunk, way, c->posted, true, boundary_bytes(p, chunk, c->posted),
                 &c->tickets[c->posted % AHEAD]));
    return OK;
}

/* The chunk of this place that sends a boundary to another chunk of this place. */
static Channel *local_sender(ExecPipeline *p, const Channel *to, int way)
{
    for (int chunk = 0; chunk < shape(p)->chunks; chunk++) {
        Channel *c = &p->out[way][chunk];
        if (c->peer == p->o.place && c->stage == to->stage) return c;
    }
    CHECK(false, "a chunk without its neighbour");
    return NULL;
}

static Status receive(ExecPipeline *p, int way, void *data, size_t bytes)
{
    Channel *c = &p->in[way][p->chunk];
    Backend *b = p->o.chunks[p->chunk]->memory->backend;
    CHECK(bytes <= p->o.boundary, "a boundary of %zu bytes, at most %zu", bytes, p->o.boundary);
    CHECK(c->taken == p->micro, "boundaries arrive in ascending order");
    c->taken++;
    if (c->buffers == 0) return backend_upload(b, data, buffer(p, local_sender(p, c, way), p->micro), bytes);
    CommTicket **ticket = &c->tickets[p->micro % AHEAD], *mine = *ticket;
    *ticket = NULL;
    TRY(await(p, mine, c, way, p->micro, true));
    TRY(backend_upload(b, data, buffer(p, c, p->micro), bytes));
    return post_receives(p, p->chunk, way);
}

static Status send(ExecPipeline *p, int way, void *data, size_t bytes)
{
    Channel *c = &p->out[way][p->chunk];
    CommTicket **ticket = &c->tickets[p->micro % c->buffers], *former = *ticket;
    CHECK(bytes <= p->o.boundary && c->taken == p->micro, "boundaries leave in ascending order");
    c->taken++;
    *ticket = NULL;
    TRY(await(p, former, c, way, p->micro, false));
    TRY(backend_download(p->o.chunks[p->chunk]->memory->backend, buffer(p, c, p->micro), data, bytes));
    if (c->peer == p->o.place) return OK;
    return post(p, c, p->chunk, way, p->micro, false, bytes, ticket);
}

static Status pass(void *self, bool sends, bool forward, void *data, size_t bytes)
{
    return sends ? send(self, forward ? FORWARD : BACKWARD, data, bytes)
                 : receive(self, forward ? FORWARD : BACKWARD, data, bytes);
}

/* ---- a step ---- */

/* What was sent last in the step before may still be under way: its ticket stays until its buffer is used again. */
static Status begin(ExecPipeline *p)
{
    for (int way = 0; way < 2; way++)
        for (int chunk = 0; chunk < shape(p)->chunks; chunk++) {
            p->in[way][chunk].posted = p->in[way][chunk].taken = p->out[way][chunk].taken = 0;
            TRY(post_receives(p, chunk, way));
        }
    return OK;
}

Status exec_pipeline_run(ExecPipeline *p, const RowCounts *const rows[2])
{
    const Schedule *s = p->o.schedule;
    const ExecLinks links = {pass, p};
    p->rows = rows;
    TRY(begin(p));
    for (int i = s->first[p->o.place]; i < s->first[p->o.place + 1]; i++) {
        const Work *w = &s->works[i];
        p->chunk = w->chunk;
        p->micro = w->micro;
        if (w->kind == WORK_FORWARD) TRY(p->o.fill(p->o.self, w->chunk, w->micro, w->slot));
        TRY(exec_run_work(p->o.chunks[w->chunk], w->kind, w->slot, &rows[direction_of(p, w->chunk)][w->micro], &links));
    }
    return OK;
}
