/* Inside a session: its works in a pipeline, the sums behind them, and what its files share. For session*.c alone. */
#pragma once

#include "exec/pipeline.h"
#include "plan/pipeline/fill.h"
#include "train/parts/place.h"
#include "train/session/session.h"

/* What a micro-batch's grains are. */
typedef struct {
    GrainEnd *ends; // (n) with virtual ranks; else none
    int n, cap;
    RowCounts rows; /* for K-FAC's statistics, which may run behind the step */
} MicroGrains;

/* K-FAC's work of the last refresh, until its set is complete (session_pipeline_kfac.c). */
typedef struct {
    int64_t step;    /* that runs */
    int64_t refresh; /* the step that gathered; 0: nothing is pending */
    bool summed;     /* statistics over all holders */
    int64_t failed;  /* see KfacDone: of the set that was completed last and is not reported yet */
    FillItem *items; // (n) this place's queue
    int n, cap;
    MicroGrains *grains; // (directions, micro-batches of a pass) of the pass that the statistics are of
    FillSlots slots;
    FillOrder order;   /* of the pass that runs */
    double seconds[2]; /* of this step's items: without a gap of their own, and with one */
} PipelineKfac;

/* How long works took in the first steps, until K-FAC's are assigned anew (session_pipeline_costs.c). */
typedef struct {
    int cost; /* place_n_costs */
    double seconds;
} CostSample;
typedef struct {
    int64_t first;  /* step of this process, which warms up; 0: none yet */
    bool on, done;  /* done: `fill` has what was measured */
    PlaceFill fill; /* from then on, in place of the place's */
    CostSample *samples;
    int n, cap;
} PipelineMeasure;

struct SessionPipeline {
    const RankPlace *place;
    ExecPipeline *works, *evaluation;
    Schedule one; /* of an evaluation's micro-batch */
    int ranks;
    Session *session;
    const SessionStep *step;
    MicroGrains *grains; // (directions, micro-batches of a pass)
    int64_t first;       /* micro-batch of each direction that the pass begins with */
    int32_t *tokens;     // (directions, micro-batches of a pass) real ones
    uint64_t (*sent)[2]; // (chunks) see session_sent
    const MicroBatch *eval_batch;
    PipelineKfac kfac;
    PipelineMeasure measure;
};

/* The grains of the micro-batch whose instrs come. */
void session_send_grains(const Session *s, Exec *e, const GrainEnd *ends, int n);
/* Writes the inputs of a micro-batch; `slots` NULL: where a plan without slots has them. */
Status session_send_micro(Session *s, const Exec *e, const ModelTensors *t, const MicroBatch *b, const int *slots,
                          RowCounts *rows);

/* Clears what micro-batches are added to, within a step. */
Status session_clear_sums(Session *s);
/* A virtual rank's gradients and losses are kept for the sum, and the next one begins. */
Status session_next_share(Session *s);
/* session_run of a step whose loss couples its sequences (session_couple.c). */
Status session_run_coupled(Session *s, const SessionStep *step);

/* What ranges outside micro-batches read. */
Status session_upload_ctl(Session *s);

/* The next instrs of a chunk are of this micro-batch of the pass, whose grains these are. Returns its rows. */
const RowCounts *pipeline_divide(const SessionPipeline *p, const MicroGrains *grains, int chunk, int micro);
void pipeline_grains_free(MicroGrains *grains, int n);

/* Collective. s->pipeline, where plans are cut into works, and its connections. */
Status pipeline_open(Session *s);
void pipeline_close(SessionPipeline *p); /* takes NULL; unbind too */
/* The links, after the execs are there. unbind comes first when planned again. */
Status pipeline_bind(Session *s);
void pipeline_unbind(SessionPipeline *p);

/* Collective. session_run: all works of a step, with step->sums then what session_sum does; and session_find_bad. */
Status pipeline_run(Session *s, const SessionStep *step);
/* session_sum: losses, gradients between holders, and K-FAC's work that is due behind a step's works. */
Status pipeline_sum(Session *s);
Status pipeline_find_bad(Session *s, const SessionStep *step);
Status pipeline_evaluate(Session *s, const MicroBatch *b);

/* ---- from GPU to GPU (session_state.c) ---- */
CommDevice *session_holders_device(const Session *s); /* NULL: through the hosts' memory */
/* The comm lane goes on behind all that the compute lane was given so far. Then: waits for what was queued there, whose
   status is given. */
Status devices_enter(const Session *s);
Status devices_join(const Session *s, CommDevice *between, Status queued);

/* ---- elements of this rank ---- */
static inline HeldKind session_kind(int array)
{
    return array == STATE_WEIGHTS ? HELD_WEIGHTS : array == SESSION_SETS ? HELD_SETS : HELD_MOMENTS;
}
static inline const Holding *session_holding(const Session *s) { return &s->plan.input.place->holding; }
static inline float *session_gradients(const Session *s)
{
    return exec_data(s->train[0], s->plan.chunk->train_tensors.grads);
}
/* Where this rank has an element of a StateArray, in the backend's memory. */
float *session_element(const Session *s, int array, int64_t element);
/* Collective: holding_move of an array. `from`, `to`: (ranks); NULL: what they have. An end without functions is this
   rank's own elements. */
Status session_move(const Session *s, int array, const Intervals *from, const Intervals *to, MoveEnds ends);
enum { SESSION_VIEW = 1 << 22 }; /* elements at once: whole norm blocks */
/* `n` elements of the backend's memory as the host reads them: where they lie, or a device's in `room` (SESSION_VIEW).
   A copy that fails sets *status, and with *status set nothing is copied. */
float *session_room(const Session *s); /* for session_view; NULL without a device. The caller frees it */
const float *session_view(const Session *s, const float *there, int64_t n, float *room, Status *status);
/* K-FAC's sets in their saved form. Of a device a tensor is copied to the host while consecutive calls use it. */
typedef struct {
    const Session *session;
    float *room, *there; /* the copy; what it is of, in the backend's memory */
    const Param *square;
    bool written;
} KfacRoom;
Status kfac_room_read(KfacRoom *r, int64_t begin, int64_t end, float *to);
Status kfac_room_write(KfacRoom *r, int64_t begin, int64_t end, const float *from);
Status kfac_room_close(KfacRoom *r, Status status); /* after a failure, `status`, nothing is written */

/* ---- K-FAC (session_pipeline_kfac.c) ---- */
/* Before a step's first micro-batch. */
Status pipeline_kfac_begin(SessionPipeline *p, int64_t step, bool gathers);
/* The order of a pass; `last` of its step. */
void pipeline_kfac_order(SessionPipeline *p, bool last, ExecPass *pass);
Status pipeline_kfac_item(void *self, const Work *w); /* `self`: the pipeline */
/* Whether an item's inverse, by its number in the plan's `invert`, has the inner size. */
bool pipeline_inverse_is_wide(const SessionPipeline *p, int factor);
/* Collective. Behind a step's works: what has to be done by then. */
Status pipeline_kfac_end(SessionPipeline *p);
void pipeline_kfac_free(PipelineKfac *k, int micros); /* micro-batches of a pass, of all directions */
/* Linears that the inversions of all places left as they were; −1: none since the last call. */
int64_t pipeline_kfac_failed(SessionPipeline *p);
/* ---- its measured costs (session_pipeline_costs.c) ---- */
const PlaceFill *pipeline_fill(const SessionPipeline *p);
void pipeline_measure(SessionPipeline *p, int64_t step); /* before a step */
void pipeline_note(void *self, const Work *w, double seconds);
/* Collective. After a set is complete: once all ranks' works were measured, the next sets' are assigned by them. */
Status pipeline_take_costs(SessionPipeline *p);
void pipeline_measure_free(SessionPipeline *p);

/* ---- behind a step's works (session_pipeline_sums.c) ---- */
/* All Collective. The two gradients of a tied word embedding become their sum, on all that hold it. */
Status pipeline_tie(const SessionPipeline *p);
/* Rows of all ranks, added in the order of replicas; the share of the time until the last work that has no work. */
Status pipeline_sum_losses(SessionPipeline *p);
/* Collective. The largest of all ranks' numbers. */
Status pipeline_longest(const SessionPipeline *p, double *seconds);
