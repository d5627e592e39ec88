/* Pipelines: the grid of ranks, the stages, and the predicted step of a schedule (docs/pipeline.md). Every time comes
   from the planner's own costs of a stage's instrs, or from measured ones of a layer. */
#pragma once

#include "config/config.h"
#include "plan/pipeline/fill.h"
#include "report/report.h"
#include "train/parts/place.h"
#include "train/planner/run_plan.h"
#include "train/ranks/ranks.h"

/* Seconds of one layer on one micro-batch, measured: `--costs FILE` (pipeline_costs.c). */
typedef struct {
    double forward, backward, curvature; /* curvature: both statistics of all linears */
    double inverses, precondition;       /* of a layer, once */
} LayerCosts;

/* CSV: a line of column names, a line of milliseconds. E_FORMAT names the missing column. */
Status layer_costs_read(const char *path, LayerCosts *costs);

/* ---- the grid (pipeline_grid.c): rank = place · replicas + replica ---- */
/* From --stages, --stage-chunks and the number of ranks. E_USAGE names what would work. */
Status pipeline_grid(const Config *c, PipelineKind kind, int64_t ranks, int layers, Grid *grid);
/* Sets what a stage's layers keep, in an array of all `layers`. */
void pipeline_stage_keeps(const Stage *stage, const Policy *policy, int layers, LayerKeep *keeps);
/* --micro-batch-tokens of one of `grid`'s replicas, whose share of a step are `share` sequences. 0: auto. */
Status pipeline_micro_tokens(const Config *c, const Grid *grid, const PlanInput *in, int64_t share, int64_t *tokens);

/* ---- K-FAC's seconds (pipeline_costs.c) ---- */
void kfac_costs(const ModelConfig *m, const CostRates *rates, const RowCounts *rows, double seq_len, Dtype compute,
                const LayerCosts *given, KfacCosts *costs);

/* ---- the plan of a schedule ---- */
typedef struct {
    Policy policy; /* of its layers */
    double seconds[N_WORKS], update;
    StageSum *sums; /* (n_sums) */
    int n_sums;
    int64_t parameters;
    size_t bytes[N_REGIONS];   /* with one slot of each class */
    size_t stride[N_SLOTS][3]; /* bytes of a further slot: activations, inputs, offloaded activations */
} StagePlan;

typedef struct {
    int64_t parameters;
    int slots[N_SLOTS]; /* over its chunks */
    size_t activations, peak;
} PlacePlan;

typedef struct {
    Grid grid;
    int64_t share, tokens; /* sequences of a replica; rows of a micro-batch */
    int64_t boundary;      /* bytes */
    Stage *stages;         /* (stages) the layers of each */
    StagePlan *stage;      /* (stages) */
    PlacePlan *place;      /* (places) */
    Schedule schedule;
    Timeline timeline;
    double update, sums; /* seconds; sums: not hidden behind works */
    double step;         /* seconds */
    size_t peak, budget; /* of the place with the largest; bytes */
    int worst;           /* that place */
    bool fits, exact;
    /* --kfac-interval */
    bool kfac;
    int interval, lag;   /* lag: that the fill was made for */
    PlaceFill costs;     /* what the fill is made of */
    double precondition; /* seconds, part of `update` */
    Fill fill;
} PipelinePlan;

typedef struct {
    const Config *c;
    int64_t ranks;
    const PlanInput *in;
    const Accounts *accounts;
    const LayerCosts *given; /* NULL: none */
    const int64_t *beside;   // (places) bytes that a place takes beside what is counted here; NULL: none
} PipelineRequest;

/* Splits layers, chooses what layers keep, simulates, verifies. The caller frees the plan, also after a failure. */
Status pipeline_plan(const PipelineRequest *r, PipelineKind kind, PipelinePlan *p);
/* The stages that evaluate without training, for a micro-batch's rows; no times, no memory. */
Status pipeline_split(const PipelineRequest *r, PipelineKind kind, const RowCounts *rows, PipelinePlan *p);
void pipeline_plan_free(PipelinePlan *p); /* takes a zeroed one */
/* Adds a simulated pass, with micro-batches from `first` on, that begins at `at`, to a panel with a row for each rank:
   rank = place · replicas + replica. */
void pipeline_draw(const Schedule *s, const Timeline *t, int first, double at, int replicas, TimelinePanel *panel);
/* The sums behind it, and the update. */
void pipeline_draw_end(double at, const Timeline *t, double update, TimelinePanel *panel);
/* How a work is drawn. */
BarKind pipeline_bar(WorkKind kind);
/* Warns of few micro-batches, and of much time without work. */
void pipeline_warn(const PipelinePlan *p);
/* E_MEMORY for a plan that does not fit, with the split of layers that needs least memory. The plan's times are not
   right any more. */
Status pipeline_refuse(const PipelineRequest *r, PipelinePlan *p);

/* ---- the choice of stages, policies and micro-batches (place_choose.c) ---- */
/* Collective. Rank 0 splits layers and chooses what layers keep and micro-batches, every schedule is verified, and
   every rank makes its plans, for which in->place is set. E_USAGE; E_MEMORY as planner_check. The caller frees place
   and plan, also after a failure. */
Status place_choose(const Config *c, PlanInput *in, const Accounts *accounts, Ranks *ranks, bool by_devices,
                    RankPlace **place, RunPlan *plan);
