/* `cairn plan --ranks N`: what a sharded optimizer saves, what the exchange takes, how much of it hides behind
   backward, and what is left of linear speed. */
#ifndef CAIRN_COMMANDS_PLAN_RANKS_H
#define CAIRN_COMMANDS_PLAN_RANKS_H

#include "config/config.h"
#include "train/network.h"
#include "train/planning.h"

typedef struct {
    const Config *config;
    PlanRequest request; /* of one rank's micro-batch */
    CostRates rates;
    double seq_len;      /* mean length of a token's sequence */
    double micros;       /* of a step, on each rank */
    int64_t share;       /* sequences of a step, on each rank */
    int replicas;        /* copies of each rank's snapshot on other hosts, where there are several */
    const char *machine; /* for people */
} PlanRanks;

Status plan_ranks(const PlanRanks *p);

#endif
