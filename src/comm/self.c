/* One rank: nothing to exchange. */
#include "comm/comm.h"

#include <stdlib.h>

Status comm_self(Comm **comm)
{
    Comm *c = mem_alloc(sizeof *c);
    *c = (Comm){.size = 1, .local_size = 1, .nodes = 1};
    *comm = c;
    return OK;
}

void comm_close(Comm *c) { free(c); }
