/* The decisions before the first step, from the configuration: backend and precision, optimizer and schedule, the plan.
 */
#pragma once

#include "config/config.h"
#include "train/planner/run_plan.h"
#include "train/session/session.h"

typedef struct {
    Ranks *ranks;     /* set by the caller, whose it stays; NULL: one */
    bool *sees;       // (ranks) set by the caller, freed by setup_free: see PlanInput; NULL: all
    Backend *backend; /* open; setup_free closes it */
    Dtype compute;
    Optimizer optimizer;
    RankPlace *place;      /* of this rank, for the plan */
    PlaceDevices *devices; /* connect the ranks' GPUs; setup_free closes them. NULL: gradients go through the hosts */
    RunPlan plan;          /* until a session takes it over */
} Setup;

/* --precision; `best` stands for auto. */
Dtype setup_compute(const Config *c, Dtype best);
/* E_MEMORY: limits on addresses (ulimit -v, -d) leave no room for a backend's libraries and the stacks of its threads.
 */
Status setup_check_addresses(const Config *c, int threads);
/* Collective. Opens --backend. --precision auto is the backend's best. */
Status setup_backend(const Config *c, Setup *s);
Status setup_optimizer(const Config *c, Optimizer *o);
/* Total steps from --max-steps or --epochs, then warmup, which those of --epochs cut. */
Status setup_schedule(const Config *c, int64_t n_examples, RateSchedule *schedule);
/* --audit, as far as plans know it. E_USAGE. */
Status setup_audit(const Config *c, PlanInput *in);
/* --virtual-ranks and --grain-tokens, after in->max_length. E_USAGE: so many virtual ranks do not run on so many ranks;
   of a pipeline pipeline_plan finds that. */
Status setup_virtual(const Config *c, int ranks, PlanInput *in);

/* Collective, with the backend open and no region allocated. Connects the ranks' GPUs as --comm asks. The caller closes
   *devices; NULL: gradients go through the hosts' memory. `backend` then counts NCCL's device memory, and has its
   version among the libraries. E_USAGE: --comm nccl is impossible. */
Status setup_devices(const Config *c, Ranks *ranks, Backend *backend, PlaceDevices **devices);

/* The run's plan, from what its task needs. Collective: rank 0 chooses, for the smallest budget. E_MEMORY names the
   smallest budget that would do. */
Status setup_plan(const Config *c, const PlanInput *need, Setup *s);
/* One rank alone. The plan of a run whose data is still to be made, with the backend open: E_MEMORY where it cannot
   fit. The run plans again. */
Status setup_foresee(const Config *c, const PlanInput *need, Setup *s);
void setup_free(Setup *s); /* takes a zeroed one */

/* The SessionOptions of a setup. */
SessionOptions setup_session(const Setup *s, const Config *c);
