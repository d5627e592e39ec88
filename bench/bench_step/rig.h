/* Shared by the files of bench_step: what is asked for, the synthetic batches, a plan in memory, and the timing of
   single calls. */
#pragma once

#include <stdio.h>

#include "data/data.h"
#include "exec/exec.h"
#include "train/planner/planning.h"

typedef struct {
    const char *backend, *lengths, *optimizer, *json, *kernels, *name;
    int64_t batch, length, predictions;
    int64_t product; /* size of the machine's large product; 0: by the kind of machine */
    int rounds, steps;
    bool ops;
    Dtype compute;
    AttentionKind attention;
    float dropout; /* negative: the configuration's */
} Want;

extern Want want;
extern Model model;
extern Backend *backend;
extern float *weights; /* as a new model has them */
extern FILE *json;     /* NULL: not wanted */

void must(Status status); /* ends the program with the message of a failure */
Status wait_for_all(void);

/* ---- batches ---- */
enum { BATCHES = 4 };
typedef struct {
    MicroBatch b;
    double squares; /* Σ length² */
} Batch;

extern Batch batches[BATCHES];
extern RowCounts capacity;
extern double mean_seqs, mean_tokens, mean_masked, beside; /* of the batches; tokens of a token's sequence */

void batches_make(void);
void batches_free(void);
/* Products of a training step without recompute, three times the forward pass's; attention by the lengths there are. */
double step_flops(void);

/* ---- a plan in memory ---- */
typedef struct {
    Plan plan;
    ModelTensors t;
    Memory memory;
    Exec *exec;
    Ctl ctl;
    Optimizer optimizer;
    bool grains;         /* as with --virtual-ranks 1 */
    bool noted, checked; /* weights and moments, as with --audit */
} Rig;

Status rig_open(Rig *r, const char *policy_name);
void rig_close(Rig *r);            /* after a failed rig_open, too */
Status rig_step(Rig *r, int step); /* launched, not waited for */

/* ---- single calls ---- */
typedef struct {
    int64_t m, n, k;
    double flops, bytes; /* per second: one large product; GELU on its output, read and written */
} MachineRates;
MachineRates measure_machine(void);
/* Times every distinct instr of the policy's plan back to back; what is left of a step's time lies between them. */
void measure_ops(const char *policy, double step_seconds);
