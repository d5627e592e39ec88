/* A rank's place in the grid of a run: the stages that it holds, one in each of its chunks, and who else holds them.
   rank = place · replicas + pipeline, so holders of a stage are neighbours. Without a pipeline all ranks hold the one
   stage that there is. With one (docs/pipeline.md) every rank computes the same from what rank 0 chose; see the words
   in docs/design.md. */
#pragma once

#include "config/config.h"
#include "holding/holding.h"
#include "model/model.h"
#include "plan/pipeline/fill.h"
#include "train/parts/kfac.h"
#include "train/parts/plan_input.h"

/* K-FAC's seconds. */
typedef struct {
    double statistics[2];         /* of a layer's inputs and output gradients, on one micro-batch */
    double inverse[FILL_FACTORS]; /* (factors) of a layer: A's and B's of query, key, value, out, up, down */
    int factors;
    double precondition; /* of a layer's gradients, once a step */
    double set_bytes;    /* of a layer: k² + n² floats for each linear */
} KfacCosts;
enum { KFAC_WIDE = 9 }; /* of these inverses: B's of up and A's of down, the next, have the inner size */
static inline bool kfac_is_wide(int inverse) { return inverse == KFAC_WIDE || inverse == KFAC_WIDE + 1; }

/* K-FAC in the bubbles: what rank 0 planned with, first numbers and then arrays, and every rank's own view of it
   (place_fill.c). */
typedef struct {
    double latency, boundary; /* seconds on a link */
    double sum, behind;       /* seconds of a set's exchange between holders; of a step behind its works */
    KfacCosts costs;
    int gathered;        /* steps that statistics may take */
    double *seconds;     // (N_WORKS, stages) of a work
    bool *late;          // (layers) the operand of A is made again by B
    int (*slots)[2];     // (places, chunks) SLOT_CURVE_A, SLOT_CURVE_G
    Timeline *timelines; // (shape.micros + 1) as the schedules
} PlaceFill;

struct RankPlace {
    const Model *whole; /* the caller's */
    Grid grid;          /* shape.micros: the most of a pass; a step with more has several passes */
    Stage *stages;      // (grid.stages)
    int number, pipeline;
    Model held;    /* the table of what all chunks hold (place_part) */
    Model *chunks; // (shape.chunks) a stage each, with the table of `held`
    Holding holding;
    Kfac kfac;        /* of what this rank holds; interval 0: none */
    Kfac *whole_kfac; /* of all layers: `kfac`, or of a pipeline another */
    bool by_devices;  /* exchanges go from GPU to GPU, and buffers of boundaries lie in GPUs' memory */
    PiecesRoom room;  /* what exchanges need, most of it in the region COMM */
    /* In a pipeline. Without one plans are not cut into works, and all this is empty. */
    bool both_uses;        /* of a tied word embedding: this place has the first stage and the last */
    int (*slots)[N_SLOTS]; // (shape.chunks); NULL: no pipeline
    Schedule *schedules;   // (shape.micros + 1), by the number of micro-batches; the first is empty
    int64_t tokens;        /* of a micro-batch */
    double step_s;         /* predicted */
    PlaceFill fill;
};

/* The place of a rank that has all of the model, as each of `ranks` has. */
RankPlace *place_whole(const Config *c, const KfacOptions *kfac, const Model *whole, int ranks, int rank,
                       bool by_devices);

/* Plans are cut into works, which a schedule orders: a pipeline. */
static inline bool place_has_works(const RankPlace *p) { return p->slots != NULL; }

/* --pipeline asks for one. */
bool place_wanted(const Config *c);
PipelineKind place_kind(const Config *c);
/* E_USAGE names an option of pipelines that was given without one. */
Status place_check(const Config *c);
void place_free(RankPlace *p); /* takes NULL */

void place_simulate(RankPlace *p);                                           /* after the schedules */
void place_fill_init(PlaceFill *fill, const Grid *grid, const Model *whole); /* its arrays but `timelines` */
void place_fill_free(const RankPlace *p, PlaceFill *fill);                   /* takes a zeroed one */
/* Seconds of each kind of work, by number: (N_WORKS, stages), the two statistics of a layer, an inverse of
   the hidden size, and one of the inner size (`wide`). */
int place_n_costs(const RankPlace *p);
int place_work_cost(const RankPlace *p, WorkKind kind, int stage);
int place_kfac_cost(const RankPlace *p, FillKind kind, bool wide);
/* The assignment for measured seconds (place_n_costs; 0: the planned ones hold), within the place's slots, verified.
   All ranks have the same `made`. The caller frees both, also after a failure. */
Status place_refill(const RankPlace *p, const double *measured, PlaceFill *fill, Fill *made);
int place_chunks(const RankPlace *p);
const Stage *place_stage(const RankPlace *p, int chunk);
int place_last_chunk(const RankPlace *p, int direction); /* with the last stage; −1: none */
/* The part of a model that a place holds; `stages`: the layers of each. model_free frees it. */
void place_part(const Model *whole, const Pipeline *shape, int place, const Stage *stages, Model *part);
/* All that follows from the grid and the stages: models, K-FAC and holding. `sees`: as in holding_set_writers; `works`:
   of a pipeline. */
void place_take(RankPlace *p, const Config *c, const KfacOptions *kfac, const bool *sees, int rank, bool works);

/* Elements of the rank's gradients that are complete behind a step's works: of a word embedding with two uses. */
Interval place_tied(const RankPlace *p);

/* ---- memory ---- */
/* Finds `room`, after all else. `device`: a pipeline computes on one. */
void place_find_room(RankPlace *p, bool device);
size_t place_boundary(const RankPlace *p, const Plan *plan);
/* Bytes of the staging buffers for the boundaries of training and of evaluation (NULL: there is none), in the host's
   memory or a `device`'s. */
size_t place_staging(const RankPlace *p, const Plan *train, const Plan *eval, bool device);
/* The pipeline that evaluates: chimera's first direction alone. */
Pipeline place_evaluation(const RankPlace *p);
