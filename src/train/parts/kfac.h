/* K-FAC of a run: which linear layers it preconditions, the place of their factors, who inverts them, and in which step
   what happens (docs/contracts.md 12). */
#pragma once

#include "config/config.h"
#include "holding/holding.h"
#include "model/model.h"
#include "plan/plan.h"

typedef struct {
    int interval, lag; /* steps; interval 0: no K-FAC, and all else is empty */
    KfacPlan plan;
    /* A set as tensors with names: "<linear>.A_inv", ".B_inv" and ".has", 1 where the linear has inverses. */
    ParamTable table;
    /* All sets as they are saved, one behind the other: of a matrix the lower triangle alone, row by row. Names of the
       second set begin with "next.". */
    ParamTable saved;
    Pieces pieces; /* of a set, and who sums and inverts which elements; none where one rank holds it */
} Kfac;

typedef struct {
    int interval, lag;
    double damping;
    int64_t piece_bytes; /* of an exchange between ranks */
    int64_t terms;       /* virtual ranks, whose statistics are added in a tree (CommTree); 0: rank after rank */
} KfacOptions;

/* --kfac-interval, --kfac-lag, --kfac-damping, --bucket-size. E_USAGE: no such lag, or one of them without the first.
 */
Status kfac_options(const Config *c, KfacOptions *o);
/* E_USAGE names what K-FAC does not go with. */
Status kfac_check(const Config *c);
/* What the exchanges of a run without a pipeline need, of gradients, weights and sets: through the hosts' memory, or
   `by_devices`, where NCCL adds in its own memory but for a tree's terms. */
PiecesRoom exchanges_room(const Kfac *k, const Holding *h, bool by_devices);
/* For the stages that `rank` holds, chunk after chunk; `stages` (grid->stages): the layers of each. `m` is a model or a
   part of one. */
void kfac_init(Kfac *k, const KfacOptions *o, const Model *m, const Grid *grid, const Stage *stages, int rank);
/* The factors of all layers, held by all ranks. */
void kfac_init_whole(Kfac *k, const KfacOptions *o, const Model *m, int ranks, int rank);
/* The sets of the whole model, in `h`; `stages` as in holding_init. */
void kfac_hold(const Kfac *whole, const Stage *stages, Holding *h);
void kfac_free(Kfac *k);           /* takes a zeroed one */
float *kfac_matrix(const Kfac *k); /* room for a set's largest tensor; the caller frees */
/* The layer of a tensor of `table` or `saved`. */
static inline int kfac_layer(const Kfac *k, int tensor) { return k->plan.linears[tensor % k->table.count / 3].layer; }
/* The bytes of a tensor of `table`. */
static inline size_t kfac_bytes(const Param *p) { return (size_t)(p->rows * p->cols) * sizeof(float); }
/* Elements [begin, end) of the saved form of a tensor of `table`, out of the tensor or into it. */
void kfac_pack(const Param *p, int64_t begin, int64_t end, const float *from, float *saved);
void kfac_unpack(const Param *p, int64_t begin, int64_t end, const float *saved, float *to);

/* Step `step` (from 1) gathers statistics. */
static inline bool kfac_refreshes(const Kfac *k, int64_t step)
{
    return k->interval > 0 && (step - 1) % k->interval == 0;
}
/* The set whose inverses the update of a step uses. */
static inline int64_t kfac_set(const Kfac *k, int64_t step)
{
    int64_t past = step - 1 - k->lag;
    return past > 0 ? past / k->interval : 0;
}
/* The next inverses are put in use before the micro-batches of a step, or behind its inversion. */
static inline bool kfac_adopts_before(const Kfac *k, int64_t step)
{
    return k->lag > 0 && step > 1 && kfac_set(k, step) > kfac_set(k, step - 1);
}
static inline bool kfac_adopts_after(const Kfac *k, int64_t step)
{
    return kfac_refreshes(k, step) && (k->lag == 0 || step == 1);
}
/* Sets that training keeps from one step to the next: the one in use and, with a lag, the next. */
static inline int kfac_sets(const Kfac *k) { return !k || k->interval == 0 ? 0 : k->lag > 0 ? 2 : 1; }
