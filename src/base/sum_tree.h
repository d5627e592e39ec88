/* The tree in which the terms of virtual ranks are added: neighbours first (0 + 1, 2 + 3, …), then neighbouring sums,
   and so on; a term without a neighbour waits for the next level. It follows from the number of terms alone. */
#ifndef CAIRN_BASE_SUM_TREE_H
#define CAIRN_BASE_SUM_TREE_H

#include <stdbool.h>
#include <stdint.h>

/* Sums that wait, at most, where so many terms come one after another: one for each binary digit of terms − 1. After i
   terms those of the digits of i that are 1 wait. */
static inline int sum_tree_levels(int64_t terms)
{
    int levels = 0;
    while ((terms - 1) >> levels > 0) levels++;
    return levels;
}

/* Whether each of `parts` equal shares of consecutive terms is a branch of the tree. */
static inline bool sum_tree_divides(int64_t terms, int64_t parts)
{
    if (parts < 1 || terms % parts != 0) return false;
    int64_t each = terms / parts;
    return parts == 1 || (each & (each - 1)) == 0;
}

#endif
