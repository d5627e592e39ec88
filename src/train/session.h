/* A model in memory, ready to train and evaluate: backend, plans, memory, and the few calls a loop is made of. One per
   run.

       session_open ▸ (weights into session_fill) ▸ session_ready ▸
       [ session_begin ▸ session_micro… ▸ session_update ]… ▸ session_evaluate… ▸ session_close */
#ifndef CAIRN_TRAIN_SESSION_H
#define CAIRN_TRAIN_SESSION_H

#include <signal.h>

#include "base/base.h"
#include "data/data.h"
#include "exec/exec.h"
#include "model/model.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "train/ranks.h"
#include "train/run_plan.h"

typedef struct {
    Backend *backend; /* open; the caller's */
    bool poison;
    uint64_t seed;                     /* of dropout */
    const volatile sig_atomic_t *stop; /* see ExecOptions; may be NULL. With several ranks in evaluation alone */
    Ranks *ranks;                      /* NULL: one. The caller's */
    CommDevice *gpus;                  /* the ranks' GPUs are connected; NULL: they are not. The caller's */
} SessionOptions;

/* Arrays of the flat space, (params.size) each; moments only with training. */
typedef enum { STATE_WEIGHTS, STATE_M, STATE_V, N_STATE_ARRAYS } StateArray;

typedef struct {
    const Model *model; /* the plan's */
    SessionOptions options;
    RunPlan plan;
    Memory memory;
    Exec *train, *eval;
    Ctl ctl;
    LossScaling scaling;           /* in fp16: the device's, after the last update */
    float *filled[N_STATE_ARRAYS]; /* what session_fill gave on a device, until session_ready */
    Comm *lane;                    /* with ranks: the comm lane's connection; of the host */
    ExecRanks exec_ranks;
    size_t library_bytes; /* what binding made the process grow by: primitives, library buffers */
} Session;

/* Allocates what the plan needs and binds it. Takes the plan over: *plan is zeroed, also after a failure. */
Status session_open(Session *s, RunPlan *plan, const SessionOptions *options);
void session_close(Session *s); /* takes a zeroed one */

/* ---- weights and moments, for the host ---- */
/* Where the host fills an array before training or evaluation, all of it. On a host backend that is where it lies. On a
   device, whose memory only copies reach, it is host memory: its place in the save buffer, else memory of its own;
   there it holds zeros, and session_ready copies it to the device. */
float *session_fill(Session *s, StateArray which);
/* Collective: rank 0's array, which it has filled, to all. */
Status session_broadcast(Session *s, StateArray which);
/* After session_fill: the arrays are where they belong, and the compute copies are made. */
Status session_ready(Session *s);
/* For reading, between steps. On a host backend where it lies: nothing is copied. On a device a copy made now, into
   `room` (params.size), or where that is NULL into memory of its own. session_read_done frees that; after a failure
   there is nothing to free. */
Status session_read(const Session *s, StateArray which, float *room, const float **values);
/* On a host backend where this rank's part of it lies; `own` (may be NULL): it is the slice alone (exchange->slices).
 */
const float *session_part(const Session *s, StateArray which, bool *own);
/* Elements [begin, end) of it, which are this rank's, copied to `to`. */
Status session_read_range(const Session *s, StateArray which, int64_t begin, int64_t end, float *to);
void session_read_done(const Session *s, const float *values);
/* E_NUMERIC names a weight (params.size) that is not finite, made so by the update of `step`: an update may overflow
   although its gradient was finite. Such weights must not take the place of good ones. */
Status session_check_weights(const Session *s, const float *weights, int64_t step);
/* (3, params.size): weights, m, v. Host memory always. NULL: there is none. */
float *session_save_buffer(const Session *s);
/* Each rank holds the moments of its slice alone. Then rank 0 fills and reads them in its save buffer: session_fill
   gives that, and these two, Collective, take them from there to all, or from all there. */
bool session_sharded(const Session *s);
Status session_spread(Session *s, StateArray which);
Status session_collect(const Session *s);

/* In fp16: goes on with this loss scale and these counts. Elsewhere nothing. */
Status session_set_scaling(Session *s, LossScaling scaling);
/* fp16 whose scale moves: an update that overflows is skipped, and training goes on. */
bool session_scale_is_dynamic(const Session *s);

/* Where the weights ask for other forms than the plan has: another plan, keeping weights and moments. `changed` may be
   NULL. */
Status session_check_forms(Session *s, bool *changed);

/* ---- a step ---- */
/* `batch`: global batches consumed before; `n_seqs`, `n_masked`: sequences with a label and masked positions of the
   whole step. */
Status session_begin(Session *s, uint32_t batch, int64_t n_seqs, int64_t n_masked);
Status session_micro(Session *s, const MicroBatch *b);
/* Collective: the step's last micro-batch of this rank, with the sums over all ranks; `b` NULL: it has none. With one
   rank it is session_micro. */
Status session_last(Session *s, const MicroBatch *b);
/* `step`: number of the update, from 1. stats->finite is 0 where it was skipped; then weights and moments are as
 * before.
 */
Status session_update(Session *s, const Optimizer *o, int64_t step, double learning_rate, Stats *stats);
/* E_NUMERIC naming the first tensor that is not finite when micro-batch `b` runs again; OK if there is none. */
Status session_find_bad(Session *s, const MicroBatch *b);

/* ---- evaluation ---- */
/* Runs one micro-batch without dropout. logits (n_seqs, labels), loss (n_seqs). */
Status session_evaluate(Session *s, const MicroBatch *b, float *logits, float *loss);
/* The same for a model with pretraining heads: sums of losses and correct rows of this micro-batch. */
Status session_evaluate_sums(Session *s, const MicroBatch *b, Stats *sums);

/* Bytes taken now of the memory that the plan lies in: what this process has of the device, else process_resident. */
size_t session_memory_used(const Session *s);

#endif
