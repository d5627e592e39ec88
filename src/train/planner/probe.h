/* Seconds of single calls on an open backend, from which machine.c makes the machine's rates. */
#pragma once

#include "kernels/backend.h"

/* Seconds of a call whose operands lie in the backend's memory, or in the host's for transfers: of several runs the
   shortest, which others' work on the machine delays least. 1e30: it failed. */
double probe_time(const Backend *b, OpCall *call, const RowCounts *rows);
/* Allocates the operands in the backend's memory for the measurement: with the host's bytes that `data` points to, else
   zeros. False where there is no memory for them. */
bool probe(const Backend *b, OpCall call, const RowCounts *rows, double *seconds);
