/* From what a run needs to its plan: micro-batch, what layers keep, and save buffer within the memory accounts. */
#pragma once

#include "config/config.h"
#include "train/planner/run_plan.h"
#include "train/planner/search.h"
#include "train/ranks/ranks.h"

/* ---- sizes (planner_sizes.c) ---- */

/* --recompute; E_USAGE where the backend (NULL: a device that is not here) or the model (0 layers: not known yet)
   cannot do it. */
Status planner_policy(const Config *c, const Backend *b, int layers, Policy *policy);
/* Sequences of a step that one of so many ranks, or virtual ranks, gets at most. */
int64_t planner_share(const Config *c, int64_t ranks);
/* Tokens of a micro-batch by --micro-batch-tokens, of so many sequences; 0 for "auto". E_USAGE. */
Status planner_micro_tokens(const Config *c, int64_t sequences, int64_t max_length, int64_t *tokens);
/* The room that a micro-batch of so many tokens has, out of `batch` sequences. */
MicroCapacity planner_capacity(const PlanInput *in, int64_t tokens, int64_t batch);
/* The room of an evaluation micro-batch, beside training in micro-batches of `training` tokens (0: alone). Results of
   sequences are the same bits in any micro-batch, so their evaluation takes no more tokens, hence no more memory, than
   training. Sums over masked words are not, so pretraining evaluates in micro-batches that depend on --eval-batch-size
   alone. */
MicroCapacity planner_evaluation_capacity(const Config *c, const PlanInput *in, int64_t training);
/* The most rows of a grain; no tokens: no virtual ranks. */
MicroCapacity planner_grain(const Config *c, const PlanInput *in);
/* The least tokens of a micro-batch: of a sequence, or a grain, or where that is less of all `sequences`. */
int64_t planner_least_tokens(const Config *c, int64_t sequences, int64_t max_length);
/* A device's kernels and libraries add rows in an order that follows from the bucket. So with virtual ranks a
   micro-batch has the least tokens there, in buckets of that capacity: it is one grain. */
bool planner_one_grain(const PlanInput *in);
/* Whether the plan is for a device, which may not be here. */
bool planner_for_device(const PlanInput *in);

/* ---- the plan ---- */

/* Counts the snapshots of a rank. */
void planner_take_snapshots(const Config *c, const Ranks *ranks, size_t bytes, Accounts *accounts);
/* Collective: rank 0 chooses, for the rank with the smallest budget. plan->fits: it fits the accounts of this rank;
   where nothing fits the plan is the smallest there is. The caller frees it, also after a failure. */
Status planner_choose(const Config *c, const PlanInput *in, const Accounts *accounts, Ranks *ranks, RunPlan *plan);
/* Collective. E_MEMORY on all ranks where the plan does not fit on one. The message names a budget in which the whole
   run starts: on all ranks, with evaluation and a save buffer that it cannot do without, new and resumed. */
Status planner_check(const Config *c, const RunPlan *plan, Ranks *ranks);

/* ---- fitting the accounts (planner_fit.c) ---- */

/* Without a save buffer the state streams to disk while training waits: from host memory alone, and not where rank 0
   writes what other ranks have. */
bool planner_can_stream(const PlanInput *in);
/* --snapshot-steps is a number: their memory is reserved. */
bool planner_own_snapshots(const Config *c);
/* Computes the peaks, and sets plan->fits. Where a plan does not fit, a save buffer that the run can do without goes
   into the memory of the activations, if `search` (NULL: none is made) finds a plan beside which it has room. Else
   snapshots that --snapshot-steps auto would take are given up, and this is tried again; at last the buffer is. */
Status planner_fit(const Config *c, const SearchProblem *search, RunPlan *plan);
/* Warns of snapshots and a save buffer that were given up, and of an option without effect. */
void planner_warn(const Config *c, const RunPlan *plan);
/* The refusal of planner_check, of plans of which one does not fit. `least`: bytes beside `held` of the smallest plan
   of --recompute auto; -1: this is auto. */
Status planner_refuse(const RunPlan *plan, int64_t least, Ranks *ranks);
