/* Predicted time: a roofline over the ops' own arithmetic (op_cost), played through lane by lane. */

#include "plan/plan.h"

#define TILE_ROWS 128

static bool is_attention(Op op) { return op == OP_ATTENTION || op == OP_ATTENTION_BWD; }

/* The texts of a coupled step, whose number is fixed, may be fp32 where the compute type is not. */
static bool is_f32(const OpCall *call)
{
    const Operand *h = IN(call, MLM_XENT, h);
    bool texts = call->op == OP_MLM_XENT && h->rows.kind == ROWS_FIXED && h->dtype == F32;
    return texts || call->op == OP_INVERT || call->op == OP_PRECONDITION;
}

static bool is_whole_attention(const OpCall *call, const CostRates *r)
{
    return r->gpu && call->op == OP_ATTENTION_BWD && r->gpu->attention_is_whole(call);
}

static double rate_of(const OpCall *call, double seq_len, const CostRates *r)
{
    if (r->gpu && is_f32(call)) return r->gpu->f32_flops;
    if (!is_attention(call->op) || r->attention_flops[0] == 0) return r->product_flops;
    double rate = r->attention_flops[call->op == OP_ATTENTION_BWD] * seq_len / (seq_len + r->half_length);
    bool dropped = call->op == OP_ATTENTION && call->attr.attention.dropout > 0;
    if (!r->gpu) return rate;
    if (is_whole_attention(call, r)) rate *= r->gpu->attention_whole;
    return dropped ? rate * r->gpu->attention_dropout : rate;
}

/* Tiles along a side, and the part of the last one that is idle: as long a side in tiles over its own length. */
static double tiles_along(double side, int tile, double *padding)
{
    double tiles = ceil(side / tile);
    if (side > tile) *padding *= tiles * tile / side; /* shorter sides have smaller tiles */
    return tiles;
}

/* Time of the waves in which an (m, n) output's tiles run, in `parts` along k, over that of as many full waves. Of the
   tiles that the library has, those that take least. */
static double wave_factor(double m, double n, int parts, const GpuRates *gpu)
{
    double best = INFINITY;
    for (int kind = 0; kind < 4; kind++) {
        int long_side = gpu->tile_columns[kind / 2], across = kind % 2 ? TILE_ROWS : long_side;
        double padding = 1;
        double tiles = parts * tiles_along(m, kind % 2 ? long_side : TILE_ROWS, &padding);
        tiles *= tiles_along(n, across, &padding);
        double factor = padding * ceil(tiles / gpu->multiprocessors) * gpu->multiprocessors / tiles;
        if (factor < best) best = factor;
    }
    return best;
}

/* A weight gradient has few tiles and a long k: it is cut into the parts that take least, each of which is written and
   read once more. */
static double weight_gradient(double m, double n, double seconds, const CostRates *r)
{
    double best = seconds * wave_factor(m, n, 1, r->gpu);
    for (int parts = 2; parts <= 8 && parts * m * n * (double)sizeof(float) <= r->gpu->split_bytes; parts++) {
        double added = 2 * parts * m * n * (double)sizeof(float) / r->bytes;
        double split = seconds * wave_factor(m, n, parts, r->gpu) + added;
        if (split < best) best = split;
    }
    return best;
}

/* A product's time with GELU in its kernel over that without. Two warpgroups take turns: while one has the tensor
   cores, the other computes the epilogue of its tile (kernels/cuda/fused_gelu_cutlass.cu). */
static double fused_factor(const OpCall *call, const GpuRates *gpu)
{
    if (!call->attr.linear.fused) return 1;
    bool back = call->op == OP_LINEAR_DGRAD;
    double products = 8.0 * (double)(back ? call->attr.linear.n : call->attr.linear.k);
    return fmax(1, gpu->gelu_cycles[back] / products) / gpu->fused_share;
}

/* Seconds of the call's products at the rate of large ones, plus what waves and ramps add on a GPU. */
static double product_seconds(const OpCall *call, const RowCounts *rows, const OpCost *cost, double seq_len,
                              const CostRates *r)
{
    double seconds = cost->product_flops / rate_of(call, seq_len, r);
    if (!r->gpu || seconds == 0) return seconds;
    double tokens = (double)rows_in(call->in[0].rows, rows), n = (double)call->attr.linear.n,
           k = (double)call->attr.linear.k;
    switch (call->op) {
    case OP_LINEAR:
        return seconds * fused_factor(call, r->gpu) * wave_factor(tokens, n, 1, r->gpu) + r->gpu->product_ramp;
    case OP_LINEAR_DGRAD:
        return seconds * fused_factor(call, r->gpu) * wave_factor(tokens, k, 1, r->gpu) + r->gpu->product_ramp;
    case OP_LINEAR_WGRAD:
        return weight_gradient(n, k, seconds, r) + r->gpu->product_ramp;
    case OP_CURVATURE: /* in one step of `interval` */
        n = (double)call->attr.curvature.n, k = (double)call->attr.curvature.interval;
        return (weight_gradient(n, n, seconds * k, r) + r->gpu->product_ramp) / k;
    case OP_INVERT:
        return seconds + (double)op_inverse_side(call) * r->gpu->sweep_seconds;
    case OP_PRECONDITION:
        return seconds + 2 * r->gpu->product_ramp;
    default:
        return seconds;
    }
}

/* Ops whose time on a CPU is their arithmetic, not their traffic. */
static bool computes(Op op)
{
    switch (op) {
    case OP_EMBED:
    case OP_EMBED_BWD:
    case OP_GELU:
    case OP_GELU_BWD:
    case OP_ADDNORM:
    case OP_ADDNORM_BWD:
    case OP_AFFINE:
    case OP_ACTIVATE:
    case OP_ACTIVATE_BWD:
    case OP_POOL:
    case OP_POOL_BWD:
    case OP_DROPOUT:
    case OP_PACK:
    case OP_DIGEST:
        return true;
    default:
        return false;
    }
}

static double memory_rate(Op op, const CostRates *r)
{
    if (r->stream > 0 && !computes(op)) return r->stream;
    return r->gpu && (op == OP_ADDNORM || op == OP_ADDNORM_BWD) ? r->gpu->norm_bytes : r->bytes;
}

double plan_call_cost(const OpCall *call, const RowCounts *rows, double seq_len, const CostRates *rates, OpCost *cost,
                      CostBound *bound)
{
    *cost = op_cost(call, rows, seq_len);
    if (op_is_exchange(call->op)) {
        *bound = BOUND_NETWORK;
        return rates->exchange ? rates->exchange(rates->network, call->op, cost->bytes / 2) : 0; /* read and written */
    }
    if (op_is_link(call->op)) { /* schedule_simulate has the links between stages */
        *bound = BOUND_NETWORK;
        return 0;
    }
    double link = call->op == OP_OFFLOAD ? rates->link_out : call->op == OP_FETCH ? rates->link_in : 0;
    if (link > 0) {
        *bound = cost->bytes / link > rates->overhead ? BOUND_LINK : BOUND_OVERHEAD;
        return cost->bytes / link + rates->overhead;
    }
    double overhead = rates->overhead * (rates->gpu ? rates->gpu->kernels(rates->gpu, call, rows) : 1);
    if (call->op == OP_CURVATURE) overhead /= (double)call->attr.curvature.interval;
    double products = product_seconds(call, rows, cost, seq_len, rates);
    if (is_whole_attention(call, rates)) cost->pass_bytes = 0;
    double traffic = cost->bytes / memory_rate(call->op, rates), passes = cost->pass_bytes / rates->bytes;
    double hidden = rates->stream > 0 ? products + traffic : products > traffic ? products : traffic;
    *bound = products > traffic && products > passes ? BOUND_PRODUCTS : BOUND_TRAFFIC;
    if (rates->gpu && call->op == OP_EMBED_BWD) passes += rates->gpu->sort_seconds;
    if (overhead > hidden + passes) *bound = BOUND_OVERHEAD;
    return hidden + passes + overhead;
}

double plan_cost(const Plan *p, Range range, const RowCounts *rows, double seq_len, const CostRates *rates,
                 double *per_instr)
{
    double lane[N_LANES] = {0}, total = 0;
    double *ended = mem_array((size_t)range.count + 1, sizeof *ended); /* (range.count) */
    for (InstrId i = 0; i < range.count; i++) {
        const Instr *instr = &p->instrs[range.first + i];
        OpCall call;
        OpCost cost;
        CostBound bound;
        plan_call(p, instr, &call);
        double seconds = plan_call_cost(&call, rows, seq_len, rates, &cost, &bound);
        if (per_instr) per_instr[i] = seconds;
        for (int w = 0; w < 2; w++) {
            InstrId other = instr->wait[w] - range.first;
            if (instr->wait[w] != NONE && other >= 0 && ended[other] > lane[instr->lane])
                lane[instr->lane] = ended[other];
        }
        ended[i] = lane[instr->lane] += seconds;
    }
    for (int l = 0; l < N_LANES; l++)
        if (lane[l] > total) total = lane[l];
    free(ended);
    return total;
}
