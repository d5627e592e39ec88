/* Seconds of single calls on an open backend, from which machine.c makes the machine's rates. */
#pragma once

#include "kernels/backend.h"

/* Seconds of a call whose operands lie in the backend's memory, or in the host's for transfers: of several runs the
   shortest, which others' work on the machine delays least. 1e30: it failed. */
double probe_time(const Backend *b, OpCall *call, const RowCounts *rows);
/* Allocates a call's operands in the backend's memory, measures it and releases them. An operand whose `data` points to
   bytes of the host gets those, any other zeros. Returns false if memory cannot be allocated. */
bool probe(const Backend *b, OpCall call, const RowCounts *rows, double *seconds);
