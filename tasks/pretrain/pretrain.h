/* Pretraining: the commands that prepare its data. */
#ifndef CAIRN_TASKS_PRETRAIN_PRETRAIN_H
#define CAIRN_TASKS_PRETRAIN_PRETRAIN_H

#include "base/base.h"
#include "config/config.h"

Status command_wiki(const Config *c); /* dumps to text: one sentence per line, an empty line behind each article */

#endif
