/* Rates of this machine, for the planner. commands/devices.c has those of machines that are elsewhere. */
#pragma once

#include "base/base.h"
#include "kernels/backend.h"
#include "plan/plan.h"

/* Rates of an open backend in a compute type: measured once (a fraction of a second) and kept in
   $XDG_CACHE_HOME/cairn or ~/.cache/cairn; without such a directory measured again each time. Those of a busy machine
   serve until it is quiet, and are measured again then. False where they cannot be measured: then only comparisons
   between policies mean something. */
bool machine_rates(const Backend *b, Dtype compute, CostRates *rates);
