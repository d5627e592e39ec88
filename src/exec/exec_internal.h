/* Shared by the files of exec/. */
#pragma once

#include "exec/exec.h"

/* The comm lane of an Exec with several ranks, or of all chunks of a pipeline's place: it sums gradients over their
   holders while backward runs, and shares what each rank updated. One implementation exchanges the host's memory, the
   other queues collectives on the device's comm lane, from GPU to GPU. */
typedef struct CommLane CommLane;

/* A sum of a step. Times are seconds of clock_monotonic. */
typedef struct {
    Exec *exec; /* of the plan with its REDUCE */
    InstrId instr;
    int32_t bucket; /* a piece of Holding.mine; -1: losses and correct counts */
    int stage;      /* of the piece */
    bool later;     /* see ExecRanks.later */
    bool posted;    /* in this step; the step's thread alone writes it */
    double when, begin, end;
} CommTurn;

struct CommLane {
    /* The terms of a turn are complete: sums them over the holders, now or until `wait`. Collective. Before a step's
       first sum the ranks meet. */
    Status (*post)(CommLane *l, CommTurn *t, const RowCounts *rows);
    /* SHARE `i`: each rank's part of a table or of the weights to all; the next instr may read it. Collective. */
    Status (*share)(CommLane *l, InstrId i, const RowCounts *rows);
    /* Until all that was posted has ended. `broken`: the step failed, so the other ranks may never come. Adds to the
       comm_waited of `exec`, and where the host sums to its comm_busy. */
    Status (*wait)(CommLane *l, bool broken, const RowCounts *rows);
    void (*close)(CommLane *l); /* after wait */
    Exec *exec;                 /* the first chunk's, which closes the lane */
    bool beside;                /* sums run while works do */
    /* (n) in the order in which the host sums them, the same on all holders: a turn waits until those before it are
       posted. Stages descend, and a stage's pieces are in the order of backward. */
    CommTurn *turns;
    int n;
};

/* A range in a row bucket, in the slots of a micro-batch (0 without), run before. */
typedef struct {
    Range range;
    RowCounts rows;
    int slots[N_SLOTS];
    bool first;   /* as a step's first micro-batch */
    bool without; /* its CURVATUREs, which are left out */
    void *graph;
    bool plain; /* capture failed */
} Replay;

/* virtual.c. */
typedef struct {
    SumSpace grads, factors;  /* of factors `x` NULL: no K-FAC */
    float *apart;             // (word.end - word.begin); NULL: none
    Interval word;            /* the place of the word embedding, to which `apart` is added */
    int64_t terms, first, at; /* of the tree; the first virtual rank of those that are computed, and the next one */
    int held;                 /* branches of terms first … at − 1 that wait */
    bool complete;            /* the last one has ended, and is added */
    void *stats;              /* of the one that runs */
    Stats stats_waiting[MOST_WAITING]; /* of each branch that waits: losses and correct counts */
} VirtualSums;

struct Exec {
    const Plan *plan;
    Memory *memory;
    ExecOptions options;
    const ExecFlip *flip; /* NULL: none */
    int64_t turns;        /* since it was set */
    OpCall *calls;        /* (n_instrs) */
    const OpImpl **ops;   /* (n_instrs) */
    RowCounts *buckets;   /* (n_buckets), ascending by tokens, with as many read rows as there can be */
    int n_buckets;
    RowCounts *read_buckets; /* (n_read_buckets), ascending by read rows, the other counts as in the capacity; NULL:
                                the plan computes none */
    int n_read_buckets;
    int32_t *events;  /* (n_instrs): the event of an instr that another waits for, or NONE; NULL: the plan has one lane,
                         or the backend */
    int32_t looked;   /* the slot with which the host waits for lanes */
    int32_t n_events; /* slots that these take */
    int32_t *dying;   /* (n_instrs + 1): range in `dead` of the tensors that die at an instr; only for poison */
    TensorId *dead;
    Replay *replays; /* (n_replays) */
    int n_replays, cap_replays;
    ExecGraphs graphs;
    bool tracing;
    ExecRecord *records; /* (n_records) */
    int n_records, cap_records;
    int *marks; /* (n_records): the first of a record's two marks; 0: the host knows its times */
    int cap_marks;
    CommLane *comm_lane;    /* of all chunks of a place; NULL: one rank, or there is no exchange */
    float *received;        /* PLAN_RECEIVED; NULL: none */
    bool shares;            /* the plan has SHAREs */
    bool copies;            /* the copy lane has work */
    bool reducing;          /* the micro-batch, or work, that runs is its step's last: REDUCEs are posted */
    bool first;             /* it is its step's first: instrs begin gradients */
    bool open;              /* `begin` ran, and no micro-batch since */
    bool gathers;           /* CURVATUREs run */
    bool captures;          /* ranges without a graph get one; else they run op by op */
    const int *slots;       /* (N_SLOTS) of the work that runs; NULL: none */
    const ExecLinks *links; /* of that work; NULL: none */
    bool forward;           /* that work is an F */
    double comm_busy, comm_waited;
    VirtualSums sums;
    RowKind *summed;   /* (n_instrs): exec_summed_rows */
    RowCounts *grains; /* (n_grains): rows up to the end of each; 0: the micro-batch is not divided */
    int n_grains, cap_grains;
};

typedef Status (*ExecStep)(Exec *e, InstrId i, const RowCounts *rows);

/* ---- virtual.c ---- */
void exec_open_virtual(Exec *e);
/* What the last virtual rank's gradients of these elements lack until they are this rank's last branch; on the lane
   that is chosen. After it was called for all elements: exec_virtual_complete, which does the same for K-FAC's
   statistics. */
Status exec_virtual_add(const Exec *e, int64_t begin, int64_t end);
Status exec_virtual_complete(Exec *e);

/* ---- grains.c ---- */
RowKind exec_summed_rows(const Exec *e, InstrId i);
Status exec_run_grains(const Exec *e, InstrId i, const OpCall *call, const RowCounts *rows);
/* ---- works.c ---- */
void exec_move_call(const Exec *e, InstrId i, OpCall *call); /* to the slots of the work that runs */
static inline Status exec_run_op(const Exec *e, InstrId i, const RowCounts *rows)
{
    OpCall own;
    const OpCall *call = &e->calls[i];
    if (!e->gathers && call->op == OP_CURVATURE) return OK;
    if (e->slots) {
        exec_move_call(e, i, &own);
        call = &own;
    }
    if (e->n_grains > 0 && e->summed[i] != ROWS_FIXED) return exec_run_grains(e, i, call, rows);
    if (e->first && e->plan->instrs[i].begins) {
        own = *call;
        own.begun = e->plan->instrs[i].begins;
        call = &own;
    }
    return e->ops[i]->run(call, rows);
}

/* Only `micro` may stop between two instrs, because its step is discarded. An update that stopped there would leave
   weights of one step under the number of another. Works do not stop. */
static inline bool exec_stopped(const Exec *e, Range range)
{
    const Range micro = e->plan->micro;
    bool within = range.first >= micro.first && range.first < micro.first + micro.count;
    return e->options.stop && *e->options.stop && within && !e->slots;
}

/* A range or a part of one, as the options ask: in graphs, or watched. */
Status exec_run_range(Exec *e, Range range, const RowCounts *rows);
Status exec_run_plain(const Exec *e, Range range, const RowCounts *rows);
/* Behind what several lanes ran: later calls are the compute lane's. After a failure, `status`, waits for all lanes. */
Status exec_end_lanes(const Exec *e, Status status);
/* E_NUMERIC names the first value of the instr's outputs that is not finite. */
Status exec_check_finite(const Exec *e, InstrId i, const RowCounts *rows);
/* Where a tensor lies, in the slots of a micro-batch or (NULL) without. */
void *exec_place(const Exec *e, TensorId t, const int *slots);
/* One instr of exec_watched, on its lane, with its name, record and fault. */
Status exec_run_watched(Exec *e, InstrId i, const RowCounts *rows);
/* Fills memory, or the tensors that die at an instr, with NaN: for poison. */
Status exec_poison(const Exec *e, void *memory, size_t bytes);
Status exec_poison_dead(const Exec *e, InstrId i);
bool exec_watched(const Exec *e); /* instrs are run one by one: poison, check, a fault, a trace or names */

/* ---- graphs.c ---- */
/* Runs a range on a device with graphs. */
Status exec_run_graph(Exec *e, Range range, const RowCounts *rows);
/* Makes the graph of a range that ran before, without running it. */
Status exec_prepare_graph(Exec *e, Range range, const RowCounts *rows);

/* ---- trace.c ---- */
/* Runs an instr; in a trace between two marks of a lane, with a record. */
Status exec_run_noted(Exec *e, InstrId i, const RowCounts *rows, int lane, ExecStep run);
void exec_add_record(Exec *e, ExecRecord record, int mark);

/* ---- ranks.c, comm_lane_host.c, comm_lane_device.c ---- */
/* Collective: one sum, or one SHARE (an ExecStep). */
Status comm_lane_sum(const Exec *e, int32_t bucket);
Status comm_lane_share(Exec *e, InstrId i, const RowCounts *rows);
/* Collective, over the lane's own Comm: losses and correct counts of a step. */
Status comm_lane_sum_losses(const Exec *e);
/* The lane has its exec and turns. */
Status comm_lane_open_host(CommLane as, CommLane **lane);
/* Takes three event slots of the device, and counts them in n_events of the Exec. */
Status comm_lane_open_device(CommLane as, CommLane **lane);
void exec_close_lane(Exec *e); /* its first chunk's alone */
Status exec_reduce(Exec *e, InstrId i, const RowCounts *rows);
/* Whether the range must run in pieces, between exchanges. `rows` of exec_run_pieces may be NULL: only exchanges run.
 */
bool exec_in_pieces(const Exec *e, Range range);
Status exec_run_pieces(Exec *e, Range range, const RowCounts *rows);
