#include "train/planner/kinds.h"

static const LayerCost never = {.picoseconds = NEVER, .kept = NEVER, .peak = NEVER};

void kinds_free(Kinds *t)
{
    for (int k = 0; k < t->n; k++) free(t->all[k].layers);
    MEM_FREE(t->parts, t->hidden);
}

/* A picosecond more each, so that of equal choices the one with fewer copies is faster. */
static int64_t copy_picoseconds(const SearchProblem *s, const Tensor *x, Op op)
{
    OpCost cost;
    CostBound bound;
    OpCall call = {.op = op};
    call.in[0] = call.out[0] = (Operand){.dtype = x->dtype, .rows = x->rows, .cols = x->cols};
    return 1 + llround(1e12 * plan_call_cost(&call, &s->rows, s->seq_len, &s->rates, &cost, &bound));
}

static void find_parts(const SearchProblem *s, const Plan *p, Kinds *t)
{
    t->parts = mem_array((size_t)t->layers, sizeof *t->parts);
    for (InstrId i = p->micro.first; i < p->micro.first + p->micro.count; i++)
        for (int k = 0; k < OP_MAX_OUT; k++) {
            const int part = plan_part_made(p, &p->instrs[i], k);
            if (part == NONE) continue;
            const Tensor *x = &p->tensors[p->instrs[i].out[k]];
            PartCopies *of = &t->parts[x->layer][part];
            of->bytes += (int64_t)plan_placed_bytes(x);
            of->out += copy_picoseconds(s, x, OP_OFFLOAD);
            of->in += copy_picoseconds(s, x, OP_FETCH);
        }
}

/* Whole copies of an input: of layers whose forward takes as long as 1.3 copies most hide one and some two, as the link
   goes on with what is on its way. Without that where such a choice could have more runs than a policy. */
static void find_hidden(Kinds *t)
{
    int64_t left = 0;
    t->hidden = mem_array((size_t)t->layers, sizeof *t->hidden);
    for (int l = 0; l < t->layers; l++) {
        const int64_t copy = t->layers <= POLICY_RUNS ? t->parts[l][PART_INPUT].out : 1;
        left += t->all[0].layers[l].forward;
        t->hidden[l] = left / copy * copy;
        left -= t->hidden[l];
    }
}

/* Adds a kind, from a plan that is not laid out. `above`: the layers above the first keep this, and cannot choose the
   kind; NULL: all layers choose it. */
static Status add_kind(const SearchProblem *s, LayerKeep keep, const LayerKeep *above, LayerChoice *c, Kinds *t)
{
    Plan p;
    ModelTensors tensors;
    PlanRequest r = s->training;
    OtherCost other;
    Kind *kind = &t->all[t->n];
    for (int l = 0; l < t->layers; l++) c->keeps[l] = above && l > 0 ? *above : keep;
    r.emit.layers = c;
    r.sketch = true;
    TRY(plan_make(&r, &p, &tensors, NULL));
    *kind = (Kind){.keep = keep, .layers = mem_array((size_t)t->layers, sizeof *kind->layers)};
    t->n++;
    plan_layer_costs(&p, &s->rows, s->seq_len, &s->rates, kind->layers, &other);
    kind->heads = other.heads;
    if (other.below > t->below) t->below = other.below;
    for (int l = 1; above && l < t->layers; l++) kind->layers[l] = never;
    if (t->n == 1) {
        for (int l = 0; l < t->layers; l++) t->picoseconds += kind->layers[l].picoseconds;
        find_parts(s, &p, t);
        find_hidden(t);
    }
    plan_free(&p);
    return OK;
}

/* The kinds that no other beats in every layer. */
static void find_useful(const Kinds *t, bool useful[MOST_KINDS])
{
    LayerCost costs[MOST_KINDS];
    int16_t best[MOST_KINDS];
    for (int l = 0; l < t->layers; l++) {
        for (int k = 0; k < t->n; k++) costs[k] = t->all[k].layers[l];
        for (int k = front_useful(costs, t->n, best); k-- > 0;) useful[best[k]] = true;
    }
}

Status kinds_make(const SearchProblem *s, LayerChoice *c, Kinds *t)
{
    *t = (Kinds){.layers = s->training.model->config.layers, .n_windows = 1};
    for (unsigned parts = 0; parts < 1u << FREE_PARTS; parts++)
        TRY(add_kind(s, (LayerKeep){.recomputed = (uint8_t)(parts << 1)}, NULL, c, t));
    bool useful[MOST_KINDS] = {false};
    find_useful(t, useful);
    for (int k = 0; k < 1 << FREE_PARTS; k++) {
        LayerKeep keep = t->all[k].keep;
        if (useful[k]) TRY(add_kind(s, (LayerKeep){keep.recomputed | PART_BIT(INPUT), 0}, &keep, c, t));
    }
    return OK;
}

/* In every layer, and with a window that is no larger. */
static bool is_beaten(const Kinds *t, const Kind *kind)
{
    bool beaten = false;
    for (int k = 0; k < t->n && !beaten; k++) {
        beaten = t->all[k].window <= kind->window;
        for (int l = 0; l < t->layers && beaten; l++) beaten = front_as_good(&t->all[k].layers[l], &kind->layers[l]);
    }
    return beaten;
}

/* Adds a kind that offloads parts which `base` keeps. The topmost layer's stay in any case. */
static void offload_kept(Kinds *t, const Kind *base, unsigned offloaded)
{
    Kind kind = {.keep = {base->keep.recomputed, (uint8_t)offloaded},
                 .layers = mem_array((size_t)t->layers, sizeof *kind.layers)};
    for (int l = 0; l < t->layers; l++) {
        LayerCost c = base->layers[l];
        PartCopies all = {0};
        for (int part = 0; part < LAYER_PARTS; part++) {
            const PartCopies *of = &t->parts[l][part];
            if (offloaded >> part & 1) all = (PartCopies){all.bytes + of->bytes, all.out + of->out, all.in + of->in};
        }
        if (l == t->layers - 1 || c.picoseconds == NEVER) c = never;
        if (c.picoseconds < NEVER) {
            const int64_t backward = c.picoseconds - c.forward;
            c.forward += all.out > t->hidden[l] ? all.out - t->hidden[l] : 0;
            c.picoseconds = c.forward + (all.in > backward ? all.in : backward);
            c.kept -= all.bytes;
            kind.window = all.bytes > kind.window ? all.bytes : kind.window;
        }
        kind.layers[l] = c;
    }
    if (is_beaten(t, &kind))
        free(kind.layers);
    else
        t->all[t->n++] = kind;
}

static int by_bytes(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void kinds_add_offloaded(Kinds *t)
{
    const int n = t->n;
    for (int k = 0; k < n; k++) {
        const unsigned kept = ALL_PARTS & ~t->all[k].keep.recomputed;
        for (unsigned parts = kept & -kept; parts; parts = (parts - kept) & kept) offload_kept(t, &t->all[k], parts);
    }
    for (int k = 0; k < t->n; k++) t->windows[k] = t->all[k].window;
    qsort(t->windows, (size_t)t->n, sizeof *t->windows, by_bytes);
    for (int k = 1; k < t->n; k++)
        if (t->windows[k] > t->windows[t->n_windows - 1]) t->windows[t->n_windows++] = t->windows[k];
}

LayerCost kinds_cost(const Kinds *t, int layer, int kind, int64_t window)
{
    const Kind *k = &t->all[kind];
    const bool can = k->window <= window && (!k->keep.offloaded || layer < t->room / window);
    LayerCost c = can ? k->layers[layer] : never;
    const int64_t heads = layer == t->layers - 1 ? c.kept + k->heads : 0;
    c.peak = heads > c.peak ? heads : c.peak;
    return c;
}
