/* The ranks of a run: processes that train one model together (comm/mesh/comm.h). A NULL Ranks is one rank alone; every
   function takes it and does nothing.

   Every rank reads the data, vocabulary and config.json for itself, and of a checkpoint its part. Rank 0 alone imports
   weights, writes models, checkpoints and results, and prints progress; it sends the others what they need.

   Ranks may drift apart: one reads slower, rank 0 writes a file. So they *meet* before any exchange that has a
   deadline. A meeting waits as long as the watch hears all of them (comm/watch/watch.h). A rank that died, froze, or
   ended with an error is E_PEER at the next meeting, within --peer-timeout. Votes travel with the meeting: each
   requests an action of all ranks after this step (votes.h). */
#pragma once

#include "comm/mesh/comm.h"
#include "config/config.h"
#include "kernels/backend.h"

typedef struct Ranks Ranks;

/* E_USAGE: the batch has another trainer's name, which may count one rank's share. */
Status ranks_check_batch(const Config *c, int64_t ranks);
/* Collective. Finds this rank in the environment, connects to the others, and compares version and options with theirs.
   E_USAGE on all ranks names the first option that differs and must not. With one rank *ranks is NULL. `use` is this
   rank's own check of its options; a failure ends all ranks with its message. Ranks other than 0 log warnings and
   errors alone, with their name. E_STOPPED: a signal came meanwhile. */
Status ranks_open(const Config *c, Status use, Ranks **ranks);
/* Collective after OK and E_STOPPED: waits for all ranks. After another status it notifies them that this rank failed.
   Only ranks_close may follow. Keeps the message of a failure. */
void ranks_end(Ranks *r, Status how);
void ranks_close(Ranks *r); /* after every connection made from it is closed */

int ranks_rank(const Ranks *r);   /* 0 alone */
int ranks_size(const Ranks *r);   /* 1 alone */
bool ranks_first(const Ranks *r); /* rank 0 */
int ranks_local(const Ranks *r);  /* among the ranks of this host; 0 alone */
int ranks_local_size(const Ranks *r);
Comm *ranks_comm(const Ranks *r); /* of the step's thread; NULL alone */
/* Collective. Another connection, which the caller closes. */
Status ranks_connect(Ranks *r, Comm **comm);
/* Threads for computing: `asked`; where that is 0, an even share of the cores that ranks of this host have in common,
   or 0 without such ranks. */
int ranks_threads(const Ranks *r, int asked);
/* Ranks of this host that may use the same cores as this one, which is among them; 1 alone. */
int ranks_sharing(const Ranks *r);

/* ---- votes ---- */
typedef enum {
    VOTE_TERM, /* signals */
    VOTE_INT,
    VOTE_USR1,
    VOTE_USR2,
    VOTE_HUP,
    VOTE_TIME,            /* --max-time */
    VOTE_END,             /* --stop-after */
    VOTE_PERSIST,         /* --persist-file */
    VOTE_SAVE,            /* save and continue */
    VOTE_SAVE_BUSY,       /* this rank's part of the pending one is not yet written */
    VOTE_SNAPSHOT,        /* take one after this step */
    VOTE_SNAPSHOT_BUSY,   /* this rank's part of the pending one is incomplete */
    VOTE_SNAPSHOT_FAILED, /* and stays so */
    N_VOTES
} Vote;
void ranks_vote(Ranks *r, Vote v);         /* counts at the next meeting */
bool ranks_agreed(const Ranks *r, Vote v); /* a rank voted for it by the last meeting: the same answer on all ranks */
void ranks_clear(Ranks *r, Vote v);        /* after the action: removes the votes for it */
/* A signal that some rank had received by the last meeting, or with NULL this process; 0: none. */
int ranks_signal(const Ranks *r);
/* Some rank received a signal, so long work between meetings may end early. */
bool ranks_hurry(const Ranks *r);

/* Seconds of this rank's own work so far: goes to all with the next meeting. */
void ranks_tell_own_s(Ranks *r, double seconds);
/* Seconds of all ranks, as they were told by the last meeting. `seconds`: (size). Not for a NULL Ranks. */
void ranks_all_own_s(Ranks *r, double *seconds);

/* ---- Collective: each is a meeting ---- */
Status ranks_meet(Ranks *r);
/* OK where it is OK on all; else the status and message of the lowest rank that failed. For work of rank 0 alone the
   others pass OK. */
Status ranks_all(Ranks *r, Status mine);
Status ranks_broadcast(Ranks *r, void *data, size_t bytes); /* rank 0's, of any number */
Status ranks_broadcast_text(Ranks *r, Buf *text);
/* Rank 0's text (allocated; may be NULL) replaces the others'. */
Status ranks_broadcast_path(Ranks *r, char **path);
/* `all` (size, bytes) receives every rank's `mine`, in rank order; alone a copy. */
Status ranks_allgather(Ranks *r, const void *mine, size_t bytes, void *all);
/* The bytes of all ranks, in rank order, replace this rank's own. *data is allocated. Alone, they stay. */
Status ranks_gather(Ranks *r, void **data, size_t *bytes);
/* The smallest of all ranks' numbers. */
Status ranks_least(Ranks *r, int64_t *n);
/* Appends the names of all ranks' hosts, each once with its number of ranks. */
Status ranks_hosts(Ranks *r, Buf *hosts);
/* sees[i] (size): rank i sees and can write the files of rank 0's `folder`. Rank 0 makes one there, and removes it: the
   same path may be another folder on another host. NULL: nothing is tried, and the ranks of rank 0's host see it. */
Status ranks_see(Ranks *r, const char *folder, bool *sees);
/* E_FAIL: ranks differ in `value`, by an error in Cairn or in a machine. */
Status ranks_same(Ranks *r, const char *name, const char *value);
/* E_USAGE: ranks differ in backend, in precision, or in `data`, the digest of data and model. All ranks compute the
   same update, so host backends must have the same libraries and instruction set too, and devices the same GPU,
   libraries and switches where the bits are those of `one_kind` of them. */
Status ranks_agree(Ranks *r, const Backend *b, bool one_kind, Dtype compute, Digest data);
