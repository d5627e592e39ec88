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
    char *memory;            /* of all channels' buffers */
    Channel *in[2], *out[2]; /* (ways), (chunks) */
    const ExecPass *pass;
    int chunk, micro; /* of the work that runs */
    double all, idle; /* seconds */
    bool notes;
    ExecWork *works; /* (n_works) noted */
    int n_works, cap_works;
};

static const Pipeline *shape(const ExecPipeline *p) { return &p->o.shape; }

static int direction_of(const ExecPipeline *p, int chunk) { return shape(p)->kind == PIPELINE_CHIMERA ? chunk : 0; }

static const Backend *backend_of(const ExecPipeline *p) { return p->o.chunks[0]->memory->backend; }

static int micros_of(const ExecPipeline *p, int chunk) { return p->pass->micros[direction_of(p, chunk)]; }

/* ---- life ---- */

/* The chunk's neighbour, as peer and stage of what it receives: `in` that it sends us, else that we send. */
static Channel find_channel(const Pipeline *s, int place, int chunk, bool in, int way)
{
    int own = pipeline_stage(s, place, chunk), step = (way == FORWARD) == in ? -1 : 1, other = own + step, k;
    Channel c = {.peer = -1};
    if (other < 0 || other >= pipeline_stages(s)) return c;
    pipeline_home(s, other, s->kind == PIPELINE_CHIMERA ? chunk : 0, &c.peer, &k);
    c.stage = in ? own : other;
    if (c.peer == place && in) return c; /* the sender's buffers are read */
    c.buffers = c.peer != place ? AHEAD : pipeline_consecutive(s->kind) ? 1 : s->micros + 1;
    return c;
}

/* The next work takes what such a channel brings, so that one buffer, the first, serves all of them. */
static bool hands_over(const Pipeline *s, int place, const Channel *c)
{
    return c->peer == place && pipeline_consecutive(s->kind);
}

static int handed_buffers(const Pipeline *s) { return pipeline_consecutive(s->kind) && s->chunks > 1; }

int exec_pipeline_buffers(const Pipeline *s, int place)
{
    int buffers = handed_buffers(s);
    for (int chunk = 0; chunk < s->chunks; chunk++)
        for (int k = 0; k < 4; k++) {
            Channel c = find_channel(s, place, chunk, k & 1, k >> 1);
            if (!hands_over(s, place, &c)) buffers += c.buffers;
        }
    return buffers;
}

static size_t memory_bytes(const ExecPipeline *p)
{
    return (size_t)exec_pipeline_buffers(shape(p), p->o.place) * p->o.boundary;
}

/* Takes its buffers from *next on. */
static void open_channel(ExecPipeline *p, Channel *c, int chunk, bool in, int way, char **next)
{
    *c = find_channel(shape(p), p->o.place, chunk, in, way);
    if (!c->buffers) return;
    c->tickets = mem_array((size_t)c->buffers, sizeof(CommTicket *));
    c->memory = p->memory;
    if (hands_over(shape(p), p->o.place, c)) return;
    c->memory = *next;
    *next += (size_t)c->buffers * p->o.boundary;
}

Status exec_pipeline_open(const ExecPipelineOptions *options, ExecPipeline **pipeline)
{
    ExecPipeline *p = *pipeline = mem_alloc(sizeof *p);
    p->o = *options;
    for (int way = 0; way < 2; way++) {
        p->in[way] = mem_array((size_t)shape(p)->chunks, sizeof(Channel));
        p->out[way] = mem_array((size_t)shape(p)->chunks, sizeof(Channel));
    }
    Device *d = backend_of(p)->device;
    size_t bytes = memory_bytes(p);
    if (bytes && d && d->pin) TRY(d->pin(d, bytes, (void **)&p->memory));
    if (bytes && !p->memory) p->memory = mem_alloc(bytes);
    char *next = p->memory + (size_t)handed_buffers(shape(p)) * p->o.boundary;
    for (int way = 0; way < 2; way++)
        for (int chunk = 0; chunk < shape(p)->chunks; chunk++) {
            open_channel(p, &p->in[way][chunk], chunk, true, way, &next);
            open_channel(p, &p->out[way][chunk], chunk, false, way, &next);
        }
    return OK;
}

/* Nothing may be moved into or out of the buffers any more. */
static void close_channel(ExecPipeline *p, Channel *c)
{
    for (int b = 0; c->tickets && b < c->buffers; b++)
        if (comm_wait(p->o.comm, c->tickets[b], "closing") != OK) log_debug("%s", status_message());
    free(c->tickets);
}

/* Keeps the message of the failure that comes before it. */
void exec_pipeline_close(ExecPipeline *p)
{
    if (!p) return;
    char *why = mem_strdup(status_message());
    for (int way = 0; way < 2; way++) {
        for (int chunk = 0; chunk < shape(p)->chunks; chunk++) {
            close_channel(p, &p->in[way][chunk]);
            close_channel(p, &p->out[way][chunk]);
        }
        free(p->in[way]);
        free(p->out[way]);
    }
    Device *d = backend_of(p)->device;
    if (p->memory && d && d->pin)
        d->unpin(d, p->memory, memory_bytes(p));
    else
        free(p->memory);
    (void)fail(E_FAIL, "%s", why);
    free(why);
    free(p->works);
    free(p);
}

void exec_pipeline_seconds(const ExecPipeline *p, double *all, double *idle)
{
    *all = p->all;
    *idle = p->idle;
}

void exec_pipeline_note(ExecPipeline *p, bool notes)
{
    p->notes = notes;
    p->n_works = 0;
}

const ExecWork *exec_pipeline_works(const ExecPipeline *p, int *n)
{
    *n = p->n_works;
    return p->works;
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
    const RowCounts *rows = &p->pass->rows[direction_of(p, chunk)][micro];
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

static Status await(ExecPipeline *p, CommTicket *ticket, const Channel *c, int way, int micro, bool in)
{
    char what[96];
    if (!ticket) return OK;
    double start = clock_monotonic();
    name_boundary(what, c, way, micro, in);
    Status status = comm_wait(p->o.comm, ticket, what);
    p->idle += clock_monotonic() - start;
    return status;
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
    for (; c->posted < c->taken + AHEAD && c->posted < micros_of(p, chunk); c->posted++)
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
    const Backend *b = backend_of(p);
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
    TRY(backend_download(backend_of(p), buffer(p, c, p->micro), data, bytes));
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
            if (way == FORWARD || !p->pass->forward) TRY(post_receives(p, chunk, way));
        }
    return OK;
}

static bool wanted(const ExecPipeline *p, const Work *w)
{
    if (w->kind >= N_WORKS) return true;
    return w->micro < micros_of(p, w->chunk) && (!p->pass->forward || w->kind == WORK_FORWARD);
}

static void note_work(ExecPipeline *p, const Work *w, double start, double waited)
{
    bool inverse = w->kind == WORK_INVERSE;
    int direction = direction_of(p, w->chunk);
    bool known = !inverse && w->micro < p->pass->micros[direction]; /* a statistic may be of an earlier step */
    if (!p->notes) return;
    MEM_GROW(p->works, p->n_works, p->cap_works);
    p->works[p->n_works++] = (ExecWork){.kind = w->kind,
                                        .stage = pipeline_stage(shape(p), p->o.place, w->chunk),
                                        .direction = direction,
                                        .micro = inverse ? -1 : p->pass->first + w->micro,
                                        .tokens = !known ? 0 : p->pass->rows[direction][w->micro].count[ROWS_TOKENS],
                                        .begin = start + waited,
                                        .end = clock_monotonic()};
}

static Status run_order_work(ExecPipeline *p, const Work *w)
{
    const ExecLinks links = {pass, p};
    const RowCounts *rows = &p->pass->rows[direction_of(p, w->chunk)][w->micro];
    p->chunk = w->chunk;
    p->micro = w->micro;
    if (w->kind == WORK_FORWARD) TRY(p->o.fill(p->o.self, w->chunk, w->micro, w->slot));
    if (w->kind != WORK_FORWARD && p->o.divide) p->o.divide(p->o.self, w->chunk, w->micro);
    return exec_run_work(p->o.chunks[w->chunk], w->kind, w->slot, rows, &links);
}

/* A device ends a work before the next one begins, so that its time is its own and no wait for a boundary is counted
   while it computes. */
static Status run_work(ExecPipeline *p, const Work *w)
{
    double start = clock_monotonic(), before = p->idle;
    Status status = w->kind < N_WORKS ? run_order_work(p, w) : p->o.item(p->o.self, w);
    if (status == OK) status = backend_wait(backend_of(p));
    note_work(p, w, start, p->idle - before);
    if (p->o.ran) p->o.ran(p->o.self, w, clock_monotonic() - start - (p->idle - before));
    return status;
}

/* By micro-batch, then F before B, F down the stages and B up. */
static int64_t order_of(const ExecPipeline *p, const Work *w)
{
    int stages = pipeline_stages(shape(p)), stage = pipeline_stage(shape(p), p->o.place, w->chunk);
    int64_t back = w->kind != WORK_FORWARD;
    return ((int64_t)w->micro * 2 + back) * stages + (back ? stages - 1 - stage : stage);
}

/* Notes the earliest value that is not finite; the works go on. */
static Status note_bad(const ExecPipeline *p, const Work *w, Status status, int64_t *earliest, char **why)
{
    if (status != E_NUMERIC) return status;
    if (*why && *earliest <= order_of(p, w)) return OK;
    free(*why);
    *earliest = order_of(p, w);
    *why = mem_printf("micro-batch %d, stage %d: %s", w->micro, pipeline_stage(shape(p), p->o.place, w->chunk),
                      status_message());
    return OK;
}

Status exec_pipeline_run(ExecPipeline *p, const ExecPass *of, int64_t *when)
{
    const Schedule *s = of->schedule;
    CHECK(s->shape.kind == shape(p)->kind && s->shape.places == shape(p)->places && s->shape.micros <= shape(p)->micros,
          "a schedule of another pipeline");
    double start = clock_monotonic();
    int64_t earliest = INT64_MAX;
    char *why = NULL;
    Status status = OK;
    p->pass = of;
    TRY(begin(p));
    const Work *works = of->works ? of->works : s->works + s->first[p->o.place];
    int n = of->works ? of->n_works : s->first[p->o.place + 1] - s->first[p->o.place];
    for (int i = 0; i < n; i++)
        if (wanted(p, &works[i])) TRY_DONE(note_bad(p, &works[i], run_work(p, &works[i]), &earliest, &why));
    p->all += clock_monotonic() - start;
    if (when) *when = earliest;
    if (why) status = fail(E_NUMERIC, "%s", why);
done:
    free(why);
    return status;
}
