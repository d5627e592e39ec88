/* A model in memory, ready to train and evaluate: backend, plans, memory, and the calls of the training loop. One per
   run.

       session_open ▸ (weights into session_fill) ▸ session_ready ▸
       [ session_begin ▸ session_run ▸ session_update ]… ▸ session_evaluate… ▸ session_close */
#pragma once

#include <signal.h>

#include "base/base.h"
#include "data/data.h"
#include "exec/exec.h"
#include "exec/pipeline.h"
#include "holding/move.h"
#include "model/model.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "train/pipelines/place_devices.h"
#include "train/planner/run_plan.h"
#include "train/ranks/ranks.h"

typedef struct {
    Backend *backend; /* open; the caller's */
    bool poison;
    uint64_t seed;                     /* of dropout */
    const volatile sig_atomic_t *stop; /* see ExecOptions; may be NULL. With several ranks in evaluation alone */
    Ranks *ranks;                      /* NULL: one. The caller's */
    const PlaceDevices *devices;       /* the ranks' GPUs are connected; NULL: they are not. The caller's */
} SessionOptions;

/* Arrays of the flat space, (model->params.size) each; moments only with training. */
typedef enum { STATE_WEIGHTS, STATE_M, STATE_V, N_STATE_ARRAYS } StateArray;

typedef struct SessionPipeline SessionPipeline;

typedef struct {
    int64_t set;    /* whose inverses the update used */
    int64_t failed; /* linears that its inversion left with their former inverses; −1: it inverted none */
} KfacDone;

/* Times of a step: seconds of this rank from the first work to the last, and of them without one; the share of all
   ranks' time until the last work without one, and the share of that time that K-FAC's work in gaps takes; seconds of
   sums behind the works and of K-FAC's work outside gaps, of the rank with most. `sums`, `update`: by clock_monotonic.
   `measured`: K-FAC's work had places by measured times, not by predicted ones. */
typedef struct {
    double works, idle, bubble, filled, exposed;
    TimeSpan sums, update;
    bool measured;
} PipelineTimes;

typedef struct {
    const Model *model;        /* all of it, of which this rank has plan.input.place->held */
    SessionPipeline *pipeline; /* NULL: plans are not cut into works */
    SessionOptions options;
    RunPlan plan;
    Memory *memory;       // (chunks) of this rank
    Exec **train, **eval; // (chunks)
    Ctl ctl;
    int64_t gathered, kfac_tokens; /* the last step that gathered statistics, and its real tokens */
    KfacDone kfac;                 /* of the step that was last updated */
    LossScaling scaling;           /* in fp16: the device's, after the last update */
    float *filled;                 /* weights in host memory, from session_fill until session_ready */
    Comm *pipeline_comm;           /* connects the ranks of this pipeline; NULL: this rank is alone in it */
    PipelineTimes times;           /* of the last step, in a pipeline */
    ExecRanks exec_ranks;          /* with ranks, for training; its holders' connections are the session's own */
    AuditFound found;              /* by the virtual ranks of this step that have ended */
    bool note_due;                 /* see session_note_update */
    uint64_t vectors; /* of a coupled step without its sums: the digest of this rank's embeddings; else 0 */
    double comm_busy, comm_waited; /* of training that was bound before: see session_comm_seconds */
} Session;

/* Collective. Allocates what the plan needs and binds it. Takes the plan over: *plan is zeroed, also after a failure.
 */
Status session_open(Session *s, RunPlan *plan, const SessionOptions *options);
void session_close(Session *s); /* takes a zeroed one */

/* ---- weights and moments, for the host ---- */
/* The weights for the host to fill, all of them, before training or evaluation. A host backend returns the array
   itself. A device, whose memory only copies reach, returns zeroed host memory (in the save buffer, where there is
   one), which session_ready copies to the device. */
float *session_fill(Session *s);
/* After session_fill or session_take: copies filled weights to a device and makes the compute copies. */
Status session_ready(Session *s);
/* Collective: sends the weights that rank 0 filled to all ranks; then session_ready on every rank. */
Status session_share(Session *s);
/* Frees the memory of session_fill that session_ready has not copied. */
void session_free_filled(Session *s);
/* The rank's part of the array, on a host backend. *own: that is the rank's slice alone (Holding). */
const float *session_part(const Session *s, StateArray which, bool *own);
/* Copies elements [begin, end) of a StateArray, or of K-FAC's sets in their saved form, to `to`. This rank must have
   all of them; gaps between tensors of the sets are 0. */
enum { SESSION_SETS = N_STATE_ARRAYS };
Status session_read_range(const Session *s, int array, int64_t begin, int64_t end, float *to);
/* Collective. The elements of such an array come to all ranks that have them, from the ranks that have them in `from`
   (ranks), by `read` there. session_ready follows. A failure on one rank is one on all. */
Status session_take(const Session *s, int array, const Intervals *from, MoveRead *read, void *giver);
/* Collective. `first` runs on rank 0 alone. It has elements [begin, end) of any such array by session_ask, an
   ArrayRead with the asker as its context: where ranks have them in parts the others send them, block by block. */
typedef struct SessionAsk SessionAsk;
Status session_asking(const Session *s, Status (*first)(void *context, SessionAsk *ask), void *context);
Status session_ask(void *ask, int array, int64_t begin, int64_t end, float *to);
/* E_NUMERIC names the first weight of elements [begin, end) that is infinite or NaN: an update may overflow although
   its gradient was finite. Such weights must not replace good ones. */
Status session_check_range(const Session *s, int64_t begin, int64_t end, const float *weights);
/* (3, params.size) weights, m, v, in host memory, on a rank that writes whole checkpoints; or NULL. */
float *session_save_buffer(const Session *s);
/* Collective. What this rank writes into a checkpoint (holding_written) comes to its save buffer, where it has one:
   from its own memory, and to rank 0 also what ranks have that do not see its folder. */
Status session_bring(const Session *s);
/* The buffer: the rank's part of weights, of m, of v and of the sets; NULL: there is none now, and the part is read
   from where training has it. */
float *session_written(const Session *s);
/* session_check_range of this rank's part, after session_bring. */
Status session_check_written(const Session *s);
const Kfac *session_kfac(const Session *s); /* NULL: none */
/* K-FAC's inverses in use, or the next ones (docs/contracts.md 12): (table.size), in the backend's memory. */
float *session_kfac_set(const Session *s, bool next);
/* K-FAC of all layers, as in a save, where a pipeline's rank may have others; not NULL (kfac_sets: whether there are
   any). */
const Kfac *session_kfac_whole(const Session *s);
/* Collective. Completes the set of inverses that is pending. */
Status session_settle_kfac(const Session *s);
bool session_kfac_pending(const Session *s); /* the same on all ranks */
/* session_read_range of the sets. */
Status session_read_kfac(const Session *s, int64_t begin, int64_t end, float *to);
/* Linears without new inverses: of all, or of those that this rank inverted. */
Status session_kfac_failed(const Session *s, bool own, int64_t *failed);
/* Every rank has all of such an array. */
bool session_has_all(const Session *s, int array);
/* No rank can save the state alone: with a sharded optimizer, or in a pipeline, where inverses may be pending and the
   ranks exchange within an update. */
bool session_scattered(const Session *s);
/* Collective. E_FAIL: ranks that hold the same weights have different bits. */
Status session_check_same(const Session *s);

/* fp16: sets loss scale and counts. Without effect in other types. */
Status session_set_scaling(Session *s, LossScaling scaling);
/* fp16 with a dynamic scale: an update that overflows is skipped, and training continues. */
bool session_scale_is_dynamic(const Session *s);

/* The (2·layers + 1) LayerNorm forms that the weights need now. */
Status session_norm_forms(const Session *s, uint8_t *forms);
/* Collective. Makes another plan where the weights now need other LayerNorm forms; weights and moments stay. Not while
   session_saves. */
Status session_check_forms(Session *s, bool *changed);

/* ---- which plan runs ---- */
/* Where the save buffer lies in the memory of the activations, steps run by another plan while it is in use. Between
   steps: changes to that plan, or back to the usual one; without effect where the run has one plan. No bit of any
   result depends on it. */
Status session_set_saves(Session *s, bool saves);
bool session_saves(const Session *s); /* it is the plan for saves that runs */

/* ---- a step ---- */
/* `batch`: global batches consumed before; of the whole step `weight`, that of its sequences with a label
   (example_weight), and `n_masked` positions. */
Status session_begin(Session *s, uint32_t batch, double weight, int64_t n_masked);
/* Collective. After session_begin, with K-FAC, for the update that will make step `step`: puts inverses in use that are
   due before its micro-batches, and where it gathers statistics, of `n_tokens` real tokens on all ranks, clears them.
 */
Status session_gather(Session *s, int64_t step, int64_t n_tokens);
/* After step `step` failed, or before it has begun: what it gathered for the next inverses is dropped, so that a save
   has those of the steps before. */
Status session_drop_gathered(Session *s, int64_t step);
/* A share of a step's sequences (rank_share), in micro-batches. A rank of a plain run has one, or those of its virtual
   ranks. The places of a pipeline all have the same, one for each direction of their grid. */
typedef struct {
    int64_t micros;        /* may be 0 */
    const RowCounts *rows; // (micros) exec_rows; for a pipeline
} SessionShare;
/* The micro-batches of a step that a rank runs. */
typedef struct {
    const SessionShare *shares; // (n_shares)
    int64_t data_rows;          /* of a coupled step: rows of data, on all ranks */
    const float *scores;        // (data_rows) of them; NULL: they have none
    int n_shares, first;        /* number of the first share among those of all ranks */
    bool sums;                  /* the sums over ranks come with the micro-batches */
    const MicroBatch *(*fill)(void *self, int share, int64_t micro); /* valid until the next call */
    void (*vote)(void *self); /* once, before this rank first waits for others; may be NULL */
    /* After a micro-batch of a plain run; −1: after the sums alone. May be NULL. */
    void (*ran)(void *self, int64_t micro, double begin);
    void *self;
} SessionStep;
/* After session_begin: all micro-batches, one share after another, or as the works of a pipeline. Collective with sums;
   in a pipeline always. */
Status session_run(Session *s, const SessionStep *step);
/* Collective, after session_run without the sums over ranks: these sums. */
Status session_sum(Session *s);
/* Collective, after session_begin of the same step: its micro-batches again. E_NUMERIC on all ranks names the first
   tensor that is not finite; OK: all are finite. */
Status session_find_bad(Session *s, const SessionStep *step);
/* What the comparisons of this step found so far, and in which chunk's plan; nothing where plans have none. */
Status session_audit_found(const Session *s, AuditFound *found, int *chunk);
/* Makes the compute copies again from the weights. */
Status session_pack(Session *s);
/* With PlanInput.watch: keeps sums of weights and moments; then what differs from them, and the digest of the kept sums
   of weights, which all ranks have alike. */
Status session_note(Session *s);
void session_note_update(Session *s); /* the next session_update does, before it makes the compute copies */
Status session_changed(const Session *s, AuditFound *found);
Status session_noted_digest(const Session *s, uint64_t *digest);
/* After session_run without the sums over ranks: the digest of this rank's gradients and losses. */
Status session_own_digest(const Session *s, uint64_t *digest);
/* With PlanInput.watch, of the last session_run: digests of what each chunk's works sent back and forward; NULL: plans
   are not cut into works. */
const uint64_t *session_sent(const Session *s); // (chunks, 2)
/* Collective. After the sums over ranks: the digest of the summed gradients, the same for any way to hold them. */
Status session_gradient_digest(const Session *s, uint64_t *digest);
/* After an update. */
Status session_weights_digest(const Session *s, uint64_t *digest);
/* `step`: number of the update, from 1; with K-FAC, that of session_gather. Collective there. stats->finite is 0 where
   the update was skipped; then weights and moments have not changed. */
Status session_update(Session *s, const Optimizer *o, int64_t step, double learning_rate, Stats *stats);

/* ---- evaluation ---- */
/* Ranks that run the same micro-batches are a group: the places of a pipeline, else one rank. */
void session_group(const Session *s, int *group, int *groups);
bool session_scores(const Session *s); /* this rank has its group's results: the one with the heads */
/* Collective in a group: *stop becomes that of the first of them. */
Status session_evaluation_stop(const Session *s, bool *stop);
/* Runs one micro-batch without dropout. logits (n_seqs, labels), of a span head (n_tokens, 2); loss (n_seqs), of
   embeddings 0. */
Status session_evaluate(Session *s, const MicroBatch *b, float *logits, float *loss);
/* Evaluates a model with pretraining heads: sums of losses and correct rows of this micro-batch. */
Status session_evaluate_sums(Session *s, const MicroBatch *b, Stats *sums);

/* ---- for a profile ---- */
int session_chunks(const Session *s);          /* of this rank */
ExecPipeline *session_works(const Session *s); /* NULL: no pipeline */

/* exec_comm_seconds of all training since session_open. */
void session_comm_seconds(const Session *s, double *busy, double *waited);
/* Bytes that this process holds in the memory of the activations: of a device, or resident. */
size_t session_memory_used(const Session *s);
