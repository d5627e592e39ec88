/* `cairn pretrain --input`: from a dump to a pretrained model in one command. Before training, the stages run the
   commands `cairn wiki`, `cairn vocab` and `cairn shards`, each with a configuration of its own. They write into
   folders of --output-dir:

     text/        sentences
     vocab.txt    unless --vocab or --model brings one; stages.json records its text and options
     shards/      training data; shards/eval/ is held out by --eval-fraction

   A stopped stage resumes, a finished one is skipped. */
#pragma once

#include "config/config.h"

typedef struct {
    const Config *given;
    Config training; /* `given` with the paths that the stages fill; borrows all the rest */
    char *text, *vocab, *shards, *eval, *record;
    bool makes_vocab;
} Stages; /* zeroed at first */

/* Chooses the paths. Reads nothing except files beside --model, and writes nothing. `given` must outlive it. */
Status stages_plan(Stages *s, const Config *given);
/* Whether the shards are complete. */
bool stages_finished(const Stages *s);
/* Finds the input: about how many bytes of text it gives, and the pieces that a vocabulary made from it will have at
   least. */
Status stages_foresee(const Stages *s, double *text, int *pieces);
/* Makes all that is missing. E_STOPPED: the same command resumes. */
Status stages_make(const Stages *s);
void stages_free(Stages *s); /* takes a zeroed one */
