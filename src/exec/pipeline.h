/* A place of a pipeline: its chunks, and the boundaries that pass between places while works run.

   Boundaries go through staging buffers, pipeline_buffers for each chunk, way and direction of travel: a send copies
   into the next one and posts it, a receive waits for the next one and copies it out. Receives are posted as soon as a
   buffer is free, in the order of the works that take them, so a boundary travels while both ends compute. The buffers
   lie in the host's memory, and messages are a Comm's; or in the memory of GPUs, between which they pass by NCCL.
   Everything exists before the first step. */
#pragma once

#include "exec/exec.h"

typedef struct ExecPipeline ExecPipeline;

/* A connection between the GPUs of two places, for what goes forward, or backward, from one to the other. */
typedef struct {
    int from, to; /* places; their ranks in `device` are 0 and 1 */
    bool forward;
    CommDevice *device; /* the caller's */
} PipelineWire;
enum { PIPELINE_WIRES = 8 }; /* of a place: two neighbours, two ways, to and fro */
/* Those of a place without their devices, in the order in which all places open theirs. Returns their number. */
int exec_pipeline_wires(const Pipeline *shape, int place, PipelineWire wires[PIPELINE_WIRES]);

typedef struct {
    Comm *comm;          /* of the pipeline: rank = place; its own, since messages have tags here. NULL: one
                            place */
    Pipeline shape;      /* with the most micro-batches of a run */
    Exec *const *chunks; // (shape.chunks) of this place
    int place;
    const PipelineWire *wires; // (n_wires) of this place; 0: boundaries go through the hosts' memory
    int n_wires;
    size_t boundary; /* bytes of the largest */
    /* Writes the inputs of a chunk's micro-batch, before its F. */
    Status (*fill)(void *self, int chunk, int micro, const int slots[N_SLOTS]);
    void (*divide)(void *self, int chunk,
                   int micro);                 /* gives its Exec the grains, before each other work; NULL: none */
    Status (*item)(void *self, const Work *w); /* runs A, G or V; NULL: there are none */
    void (*ran)(void *self, const Work *w, double seconds); /* a work, without its waits; NULL */
    /* What a work of a chunk sends, as the host reads it; NULL. */
    void (*sent)(void *self, int chunk, int micro, bool forward, const void *data, size_t bytes);
    void *self;
} ExecPipelineOptions;

/* E_MEMORY: there is no room for the buffers. The caller closes *pipeline, also then. */
Status exec_pipeline_open(const ExecPipelineOptions *options, ExecPipeline **pipeline);
void exec_pipeline_close(ExecPipeline *p); /* takes NULL; after a failure too */
/* Staging buffers of a place, each of a boundary's bytes: those between places, which between GPUs lie in the device's
   memory; or (`handed`) those between its own chunks, in the host's. */
int exec_pipeline_buffers(const Pipeline *shape, int place, bool handed);
/* Those that lie in the device's memory, or in the host's. `by_devices`: places are connected by NCCL. */
int exec_pipeline_staging(const Pipeline *shape, int place, bool by_devices, bool device);

/* What all places know beforehand. Of chimera each direction has its own micro-batches; else the first is all. */
typedef struct {
    const Schedule *schedule; /* of the pipeline's shape, for this many micro-batches; of chimera for twice as many as
                                 the direction with more of them has. Works of others are left out */
    const Work *works;        // (n_works) of this place, in order, in place of the schedule's; NULL: the schedule's
    int n_works;
    int micros[2];
    const RowCounts *rows[2]; // (micros)
    int64_t first;            /* number in the step of each direction's first micro-batch; for exec_pipeline_works */
    bool forward;             /* F alone */
    bool last;                /* of a step with ranks: sums of gradients begin in it, or behind it (exec_sum) */
} ExecPass;

/* Collective among the places. Runs the works of this place, in the schedule's order. E_PEER names the boundary that
   was waited for. E_NUMERIC (exec_set_check): all works ran, and a value of this place is not finite; *when orders such
   failures of all places, an earlier one is less. May be NULL. */
Status exec_pipeline_run(ExecPipeline *p, const ExecPass *pass, int64_t *when);
/* Seconds since exec_pipeline_open in exec_pipeline_run, and the part of them without a work. */
void exec_pipeline_seconds(const ExecPipeline *p, double *all, double *idle);

/* A work as it ran, by clock_monotonic. What it waited for its boundaries lies before `begin`. */
typedef struct {
    WorkKind kind;
    int stage, direction;
    int64_t micro, tokens; /* of an inverse −1 and 0 */
    double begin, end;
} ExecWork;
/* Notes the works from now on; those noted before are gone. */
void exec_pipeline_note(ExecPipeline *p, bool notes);
/* (n) valid until the next call of exec_pipeline_note. */
const ExecWork *exec_pipeline_works(const ExecPipeline *p, int *n);
