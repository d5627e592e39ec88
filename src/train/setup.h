/* Everything that a training command decides before its first step, from the configuration: backend and precision,
   optimizer and schedule, and the plan. */
#ifndef CAIRN_TRAIN_SETUP_H
#define CAIRN_TRAIN_SETUP_H

#include "config/config.h"
#include "train/run_plan.h"
#include "train/session.h"

typedef struct {
    Ranks *ranks;     /* set by the caller, whose it stays; NULL: one */
    Backend *backend; /* open; setup_free closes it */
    Dtype compute;
    Optimizer optimizer;
    Exchange exchange;       /* with ranks, for training */
    CommDevice *comm_device; /* the ranks' GPUs are connected; setup_free ends that. NULL: they are not */
    RunPlan plan;            /* until a session takes it over */
} Setup;

/* --precision; `best` stands for auto. */
Dtype setup_compute(const Config *c, Dtype best);
/* Opens --backend and settles --precision: "auto" is the backend's best. */
Status setup_backend(const Config *c, Setup *s);
Status setup_optimizer(const Config *c, Optimizer *o);
/* Total steps from --max-steps or --epochs, then warmup. */
Status setup_schedule(const Config *c, int64_t n_examples, Schedule *schedule);
/* Gradient buckets by --bucket-size and --wire, slices by --shard. */
void setup_exchange(const Config *c, const ParamTable *params, int ranks, int rank, Exchange *x);

/* The run's plan, from what its task needs. Collective: rank 0 chooses, for the smallest budget. E_MEMORY names the
   smallest budget that would do. */
Status setup_plan(const Config *c, const PlanInput *need, Setup *s);
void setup_free(Setup *s); /* takes a zeroed one */

/* The SessionOptions of a setup. */
SessionOptions setup_session(const Setup *s, const Config *c);

#endif
