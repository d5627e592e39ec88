/* Ranks. For now there is one; the functions are the ones all ranks must call. */
#ifndef CAIRN_COMM_COMM_H
#define CAIRN_COMM_COMM_H

#include "base/base.h"

typedef struct Comm {
    int rank, size, local_rank;
} Comm;

Status comm_open(Comm *c); /* self: rank 0 of 1 */
void comm_close(Comm *c);

/* Collective. Sums `count` doubles over all ranks, in place, the same bits everywhere. */
Status comm_sum(Comm *c, double *values, int count);
/* Collective. */
Status comm_barrier(Comm *c);

#endif
