/* Pretraining: from a dump of Wikipedia to a BERT. Each command checks the flags it needs (E_USAGE). */
#ifndef CAIRN_TASKS_PRETRAIN_PRETRAIN_H
#define CAIRN_TASKS_PRETRAIN_PRETRAIN_H

#include "base/base.h"
#include "config/config.h"

Status command_pretrain(const Config *c); /* trains and evaluates masked words and next sentences on shards */

#endif
