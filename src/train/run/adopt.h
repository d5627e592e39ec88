/* Options that were not given: taken from the folder of --model, which says how the model was trained. */
#pragma once

#include "state/models/import.h"
#include "train/job/job.h"

typedef struct {
    ModelUse use;
    Embedding embedding; /* of adopt_embedding */
    Config config;       /* becomes the run's, or the plan's */
    const char *from;    /* --model as given, for adopt_log */
    Buf taken, differ;   /* flags, likewise */
} Adopted;

typedef enum {
    ADOPT_NOTHING, /* names the model's length where --max-seq-length is another */
    ADOPT_TEXTS,   /* --max-seq-length: the model's, at most its positions */
    ADOPT_COLUMNS, /* and --text-columns, --label-column */
    ADOPT_WINDOWS  /* and --doc-stride, --max-query-length; of a model without these --max-seq-length is not raised */
} AdoptKind;

/* Before the ranks meet. */
Status adopt_options(Run *r, AdoptKind kind, Adopted *a);
/* Before it, for vectors of texts, also with training: `*c` becomes a copy with --pooling and --normalize as the folder
   of --model says, and with the folder of the weights as --model. */
Status adopt_embedding(const Config *given, const Config **c, Adopted *a);
void adopt_pooling(const Config *c, Model *m); /* after model_init */
void adopt_vectors(Run *r, const Adopted *a);  /* after start_text and start_model: what the options say of both */
/* A line on the options taken, and one on those that differ from the model's. */
void adopt_log(const Adopted *a);
void adopt_free(Adopted *a); /* takes a zeroed one */
