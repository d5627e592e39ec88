/* Pipelines: stages of a model on several ranks, and the order in which each rank works on a step's micro-batches.

   A pipeline has `places` ranks, which hold every stage once (chimera: twice). A chunk is a stage as one place holds
   it. A work is one pass of a chunk over one micro-batch. schedule_make is a pure function of the shape; slots are
   found by colouring the lifetimes that an order gives. schedule_verify (verify_schedule.c) trusts neither. */
#pragma once

#include "base/base.h"

/* X(id, name, the function that orders its works (schedule.c), least chunks of a place, whether there may be more) */
#define PIPELINE_LIST(X)                                                                                               \
    X(GPIPE, "gpipe", gpipe, 1, true)                   /* all forwards, then all backwards */                         \
    X(1F1B, "1f1b", one_forward_one_backward, 1, true)  /* a backward after each forward, once the pipeline is full */ \
    X(INTERLEAVED, "interleaved", interleaved, 2, true) /* 1f1b with stage s at place s mod places */                  \
    X(CHIMERA, "chimera", chimera, 2, false)            /* two pipelines in opposite directions */                     \
    X(ZB_H1, "zb-h1", one_forward_one_backward, 1, true) /* 1f1b with weight gradients put off */                      \
    X(ZB_V, "zb-v", zb_v, 2, false)                      /* stages down and up again, weight gradients put off */

typedef enum {
#define X(id, ...) PIPELINE_##id,
    PIPELINE_LIST(X)
#undef X
        N_PIPELINES
} PipelineKind;

typedef struct {
    PipelineKind kind;
    int places, chunks; /* chunks of a place */
    int micros;         /* micro-batches of a step; chimera: of both directions */
} Pipeline;

const char *pipeline_name(PipelineKind kind);
int pipeline_chunks(PipelineKind kind); /* the least of a place */
/* Places of gpipe, 1f1b and zb-h1 have one stage, or several consecutive ones, which a micro-batch passes through in
   turn. */
bool pipeline_consecutive(PipelineKind kind);
/* E_USAGE: the schedule does not exist for this shape. */
Status pipeline_check(const Pipeline *p);
int pipeline_stages(const Pipeline *p);
int pipeline_stage(const Pipeline *p, int place, int chunk);
void pipeline_home(const Pipeline *p, int stage, int direction, int *place, int *chunk); /* the reverse */
/* Micro-batches that pass through a chunk: all but in chimera, whose chunk 0 goes down and chunk 1 up. */
int pipeline_micros(const Pipeline *p, int chunk);
/* Buffers of a chunk for boundaries that it sends, or receives, one way: with fewer, ranks may wait for each other. */
int pipeline_buffers(const Pipeline *p);
bool pipeline_splits_backward(PipelineKind kind); /* into input and weight gradients */
/* Ways in which micro-batches pass through the stages: 2 in chimera, one for each chunk of a place; else 1. */
static inline int pipeline_directions(const Pipeline *p) { return p->kind == PIPELINE_CHIMERA ? 2 : 1; }
static inline int pipeline_direction(const Pipeline *p, int chunk) { return p->kind == PIPELINE_CHIMERA ? chunk : 0; }

/* F, B or its halves I and W. A schedule has these; with K-FAC the steps behind a refresh have others between them:
   statistics A of the linears' inputs and G of their output gradients, and inverses V (plan/pipeline/fill.h). */
typedef enum {
    WORK_FORWARD,
    WORK_BACKWARD,
    WORK_INPUT,
    WORK_WEIGHT,
    N_WORKS,
    WORK_CURVE_A = N_WORKS,
    WORK_CURVE_G,
    N_RANGES, /* of a stage's plan */
    WORK_INVERSE = N_RANGES
} WorkKind;
/* Memory of a chunk that is written by one work and read by a later one of the same micro-batch: F to B or I; F to W;
   I to W. With K-FAC also from F to the last of B, W, A and G, and from B or I to the last of W, A and G. */
typedef enum {
    SLOT_ACTIVATION,
    SLOT_OPERAND,
    SLOT_GRADIENT,
    N_ORDER_SLOTS, /* of a schedule */
    SLOT_CURVE_A = N_ORDER_SLOTS,
    SLOT_CURVE_G,
    N_SLOTS
} SlotKind;

typedef struct {
    WorkKind kind;
    bool last; /* the chunk's gradients are complete after it, and their sums begin */
    int chunk, micro;
    int slot[N_SLOTS]; /* that it writes or reads; −1: none. I reads operands too */
    int item;          /* of A, G and V: its number in the queue that it comes from */
} Work;
char work_letter(WorkKind kind); /* F, B, I, W, A, G, V */
/* Whether a work writes a slot of a schedule's class, and whether it reads it last. I reads operands, too. */
static inline bool work_writes(const Work *w, SlotKind kind, bool split)
{
    return w->kind == (kind == SLOT_GRADIENT ? WORK_INPUT : WORK_FORWARD) && (split || kind == SLOT_ACTIVATION);
}
static inline bool work_reads_last(const Work *w, SlotKind kind)
{
    return kind == SLOT_ACTIVATION ? w->kind == WORK_BACKWARD || w->kind == WORK_INPUT : w->kind == WORK_WEIGHT;
}

typedef struct {
    Pipeline shape;
    Work *works; /* place after place */
    int *first;  /* (places + 1) of a place's works */
    int *slots;  /* (places, chunks, N_SLOTS) numbers of slots */
} Schedule;

void schedule_make(const Pipeline *p, Schedule *s);
void schedule_free(Schedule *s); /* takes a zeroed one */
static inline int schedule_slots(const Schedule *s, int place, int chunk, SlotKind kind)
{
    return s->slots[(place * s->shape.chunks + chunk) * N_SLOTS + (int)kind];
}

/* Whether the schedule is right: every work once, in ascending order of micro-batches; both ends of a link in the same
   order; no rank stuck; no slot written before it was read; sums after all gradients. E_FAIL names place and work. */
Status schedule_verify(const Schedule *s);

/* ---- simulation (simulate.c) ---- */

/* A sum of gradients over the holders of a stage. */
typedef struct {
    int stage;
    double early; /* seconds between its last term and the end of the chunk's last work; below 0: its terms are complete
                     when all works have ended */
    double seconds;
} StageSum;

typedef struct {
    const double *seconds[N_WORKS]; /* (stages) of a work on one micro-batch; B = I + W where they are split */
    double latency, boundary;       /* seconds of a message, and of a boundary's bytes on a link */
    const StageSum *sums;           /* (n_sums) in the order in which they run */
    int n_sums;
} ScheduleCosts;

typedef struct {
    double start, end;
} TimeSpan;

typedef struct {
    TimeSpan *spans; /* of each work, as in the schedule */
    double works_s;  /* when the last work ends */
    double sums_s;   /* when the last sum ends, at least works_s */
    double bubble;   /* share of the places' time until works_s without a work */
} Timeline;

/* A boundary travels as soon as it is made, one after another on a link (from a place to another, forward or backward),
   while both ends continue. A work starts when the one before it has ended and its boundary has arrived. A place's sums
   run beside its works, one after another, each when all its holders have its terms. */
void schedule_simulate(const Schedule *s, const ScheduleCosts *costs, Timeline *t);
void timeline_free(Timeline *t); /* takes a zeroed one */
