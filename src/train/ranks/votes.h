/* Meetings and their votes, decided without sockets, clocks or threads. Each rank tells rank 0 that it has come to
   meeting number n, and its votes. When all have come, rank 0 tells all what was decided, which is the same for all:
   the union of the votes, also of those that a rank sent again while it waited for slower ones. */
#pragma once

#include "base/base.h"
#include "train/ranks/ranks.h"

typedef enum {
    VOTES_COME,     /* this rank has come to its next meeting, with what it voted */
    VOTES_SIGNAL,   /* this process has received `signal` (the bit of its vote) */
    VOTES_VOTE,     /* from `rank` to rank 0: `votes`, `came`, `hurry` */
    VOTES_DECISION, /* from rank 0: `votes`, `came` (the meeting), `hurry`; all_own_s */
    VOTES_END,      /* `rank` has ended with a failure */
    VOTES_LEFT,     /* `rank` has closed its connections in order */
    VOTES_LOST      /* a rank is lost */
} VotesEventKind;

/* Sent as it lies in memory, because all ranks run the same program. Rank 0 sends the seconds of all ranks behind it.
 */
typedef struct {
    int64_t came;   /* the meeting that the rank has come to; of a decision: the newest one that all came to */
    uint32_t votes; /* a bit for each Vote */
    int32_t hurry;
    double own_s;
} VotesMessage;

typedef struct {
    VotesEventKind kind;
    int rank;
    uint32_t signal;
    const VotesMessage *message;
    const double *all_own_s; // (size)
} VotesEvent;

typedef enum {
    SEND_VOTE,     /* to rank 0 */
    SEND_DECISION, /* to all others */
    REPORT_LEFT    /* votes_missing is lost: this rank waits for a meeting to which that one does not come */
} VotesAction;

typedef struct {
    int rank, size;
    int64_t came, met;      /* meetings that this rank reached; that all ranks reached */
    uint32_t mine, signals; /* votes for the next meeting; those of signals, which count in each */
    uint32_t decided;       /* by the last meeting */
    uint32_t agreed;        /* by meetings so far, until they are cleared */
    bool hurry;             /* some rank has a signal */
    int ended, first_ended; /* ranks that ended with a failure; the first of them */
    bool *left;             // (size) ranks that have left in order
    enum { VOTES_GOING, VOTES_RANK_ENDED, VOTES_RANK_LOST } end; /* no other meeting than a decided one can be */
    double own_s;                                                /* goes with the next vote */
    double *all_own_s;                                           // (size) of the last meeting
    VotesMessage *heard;                                         // (size) rank 0's: what each said last
    VotesAction *actions; // (n_actions) to be done in this order; the driver empties the list
    int n_actions, cap_actions;
} Votes;

Votes votes_new(int rank, int size);
void votes_on(Votes *v, const VotesEvent *event);
/* What SEND_VOTE and SEND_DECISION send; a decision is followed by all_own_s. */
VotesMessage votes_message(const Votes *v);
/* A rank that has left without coming to the meeting that this one waits for; -1: none. */
int votes_missing(const Votes *v);
void votes_free(Votes *v);
