/* How ranks exchange gradients: the buckets of the flat space, and who sums which part of each. Follows from sizes,
   number of ranks and --bucket-size alone, so that it is the same everywhere. */
#ifndef CAIRN_TRAIN_EXCHANGE_H
#define CAIRN_TRAIN_EXCHANGE_H

#include "exec/exec.h"
#include "model/params.h"
#include "state/slices.h"

typedef struct {
    GradientBuckets buckets;
    Interval *intervals; // (n, ranks)
    bool by_comm_device; /* from GPU to GPU: nothing of it lies in the host's memory */
    /* A sharded optimizer's: */
    bool shard;
    int rank;
    Intervals *slices; // (ranks): whose moments are where
} Exchange;

/* Buckets of about `bucket_bytes` of fp32 (less for a small model), in backward order. They begin at tensors' starts;
   what alone is larger is cut at norm blocks. */
void exchange_init(Exchange *x, const ParamTable *params, int ranks, int64_t bucket_bytes, Dtype wire);
/* For a sharded optimizer, after that. */
void exchange_shard(Exchange *x, const ParamTable *params, int rank);
void exchange_free(Exchange *x); /* takes a zeroed one */

#endif
