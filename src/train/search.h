/* `--recompute auto`: the fastest plan that fits a budget. Layers are identical, so a candidate is a count of layers
   per level with the heavier levels in the first layers; all of them are looked at (docs/contracts.md 6). */
#ifndef CAIRN_TRAIN_SEARCH_H
#define CAIRN_TRAIN_SEARCH_H

#include "train/machine.h"
#include "train/planning.h"

typedef struct {
    PlanRequest training;   /* levels are what is looked for */
    const Plan *evaluation; /* shares the memory; may be NULL */
    size_t budget, fixed;   /* bytes; `fixed` is what the process takes beside the plans */
    CostRates rates;
    double seq_len; /* mean length of a sequence */
    double micros;  /* micro-batches per step */
    bool offload;   /* layers may be offloaded: there is a copy lane; */
    size_t host;    /* bytes they may take of the machine's memory, where that is another than the budget's */
} SearchProblem;

typedef struct {
    uint8_t *levels; /* (layers); the caller frees */
    char name[64];   /* "none×8 lean×4" or a policy's name */
    size_t peak;     /* exact, `fixed` included */
    double step_s;   /* predicted */
    int layouts;     /* plans that were laid out */
} SearchResult;

/* E_MEMORY says the smallest budget that would do, also as result->peak. Time never rises with the budget; ties go to
 * less memory. */
Status search_levels(const SearchProblem *problem, SearchResult *result);

/* Predicted seconds of one step of a plan: `micros` micro-batches at its capacity, and the update. */
double search_step_seconds(const Plan *p, const CostRates *rates, double seq_len, double micros);

#endif
