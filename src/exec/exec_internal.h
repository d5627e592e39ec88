/* Shared by the files of exec/. */
#ifndef CAIRN_EXEC_EXEC_INTERNAL_H
#define CAIRN_EXEC_EXEC_INTERNAL_H

#include "exec/comm_lane_internal.h"
#include "exec/exec.h"

/* A range in a row bucket, run before. */
typedef struct {
    Range range;
    RowCounts rows;
    void *graph;
    bool plain; /* capture failed */
} Replay;

struct Exec {
    const Plan *plan;
    Memory *memory;
    ExecOptions options;
    const ExecFlip *flip; /* NULL: none */
    OpCall *calls;        /* (n_instrs) */
    const OpImpl **ops;   /* (n_instrs) */
    RowCounts *buckets;   /* (n_buckets), ascending */
    int n_buckets;
    int32_t *events;  /* (n_instrs): the event of an instr that another waits for, or NONE; NULL: the plan has one lane,
                         or the backend */
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
    int n_marks, cap_marks;
    CommLane *comm_lane; /* NULL: the plan has no REDUCE */
    bool copies;         /* the copy lane has work */
    bool reducing;       /* the micro-batch that runs is its step's last */
    double comm_busy, comm_waited;
};

typedef Status (*ExecStep)(Exec *e, InstrId i, const RowCounts *rows);

/* A range or a part of one, as the options ask: in graphs, or watched. */
Status exec_run_range(Exec *e, Range range, const RowCounts *rows);
Status exec_run_plain(const Exec *e, Range range, const RowCounts *rows);
/* E_NUMERIC names the first value of the instr's outputs that is not finite. `slots` NULL: without slots. */
Status exec_check_finite(const Exec *e, InstrId i, const RowCounts *rows, const int *slots);
/* Where a tensor lies, in the slots of a micro-batch or (NULL) without. */
void *exec_place(const Exec *e, TensorId t, const int *slots);
bool exec_watched(const Exec *e); /* instrs are run one by one: poison, check, a fault, a trace or names */

/* ---- trace.c ---- */
/* Runs an instr; in a trace between two marks of a lane, with a record. */
Status exec_run_noted(Exec *e, InstrId i, const RowCounts *rows, int lane, ExecStep run);
void exec_add_record(Exec *e, ExecRecord record, int mark);

/* ---- ranks.c ---- */
Status exec_open_lane(Exec *e);
/* Whether the range must run in pieces, between exchanges. `rows` of exec_run_pieces may be NULL: only exchanges run.
 */
bool exec_in_pieces(const Exec *e, Range range);
Status exec_run_pieces(Exec *e, Range range, const RowCounts *rows);

#endif
