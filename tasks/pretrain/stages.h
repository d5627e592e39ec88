/* `cairn pretrain --input`: a dump to a pretrained model in one command. Before training come the stages of `cairn
   wiki`, `cairn vocab` and `cairn shards`, each a command of its own with a configuration made for it. They write into
   folders of --output-dir:

     text/        sentences
     vocab.txt    unless --vocab or --model brings one; stages.json says what it was made from
     shards/      training data; shards/eval/ is what --eval-fraction holds out

   Each goes on where it was stopped and is passed over when it is finished. */
#ifndef CAIRN_TASKS_PRETRAIN_STAGES_H
#define CAIRN_TASKS_PRETRAIN_STAGES_H

#include "config/config.h"

typedef struct {
    const Config *given;
    Config training; /* given, but with the paths that the stages fill; borrows all the rest */
    char *text, *vocab, *shards, *eval, *record;
    bool makes_vocab;
} Stages; /* zeroed at first */

/* Settles what will lie where; nothing is read or written but for what lies beside --model. `given` outlives it. */
Status stages_plan(Stages *s, const Config *given);
/* Makes what is not there yet. E_STOPPED: the same command goes on. */
Status stages_make(const Stages *s);
void stages_free(Stages *s); /* takes a zeroed one */

#endif
