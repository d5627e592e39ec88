/* Sums and shares of pieces between their holders, in the backend's memory: through the host's memory, or from GPU to
   GPU. Both are Collective among the holders. Sums are added in the order of holders or in the tree of virtual ranks,
   so their bits depend neither on the owners nor on the cuts; NCCL without a tree chooses its own order. */
#pragma once

#include "comm/mesh/device.h"
#include "holding/holding.h"
#include "kernels/backend.h"

/* An array to which virtual ranks add: gradients, or K-FAC's statistics. */
typedef struct {
    float *x;       // (size) of the virtual rank that runs; then the last branch, which becomes the sum
    float *waiting; // (most, size) branches that wait for those of other ranks; NULL: none
    int64_t size;
} SumSpace;

/* How this rank reaches the holders. */
typedef struct {
    const Backend *backend;
    Comm *comm;         /* through the host's memory */
    void *scratch;      /* PiecesRoom.scratch bytes */
    float *copy;        // of a device's memory, on the host: (branches, stride)
    int64_t stride;     /* PiecesRoom.largest, at least */
    CommDevice *device; /* from GPU to GPU, queued on the chosen lane; NULL: through the host's memory */
    bool turned;        /* its ranks are in the order of chimera's other stage: holder q is its rank q ^ 1 */
    float *received;    // (PiecesRoom.received) with `device` and a tree
} Holders;

/* The sum over the holders becomes each owner's part of s->x, or with `p->owners` false all of the piece on all
   holders. Afterwards s->waiting and the elements that this rank does not get are undefined. */
Status holding_sum(const Holders *h, const SumSpace *s, const Pieces *p, int piece);
/* Each holder's part of the piece comes to all holders. */
Status holding_share(const Holders *h, float *x, const Pieces *p, int piece);
/* Any parts (holders of `h`) within elements [0, n) come to all holders. */
Status holding_share_parts(const Holders *h, float *x, int64_t n, const Intervals *parts);
