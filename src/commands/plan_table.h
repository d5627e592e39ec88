/* The output of `cairn plan`: a row per policy, as a table, as JSON, as a drawing. */
#ifndef CAIRN_COMMANDS_PLAN_TABLE_H
#define CAIRN_COMMANDS_PLAN_TABLE_H

#include "train/planner/run_plan.h"

typedef struct {
    RunPlan plan;
    int64_t max_batch; /* sequences in one micro-batch that fit */
} PlanRow;

typedef struct {
    const char *machine; /* for people */
    const char *backend; /* its name, or the device's */
    int64_t batch_size;  /* sequences of a step */
} PlanTable;

static inline double mib(size_t bytes) { return (double)bytes / (1 << 20); }

void plan_table_print(const PlanTable *t, const PlanRow *rows, int n, Buf *out);
void plan_table_json(const PlanTable *t, const PlanRow *rows, int n, Buf *out);
/* The members of a row that are the plan's own, without braces. */
void plan_row_json(const RunPlan *p, Buf *out);
/* Memory over the predicted time of one micro-batch, a curve per row, as SVG. */
void plan_table_draw(const PlanTable *t, const PlanRow *rows, int n, Buf *out);

#endif
