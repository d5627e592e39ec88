/* `cairn plan` and `cairn sweep` with `--pbs`, `--slurm`, `--sge`: the resources that a run needs, as lines of a job
   file or flags of a submission. */
#ifndef CAIRN_COMMANDS_PLAN_JOB_H
#define CAIRN_COMMANDS_PLAN_JOB_H

#include "base/base.h"

typedef enum { JOB_PBS, JOB_SLURM, JOB_GRID_ENGINE } JobKind;

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

void plan_job(const JobNeeds *needs, Buf *out);
/* " -l select=…": the same resources, without the time, for the command that submits. */
void plan_job_flags(const JobNeeds *needs, Buf *out);

#endif
