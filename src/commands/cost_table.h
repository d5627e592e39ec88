/* The arithmetic behind a predicted step (`cairn plan --explain-cost`), op by op. */
#ifndef CAIRN_COMMANDS_COST_TABLE_H
#define CAIRN_COMMANDS_COST_TABLE_H

#include "base/base.h"
#include "plan/plan.h"

typedef struct {
    const Plan *plan;
    const CostRates *rates;
    double peak_flops;        /* of the device's data sheet; 0: unknown */
    double mean, beside;      /* tokens of a sequence; of a token's sequence */
    double micros, sequences; /* of a step */
    const char *policy;
    const uint8_t *levels;   // (layers)
    const char *assumptions; /* printed below the rates; may be NULL */
    const char *measured;    /* a kernels.csv (docs/files.md) whose times are printed beside the predicted; "": none */
} CostTable;

/* E_FORMAT: `measured` has no op of the plan. */
Status cost_table(const CostTable *t, Buf *out);

#endif
