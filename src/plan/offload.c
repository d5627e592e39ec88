/* The offload pass: layers' inputs are kept for backward in the host's memory. OFFLOAD comes right after the instr that
   makes a layer's input, so the copy has the time of the layer itself. FETCH comes where backward begins to use the
   input of the layer above, so it has the time of that layer's backward.

   Waits: OFFLOAD waits for the instr that makes the input. The instr that makes the input of the layer DEPTH further on
   may take its memory and waits for OFFLOAD. FETCH waits for the instr before it, up to which its memory may be in use.
   The first instr that reads the fetched tensor waits for FETCH. The compute lane has waited for all copies when the
   range ends.

   Works divide at the boundaries that they receive and send, where no lane but the compute lane may run (cut.c). So
   OFFLOAD and FETCH come one instr later where they would come right behind a boundary. */

#include "plan/rewrite.h"

#define DEPTH 2 /* inputs that may be copied to the host at the same time */

typedef struct {
    TensorId input;       /* its part INPUT; NONE */
    InstrId made, wanted; /* old instrs: its writer; the first of backward that reads it; NONE */
    bool offloaded;
    int next_fetch; /* another layer with a FETCH at the same place, or NONE */
    TensorId host, back;
    InstrId offload, fetch; /* new instrs, or NONE so far */
} Layer;

typedef struct {
    Plan *p;
    Rewrite r;
    Layer *layers;     /* (n_layers) */
    int *maker;        /* (old instrs): the layer whose input it makes, or NONE */
    int *fetch_before; /* (old instrs): the first layer with a FETCH before it, or NONE */
    int *layer_of;     /* (tensors): the offloaded layer whose input it is, or NONE */
    InstrId last;      /* new: the compute lane's last instr */
    InstrId awaited;   /* new: the last OFFLOAD, until it is waited for; else NONE */
    int due;           /* the layer whose OFFLOAD comes behind the next instr; NONE */
} Offload;

/* A stage's first input comes from another stage, and is kept at every level. */
static bool is_received(const Offload *pass, TensorId t)
{
    for (InstrId i = 0; i < pass->r.n; i++)
        if (pass->r.old[i].op == OP_RECEIVE && pass->r.old[i].phase == PHASE_FORWARD)
            return pass->r.old[i].out[RECEIVE_OUT_x] == t;
    return false;
}

static void find_inputs(Offload *pass)
{
    Plan *p = pass->p;
    for (int l = 0; l < p->n_layers; l++)
        pass->layers[l] = (Layer){.input = NONE, .made = NONE, .wanted = NONE, .next_fetch = NONE, .fetch = NONE};
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *x = &p->tensors[t];
        bool kept = x->region == REGION_ACT && x->part == PART_INPUT && x->cols > 1 && x->original == NONE;
        if ((!kept && !is_received(pass, t)) || x->layer < 0 || x->layer >= p->n_layers) continue;
        CHECK(pass->layers[x->layer].input == NONE, "layer %d has two inputs: '%s' and '%s'", x->layer,
              p->tensors[pass->layers[x->layer].input].name, x->name);
        pass->layers[x->layer].input = t;
    }
}

static void find_uses(Offload *pass)
{
    const Plan *p = pass->p;
    for (InstrId i = 0; i < pass->r.n; i++) {
        const Instr *instr = &pass->r.old[i];
        for (int k = 0; k < OP_MAX_OUT; k++) {
            int l = instr->out[k] == NONE ? NONE : p->tensors[instr->out[k]].layer;
            if (l >= 0 && l < p->n_layers && pass->layers[l].input == instr->out[k]) pass->layers[l].made = i;
        }
        for (int k = 0; k < OP_MAX_IN && instr->phase != PHASE_FORWARD; k++) {
            int l = instr->in[k] == NONE ? NONE : p->tensors[instr->in[k]].layer;
            bool input = l >= 0 && l < p->n_layers && pass->layers[l].input == instr->in[k];
            if (input && pass->layers[l].wanted == NONE) pass->layers[l].wanted = i;
        }
    }
}

/* From the top: a layer's FETCH comes where backward first reads the input of the nearest layer above that has one. */
static void choose_layers(Offload *pass, const LayerKeep *keeps)
{
    InstrId above = NONE;
    for (int l = pass->p->n_layers - 1; l >= 0; l--) {
        Layer *layer = &pass->layers[l];
        layer->offloaded = above != NONE && keeps[l].offloaded && layer->wanted != NONE;
        if (layer->offloaded) {
            int *at = &pass->fetch_before[above];
            while (*at != NONE) at = &pass->layers[*at].next_fetch;
            *at = l;
            pass->layer_of[layer->input] = l;
        }
        if (layer->wanted != NONE) above = layer->wanted;
    }
}

static void wait_for_offload(Offload *pass, Instr *instr, InstrId offload)
{
    plan_wait_for(pass->p, instr, offload);
    if (pass->awaited == offload) pass->awaited = NONE;
}

static void emit_offload(Offload *pass, int l)
{
    Plan *p = pass->p;
    Layer *layer = &pass->layers[l];
    layer->host = plan_like(p, layer->input, REGION_HOST, ".host");
    layer->offload = pass->awaited =
        plan_emit(p, OP_OFFLOAD, PHASE_FORWARD, l, (OpAttr){0}, IDS(layer->input), IDS(layer->host));
    p->instrs[layer->offload].lane = LANE_COPY;
    plan_wait_for(p, &p->instrs[layer->offload], pass->last);
}

static void emit_fetch(Offload *pass, int l)
{
    Plan *p = pass->p;
    Layer *layer = &pass->layers[l];
    layer->back = plan_like(p, layer->input, REGION_ACT, ".back");
    layer->fetch = plan_emit(p, OP_FETCH, PHASE_BACKWARD, l, (OpAttr){0}, IDS(layer->host), IDS(layer->back));
    p->instrs[layer->fetch].lane = LANE_COPY;
    p->instrs[layer->fetch].origin = layer->offload;
    plan_wait_for(p, &p->instrs[layer->fetch], pass->last);
}

/* Backward reads the fetched tensor; its first reader waits for FETCH. */
static void read_fetched(Offload *pass, Instr *instr)
{
    for (int k = 0; k < OP_MAX_IN; k++) {
        int l = instr->in[k] == NONE ? NONE : pass->layer_of[instr->in[k]];
        if (l == NONE) continue;
        Layer *layer = &pass->layers[l];
        CHECK(layer->fetch != NONE, "%s reads the input of layer %d before it was fetched", op_info(instr->op)->name,
              l);
        instr->in[k] = layer->back;
        if (layer->wanted == NONE) continue;
        plan_wait_for(pass->p, instr, layer->fetch);
        layer->wanted = NONE;
    }
}

static void keep_instr(Offload *pass, InstrId i)
{
    Instr instr = rewrite_old(&pass->r, i);
    int made = pass->maker[i], freed = made == NONE ? NONE : made - DEPTH;
    if (freed >= 0 && pass->layers[freed].offloaded) wait_for_offload(pass, &instr, pass->layers[freed].offload);
    if (instr.phase != PHASE_FORWARD) {
        if (pass->awaited != NONE) wait_for_offload(pass, &instr, pass->awaited);
        read_fetched(pass, &instr);
    }
    pass->last = rewrite_keep(&pass->r, i, instr);
    if (pass->due != NONE) emit_offload(pass, pass->due);
    pass->due = NONE;
    if (made == NONE || !pass->layers[made].offloaded) return;
    if (op_is_link(instr.op))
        pass->due = made;
    else
        emit_offload(pass, made);
}

static void emit_fetches(Offload *pass, InstrId before)
{
    for (int l = pass->fetch_before[before]; l != NONE; l = pass->layers[l].next_fetch) emit_fetch(pass, l);
}

void plan_offload(Plan *p, const LayerKeep *keeps)
{
    size_t n = (size_t)p->n_instrs, n_tensors = (size_t)p->n_tensors;
    bool any = false;
    for (int l = 0; l < p->n_layers; l++) any |= keeps[l].offloaded != 0;
    if (!any) return;
    Offload pass = {.p = p,
                    .layers = mem_array((size_t)p->n_layers, sizeof(Layer)),
                    .maker = mem_array(n, sizeof(int)),
                    .fetch_before = mem_array(n, sizeof(int)),
                    .layer_of = mem_array(n_tensors, sizeof(int)),
                    .last = NONE,
                    .awaited = NONE,
                    .due = NONE};
    for (size_t i = 0; i < n; i++) pass.maker[i] = pass.fetch_before[i] = NONE;
    for (size_t t = 0; t < n_tensors; t++) pass.layer_of[t] = NONE;
    rewrite_begin(&pass.r, p);
    find_inputs(&pass);
    find_uses(&pass);
    choose_layers(&pass, keeps);
    for (int l = 0; l < p->n_layers; l++)
        if (pass.layers[l].made != NONE) pass.maker[pass.layers[l].made] = l;
    for (InstrId i = 0; i < pass.r.n; i++) {
        bool later = pass.last != NONE && op_is_link(p->instrs[pass.last].op);
        if (!later) emit_fetches(&pass, i);
        keep_instr(&pass, i);
        if (later) emit_fetches(&pass, i);
    }
    rewrite_end(&pass.r);
    MEM_FREE(pass.layers, pass.maker, pass.fetch_before, pass.layer_of);
}
