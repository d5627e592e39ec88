/* Moves values between ranks that have elements of one space in different ways: to one rank or from it, to files or
   from them, from one grid to another. */
#pragma once

#include "comm/mesh/comm.h"

/* Where this rank gets the values that it gives, and puts those that come to it. A piece is of at most MOVE_MOST
   elements and lies in one interval of every list; pieces come in ascending order. */
typedef Status MoveRead(void *giver, int64_t begin, int64_t end, float *to);
typedef Status MoveWrite(void *taker, int64_t begin, int64_t end, const float *from);
/* Where the host's memory has the elements from `begin` on; NULL: they are read or written by a copy. */
typedef float *MoveAt(void *end, int64_t begin);
typedef struct {
    void *giver, *taker; /* the first arguments */
    MoveRead *read;
    MoveWrite *write;
    MoveAt *given_at, *taken_at; /* NULL: nowhere */
    bool in_place; /* giver and taker have the same memory: what this rank gives to itself stays where it is */
} MoveEnds;

enum { MOVE_MOST = 1 << 18 };

/* Collective on `comm` (NULL: one rank). Each element of to[r] comes to rank r, from the lowest rank that has it in
   `from`; one that nobody has stays as it is. from, to: (ranks). A failure of `read` or `write` does not keep the
   others waiting: the move goes on, and returns the first one at its end. */
Status holding_move(Comm *comm, const Intervals *from, const Intervals *to, const MoveEnds *ends);
