/* A run: from its configuration to its results, whatever the task (train/job/task.h). The steps of its life, and which
   of them are collective, are in run.c alone. */
#pragma once

#include "train/job/task.h"

/* The whole life of a run, with every message. With `verify` not NULL it computes steps of another run again, whose
   options are `c`, compares them, and writes nothing. */
Status run_task(const Config *c, const Task *task, struct Verify *verify);

/* Collective. Opens it, unless it is open. A task may need it earlier than the run. */
Status run_open_backend(Run *r);
/* Collective. Backend, schedule and plan of a task that is open: a step of run_task. */
Status run_make_plan(Run *r);
