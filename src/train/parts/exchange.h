/* Exchange of gradients: the buckets of the flat space, and the part of each that a rank sums. It follows from sizes,
   world size and --bucket-size alone, so all ranks compute the same. */
#ifndef CAIRN_TRAIN_PARTS_EXCHANGE_H
#define CAIRN_TRAIN_PARTS_EXCHANGE_H

#include "config/config.h"
#include "exec/exec.h"
#include "model/params.h"
#include "model/slices.h"

typedef struct {
    GradientBuckets buckets;
    Interval *intervals; // (n, ranks)
    bool by_comm_device; /* from GPU to GPU: nothing of it lies in the host's memory */
    /* A sharded optimizer's: */
    bool shard;
    int rank;
    Intervals *slices; // (ranks): of moments
} Exchange;

/* Buckets of about `bucket_bytes` of fp32 (less for a small model), in backward order. They begin where tensors begin.
   A tensor larger than a bucket is cut at norm blocks. */
void exchange_init(Exchange *x, const ParamTable *params, int ranks, int64_t bucket_bytes, Dtype wire);
/* After exchange_init, for a sharded optimizer. */
void exchange_shard(Exchange *x, const ParamTable *params, int rank);
/* Gradient buckets by --bucket-size and --wire, slices by --shard. */
void exchange_from_options(const Config *c, const ParamTable *params, int ranks, int rank, Exchange *x);
void exchange_free(Exchange *x); /* takes a zeroed one */
/* Each rank's slice of the flat space, a part of every bucket; of `x` NULL the whole space. The caller frees the
   (ranks) intervals and the array. */
Intervals *exchange_slices(const ParamTable *params, const Exchange *x);
/* This rank's slice of a sharded optimizer; NULL without one. */
const Intervals *exchange_slice(const Exchange *x);

#endif
