/* What every training command settles before its first step, from the configuration: backend and precision, optimizer
   and schedule, micro-batch, recompute levels within the memory there is; and the table that says so. */
#ifndef CAIRN_TRAIN_SETUP_H
#define CAIRN_TRAIN_SETUP_H

#include "config/config.h"
#include "data/data.h"
#include "train/search.h"
#include "train/session.h"

typedef struct {
    Ranks *ranks;     /* set by the caller, whose it stays; NULL: one */
    Backend *backend; /* open; setup_free closes it */
    Dtype compute;
    Optimizer optimizer;
    Policy policy;
    char policy_name[88];      /* as it will run: "auto (none×8 lean×4)" */
    uint8_t *levels;           /* (layers) */
    MicroCapacity micro, eval; /* of micro-batches in training and in evaluation */
    Exchange exchange;         /* with ranks, for training */
    CommDevice *device_comm;   /* the ranks' GPUs are connected; setup_free ends that. NULL: they are not */
    bool save_buffer;
    size_t plan_bytes[N_REGIONS]; /* training and evaluation plans together */
    size_t process_bytes;    /* what the process holds beside them: program, libraries, data; on a device its context */
    uint64_t snapshot_bytes; /* of the machine's memory, for snapshots; 0: none are taken */
    bool no_snapshots;       /* there is no room for them */
    size_t peak;             /* sum, of the memory that the plan lies in: without what of it is the host's */
    size_t host_peak;        /* of the machine, where the plan lies on a device with memory of its own; else 0 */
    double step_s;           /* predicted; 0 without training */
} Setup;

/* --precision; `best` stands for auto. */
Dtype setup_compute(const Config *c, Dtype best);
/* Opens --backend and settles --precision: "auto" is the backend's best. */
Status setup_backend(const Config *c, Setup *s);
Status setup_optimizer(const Config *c, Optimizer *o);
/* --recompute; E_USAGE where the backend (NULL: a device that is not here) cannot do it. */
Status setup_policy(const Config *c, const Backend *b, Policy *policy);
/* Total steps from --max-steps or --epochs, then warmup. */
Status setup_schedule(const Config *c, int64_t n_examples, Schedule *schedule);

typedef struct {
    const Model *model;
    bool training, evaluation;
    int64_t max_length;        /* rows a sequence can take */
    int64_t max_masked;        /* masked positions a sequence can have; 0 but in pretraining */
    double mean_length;        /* of a sequence, for predictions */
    size_t data_bytes;         /* of the machine's memory, that data will take beside what the process holds */
    const uint8_t *norm_forms; /* of the weights it starts from; NULL: all Y */
} SetupNeed;
/* Micro-batch, levels, sizes. Collective: rank 0 chooses, for the smallest budget. E_MEMORY with the plan's table and
 * the smallest budget that would do. */
Status setup_plan(const Config *c, const SetupNeed *need, Setup *s);
/* One table for people: policy, bytes per class, peak, predicted step. */
void setup_describe(const Setup *s, Buf *out);
/* Bytes a plan may take here, in the memory of the backend (NULL: the machine's): --memory-budget, or what is free
   there beside what this process holds already. */
size_t setup_budget(const Config *c, const Backend *b);
/* What this process holds there now, and of the machine's memory a reserve for what a run still allocates. */
size_t setup_process_bytes(const Backend *b);
/* Sequences of a step that one rank gets at most. */
int64_t setup_share(const Config *c, int ranks);
/* Tokens of a micro-batch by --micro-batch-tokens, of `share` sequences; 0 for "auto". */
Status setup_micro_tokens(const Config *c, int64_t share, int64_t max_length, int64_t *tokens);
void setup_free(Setup *s); /* takes a zeroed one */

/* The SessionOptions of a setup. */
SessionOptions setup_session(const Setup *s, const Config *c, bool training, bool evaluation);

#endif
