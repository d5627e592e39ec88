/* One rank: nothing to exchange. */
#include "comm/comm.h"

Status comm_open(Comm *c)
{
    *c = (Comm){.rank = 0, .size = 1, .local_rank = 0};
    return OK;
}

void comm_close(Comm *c) { *c = (Comm){0}; }

Status comm_sum(Comm *c, double *values, int count)
{
    (void)c;
    (void)values;
    (void)count;
    return OK;
}

Status comm_barrier(Comm *c)
{
    (void)c;
    return OK;
}
