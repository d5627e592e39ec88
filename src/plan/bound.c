#include "plan/bound.h"

/* An item is what one forward instr of a layer makes, as far as it is large: a schedule has it in memory or runs the
   instr again. A layer's items are the bits of a set, in the order of their instrs. */
enum { MOST_ITEMS = 12, MOST_SETS = 1 << MOST_ITEMS };

typedef struct {
    int n;
    InstrId maker[MOST_ITEMS];
    int64_t bytes[MOST_ITEMS], picoseconds[MOST_ITEMS]; /* of its largest tensor; of one more run */
    int beside[MOST_ITEMS];    /* item that the same instr makes, and from which this one can be made; NONE */
    uint32_t from[MOST_ITEMS]; /* items of the layer that the instr reads */
    uint32_t needed;           /* items that backward reads, here and in the layer above */
} Items;

/* A moment: while an instr runs for the first time. */
typedef struct {
    int64_t forced;   /* bytes that are in memory then in any schedule */
    int layer;        /* whose items follow */
    LayerCost *costs; // (n) what keeping some of them takes from there on
    int n;
} Moment;

struct PlanBound {
    int n_layers;
    int64_t least; /* picoseconds of all instrs that run in any schedule */
    Front *below;  // (n_layers + 1) choices of all layers below one, whose backward comes later
    Moment *moments;
    int n_moments, cap_moments;
};

typedef struct {
    const Plan *p;
    Instr *instrs; // (n) of micro; those that a schedule can do without have no operands
    int n;
    int64_t *picoseconds; // (n)
    Items *items;         // (n_layers)
    int *item_of;         // (tensors): number of the item in its layer; NONE
    int *layer_of;        // (tensors): the layer of its item
    int *maker;           // (tensors): place in micro of its first writer; NONE
    bool *before, *after; // (n): instrs that surely ran before the moment; that surely run after it
    bool *backward;       // (n): instrs whose data come from the losses
    bool *reached;        // (tensors)
} Builder;

static int64_t placed(const Builder *b, TensorId t) { return (int64_t)plan_placed_bytes(&b->p->tensors[t]); }

static bool is_activation(const Builder *b, TensorId t) { return t != NONE && b->p->tensors[t].region == REGION_ACT; }

/* ---- items ---- */

/* A GELU may also be made again by its backward, and a product without the GELU in its kernel. */
static int64_t again_picoseconds(const Builder *b, int i, const RowCounts *rows, double seq_len, const CostRates *rates)
{
    const Instr *f = &b->instrs[i];
    int64_t least = b->picoseconds[i];
    OpCall call;
    OpCost cost;
    CostBound bound;
    if (f->op == OP_LINEAR && f->attr.linear.fused) {
        plan_call(b->p, f, &call);
        *OUT(&call, LINEAR, g) = (Operand){0};
        least = llround(plan_call_cost(&call, rows, seq_len, rates, &cost, &bound) * 1e12);
    }
    for (int k = i + 1; k < b->n && f->op == OP_GELU; k++) {
        const Instr *back = &b->instrs[k];
        if (back->op != OP_GELU_BWD || back->in[GELU_BWD_IN_pre] != f->in[GELU_IN_pre]) continue;
        plan_call(b->p, back, &call);
        if (operand_present(OUT(&call, GELU_BWD, g))) continue;
        const Tensor *g = &b->p->tensors[f->out[GELU_OUT_g]];
        *OUT(&call, GELU_BWD, g) = (Operand){.dtype = g->dtype, .rows = g->rows, .cols = g->cols};
        double seconds = plan_call_cost(&call, rows, seq_len, rates, &cost, &bound);
        int64_t more = llround(seconds * 1e12) - b->picoseconds[k];
        if (more < least) least = more > 0 ? more : 0;
    }
    return least;
}

/* An instr that a schedule may run again: it only writes activations. */
static bool repeats(const Builder *b, int i)
{
    const Instr *instr = &b->instrs[i];
    if (instr->phase != PHASE_FORWARD || instr->lane != LANE_COMPUTE || op_is_link(instr->op)) return false;
    for (int k = 0; k < OP_MAX_OUT; k++)
        if (instr->out[k] != NONE && (!is_activation(b, instr->out[k]) || op_info(instr->op)->out[k].accumulated))
            return false;
    return true;
}

/* In form XHAT a schedule may keep y as well as xhat, or make it from xhat, as AFFINE does, or by ADDNORM with xhat. */
static void add_y(Builder *b, TensorId y, int layer)
{
    Items *items = &b->items[layer];
    const int xhat = items->n - 1;
    if (items->n == MOST_ITEMS) return;
    items->maker[items->n] = items->maker[xhat];
    items->bytes[items->n] = placed(b, y);
    items->beside[items->n] = xhat;
    items->from[items->n] = 1u << xhat;
    b->item_of[y] = items->n;
    for (int i = 0; i < b->n; i++) {
        const Instr *affine = &b->p->instrs[b->p->micro.first + i];
        if (affine->op != OP_AFFINE || b->p->tensors[affine->out[AFFINE_OUT_y]].original != y) continue;
        items->picoseconds[items->n] = b->picoseconds[i];
        b->item_of[affine->out[AFFINE_OUT_y]] = items->n;
        b->layer_of[affine->out[AFFINE_OUT_y]] = layer;
    }
    items->n++;
}

static void add_item(Builder *b, int i, int layer, int64_t again)
{
    const Instr *instr = &b->instrs[i];
    Items *items = &b->items[layer];
    int64_t largest = 0;
    uint32_t from = 0;
    if (items->n == MOST_ITEMS) return; /* its tensors are always at hand: the bound is lower */
    for (int k = 0; k < OP_MAX_OUT; k++)
        if (instr->out[k] != NONE && placed(b, instr->out[k]) > largest) largest = placed(b, instr->out[k]);
    for (int k = 0; k < OP_MAX_IN; k++)
        if (instr->in[k] != NONE && b->item_of[instr->in[k]] != NONE && b->layer_of[instr->in[k]] == layer)
            from |= 1u << b->item_of[instr->in[k]];
    for (int k = 0; k < OP_MAX_OUT; k++) {
        if (instr->out[k] == NONE || placed(b, instr->out[k]) < largest) continue; /* small ones are always at hand */
        b->item_of[instr->out[k]] = items->n;
        b->layer_of[instr->out[k]] = layer;
    }
    items->maker[items->n] = i;
    items->bytes[items->n] = largest;
    items->picoseconds[items->n] = again;
    items->beside[items->n] = NONE;
    items->from[items->n++] = from;
    if (instr->op == OP_ADDNORM && instr->out[ADDNORM_OUT_xhat] != NONE) add_y(b, instr->out[ADDNORM_OUT_y], layer);
}

/* The embeddings are an item of the first layer; heads have none, which makes the bound lower. */
static void find_items(Builder *b, const RowCounts *rows, double seq_len, const CostRates *rates)
{
    int layer = -1;
    for (int i = 0; i < b->n; i++) {
        if (b->instrs[i].phase != PHASE_FORWARD) continue;
        bool heads = b->instrs[i].layer < 0 && layer == b->p->n_layers - 1;
        if (b->instrs[i].layer >= 0) layer = b->instrs[i].layer;
        if (!heads && repeats(b, i))
            add_item(b, i, layer < 0 ? 0 : layer, again_picoseconds(b, i, rows, seq_len, rates));
    }
}

/* ---- choices ---- */

/* For items of which `needed` are read later, with `free_ones` at hand at no cost: for each set that is kept the bytes
   and the time to run what is missing again. Returns the number of choices that no other beats; `costs` has room for
   all sets. */
static int choices(const Items *items, uint32_t needed, uint32_t free_ones, LayerCost *costs)
{
    int n = 0;
    for (uint32_t kept = 0; kept < 1u << items->n; kept++) {
        if (kept & free_ones) continue;
        LayerCost c = {0};
        uint32_t wanted = needed, has = kept | free_ones;
        for (int k = items->n - 1; k >= 0; k--) {
            if (kept >> k & 1) c.kept += items->bytes[k];
            if (!(wanted >> k & 1) || has >> k & 1) continue;
            wanted |= items->from[k];
            if (items->beside[k] == NONE || has >> items->beside[k] & 1) c.picoseconds += items->picoseconds[k];
        }
        bool beaten = false;
        int left = 0;
        for (int k = 0; k < n && !beaten; k++)
            beaten = costs[k].picoseconds <= c.picoseconds && costs[k].kept <= c.kept;
        if (beaten) continue;
        for (int k = 0; k < n; k++)
            if (c.picoseconds > costs[k].picoseconds || c.kept > costs[k].kept) costs[left++] = costs[k];
        costs[left] = c;
        n = left + 1;
    }
    return n;
}

/* ---- moments ---- */

static void mark(Builder *b, const TensorId *tensors, int n)
{
    for (int k = 0; k < n; k++)
        if (is_activation(b, tensors[k])) b->reached[tensors[k]] = true;
}

/* The items of a layer that instrs in `after` read, of those whose makers are in `made` (NULL: all). */
static uint32_t read_after(const Builder *b, int layer, const bool *made)
{
    uint32_t items = 0;
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < OP_MAX_IN && b->after[i]; k++) {
            TensorId t = b->instrs[i].in[k];
            if (t == NONE || b->item_of[t] == NONE || b->layer_of[t] != layer) continue;
            if (!made || made[b->items[layer].maker[b->item_of[t]]]) items |= 1u << b->item_of[t];
        }
    return items;
}

/* Marks the instrs from `first` on whose data come from marked tensors, and what they make. */
static void mark_after(Builder *b, int first)
{
    memset(b->after, 0, (size_t)b->n * sizeof *b->after);
    for (int i = first; i < b->n; i++) {
        for (int k = 0; k < OP_MAX_IN; k++)
            b->after[i] |= is_activation(b, b->instrs[i].in[k]) && b->reached[b->instrs[i].in[k]];
        if (b->after[i]) mark(b, b->instrs[i].out, OP_MAX_OUT);
    }
}

/* What comes from the losses, and the items that it reads. */
static void find_backward(Builder *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->instrs[i].phase == PHASE_FORWARD && !repeats(b, i)) mark(b, b->instrs[i].out, OP_MAX_OUT);
    mark_after(b, 0);
    memcpy(b->backward, b->after, (size_t)b->n * sizeof *b->after);
    for (int l = 0; l < b->p->n_layers; l++) b->items[l].needed = read_after(b, l, NULL);
}

/* By the data's flow alone: what surely ran before place `at`, and what surely runs after it. */
static void find_order(Builder *b, int at)
{
    memset(b->before, 0, (size_t)b->n * sizeof *b->before);
    memset(b->reached, 0, (size_t)b->p->n_tensors * sizeof *b->reached);
    mark(b, b->instrs[at].in, OP_MAX_IN);
    for (int i = at - 1; i >= 0; i--) {
        for (int k = 0; k < OP_MAX_OUT; k++)
            b->before[i] |= is_activation(b, b->instrs[i].out[k]) && b->reached[b->instrs[i].out[k]];
        if (b->before[i]) mark(b, b->instrs[i].in, OP_MAX_IN);
    }
    memset(b->reached, 0, (size_t)b->p->n_tensors * sizeof *b->reached);
    mark(b, b->instrs[at].out, OP_MAX_OUT);
    mark_after(b, at + 1);
}

/* Bytes of the instr's own tensors; `counted` marks them. An output that may lie in an input's memory counts once with
   it. Items of layers below count with what is kept of these. */
static int64_t operand_bytes(const Builder *b, int at, int layer, bool *counted)
{
    const Instr *instr = &b->instrs[at];
    const OpInfo *info = op_info(instr->op);
    int64_t bytes = 0;
    uint32_t taken = 0;
    for (int k = 0; k < OP_MAX_IN; k++) {
        TensorId t = instr->in[k];
        if (!is_activation(b, t) || counted[t] || (b->item_of[t] != NONE && b->layer_of[t] < layer)) continue;
        counted[t] = true;
        bytes += placed(b, t);
    }
    for (int k = 0; k < OP_MAX_OUT; k++) {
        TensorId t = instr->out[k];
        int shared = t == NONE ? -1 : info->out[k].shares;
        if (!is_activation(b, t) || counted[t]) continue;
        counted[t] = true;
        if (shared >= 0 && is_activation(b, instr->in[shared]) && !(taken >> shared & 1) &&
            placed(b, instr->in[shared]) >= placed(b, t))
            taken |= 1u << shared;
        else
            bytes += placed(b, t);
    }
    return bytes;
}

/* Adds the gradients that an instr before made and one after reads: backward runs once, so that they are kept. */
static int64_t gradient_bytes(const Builder *b, bool *counted)
{
    int64_t bytes = 0;
    for (int i = 0; i < b->n; i++) {
        for (int k = 0; k < OP_MAX_IN && b->after[i]; k++) {
            TensorId t = b->instrs[i].in[k];
            if (!is_activation(b, t) || counted[t] || b->maker[t] == NONE) continue;
            const Instr *maker = &b->instrs[b->maker[t]];
            bool once = maker->phase == PHASE_BACKWARD || (maker->phase == PHASE_FORWARD && !repeats(b, b->maker[t]));
            if (!b->before[b->maker[t]] || !once || maker->lane != LANE_COMPUTE) continue;
            counted[t] = true;
            bytes += placed(b, t);
        }
    }
    return bytes;
}

static void add_moment(PlanBound *bound, Builder *b, int at, LayerCost *room)
{
    const Instr *instr = &b->instrs[at];
    const int layers = b->p->n_layers, layer = instr->layer < 0 ? layers : instr->layer;
    bool *counted = mem_array((size_t)b->p->n_tensors, sizeof *counted);
    Moment m = {.layer = layer};
    find_order(b, at);
    m.forced = operand_bytes(b, at, layer, counted) + gradient_bytes(b, counted);
    if (layer < layers) {
        uint32_t at_hand = 0;
        for (int k = 0; k < OP_MAX_IN + OP_MAX_OUT; k++) {
            TensorId t = k < OP_MAX_IN ? instr->in[k] : instr->out[k - OP_MAX_IN];
            if (t != NONE && b->item_of[t] != NONE && b->layer_of[t] == layer) at_hand |= 1u << b->item_of[t];
        }
        m.n = choices(&b->items[layer], read_after(b, layer, b->before), at_hand, room);
    } else {
        m.n = 1;
        room[0] = (LayerCost){0};
    }
    m.costs = mem_array((size_t)m.n, sizeof *m.costs);
    memcpy(m.costs, room, (size_t)m.n * sizeof *m.costs);
    MEM_PUSH(bound->moments, bound->n_moments, bound->cap_moments, m);
    free(counted);
}

/* Whether the items of the layers below that backward reads were made before this instr, and all of their backward
   comes after it. */
static bool is_between(Builder *b, int at)
{
    int layer = b->instrs[at].layer < 0 ? b->p->n_layers : b->instrs[at].layer;
    find_order(b, at);
    for (int i = 0; i < b->n; i++)
        if (b->backward[i] && b->instrs[i].layer >= 0 && b->instrs[i].layer < layer && !b->after[i]) return false;
    for (int l = 0; l < layer; l++)
        for (int k = 0; k < b->items[l].n; k++)
            if (b->items[l].needed >> k & 1 && !b->before[b->items[l].maker[k]]) return false;
    return true;
}

/* Without what a schedule need not run: AFFINEs (see add_y), and checks of what is made again. Sets bound->least. */
static void find_instrs(Builder *b, PlanBound *bound)
{
    memcpy(b->instrs, b->p->instrs + b->p->micro.first, (size_t)b->n * sizeof *b->instrs);
    for (int i = 0; i < b->n; i++) {
        Instr *instr = &b->instrs[i];
        if (instr->phase == PHASE_RECOMPUTE || instr->op == OP_DIGEST || instr->op == OP_COMPARE) {
            instr->phase = PHASE_UPDATE;
            for (int k = 0; k < OP_MAX_IN; k++) instr->in[k] = NONE;
            for (int k = 0; k < OP_MAX_OUT; k++) instr->out[k] = NONE;
        } else if (instr->lane == LANE_COMPUTE) {
            bound->least += b->picoseconds[i];
        }
    }
}

PlanBound *plan_bound_make(const Plan *p, const RowCounts *rows, double seq_len, const CostRates *rates, int64_t most)
{
    const size_t n = (size_t)p->micro.count, n_tensors = (size_t)p->n_tensors;
    const int layers = p->n_layers;
    PlanBound *bound = mem_array(1, sizeof *bound);
    Builder b = {.p = p,
                 .instrs = mem_array(n, sizeof(Instr)),
                 .n = (int)n,
                 .picoseconds = mem_array(n, sizeof(int64_t)),
                 .items = mem_array((size_t)layers + 1, sizeof(Items)),
                 .item_of = mem_array(n_tensors, sizeof(int)),
                 .layer_of = mem_array(n_tensors, sizeof(int)),
                 .maker = mem_array(n_tensors, sizeof(int)),
                 .before = mem_array(n, sizeof(bool)),
                 .after = mem_array(n, sizeof(bool)),
                 .backward = mem_array(n, sizeof(bool)),
                 .reached = mem_array(n_tensors, sizeof(bool))};
    double *seconds = mem_array(n + 1, sizeof *seconds);
    LayerCost *costs = mem_array(MOST_SETS, sizeof *costs);
    *bound = (PlanBound){.n_layers = layers, .below = mem_array((size_t)layers + 1, sizeof *bound->below)};
    plan_cost(p, p->micro, rows, seq_len, rates, seconds);
    for (size_t i = 0; i < n; i++) b.picoseconds[i] = llround(seconds[i] * 1e12);
    find_instrs(&b, bound);
    for (size_t t = 0; t < n_tensors; t++) b.item_of[t] = b.layer_of[t] = b.maker[t] = NONE;
    for (int i = (int)n - 1; i >= 0; i--)
        for (int k = 0; k < OP_MAX_OUT; k++)
            if (b.instrs[i].out[k] != NONE) b.maker[b.instrs[i].out[k]] = i;
    find_items(&b, rows, seq_len, rates);
    find_backward(&b);
    front_init(&bound->below[0]);
    for (int l = 0; l < layers; l++) {
        int n_costs = choices(&b.items[l], b.items[l].needed, 0, costs);
        for (int k = 0; k < n_costs; k++) costs[k].peak = costs[k].kept;
        front_extend(&bound->below[l], costs, n_costs, most, INT64_MAX, &bound->below[l + 1]);
    }
    for (int i = 0; i < (int)n; i++) {
        bool near = b.instrs[i].layer < 0 || b.instrs[i].layer >= layers - 2;
        if (near && b.instrs[i].lane == LANE_COMPUTE && is_between(&b, i)) add_moment(bound, &b, i, costs);
    }
    MEM_FREE(b.instrs, b.picoseconds, b.items, b.item_of, b.layer_of, b.maker, b.before, b.after, b.backward, b.reached,
             seconds, costs);
    return bound;
}

void plan_bound_free(PlanBound *b)
{
    if (!b) return;
    for (int l = 0; l <= b->n_layers; l++) front_free(&b->below[l]);
    for (int i = 0; i < b->n_moments; i++) free(b->moments[i].costs);
    MEM_FREE(b->below, b->moments, b);
}

int64_t plan_bound_least(const PlanBound *b) { return b->least; }

/* What the moment takes at least with one of its choices: picoseconds within `room` bytes, else bytes within so many
   picoseconds. INT64_MAX: it cannot. */
static int64_t moment_least(const PlanBound *b, const Moment *m, bool time, int64_t within)
{
    const Front *below = &b->below[m->layer];
    int64_t least = INT64_MAX;
    for (int k = 0; k < m->n; k++) {
        const LayerCost *own = &m->costs[k];
        const int64_t more =
            time ? front_fastest(below, within - m->forced - own->kept) : front_least(below, within - own->picoseconds);
        if (more == INT64_MAX) continue;
        const int64_t all = more + (time ? own->picoseconds : m->forced + own->kept);
        if (all < least) least = all;
    }
    return least;
}

static int64_t most_of_moments(const PlanBound *b, bool time, int64_t within)
{
    int64_t most = 0;
    for (int i = 0; i < b->n_moments; i++) {
        const int64_t least = moment_least(b, &b->moments[i], time, within);
        if (least > most) most = least;
    }
    return most;
}

int64_t plan_bound_added(const PlanBound *b, int64_t room) { return most_of_moments(b, true, room); }

int64_t plan_bound_room(const PlanBound *b, int64_t added) { return most_of_moments(b, false, added); }
