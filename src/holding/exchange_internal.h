#ifndef CAIRN_HOLDING_EXCHANGE_INTERNAL_H
#define CAIRN_HOLDING_EXCHANGE_INTERNAL_H

#include "holding/exchange.h"

/* Collective. The own part becomes the sum of all holders' branches, with the bits of comm_reduce_scatter. */
Status sum_tree_on_devices(const Holders *h, const SumSpace *s, const Intervals *parts, int64_t terms);

#endif
