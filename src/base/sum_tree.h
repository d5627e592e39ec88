/* The tree in which the terms of virtual ranks are added: neighbours first (0 + 1, 2 + 3, …), then neighbouring sums,
   and so on; a term without a neighbour waits for the next level. It follows from the number of terms alone.

   A branch is the sum of the terms below one node. Consecutive terms make one branch or several; the largest ones are
   what can be added without the terms beside them. */
#pragma once

#include <stdint.h>

/* The largest branch that begins with term `begin` and lies before term `end`: the term behind it. */
static inline int64_t sum_tree_branch(int64_t terms, int64_t begin, int64_t end)
{
    int64_t n = 1;
    while (begin % (2 * n) == 0 && begin + n < terms && (begin + 2 * n <= end || end == terms)) n *= 2;
    return begin + n < terms ? begin + n : terms;
}

/* How many of these largest branches terms begin … end − 1 make. */
static inline int sum_tree_branches(int64_t terms, int64_t begin, int64_t end)
{
    int n = 0;
    for (int64_t at = begin; at < end; n++) at = sum_tree_branch(terms, at, end);
    return n;
}

/* A branch that ends at `end` comes behind terms first … `begin` − 1, which wait as their largest branches: how many of
   these, the last ones, it is added to, each sum to the one before. */
static inline int sum_tree_added(int64_t terms, int64_t first, int64_t begin, int64_t end)
{
    return sum_tree_branches(terms, first, begin) + 1 - sum_tree_branches(terms, first, end);
}

/* ---- terms that are shared out, terms / parts consecutive ones to each; parts divides terms ---- */

/* Branches that this part makes. */
static inline int sum_tree_own(int64_t terms, int64_t parts, int64_t part)
{
    int64_t each = terms / parts;
    return sum_tree_branches(terms, part * each, (part + 1) * each);
}

/* The most branches that wait on any part, whose terms come one after another, while one more term comes. */
static inline int sum_tree_waiting(int64_t terms, int64_t parts)
{
    int64_t each = terms / parts;
    int most = 0;
    for (int64_t at = 0; at < terms; at++) {
        int n = sum_tree_branches(terms, at / each * each, at);
        if (n > most) most = n;
    }
    return most;
}
