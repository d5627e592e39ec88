/* Predicted time: a roofline over the ops' own arithmetic (op_cost). */
#include "plan/plan.h"

double plan_cost(const Plan *p, Range range, const RowCounts *rows, double seq_len, const CostRates *rates,
                 double *per_instr)
{
    double total = 0;
    for (InstrId i = 0; i < range.count; i++) {
        OpCall call;
        plan_call(p, &p->instrs[range.first + i], &call);
        OpCost cost = op_cost(&call, rows, seq_len);
        double products = cost.product_flops / rates->product_flops, traffic = cost.bytes / rates->bytes;
        double seconds = (products > traffic ? products : traffic) + rates->overhead;
        if (per_instr) per_instr[i] = seconds;
        total += seconds;
    }
    return total;
}
