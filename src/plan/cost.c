/* Predicted time: a roofline over the ops' own arithmetic (op_cost), played through lane by lane. */
#include <stdlib.h>

#include "plan/plan.h"

static double rate_of(Op op, double seq_len, const CostRates *r)
{
    if ((op != OP_ATTENTION && op != OP_ATTENTION_BWD) || r->attention_flops[0] == 0) return r->product_flops;
    return r->attention_flops[op == OP_ATTENTION_BWD] * seq_len / (seq_len + r->half_length);
}

double plan_call_cost(const OpCall *call, const RowCounts *rows, double seq_len, const CostRates *rates, OpCost *cost,
                      CostBound *bound)
{
    *cost = op_cost(call, rows, seq_len);
    if (op_is_exchange(call->op)) {
        *bound = BOUND_NETWORK;
        return rates->exchange ? rates->exchange(rates->network, call->op, cost->bytes / 2) : 0; /* read and written */
    }
    double link = call->op == OP_OFFLOAD ? rates->link_out : call->op == OP_FETCH ? rates->link_in : 0;
    if (link > 0) {
        *bound = cost->bytes / link > rates->overhead ? BOUND_LINK : BOUND_OVERHEAD;
        return cost->bytes / link + rates->overhead;
    }
    double products = cost->product_flops / rate_of(call->op, seq_len, rates);
    double traffic = cost->bytes / rates->bytes, passes = cost->pass_bytes / rates->bytes;
    double hidden = products > traffic ? products : traffic;
    *bound = products > traffic && products > passes ? BOUND_PRODUCTS : BOUND_TRAFFIC;
    if (rates->overhead > hidden + passes) *bound = BOUND_OVERHEAD;
    return hidden + passes + rates->overhead;
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
