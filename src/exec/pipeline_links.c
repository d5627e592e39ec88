/* Boundaries of a place: its channels, their buffers, and what is posted when. */

#include "exec/pipeline_internal.h"

/* ---- channels ---- */

/* The chunk's neighbour, as peer and stage of what it receives: `in` that it sends us, else that we send. */
static Channel find_channel(const Pipeline *s, int place, int chunk, bool in, int way)
{
    int own = pipeline_stage(s, place, chunk), step = (way == FORWARD) == in ? -1 : 1, other = own + step, k;
    Channel c = {.chunk = chunk, .way = way, .in = in, .peer = -1};
    if (other < 0 || other >= pipeline_stages(s)) return c;
    pipeline_home(s, other, pipeline_direction(s, chunk), &c.peer, &k);
    c.stage = in ? own : other;
    if (c.peer == place && in) return c; /* the sender's buffers are read */
    /* A handover is taken before the next one is made (schedule_verify). */
    c.buffers = c.peer != place ? pipeline_buffers(s) : 1;
    return c;
}

static Channel nth_channel(const Pipeline *s, int place, int k)
{
    return find_channel(s, place, k / 4, k % 2, k / 2 % 2);
}

Channel *pipeline_channel(const ExecPipeline *p, int k)
{
    Channel *const *of = k % 2 ? p->in : p->out;
    return &of[k / 2 % 2][k / 4];
}

static int n_channels(const Pipeline *s) { return 4 * s->chunks; }

/* The next work takes what such a channel brings, so that one buffer, the first, serves all of them. */
static bool hands_over(const Pipeline *s, int place, const Channel *c)
{
    return c->peer == place && pipeline_consecutive(s->kind);
}

static int handed_buffers(const Pipeline *s) { return pipeline_consecutive(s->kind) && s->chunks > 1; }

int exec_pipeline_buffers(const Pipeline *s, int place, bool handed)
{
    int buffers = handed ? handed_buffers(s) : 0;
    for (int k = 0; k < n_channels(s); k++) {
        Channel c = nth_channel(s, place, k);
        if ((c.peer == place) == handed && !hands_over(s, place, &c)) buffers += c.buffers;
    }
    return buffers;
}

int exec_pipeline_staging(const Pipeline *s, int place, bool by_devices, bool device)
{
    int sent = exec_pipeline_buffers(s, place, false);
    if (device) return by_devices ? sent : 0;
    return exec_pipeline_buffers(s, place, true) + (by_devices ? 0 : sent);
}

/* ---- wires ---- */

/* All ranks open them in this order. Neighbours of both sides alternate, so that pairs of places open theirs at the
   same time. */
static int by_turn(const void *a, const void *b)
{
    const PipelineWire *x = a, *y = b;
    int low_x = x->from < x->to ? x->from : x->to, low_y = y->from < y->to ? y->from : y->to;
    if (low_x % 2 != low_y % 2) return low_x % 2 - low_y % 2;
    if (low_x != low_y) return low_x - low_y;
    if (x->forward != y->forward) return x->forward - y->forward;
    return x->from != y->from ? x->from - y->from : x->to - y->to;
}

static int find_wire(const PipelineWire *wires, int n, PipelineWire w)
{
    int i = 0;
    while (i < n && (wires[i].from != w.from || wires[i].to != w.to || wires[i].forward != w.forward)) i++;
    return i;
}

static PipelineWire wire_of(const Channel *c, int place)
{
    return (PipelineWire){.from = c->in ? c->peer : place, .to = c->in ? place : c->peer, .forward = c->way == FORWARD};
}

int exec_pipeline_wires(const Pipeline *s, int place, PipelineWire wires[PIPELINE_WIRES])
{
    int n = 0;
    for (int k = 0; k < n_channels(s); k++) {
        Channel c = nth_channel(s, place, k);
        if (c.peer < 0 || c.peer == place) continue;
        PipelineWire w = wire_of(&c, place);
        if (find_wire(wires, n, w) < n) continue;
        CHECK(n < PIPELINE_WIRES, "a place with more than %d links", PIPELINE_WIRES);
        wires[n++] = w;
    }
    qsort(wires, (size_t)n, sizeof *wires, by_turn);
    return n;
}

/* ---- life ---- */

static void add_inbox(ExecPipeline *p, const Channel *c)
{
    if (!c->in || !c->buffers) return;
    for (int i = 0; i < p->n_inboxes; i++)
        if (p->inboxes[i].peer == c->peer && p->inboxes[i].way == c->way) return;
    MEM_PUSH(p->inboxes, p->n_inboxes, p->cap_inboxes, (Inbox){.peer = c->peer, .way = c->way});
}

static size_t memory_bytes(const ExecPipeline *p, bool device)
{
    return (size_t)exec_pipeline_staging(&p->o.shape, p->o.place, p->o.n_wires > 0, device) * p->o.boundary;
}

static Status open_memory(ExecPipeline *p)
{
    Device *d = pipeline_backend(p)->device;
    size_t here = memory_bytes(p, false), there = memory_bytes(p, true);
    if (there) TRY(d->alloc(d, there, (void **)&p->memory[1]));
    if (here && d && d->pin) return d->pin(d, here, (void **)&p->memory[0]);
    if (here) p->memory[0] = mem_alloc(here);
    return OK;
}

Status pipeline_open_links(ExecPipeline *p)
{
    p->carrier = p->o.n_wires > 0 ? &pipeline_by_devices : &pipeline_by_hosts;
    for (int way = 0; way < 2; way++) {
        p->in[way] = mem_array((size_t)p->o.shape.chunks, sizeof(Channel));
        p->out[way] = mem_array((size_t)p->o.shape.chunks, sizeof(Channel));
    }
    TRY(open_memory(p));
    char *next[] = {p->memory[0] + (size_t)handed_buffers(&p->o.shape) * p->o.boundary, p->memory[1]};
    for (int k = 0; k < n_channels(&p->o.shape); k++) {
        Channel *c = pipeline_channel(p, k);
        *c = nth_channel(&p->o.shape, p->o.place, k);
        char **from = &next[p->o.n_wires > 0 && c->peer != p->o.place];
        bool handed = hands_over(&p->o.shape, p->o.place, c);
        c->memory = handed ? p->memory[0] : *from;
        if (!handed) *from += (size_t)c->buffers * p->o.boundary;
        c->wire = find_wire(p->o.wires, p->o.n_wires, wire_of(c, p->o.place));
        add_inbox(p, c);
        if (c->buffers && c->peer != p->o.place) TRY(p->carrier->open(p, c));
    }
    return OK;
}

void pipeline_close_links(ExecPipeline *p)
{
    Device *d = pipeline_backend(p)->device;
    for (int k = 0; k < n_channels(&p->o.shape); k++) p->carrier->close(p, pipeline_channel(p, k));
    for (int way = 0; way < 2; way++) MEM_FREE(p->in[way], p->out[way]);
    free(p->inboxes);
    if (p->memory[1]) d->release(d, p->memory[1], memory_bytes(p, true));
    if (p->memory[0] && d && d->pin)
        d->unpin(d, p->memory[0], memory_bytes(p, false));
    else
        free(p->memory[0]);
}

/* ---- a pass ---- */

/* Bytes of a boundary, which all places know beforehand. */
static size_t boundary_bytes(const ExecPipeline *p, int chunk, int micro)
{
    const Plan *plan = p->o.chunks[chunk]->plan;
    const RowCounts *rows = &p->pass->rows[pipeline_direction(&p->o.shape, chunk)][micro];
    for (InstrId i = plan->micro.first; i < plan->micro.first + plan->micro.count; i++) {
        const Instr *instr = &plan->instrs[i];
        if (op_is_link(instr->op))
            return plan_tensor_bytes(plan, instr->op == OP_SEND ? instr->in[SEND_IN_x] : instr->out[RECEIVE_OUT_x],
                                     rows);
    }
    return 0;
}

static char *buffer(const ExecPipeline *p, const Channel *c, int micro)
{
    return c->memory + (size_t)(micro % c->buffers) * p->o.boundary;
}

#define BOUNDARY(c, micro)                                                                                             \
    SHORT_TEXT("the %s of micro-batch %d %s place %d", (c)->way == FORWARD ? "activations" : "gradients", micro,       \
               (c)->in ? "from" : "to", (c)->peer)

static Status await(ExecPipeline *p, Channel *c, int micro)
{
    double start = clock_monotonic();
    Status status = p->carrier->wait(p, c, micro, BOUNDARY(c, micro));
    p->idle += clock_monotonic() - start;
    return status;
}

static Status post(ExecPipeline *p, Channel *c, int micro, size_t bytes)
{
    Status status = p->carrier->post(p, c, micro, bytes);
    return status == OK ? OK : status_context(status, "%s", BOUNDARY(c, micro));
}

/* What the work takes out of an inbox. */
static Channel *taken_by(const ExecPipeline *p, const Work *w, const Inbox *in)
{
    int way = w->kind == WORK_FORWARD ? FORWARD : BACKWARD;
    if (w->kind >= N_WORKS || w->kind == WORK_WEIGHT || way != in->way || !pipeline_wanted(p, w)) return NULL;
    Channel *c = &p->in[way][w->chunk];
    return c->peer == in->peer ? c : NULL;
}

/* Posts receives while the next one's buffer is free. A link has one order at both ends, as schedule_verify checks. */
static Status post_receives(ExecPipeline *p, Inbox *in)
{
    for (; in->next < p->n_order; in->next++) {
        const Work *w = &p->order[in->next];
        Channel *c = taken_by(p, w, in);
        if (!c) continue;
        if (c->posted - c->taken == c->buffers) return OK;
        TRY(post(p, c, w->micro, boundary_bytes(p, w->chunk, w->micro)));
        c->posted++;
    }
    return OK;
}

Status pipeline_begin_links(ExecPipeline *p)
{
    for (int k = 0; k < n_channels(&p->o.shape); k++)
        pipeline_channel(p, k)->posted = pipeline_channel(p, k)->taken = 0;
    for (int i = 0; i < p->n_inboxes; i++) {
        p->inboxes[i].next = 0;
        TRY(post_receives(p, &p->inboxes[i]));
    }
    return OK;
}

static Inbox *inbox_of(const ExecPipeline *p, const Channel *c)
{
    Inbox *in = p->inboxes;
    while (in->peer != c->peer || in->way != c->way) in++;
    return in;
}

/* The chunk of this place that sends a boundary to another chunk of this place. */
static Channel *local_sender(ExecPipeline *p, const Channel *to)
{
    for (int chunk = 0; chunk < p->o.shape.chunks; chunk++) {
        Channel *c = &p->out[to->way][chunk];
        if (c->peer == p->o.place && c->stage == to->stage) return c;
    }
    CHECK(false, "a chunk without its neighbour");
    return NULL;
}

/* Its buffers lie in the device's memory. */
static bool of_device(const ExecPipeline *p, const Channel *c) { return p->o.n_wires > 0 && c->peer != p->o.place; }

/* With poison a buffer is full of NaN once its boundary was taken. */
static Status poison(const ExecPipeline *p, const Channel *c, size_t bytes)
{
    const Exec *e = p->o.chunks[c->chunk];
    if (!e->options.poison) return OK;
    if (of_device(p, c)) return exec_poison(e, buffer(p, c, p->micro), bytes);
    memset(buffer(p, c, p->micro), 0xff, bytes);
    return OK;
}

static Status receive(ExecPipeline *p, Channel *c, void *data, size_t bytes)
{
    if (c->buffers == 0) {
        const Channel *from = local_sender(p, c);
        TRY(backend_upload(pipeline_backend(p), data, buffer(p, from, p->micro), bytes));
        return poison(p, from, bytes);
    }
    TRY(await(p, c, p->micro));
    TRY(p->carrier->empty(p, data, buffer(p, c, p->micro), bytes));
    TRY(poison(p, c, bytes));
    return post_receives(p, inbox_of(p, c));
}

/* Shows what lies in a buffer. */
static Status show(const ExecPipeline *p, const Channel *c, size_t bytes)
{
    char *there = buffer(p, c, p->micro), *copy = NULL;
    Status status = OK;
    if (!p->o.sent) return OK;
    if (of_device(p, c)) status = backend_download(pipeline_backend(p), copy = mem_alloc(bytes), there, bytes);
    if (status == OK) p->o.sent(p->o.self, c->chunk, p->micro, c->way == FORWARD, copy ? copy : there, bytes);
    free(copy);
    return status;
}

static Status send(ExecPipeline *p, Channel *c, const void *data, size_t bytes)
{
    if (c->peer == p->o.place) {
        TRY(backend_download(pipeline_backend(p), buffer(p, c, p->micro), data, bytes));
        return show(p, c, bytes);
    }
    TRY(await(p, c, p->micro)); /* what its buffer had before, maybe in the step before */
    TRY(p->carrier->fill(p, buffer(p, c, p->micro), data, bytes));
    TRY(show(p, c, bytes));
    return post(p, c, p->micro, bytes);
}

Status pipeline_pass(void *self, bool sends, bool forward, void *data, size_t bytes)
{
    ExecPipeline *p = self;
    Channel *c = &(sends ? p->out : p->in)[forward ? FORWARD : BACKWARD][p->chunk];
    CHECK(bytes <= p->o.boundary, "a boundary of %zu bytes, at most %zu", bytes, p->o.boundary);
    CHECK(c->taken == p->micro, "boundaries come and go in ascending order");
    c->taken++;
    return sends ? send(p, c, data, bytes) : receive(p, c, data, bytes);
}
