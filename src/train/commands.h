/* What `cairn <command>` does, for the commands that belong to no task. Each checks the flags that it needs (E_USAGE),
   writes its result to stdout and what it has to say to the log. */
#ifndef CAIRN_TRAIN_COMMANDS_H
#define CAIRN_TRAIN_COMMANDS_H

#include "base/base.h"
#include "config/config.h"
#include "model/model.h"

Status command_convert(const Config *c); /* weights of any format into a Hugging Face directory */
Status command_inspect(const Config *c); /* the tensors of a file or checkpoint, and how ranks would slice them */
Status command_plan(const Config *c, Head head); /* what a run will need, per policy; `head`: of its task */
Status command_vocab(const Config *c);           /* trains a vocabulary */
Status command_report(const Config *c);          /* compares finished runs */
Status command_snapshot(const Config *c);        /* what runs left in host memory: list, persist, discard */

#endif
