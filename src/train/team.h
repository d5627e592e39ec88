/* Survivors of a lost rank that write one checkpoint together. Their connection is dead, so they agree through the
   rendezvous store: each says what it can write, the lowest one that can leads, makes the files, and says who writes
   what; the others write their parts and say their digests, which the leader compares with the files. */
#ifndef CAIRN_TRAIN_TEAM_H
#define CAIRN_TRAIN_TEAM_H

#include "comm/comm.h"
#include "train/persist.h"

/* A rank that can write: pieces in its memory, or, without pieces, its own state of `step`. */
typedef struct {
    int rank;
    int64_t step;
    SnapshotPiece *pieces; // (count)
    int count;
} TeamMember;

typedef struct {
    Comm *comm;
    int leader; /* -1: no rank can write */
    bool deaf;  /* the store is lost too, so this rank leads itself alone */
    TeamMember *members;
    int count, cap; /* of the leader: all that can write, itself first */
    bool planned;
    int writers; /* of the checkpoint, after team_fill succeeded; else 0 */
} Team;

/* What the members write from. */
typedef struct {
    const char *out; /* the output folder */
    const ParamTable *params;
    CheckpointRead read; /* of the own state */
    void *context;
    const SnapshotList *list;  /* or of this rank's pieces */
    const SnapshotPiece *plan; // (n_plan) pieces of all members that make up the space; NULL: the own states
    int n_plan;
} TeamSource;

/* Announces this rank, and waits up to `within_s` for the others. `able`: it can write what `mine` has, whose pieces
   the team takes over. A lost rank that has ended is not waited for. */
void team_meet(Team *t, Comm *c, bool able, TeamMember mine, double within_s);
/* All pieces of all members; the caller frees. */
SnapshotPiece *team_pieces(const Team *t, int *count);
/* The leader's TrainingState.fill, with this context. E_PEER: another member did not write its part, or other bytes. */
typedef struct {
    Team *team;
    TeamSource source;
    int64_t step;
} TeamFill;
Status team_fill(void *team_fill, const TrainingState *t);
/* Another member's part: writes it when the leader asks for it, and waits for the end of the save. *step: of the
   checkpoint; −1: the leader asked for nothing. */
Status team_follow(Team *t, const TeamSource *source, int64_t *step);
/* The leader's end: releases the others. */
void team_end(Team *t);
void team_free(Team *t); /* takes a zeroed one */

#endif
