/* Survivors of a lost rank that write one checkpoint together. Their connection is dead, so they agree through the
   rendezvous store: each says what it can write, the lowest one that can leads, makes the files, and says who writes
   what; the others write their parts and say their digests, which the leader compares with the files. Ranks that end or
   freeze meanwhile are seen by the connection's watch (comm_gone): the leader goes on without such a member, and the
   members of such a leader meet again. */
#pragma once

#include "comm/mesh/comm.h"
#include "state/snapshot/persist.h"

/* A rank that can write: pieces in its memory, or, without pieces, its own state of `step`. */
typedef struct {
    int rank;
    int64_t step;
    SnapshotPiece *pieces; // (count)
    int count;
    bool saved; /* it led a save of `step`, which has ended */
} TeamMember;

typedef struct {
    Comm *comm;
    int leader; /* -1: no rank can write */
    int round;  /* of meeting */
    bool able;  /* this rank can write */
    bool deaf;  /* the store is lost too, so this rank leads itself alone */
    TeamMember *members;
    int count, cap; /* of the leader: all that can write, itself first */
    int plans;      /* of the leader: made so far */
    int writers;    /* of the checkpoint, after team_fill succeeded; else 0 */
} Team;

/* What the members write from. */
typedef struct {
    const char *out; /* the output folder; of the leader the folder that it saves into */
    int place;       /* of the leader: that folder (train/keep/spare.h), which the members learn from its plan */
    const ParamTable *params, *sets; /* sets: of the leader, which writes all of them; else NULL */
    ArrayRead *read;                 /* of the own state */
    void *context;
    const SnapshotList *list;  /* or of this rank's pieces */
    const SnapshotPiece *plan; // (n_plan) pieces of all members that make up the space; NULL: the own states
    int n_plan;
} TeamSource;

/* ---- team.c: who can write ---- */

/* Announces this rank, and waits up to `within_s` for the others of the same round. `able`: it can write what `mine`
   has, whose pieces the team takes over. A rank that is gone is not waited for. */
void team_meet(Team *t, Comm *c, int round, bool able, TeamMember mine, double within_s);
/* The leader's: hears the members again, and drops those that have left. */
void team_hear_again(Team *t);
/* The leader goes on alone. */
void team_part(Team *t);
/* Chooses the newest generation that the members' memories hold together, and shares its slices out among them.
   False: there is none; `missing` then has the gaps. */
bool team_choose(const Team *t, SnapshotSet *set, Buf *missing);
/* This rank's save has ended: no leader counts it any more. `saved`: the step that it saved as the leader; −1: none. */
void team_leave(const Team *t, int64_t saved);
void team_free(Team *t); /* takes a zeroed one */

/* ---- team_write.c: who writes what ---- */

/* The leader's TrainingState.fill, with this context. E_PEER: members did not write their parts, or other bytes. They
   are dropped, and the others can be asked again. */
typedef struct {
    Team *team;
    TeamSource source;
    int64_t step;
} TeamFill;
Status team_fill(void *team_fill, const TrainingState *t, CheckpointFilled *filled);
/* The leader's end: releases the others. `saved`: the state is on disk. */
void team_end(const Team *t, bool saved);

typedef enum {
    TEAM_SAVED,   /* the state is on disk */
    TEAM_FAILED,  /* the leader could not save it */
    TEAM_LEFT,    /* the leader is gone, and has said neither */
    TEAM_UNCLEAR, /* the leader lives, but has said neither in time */
} TeamEnd;
/* Another member's part: writes it when the leader asks for it, and waits for the end of the save. *step: of the
   checkpoint; −1: the leader asked nobody. *part: the status of this rank's own part. */
TeamEnd team_follow(Team *t, const TeamSource *source, int64_t *step, Status *part);
