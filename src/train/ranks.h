/* The ranks of a run: processes that train one model together (comm/comm.h), as a training command sees them. NULL is
   one rank alone, everywhere: then nothing here does anything.

   Who does what: every rank reads the data, vocabulary and config.json for itself. Rank 0 alone reads and writes
   weights, checkpoints and results, and prints progress; what the others need of it, it sends.

   Ranks may be apart for long: one reads slower, rank 0 writes a file. So they *meet* before they exchange anything
   that has a deadline: a thread of each keeps up with the others' (a small sum, at least every second), and a meeting
   lasts as long as all of these answer. A rank that died, froze, or ended with an error of its own is E_PEER at the
   next meeting, within --peer-timeout. With the meeting go the votes: what some rank wants all to do after this step.
 */
#ifndef CAIRN_TRAIN_RANKS_H
#define CAIRN_TRAIN_RANKS_H

#include "comm/comm.h"
#include "config/config.h"
#include "kernels/backend.h"

typedef struct Ranks Ranks;

/* Collective. Finds in the environment which rank this is, meets the others, and compares version and options with
   theirs: E_USAGE on all names the first that differs, but for what may be each rank's own. One rank: *ranks is NULL.
   `use` is what this rank makes of its options by itself; where it is not OK, all ranks end with it and its message.
   Other ranks than the first say warnings and errors alone, with their name. E_STOPPED: a signal came meanwhile. */
Status ranks_open(const Config *c, Status use, Ranks **ranks);
/* Collective where all went well: waits until all are so far. Else the others learn that this rank failed. Nothing but
   ranks_close may follow. The message of a failure is kept. */
void ranks_end(Ranks *r, Status how);
void ranks_close(Ranks *r); /* after every connection made from it is closed */

int ranks_rank(const Ranks *r); /* 0 alone */
int ranks_size(const Ranks *r); /* 1 alone */
bool ranks_first(const Ranks *r);
int ranks_local(const Ranks *r);      /* among the ranks of this host; 0 alone */
int ranks_local_size(const Ranks *r); /* 1 alone */
Comm *ranks_comm(const Ranks *r);     /* of the step's thread; NULL alone */
/* Collective. Another connection, which the caller closes. */
Status ranks_connect(Ranks *r, Comm **comm);
/* Threads for computing: `asked`, or where that is 0 and several ranks of this host may use the same cores, an even
   share of them; else 0. */
int ranks_threads(const Ranks *r, int asked);

/* ---- votes ---- */
typedef enum {
    VOTE_TERM, /* signals: each votes by itself */
    VOTE_INT,
    VOTE_USR1,
    VOTE_USR2,
    VOTE_TIME,            /* --max-time */
    VOTE_PERSIST,         /* --persist-file */
    VOTE_SAVE,            /* save and go on */
    VOTE_SNAPSHOT,        /* take one after this step */
    VOTE_SNAPSHOT_BUSY,   /* the one before is not complete here */
    VOTE_SNAPSHOT_FAILED, /* and never will be */
    N_VOTES
} Vote;
void ranks_vote(Ranks *r, Vote v);         /* at the next meeting */
bool ranks_agreed(const Ranks *r, Vote v); /* somebody has, by the last: the same answer on all ranks */
void ranks_settled(Ranks *r, Vote v);      /* it was done: forget the votes for it */
int ranks_signal(const Ranks *r);          /* a signal that somebody had got by the last meeting; 0: none */
/* Some rank got a signal: who would go on for long alone may end that early, and say so at the next meeting. */
bool ranks_hurry(const Ranks *r);

/* ---- Collective: each is a meeting ---- */
Status ranks_meet(Ranks *r);
/* OK where it is OK on all; else the status of the lowest rank where it is not, and its message. */
Status ranks_all(Ranks *r, Status mine);
/* Rank 0's status, with its message. */
Status ranks_follow(Ranks *r, Status of_first);
/* Rank 0's bytes. Also large ones. */
Status ranks_broadcast(Ranks *r, void *data, size_t bytes);
Status ranks_broadcast_text(Ranks *r, Buf *text);
/* The bytes of every rank, in the order of ranks, in place of this rank's own. *data comes from malloc and is replaced.
   Alone, they stay. */
Status ranks_gather(Ranks *r, void **data, size_t *bytes);
/* The smallest of all ranks' numbers. */
Status ranks_least(Ranks *r, int64_t *n);
/* E_FAIL where ranks differ in what `name` is: there is an error in Cairn, or in a machine. */
Status ranks_same(Ranks *r, const char *name, const char *value);
/* E_USAGE where ranks differ in backend (of the machine's memory: its libraries and instruction set too, since they all
   make the same update), precision or `data`: all that is trained and evaluated on, and the model. */
Status ranks_agree(Ranks *r, const Backend *b, Dtype compute, Digest data);

#endif
