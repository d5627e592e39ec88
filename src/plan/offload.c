/* The offload pass: parts of layers are kept for backward in the host's memory. OFFLOAD comes right behind the instr
   that makes a tensor, and forward goes on reading the tensor itself. FETCHes come in the order in which backward, with
   what it makes again, first reads the tensors.

   A window bounds what the copies take on the device: the most bytes that are offloaded within a layer's length, from
   any part up to the one before it in the next layer. So each copy has the time of one layer. An instr that makes a
   tensor waits until the OFFLOADs before it that have not surely ended are, with its own, within the window. FETCH
   comes where the tensors that were fetched and not read yet are, with its own, within the window, but no earlier than
   where the layer above begins.

   Waits: OFFLOAD waits for the instr that makes its tensor. FETCH waits for the instr before it, up to which its memory
   may be in use. The first instr that reads the fetched tensor waits for FETCH. The first instr behind forward waits
   for all OFFLOADs, and the compute lane has waited for all copies when the range ends.

   Works divide at the boundaries that they receive and send, where no lane but the compute lane may run (cut.c). So
   OFFLOAD and FETCH come one instr later where they would come right behind a boundary. */

#include "plan/layers.h"
#include "plan/rewrite.h"

typedef struct {
    TensorId tensor;
    int part;             /* number of all layers' parts, from the first layer up */
    InstrId made, wanted; /* old instrs: its writer; the first behind forward that reads it, NONE once one waits */
    int64_t bytes;
    int freed;     /* its maker waits until this item's OFFLOAD has ended; NONE */
    InstrId begin; /* old: FETCH comes before it; NONE so far */
    TensorId host, back;
    InstrId offload, fetch; /* new */
} Item;

typedef struct {
    Plan *p;
    Rewrite r;
    int *turns;  /* (old instrs): see plan_turns */
    Item *items; /* (n) in the order in which they are made */
    int n, cap;
    int *wanted;     /* (n): items in the order in which they are read behind forward */
    int *item_of;    /* (tensors): NONE */
    int out, in;     /* the items so far that have an OFFLOAD; those of `wanted` that have a FETCH */
    InstrId last;    /* new: the compute lane's last instr; NONE */
    InstrId awaited; /* new: the last OFFLOAD, until it is waited for; else NONE */
} Offload;

int plan_part_made(const Plan *p, const Instr *instr, int k)
{
    const TensorId t = instr->out[k];
    if (instr->phase != PHASE_FORWARD || t == NONE || p->tensors[t].region != REGION_ACT) return NONE;
    if (p->tensors[t].layer < 0 || p->tensors[t].layer >= p->n_layers) return NONE;
    if (instr->op == OP_RECEIVE) return PART_INPUT; /* of a stage, kept at every level */
    for (int other = 0; other < OP_MAX_OUT; other++)
        if (instr->out[other] != NONE &&
            plan_tensor_bytes(p, instr->out[other], &p->capacity) > plan_tensor_bytes(p, t, &p->capacity))
            return NONE;
    return p->tensors[t].part >= 0 ? p->tensors[t].part : NONE;
}

/* The first instr behind forward that reads each tensor. */
static void find_wanted(const Offload *pass, InstrId *wanted)
{
    for (TensorId t = 0; t < pass->p->n_tensors; t++) wanted[t] = NONE;
    for (InstrId i = pass->r.n - 1; i >= 0; i--)
        for (int k = 0; k < OP_MAX_IN && pass->r.old[i].phase != PHASE_FORWARD; k++)
            if (pass->r.old[i].in[k] != NONE) wanted[pass->r.old[i].in[k]] = i;
}

static void find_items(Offload *pass, const LayerKeep *keeps)
{
    const Plan *p = pass->p;
    InstrId *wanted = mem_array((size_t)p->n_tensors, sizeof *wanted);
    int top = NONE;
    find_wanted(pass, wanted);
    for (InstrId i = 0; i < pass->r.n; i++)
        if (pass->r.old[i].phase != PHASE_FORWARD && pass->turns[i] < p->n_layers && pass->turns[i] > top)
            top = pass->turns[i];
    for (InstrId i = 0; i < pass->r.n; i++)
        for (int k = 0; k < OP_MAX_OUT; k++) {
            const TensorId t = pass->r.old[i].out[k];
            const int part = plan_part_made(p, &pass->r.old[i], k);
            if (part == NONE || !(keeps[p->tensors[t].layer].offloaded >> part & 1)) continue;
            if (wanted[t] == NONE || pass->turns[wanted[t]] == top) continue;
            const Item item = {.tensor = t,
                               .part = p->tensors[t].layer * LAYER_PARTS + part,
                               .made = i,
                               .wanted = wanted[t],
                               .begin = NONE,
                               .bytes = (int64_t)plan_tensor_bytes(p, t, &p->capacity)};
            pass->item_of[t] = pass->n;
            MEM_PUSH(pass->items, pass->n, pass->cap, item);
        }
    free(wanted);
}

static void find_order(Offload *pass)
{
    int n = 0;
    pass->wanted = mem_array((size_t)pass->n, sizeof *pass->wanted);
    for (InstrId i = 0; i < pass->r.n; i++)
        for (int k = 0; k < OP_MAX_IN && pass->r.old[i].phase != PHASE_FORWARD; k++) {
            const TensorId t = pass->r.old[i].in[k];
            const int item = t == NONE ? NONE : pass->item_of[t];
            if (item == NONE || pass->items[item].begin != NONE) continue;
            pass->items[item].begin = i;
            pass->wanted[n++] = item;
        }
}

/* The first instr of the turn before that of instr i. */
static InstrId turn_before(const Offload *pass, InstrId i)
{
    for (int turns = 0; turns < 2; turns++) {
        const int turn = pass->turns[i - turns];
        for (i -= turns; i > 0 && pass->turns[i - 1] == turn;) i--;
    }
    return i;
}

static int64_t window_bytes(const Offload *pass)
{
    int64_t most = 0, bytes = 0;
    for (int k = 0, behind = 0; k < pass->n; k++) {
        for (bytes += pass->items[k].bytes; pass->items[behind].part <= pass->items[k].part - LAYER_PARTS; behind++)
            bytes -= pass->items[behind].bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void find_windows(Offload *pass)
{
    const int64_t window = window_bytes(pass);
    int64_t out = 0, in = 0;
    for (int k = 0, freed = NONE, read = NONE; k < pass->n; k++) {
        Item *fetched = &pass->items[pass->wanted[k]];
        const int ended = freed;
        for (out += pass->items[k].bytes; out > window;) out -= pass->items[++freed].bytes;
        pass->items[k].freed = freed > ended ? freed : NONE;
        for (in += fetched->bytes; in > window;) in -= pass->items[pass->wanted[++read]].bytes;
        fetched->begin = turn_before(pass, fetched->wanted);
        if (read != NONE && pass->items[pass->wanted[read]].wanted > fetched->begin)
            fetched->begin = pass->items[pass->wanted[read]].wanted;
    }
}

static void wait_for_offload(Offload *pass, Instr *instr, InstrId offload)
{
    plan_wait_for(pass->p, instr, offload);
    if (pass->awaited == offload) pass->awaited = NONE;
}

/* Returns the copy, which waits for the compute lane's last instr. */
static InstrId emit_copy(const Offload *pass, Op op, const Item *item, TensorId from, TensorId to)
{
    Plan *p = pass->p;
    const InstrId copy = plan_emit(p, op, op == OP_OFFLOAD ? PHASE_FORWARD : PHASE_BACKWARD,
                                   p->tensors[item->tensor].layer, (OpAttr){0}, IDS(from), IDS(to));
    p->instrs[copy].lane = LANE_COPY;
    plan_wait_for(p, &p->instrs[copy], pass->last);
    return copy;
}

static void emit_offload(Offload *pass, Item *item)
{
    item->host = plan_like(pass->p, item->tensor, REGION_HOST, ".host");
    item->offload = pass->awaited = emit_copy(pass, OP_OFFLOAD, item, item->tensor, item->host);
}

static void emit_fetch(Offload *pass, Item *item)
{
    item->back = plan_like(pass->p, item->tensor, REGION_ACT, ".back");
    item->fetch = emit_copy(pass, OP_FETCH, item, item->host, item->back);
    pass->p->instrs[item->fetch].origin = item->offload;
}

/* Behind forward the fetched tensors are read; the first reader waits for FETCH. */
static void read_fetched(Offload *pass, Instr *instr)
{
    for (int k = 0; k < OP_MAX_IN; k++) {
        const int number = instr->in[k] == NONE ? NONE : pass->item_of[instr->in[k]];
        if (number == NONE) continue;
        Item *item = &pass->items[number];
        instr->in[k] = item->back;
        if (item->wanted != NONE) plan_wait_for(pass->p, instr, item->fetch);
        item->wanted = NONE;
    }
}

static void keep_instr(Offload *pass, InstrId i)
{
    Instr instr = rewrite_old(&pass->r, i);
    for (int k = pass->out; k < pass->n && pass->items[k].made <= i; k++)
        if (pass->items[k].freed != NONE) wait_for_offload(pass, &instr, pass->items[pass->items[k].freed].offload);
    if (instr.phase != PHASE_FORWARD) {
        if (pass->awaited != NONE) wait_for_offload(pass, &instr, pass->awaited);
        read_fetched(pass, &instr);
    }
    pass->last = rewrite_keep(&pass->r, i, instr);
}

void plan_offload(Plan *p, const LayerKeep *keeps)
{
    bool any = false;
    for (int l = 0; l < p->n_layers; l++) any |= keeps[l].offloaded != 0;
    if (!any) return;
    const int n_tensors = p->n_tensors;
    Offload pass = {.p = p,
                    .turns = mem_array((size_t)p->n_instrs, sizeof(int)),
                    .item_of = mem_array((size_t)n_tensors, sizeof(int)),
                    .last = NONE,
                    .awaited = NONE};
    for (TensorId t = 0; t < n_tensors; t++) pass.item_of[t] = NONE;
    plan_turns(p, (Range){0, p->n_instrs}, pass.turns);
    rewrite_begin(&pass.r, p);
    find_items(&pass, keeps);
    find_order(&pass);
    find_windows(&pass);
    for (InstrId i = 0; i < pass.r.n; i++) {
        const bool behind_link = pass.last != NONE && op_is_link(p->instrs[pass.last].op);
        while (!behind_link && pass.in < pass.n && pass.items[pass.wanted[pass.in]].begin <= i)
            emit_fetch(&pass, &pass.items[pass.wanted[pass.in++]]);
        keep_instr(&pass, i);
        while (!op_is_link(pass.r.old[i].op) && pass.out < pass.n && pass.items[pass.out].made <= i)
            emit_offload(&pass, &pass.items[pass.out++]);
    }
    rewrite_end(&pass.r);
    MEM_FREE(pass.turns, pass.items, pass.wanted, pass.item_of);
}
