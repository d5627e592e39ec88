#include "plan/layers.h"

void plan_turns(const Plan *p, Range micro, int *turns)
{
    const Instr *instrs = p->instrs + micro.first;
    int n = micro.count, turn = 0, now = -1, last = n;
    while (turn < n && instrs[turn].phase == PHASE_FORWARD) turn++;
    while (last > 0 && instrs[last - 1].layer < 0) last--; /* behind it the embeddings' backward */
    for (int i = 0; i < turn; i++) {
        if (instrs[i].layer >= 0)
            now = instrs[i].layer;
        else if (now == p->n_layers - 1)
            now = p->n_layers;
        turns[i] = now;
    }
    now = -1;
    for (int i = n - 1; i >= turn; i--) {
        bool counts = instrs[i].phase == PHASE_BACKWARD && instrs[i].lane == LANE_COMPUTE;
        if (counts && instrs[i].layer >= 0)
            now = instrs[i].layer;
        else if (counts && i < last)
            now = p->n_layers;
        turns[i] = now;
    }
}

void plan_layer_costs(const Plan *p, const RowCounts *rows, double seq_len, const CostRates *rates, LayerCost *layers,
                      OtherCost *other)
{
    int n = p->micro.count, turn = 0;
    int *turns = mem_array((size_t)n + 1, sizeof *turns);
    double *seconds = mem_array((size_t)n + 1, sizeof *seconds);
    int64_t *live = mem_array((size_t)n + 1, sizeof *live), *below = mem_array((size_t)p->n_layers + 2, sizeof *below);
    plan_turns(p, p->micro, turns);
    plan_cost(p, p->micro, rows, seq_len, rates, seconds);
    plan_live_series(p, live);
    *other = (OtherCost){0};
    memset(layers, 0, (size_t)p->n_layers * sizeof *layers);
    while (turn < n && p->instrs[p->micro.first + turn].phase == PHASE_FORWARD) turn++;
    for (TensorId t = 0; t < p->n_tensors; t++) {
        const Tensor *x = &p->tensors[t];
        bool across = x->region == REGION_ACT && x->first != NONE && x->first < p->micro.first + turn &&
                      x->last >= p->micro.first + turn;
        if (across && x->layer >= 0 && x->layer < p->n_layers) layers[x->layer].kept += (int64_t)plan_placed_bytes(x);
    }
    for (int l = 0; l < p->n_layers; l++) below[l + 1] = below[l] + layers[l].kept;
    for (int i = 0; i < n; i++) {
        const Instr *instr = &p->instrs[p->micro.first + i];
        int at = turns[i];
        int64_t *peak = at < 0 ? &other->below : at == p->n_layers ? &other->heads : &layers[at].peak;
        int64_t beside = live[i] - (at < 0 ? 0 : below[at]);
        if (beside > *peak) *peak = beside;
        if (instr->lane != LANE_COMPUTE) continue;
        int layer = instr->phase == PHASE_RECOMPUTE && instr->layer < 0 ? at : instr->layer;
        bool own = layer >= 0 && layer < p->n_layers;
        *(own ? &layers[layer].picoseconds : &other->picoseconds) += llround(seconds[i] * 1e12);
        if (own && instr->phase == PHASE_FORWARD) layers[layer].forward += llround(seconds[i] * 1e12);
    }
    MEM_FREE(turns, seconds, live, below);
}
