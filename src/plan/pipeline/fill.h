/* K-FAC's work in the bubbles of a pipeline (Osawa, Li and Hoefler, PipeFisher, MLSys 2023): a static assignment, made
   before the first step from simulated or measured times.

   A refresh gathers two statistics of every layer from each micro-batch of one step, A of the layers' inputs and G of
   their output gradients, and inverts the factors that come of them. Its items take the bubbles of that step and of the
   steps behind it: first the statistics; when all places have theirs, holders sum them where that step ends; then the
   inverses. All functions here are pure; fill_verify trusts fill_make in nothing. */
#pragma once

#include "plan/pipeline/schedule.h"

typedef enum { FILL_INPUTS, FILL_GRADIENTS, FILL_INVERSE, N_FILLS } FillKind; /* A, G, an inverse */

typedef struct {
    FillKind kind;
    int place, chunk, layer;
    int micro;         /* of A and G */
    int factor, piece; /* of an inverse: which of the layer's, which part of it */
    bool follows; /* it comes behind the item before it in the queue: a further piece, or one that takes its input */
    double seconds;
    double start, end; /* from the start of the refresh's step; −1: it has no place yet */
    bool taken;        /* of a run: it has run, or is in the order of the step that runs */
} FillItem;

typedef struct {
    const Schedule *schedule;
    const Timeline *timeline; /* of one step */
    const int *first;         /* (stages + 1) first layer of each stage */
    const bool *late;         /* (layers) A's operand is made by B, as G's; NULL: by F in all layers */
    double statistics[2];     /* seconds of a layer's A and G on one micro-batch */
    const double *inverse;    /* (factors) seconds of each inverse of a layer */
    int factors;              /* of a layer, at most FILL_FACTORS */
    int replicas;             /* pipelines beside each other, which share out the inverses */
    double sum;               /* seconds of the sums and of sending inverses, behind the works */
    double step;              /* seconds from a step's start to the next one's, at least the timeline's sums_s */
    int steps;                /* that a refresh may take */
    double least_piece;       /* seconds; no piece of an inverse is shorter, unless the whole is */
    bool whole;               /* inverses are not cut into pieces */
} FillProblem;
enum { FILL_FACTORS = 16 };

typedef struct {
    FillItem *items; /* (n) */
    int n;
    int steps;          /* that the items reach into */
    double seconds;     /* of all items */
    double filled;      /* share of the bubbles of these steps that items take */
    double utilization; /* share of the places' time in these steps with a work or an item */
    double exposed;     /* seconds that steps wait for items and for `sum` */
    double *begins;     /* (problem's steps + 1) of each step, from the start of the first */
    int gathered;       /* steps that statistics take */
} Fill;

void fill_make(const FillProblem *problem, Fill *fill);
void fill_free(Fill *fill); /* takes a zeroed one */

/* Whether every statistic is taken once, behind the work that makes its operand, in ascending order of micro-batches;
   every inverse is whole, on one place, in steps behind that of the last statistic; nothing runs beside a work or
   another item of its place. E_FAIL names place and item. */
Status fill_verify(const FillProblem *problem, const Fill *fill);

/* ---- one place in one step ---- */

typedef struct {
    const Schedule *schedule;
    int place;
    int micros[2];            /* of each direction */
    const Timeline *timeline; /* items with a place from `begin`, where it lies, until `end` are of this step */
    double begin, end;
    bool refresh; /* the statistics of its own micro-batches are in the queue */
    /* for fill_gaps */
    double least;     /* seconds; shorter gaps stay empty */
    bool inverses;    /* they are taken; else statistics */
    const bool *late; /* as in FillProblem */
    /* for fill_order */
    bool drain; /* all statistics run by its end */
} FillStep;
/* A step of a refresh as planned, without `inverses` and `drain`. */
FillStep fill_planned_step(const FillProblem *problem, const Fill *fill, int place, int step);
/* Gives items of a queue their place in the gaps between the works: in each gap the first that is ready and fits. Those
   that are taken or have a place stay as they are. Returns when the last one ends, at least the end of the works. */
double fill_gaps(const FillStep *step, FillItem *items, int n);

/* ---- a step of a run (fill_order.c) ---- */

/* A micro-batch whose operands lie in slots. */
typedef struct {
    int chunk, micro;
    bool former; /* of a step before this one */
    bool ended;  /* B, and W, are in the order */
    int left;    /* statistics that are not */
    int slot[2]; /* SLOT_CURVE_A, SLOT_CURVE_G; −1: none yet */
} FillKept;

/* A place's slots, from step to step. */
typedef struct {
    int (*slots)[N_SLOTS]; // (chunks) how many; the caller's
    FillKept *kept;
    int n, cap;
} FillSlots;
void fill_slots_free(FillSlots *s); /* takes a zeroed one */

/* Appends to `out` the place's works and, between them, the items of its queue (n) that have a place in this step, each
   with its slots. A statistic without a place, or whose slot a work needs, comes as late as it can. */
typedef struct {
    Work *works;
    int n, cap;
} FillOrder;
void fill_order(FillSlots *s, const FillStep *step, FillItem *items, int n, FillOrder *out);
/* Between two steps: appends all statistics that are pending. */
void fill_drain(FillSlots *s, FillItem *items, int n, FillOrder *out);
/* The fewest slots that an order needs, beside those of the schedule's own classes. */
int fill_least_slots(const int slots[N_SLOTS], SlotKind kind, bool split);
/* The steps that statistics take, as planned. `of` (chunks): as in FillSlots. */
typedef struct {
    FillItem *items; // (n) the place's statistics
    int n;
    FillOrder *steps; // (n_steps)
    int n_steps;
} FillOrders;
void fill_make_orders(const FillProblem *problem, const Fill *fill, int place, int (*of)[N_SLOTS], FillOrders *out);
void fill_orders_free(FillOrders *o);
/* Whether in each step the place's works are all there in their order; every statistic is taken once, behind the work
   that makes its operand, in ascending order of micro-batches; no slot is taken before its last reader has ended.
   E_FAIL names place and work. It trusts fill_order in nothing. */
Status fill_verify_orders(const FillProblem *problem, int place, int (*of)[N_SLOTS], const FillOrders *orders);
/* Those with which no item comes early: `wanted` (chunks) SLOT_CURVE_A, SLOT_CURVE_G. */
void fill_wanted_slots(const FillProblem *problem, const Fill *fill, int place, int (*wanted)[2]);
