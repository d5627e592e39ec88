/* Predicted time: a roofline over the ops' own arithmetic (op_cost). */
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
    double total = 0;
    for (InstrId i = 0; i < range.count; i++) {
        OpCall call;
        OpCost cost;
        CostBound bound;
        plan_call(p, &p->instrs[range.first + i], &call);
        double seconds = plan_call_cost(&call, rows, seq_len, rates, &cost, &bound);
        if (per_instr) per_instr[i] = seconds;
        total += seconds;
    }
    return total;
}
