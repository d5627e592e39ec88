/* `cairn plan --ranks N`: memory saved by a sharded optimizer, time of the exchange, its part hidden behind backward,
   and the efficiency against linear speed. */
#ifndef CAIRN_COMMANDS_PLAN_RANKS_H
#define CAIRN_COMMANDS_PLAN_RANKS_H

#include "config/config.h"
#include "train/parts/network.h"
#include "train/planner/run_plan.h"

typedef struct {
    const Config *config;
    const RunPlan *plan; /* of rank 0 of them all */
    int64_t share;       /* sequences of a step, on each rank */
    int replicas;        /* copies of each rank's snapshot on other hosts, where there are several */
    const char *machine; /* for people */
} PlanRanks;

Status plan_ranks(const PlanRanks *p);

#endif
