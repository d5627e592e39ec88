/* What `cairn <command>` does. This room is above the tasks and has their table; the commands that make
   pretraining's data are in tasks/pretrain, `launch` is in launch/. Each command checks the flags that it needs
   (E_USAGE), writes its result to stdout and messages to the log. */
#ifndef CAIRN_COMMANDS_COMMANDS_H
#define CAIRN_COMMANDS_COMMANDS_H

#include "base/base.h"
#include "config/config.h"
#include "train/task.h"

/* Runs the task or the function of c->command. */
Status commands_run(const Config *c);
/* The task of a command; NULL: none. */
const Task *commands_task(Command command);

Status command_convert(const Config *c);  /* weights of any format into a Hugging Face directory */
Status command_inspect(const Config *c);  /* the tensors of a file or checkpoint, and how ranks would slice them */
Status command_plan(const Config *c);     /* the needs of a run, per policy */
Status command_report(const Config *c);   /* compares finished runs */
Status command_snapshot(const Config *c); /* lists, persists or discards snapshots in host memory */

#endif
