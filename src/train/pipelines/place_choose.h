/* The choice of a pipeline's stages, levels and micro-batches. */
#ifndef CAIRN_TRAIN_PIPELINES_PLACE_CHOOSE_H
#define CAIRN_TRAIN_PIPELINES_PLACE_CHOOSE_H

#include "train/parts/account.h"
#include "train/parts/place.h"
#include "train/planner/run_plan.h"
#include "train/ranks/ranks.h"

/* Collective. Rank 0 splits layers and chooses levels and micro-batches, every schedule is verified, and every rank
   makes its plans, for which in->place is set. E_USAGE; E_MEMORY as planner_check. The caller
   frees place and plan, also after a failure. */
Status place_choose(const Config *c, PlanInput *in, const Accounts *accounts, Ranks *ranks, bool by_devices,
                    RankPlace **place, RunPlan *plan);

#endif
