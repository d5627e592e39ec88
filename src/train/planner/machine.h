/* Rates of this machine, for the planner. commands/devices.c has those of machines that are elsewhere. */
#pragma once

#include "base/base.h"
#include "kernels/backend.h"
#include "model/model.h"

/* The highest rates that the machine reached when it was measured. */
enum { N_MACHINE_SETS = 7 };
typedef struct {
    double flops;                 /* of products */
    double bytes[N_MACHINE_SETS]; /* of calls that move 64 KiB, 256 KiB … 256 MiB: the small ones out of caches */
} MachineLimits;

/* The limit of a call that moves so many bytes: the set of a quarter of them, since a part of a call's data may still
   be in a cache. */
int machine_set(double bytes);

/* Rates of an open backend for layers of this model in a compute type: measured once (in about a second) and kept in
   $XDG_CACHE_HOME/cairn or ~/.cache/cairn; without such a directory measured again each time. Those of a busy machine
   serve until it is quiet, and are measured again then. False where they cannot be measured: then only comparisons
   between policies mean something, and `limits`, which may be NULL, hold nothing. */
bool machine_rates(const Backend *b, const ModelConfig *model, Dtype compute, CostRates *rates, MachineLimits *limits);
