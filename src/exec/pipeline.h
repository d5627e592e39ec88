/* A place of a pipeline: its chunks, and the boundaries that pass between places while works run.

   Boundaries go through staging buffers in the host's memory, AHEAD for each chunk, way and direction of travel: a send
   copies into the next one and posts it, a receive waits for the next one and copies it out. Receives are posted as
   soon as a buffer is free, so a boundary travels while both ends compute. Everything exists before the first step. */
#ifndef CAIRN_EXEC_PIPELINE_H
#define CAIRN_EXEC_PIPELINE_H

#include "exec/exec.h"

typedef struct ExecPipeline ExecPipeline;

typedef struct {
    Comm *comm;               /* of the pipeline: rank = place; its own, since messages have tags here. NULL: one
                                 place */
    const Schedule *schedule; /* for the most micro-batches of a step; outlives the pipeline */
    Exec *const *chunks;      // (schedule.shape.chunks) of this place
    int place;
    size_t boundary; /* bytes of the largest */
    /* Writes the inputs of a chunk's micro-batch, before its F. */
    Status (*fill)(void *self, int chunk, int micro, const int slots[N_SLOTS]);
    void *self;
} ExecPipelineOptions;

void exec_pipeline_open(const ExecPipelineOptions *options, ExecPipeline **pipeline);
void exec_pipeline_close(ExecPipeline *p); /* takes NULL; after a failure too */
/* Bytes of host memory for staging. */
size_t exec_pipeline_bytes(const ExecPipeline *p);

/* Collective among the places. Runs the works of this place, in the schedule's order. `rows` (micros, or of chimera
   both directions' one after the other): of each micro-batch, which all places know beforehand. E_PEER names the
   boundary that was waited for. */
Status exec_pipeline_run(ExecPipeline *p, const RowCounts *const rows[2]);

#endif
