/* Who has what. Every run is a grid of ranks: of one stage, or of those of a pipeline, each held by several ranks. From
   the grid, the sizes and the options follow, for each rank, the elements that it has of the weights, of the moments
   and of K-FAC's sets, and those that it owns: it adds their gradients, counts them in norms, snapshots and saves them.
   All ranks compute the same, and nothing of it changes during a run (docs/contracts.md 8).

   Elements are numbered as in the whole model's table. A rank's array of weights, gradients or moments has the elements
   of its intervals one behind the other. */
#pragma once

#include "config/config.h"
#include "model/model.h"
#include "plan/pipeline/schedule.h"

/* ---- the grid: rank = place · replicas + pipeline ---- */

typedef struct {
    Pipeline shape; /* micros: of a step that is planned; else 0 */
    int stages, replicas;
    int directions; /* holders of a stage in one pipeline: 2 in chimera, else 1 */
} Grid;

/* Ranks that hold the whole model each. */
Grid grid_of_ranks(int ranks);
int grid_ranks(const Grid *g);
int grid_holders(const Grid *g); /* of each stage */
/* Holder number `n` of a stage, in the order of replicas; and the reverse, −1 for a rank that does not hold it. */
int grid_holder(const Grid *g, int stage, int n);
int grid_holder_number(const Grid *g, int stage, int rank);
int grid_first_stage(const Grid *g, int rank); /* of those that it holds */

/* ---- what travels between the holders of a stage ---- */

/* Consecutive elements that travel at once, and those of them that each holder owns. */
typedef struct {
    int stage;
    int64_t begin, end;
    Intervals *parts; // (holders)
    Interval *cuts;   // (holders) memory of the parts where they are of one interval each; NULL: each has its own
} Piece;

typedef struct {
    Piece *pieces; // (n) by stage, then by element
    int n, cap, holders;
    int64_t most; /* elements of a piece, but for the tensor or norm block that is cut last */
    Dtype wire;   /* of the terms of a sum */
    int64_t tree; /* terms of the tree in which sums are added (CommTree); 0: holders are added in their order */
    bool owners;  /* sums go to the owners alone */
} Pieces;

/* Appends a piece, whose parts are added to by intervals_add. */
Piece *pieces_add(Pieces *p, int stage, int64_t begin, int64_t end);
/* Appends a piece that is cut between norm blocks of `params`, as evenly as that allows. */
void pieces_add_even(Pieces *p, int stage, int64_t begin, int64_t end, const ParamTable *params);
void pieces_sort(Pieces *p);
void pieces_free(Pieces *p); /* takes a zeroed one */

/* What exchanges of pieces need; with one holder nothing. */
typedef struct {
    size_t scratch;   /* bytes: of the collectives */
    int64_t largest;  /* elements of a piece */
    int64_t received; /* elements of other holders' terms of the own part, of a tree */
    int branches;     /* terms that a holder sends of a tree; else 1 */
} PiecesRoom;
PiecesRoom pieces_room(const Pieces *p);
/* `a` becomes the larger of both, member by member. */
void pieces_room_add(PiecesRoom *a, PiecesRoom b);

/* ---- who has what ---- */

typedef enum { HELD_WEIGHTS, HELD_MOMENTS, HELD_SETS, N_HELD } HeldKind;
static inline int held_space(HeldKind kind) { return kind == HELD_SETS; }

typedef struct {
    Grid grid;
    bool shard;                         /* --shard optimizer: a rank has the moments of its own parts alone */
    const ParamTable *params[N_SPACES]; /* the caller's */
    Intervals *has[N_HELD];             // (ranks)
    Intervals *own[N_SPACES];           // (ranks) all together the space, each element once
    Intervals *writes[N_SPACES];        // (ranks) what it writes into a checkpoint (holding_set_writers)
    Intervals *sums;                    // (ranks) the own norm blocks, of a table of doubles, as two elements each
    int rank;                           /* for which the rest is */
    Pieces mine;                        /* of the stages that it holds, in elements of its array of weights */
    Intervals slice;                    /* with `shard`: its moments, in elements of its array of weights */
} Holding;

/* Gradients travel in pieces of --bucket-size, as --wire and --virtual-ranks have it; moments by --shard. `stages`
   (grid->stages): the layers of each; NULL: one stage of all. `model` and its table outlive the holding. */
void holding_init(Holding *h, const Config *c, const Model *model, const Grid *grid, const Stage *stages, int rank);
/* The sets in their saved form: `stage` (saved->count) has the stage whose holders have each tensor. */
void holding_add_sets(Holding *h, const ParamTable *saved, const int *stage);
/* Which rank reads or writes which elements of a checkpoint (ranks): what it owns, where it sees rank 0's folder
   (ranks; NULL: all do), and rank 0 the rest. The caller frees (intervals_free_all). */
Intervals *holding_shares(const Holding *h, int space, const bool *sees);
/* Who writes: `writes` becomes these shares. */
void holding_set_writers(Holding *h, const bool *sees);
void holding_free(Holding *h); /* takes a zeroed one */

static inline int holding_ranks(const Holding *h) { return grid_ranks(&h->grid); }
/* The moments of this rank where it does not have all of its tensors', else NULL. */
static inline const Intervals *holding_slice(const Holding *h) { return h->shard ? &h->slice : NULL; }
/* What the exchanges of a run without a pipeline need: of pieces, and with `shard` of the table of norm blocks. */
PiecesRoom holding_room(const Holding *h);
HeldPart holding_part(const Holding *h, int rank);        /* what it owns */
HeldPart holding_written(const Holding *h, int rank);     /* what it writes into a checkpoint */
size_t holding_written_bytes(const Holding *h, int rank); /* of weights, both moments and sets */
bool holding_writes_all(const Holding *h, int rank);      /* it writes for all ranks */
bool holding_brings(const Holding *h, HeldKind kind);     /* rank 0 writes elements that it does not have */
/* The place of an element in the array of a rank that has it. */
int64_t holding_place(const Holding *h, HeldKind kind, int rank, int64_t element);
bool holding_has(const Holding *h, HeldKind kind, int rank, int64_t element);
bool holding_has_all(const Holding *h, HeldKind kind); /* every rank has all of them */
