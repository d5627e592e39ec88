/* `cairn plan --pipeline`: time, bubble and memory of schedules, as a table, as JSON, as a drawing. */
#ifndef CAIRN_COMMANDS_PLAN_PIPELINE_H
#define CAIRN_COMMANDS_PLAN_PIPELINE_H

#include "train/pipelines/pipeline.h"

typedef struct {
    const Config *c;
    const PlanInput *in;
    const Accounts *accounts;
    const char *machine; /* for people */
} PlanPipeline;

/* E_MEMORY where none of the schedules fits; it names the budget and the split that would do. */
Status plan_pipeline(const PlanPipeline *q);

#endif
