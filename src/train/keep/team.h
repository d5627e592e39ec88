/* Survivors of a lost rank that write one checkpoint together. What they agree on is decided in
   train/keep/team_state.h. This is its driver: letters travel over the watch (comm/watch/watch.h), which also knows the
   ranks that are gone. The leader makes the files and a plan; each member writes its part and answers with its digest,
   which the leader compares with the files. */
#pragma once

#include "comm/mesh/comm.h"
#include "state/snapshot/persist.h"
#include "train/keep/team_state.h"

typedef struct {
    TeamState state;
    Comm *comm;
    int next;    /* of the state's actions */
    int writers; /* of the checkpoint, after team_fill succeeded; else 0 */
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

/* ---- team.c ---- */

/* Announces this rank. `able`: it can write its own state of `step`, or, of a scattered state, its pieces. For tests:
   CAIRN_TEST_SURVIVE is the duration of each wait for a rank that lives. */
void team_begin(Team *t, Comm *c, bool scattered, bool able, int64_t step, const SnapshotPiece *pieces, int count);
/* Waits for what this rank must do next, but for letters, which this sends. The caller frees action->data. False: the
   save has ended. */
bool team_next(Team *t, TeamAction *action);
void team_tell(Team *t, TeamEvent event);
/* Takes the letters that have come, and looks for ranks that are gone. */
void team_hear(Team *t);
/* The leader's: chooses the newest generation that the members' memories hold together, and shares its slices out among
   them. False: there is none; `missing` then has the gaps. */
bool team_choose(const Team *t, SnapshotSet *set, Buf *missing);
bool team_alone(const Team *t); /* the leader is the only member */
void team_free(Team *t);        /* takes a zeroed one */

/* ---- team_write.c ---- */

/* The leader's TrainingState.fill, with this context. E_PEER: members did not write their parts, or other bytes. They
   are left out of the next try. */
typedef struct {
    Team *team;
    TeamSource source;
    int64_t step;
} TeamFill;
Status team_fill(void *team_fill, const TrainingState *t, CheckpointFilled *filled);
/* Writes this rank's part of the plan that TEAM_WRITE has, if it has one, and answers. */
Status team_write(Team *t, const TeamSource *source, const TeamAction *plan);
