/* What `cairn <command>` does. This room is above the tasks and has their table. The commands that make pretraining's
   data are in tasks/pretrain, `launch` is in launch/. Each command checks the flags that it needs (E_USAGE), and writes
   its result to standard output and messages to the log. */
#pragma once

#include "base/base.h"
#include "config/config.h"
#include "train/job/task.h"
#include "train/loop/verify.h"

/* Runs the task or the function of c->command. */
Status commands_run(const Config *c);
/* Runs the task of c->command to verify another run. */
Status commands_run_verify(const Config *c, Verify *verify);
/* Whether `cairn NAME` runs a task in a folder of its own. `command` gets its number. */
bool commands_find_task(const char *name, Command *command);
/* The commands of such tasks, with commas and "and" between. */
void commands_list_tasks(Buf *out);
/* Guesses which of these commands made a run: the one that knows most options of its record, a JSON object; of several
   the first. */
Command commands_of_record(const Json *config);
/* The task that the options of `cairn plan` describe. */
const Task *commands_planned_task(const Config *c);
/* The state.json of the newest checkpoint that has one which can be read; NULL: none. The caller frees. */
Json *commands_newest_state(const char *dir);
/* The sizes in --model-config, else in the config.json beside --model. E_USAGE where there is neither. */
Status commands_model_config(const Config *c, ModelConfig *config);

Status command_convert(const Config *c);     /* weights of any format into a Hugging Face directory */
Status command_doctor(const Config *c);      /* this machine, for a bug report */
Status command_inspect(const Config *c);     /* the tensors of a file or checkpoint, and how ranks would slice them */
Status command_plan(const Config *c);        /* the needs of a run, per policy */
Status command_report(const Config *c);      /* compares finished runs */
Status command_variability(const Config *c); /* the pace of ranks */
Status command_sweep(const Config *c);       /* runs a command with every combination of values */
/* --seeds of a task's command: a sweep over them. */
Status command_seeds(const Config *c);
Status command_verify(const Config *c);   /* computes steps of a run again, and compares */
Status command_snapshot(const Config *c); /* lists, persists or discards snapshots in host memory */
