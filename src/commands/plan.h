/* Inside commands: the parts of `cairn plan`. */
#pragma once

#include "data/lengths.h"
#include "train/job/setup.h"
#include "train/run/adopt.h"

static inline double mib(size_t bytes) { return (double)bytes / (1 << 20); }

/* ---- devices.c: GPUs for --device, present or not: figures of their data sheets, and the planner's rates derived from
   them. Every output marks these as predictions ---- */

typedef struct {
    const char *name;
    int major, minor; /* compute capability */
    int multiprocessors;
    double bf16_peak, f32_peak;       /* dense products, per second */
    double memory_peak, memory_bytes; /* bytes per second; bytes */
    double attention_peak;            /* the peak that attention's shares refer to */
    double link_bytes;                /* host to device, per second */
} DeviceSpec;

/* E_USAGE lists the names. */
Status device_find(const char *name, const DeviceSpec **device);

/* E_USAGE: the environment asks for kernels that such a device does not have. */
Status device_switches(const DeviceSpec *d);
void device_rates(const DeviceSpec *d, Dtype compute, CostRates *rates);
/* Assumptions of the predicted times, a line each: name, value, unit, reason. */
void device_assumptions(const DeviceSpec *d, Buf *out);
/* The type of --precision auto on that device. */
Dtype device_compute(const DeviceSpec *d);
double device_peak(const DeviceSpec *d, Dtype compute);
/* Bytes of device memory that context and libraries take beside the plan. */
size_t device_context_bytes(void);

/* The cuda backend's table as for this device; false, with the reason in the status message, where this build has none:
   then scratch is estimated. */
bool device_table(const DeviceSpec *d, Backend *table);

/* ---- plan.c ---- */

typedef struct {
    const Config *c;
    const Config *given; /* `c` as the user gave it: its batch size counts rows of data */
    Adopted adopted;     /* of embeddings: `c` then is its copy, whose batch size counts sequences */
    Model model;
    Setup setup;              /* the backend of this machine */
    const DeviceSpec *device; /* NULL: this machine */
    Backend device_backend;   /* its table, not opened */
    Lengths lengths;          /* of packed sequences; zeroed: all have --max-seq-length */
    uint8_t *norm_forms;      /* (2·layers + 1), of --model's weights */
    PlanInput input;
    Accounts accounts;
    const char *machine; /* for people */
    int layers;          /* of the model, in place of its own number; 0: its own */
} PlanRun;

/* Finds all that a plan follows from. `r` has its Config, and perhaps layers; plan_close frees, also after a failure.
 */
Status plan_open(PlanRun *r);
void plan_close(PlanRun *r);
/* Makes the process hold what its first plan makes it hold, so that all later plans count the same. */
Status plan_count_process(PlanRun *r);

/* ---- plan_largest.c: --largest ---- */

/* The largest batch in one micro-batch, length or number of layers that fits. */
Status plan_largest(PlanRun *r);

/* ---- plan_table.c: a row per policy, as a table, as JSON, as a drawing ---- */

typedef struct {
    RunPlan plan;
    int64_t max_batch; /* rows of data in one micro-batch that fit */
} PlanRow;

static inline int plan_texts(const PlanInput *in) { return in->coupling ? in->coupling->texts : 1; } /* of a row */
/* "batch 32 × 128 tokens"; "batch 32 × 2 texts × 128 tokens" */
void plan_put_batch(const PlanRun *r, Buf *out);
/* "BERT of 12 layers, …; " and that. */
void plan_put_model(const PlanRun *r, Buf *out);
void plan_table_print(const PlanRun *r, const PlanRow *rows, int n, Buf *out);
void plan_table_json(const PlanRun *r, const PlanRow *rows, int n, Buf *out);
/* The members of a row that are the plan's own, without braces. */
void plan_row_json(const RunPlan *p, Buf *out);
/* Memory over the predicted time of one micro-batch, a curve per row, as SVG. */
void plan_table_draw(const PlanRun *r, const PlanRow *rows, int n, Buf *out);

/* ---- cost_table.c: the arithmetic behind a predicted step (--explain-cost), op by op ---- */

typedef struct {
    const Plan *plan;
    const RowCounts *rows; /* of a micro-batch */
    const CostRates *rates;
    double peak_flops;        /* of the device's data sheet; 0: unknown */
    double mean, beside;      /* tokens of a sequence; of a token's sequence */
    double micros, sequences; /* of a step */
    const char *policy;
    const char *assumptions; /* printed below the rates; may be NULL */
    const char *measured;    /* a kernels.csv (docs/files.md) whose times are printed beside the predicted; "": none */
} CostTable;

/* E_FORMAT: `measured` has no op of the plan. */
Status cost_table(const CostTable *t, Buf *out);

/* ---- --pipeline and --ranks, which print ---- */

/* Time, bubble and memory of schedules, as a table, as JSON, as a drawing. E_MEMORY where none of the schedules fits;
   it names the budget and the split that would do. */
Status plan_pipeline(const PlanRun *r);
/* Memory saved by a sharded optimizer, time of the exchange, its part hidden behind backward, and the efficiency
   against linear speed. `plan`: of rank 0 of --ranks. */
Status plan_ranks(const PlanRun *r, const RunPlan *plan);

/* ---- plan_job.c: the resources that a run needs (--pbs, --slurm, --sge of `cairn plan` and `cairn sweep`), as lines
   of a job file or flags of a submission ---- */

typedef enum { JOB_NONE, JOB_PBS, JOB_SLURM, JOB_GRID_ENGINE } JobKind;

/* Bytes are of a rank, in the host's memory. */
typedef struct {
    JobKind kind;
    int64_t ranks, per_host;
    int64_t cores; /* of a host; 0: all that this one has, or 5 for a GPU */
    bool gpus;
    size_t run;       /* the run: on a device the host's part of it */
    size_t snapshots; /* in /dev/shm, which counts as the job's memory */
    double seconds;   /* of the training; 0: not known */
} JobNeeds;

/* The first of the three flags that is given. */
JobKind plan_job_kind(const Config *c);
void plan_job(const JobNeeds *needs, Buf *out);
/* " -l select=…": the same resources, without the time, for the command that submits. */
void plan_job_flags(const JobNeeds *needs, Buf *out);
