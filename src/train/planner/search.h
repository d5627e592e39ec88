/* `--recompute auto`: the fastest plan that fits the accounts, of all in which each layer keeps its input and any of
   its other parts, with a copy lane in the host's memory or on the device (docs/contracts.md 6). */
#pragma once

#include "train/parts/account.h"
#include "train/planner/run_plan.h"

typedef struct {
    PlanRequest training;     /* what its layers keep does not count */
    const Plan *evaluation;   /* shares the memory; may be NULL */
    const Accounts *accounts; /* a row for each memory: a plan fits if it fits all; `peak` is row 0's */
    CostRates rates;
    RowCounts rows; /* of a micro-batch, for the time */
    double seq_len; /* mean length of a sequence */
    double micros;  /* micro-batches per step */
    bool offload;   /* layers may be offloaded: there is a copy lane */
} SearchProblem;

typedef struct {
    LayerChoice layers; /* with the request's forms of LayerNorms; the caller frees */
    size_t peak;        /* exact */
    bool fits;          /* else it is the smallest of the plans that were tried, and none fits */
    double step_s;      /* predicted; with a copy lane a sum over layers, near what search_step_seconds returns */
    int layouts;        /* plans that were laid out */
} SearchResult;

/* Time never rises with the budget; of equal times the one with less memory wins. */
Status search_layers(const SearchProblem *problem, SearchResult *result);

/* For a plan that was made, beside whose activations the first account holds `other` bytes. A plan that does not fit
   has no step_s. */
Status search_bound(const SearchProblem *problem, const Plan *chosen, size_t other, PlanCertificate *bound);

/* Micro-batches of these rows that run forward once more in a coupled step: all but the first one, which is full. */
double search_forward_again(const Plan *p, const RowCounts *rows, double micros);
/* Predicted seconds of one step of a plan: `micros` micro-batches of these rows, and the update. */
double search_step_seconds(const Plan *p, const RowCounts *rows, const CostRates *rates, double seq_len, double micros);
