/* What each choice for a layer takes in each layer, for `--recompute auto` (search.c). */
#pragma once

#include "plan/layers.h"
#include "train/planner/search.h"

/* Each part is kept, recomputed or offloaded; the input is recomputed in the first layer alone, where the embeddings
   make it again. */
enum { FREE_PARTS = LAYER_PARTS - 1, MOST_KINDS = 729, FULL = (1 << FREE_PARTS) - 1 };
#define NEVER (INT64_MAX / 4) /* picoseconds and bytes of a kind in a layer that cannot choose it */

typedef struct {
    LayerKeep keep;
    LayerCost *layers; // (layers)
    int64_t heads;     /* bytes while heads run, where the last layer chooses it */
    int64_t window;    /* bytes that a layer offloads, at most */
} Kind;

/* A part of a layer, where it is offloaded: bytes on the device, picoseconds of the copies to the host and back. */
typedef struct {
    int64_t bytes, out, in;
} PartCopies;

typedef struct {
    int layers, n;
    Kind all[MOST_KINDS];             /* the first: all is kept; number FULL: the input alone */
    PartCopies (*parts)[LAYER_PARTS]; // (layers)
    int64_t *hidden;                  /* (layers) picoseconds of copies to the host that its forward hides */
    int64_t windows[MOST_KINDS];      /* (n_windows) sizes, rising from 0 */
    int n_windows;
    int64_t below;  /* bytes while embeddings run */
    int64_t room;   /* bytes for what is offloaded, in the host's memory */
    size_t other;   /* bytes of the first account beside activations */
    double seconds; /* of a step in which layers take `picoseconds` in a micro-batch, all of them keeping all */
    int64_t picoseconds;
} Kinds;

/* All choices of parts beside the input, first of them to keep all; of the useful ones, those without the first layer's
   input. `c` is overwritten. The caller sets `other` and `seconds`, and frees. */
Status kinds_make(const SearchProblem *s, LayerChoice *c, Kinds *t);
/* Adds the choices that offload. */
void kinds_add_offloaded(Kinds *t);
void kinds_free(Kinds *t);
/* What a kind takes in a layer, the last one with heads; its peak is without a window. NEVER where it needs a larger
   window, or the layers up to this one more room on the host if each offloads a window. */
LayerCost kinds_cost(const Kinds *t, int layer, int kind, int64_t window);
