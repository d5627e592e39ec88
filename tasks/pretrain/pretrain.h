/* Pretraining: from a dump of Wikipedia to a BERT. Each command checks the flags it needs (E_USAGE). */
#pragma once

#include "base/base.h"
#include "config/config.h"

Status command_wiki(const Config *c);   /* Wikipedia dumps or folders of text to a sentence per line */
Status command_vocab(const Config *c);  /* a WordPiece vocabulary from text */
Status command_shards(const Config *c); /* sentences to HDF5 shards */
/* E_USAGE: options with which shards cannot be made, or a build that makes none. */
Status shards_check_use(const Config *c);

extern const struct Task task_pretrain; /* `cairn pretrain`: masked words and next sentences on shards */
