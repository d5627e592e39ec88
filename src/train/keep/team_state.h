/* The decisions of one survivor of a lost rank: which rank leads the survivors' save, who writes, and how it ends. A
   pure machine: team_on takes an event and the time, and appends to `actions` what its driver (train/keep/team.h) must
   do, in order. It has no sockets, clocks and files of its own, so a test tries it in any order of events.

   - Each survivor announces itself to all others, and says what it can write.
   - The lowest rank that can write leads. A rank that has not announced itself is waited for, `meet_s` at most. A rank
     that is gone (its process has ended, or is silent) is not waited for.
   - Each survivor says which rank it follows. A rank leads when all others that can write follow it, or `meet_s` are
     over. A rank that hears that another one leads follows it. So two ranks lead at the same time only if one of them
     waited for the other in vain; each then has a folder of its own (train/keep/spare.h).
   - If the leader is gone, the others choose again.
   - A rank writes its part of the newest plan of each rank that leads, unless it leads itself.
   - The leader waits for each part as long as its writer lives, at most `answer_s` after its own part. Where the state
     is scattered, it then tries again without the writers that failed; else it has written their parts itself.
   - A rank waits for the end of the leader's save, `end_s` at most after its own part of the last plan.
   - A rank whose save has ended says so, and how. It is not counted any more. Who hears that the state is saved ends
     too, unless it leads. */
#pragma once

#include "base/base.h"

typedef struct {
    double meet_s, answer_s, end_s;
} TeamTimes;

/* How a save ends for one rank. */
typedef enum {
    TEAM_NOBODY,  /* no rank can write */
    TEAM_SAVED,   /* `rank` has saved `step` */
    TEAM_FOUND,   /* `rank` has found `step` saved */
    TEAM_FAILED,  /* `rank` could not save `step` */
    TEAM_NOTHING, /* `rank` had nothing that it could save */
    TEAM_UNCLEAR, /* `rank` lives, but has not ended its save of `step` (−1: has not begun) in time */
} TeamEnd;

typedef enum {
    TEAM_BEGIN,   /* the first event: what this rank can write is `data`, of `step`; `able`: it can */
    TEAM_MAIL,    /* `data`, from `rank`; also where that rank has ended since */
    TEAM_GONE,    /* `rank` has ended or is silent; behind all its mail */
    TEAM_BACK,    /* `rank` was only silent, and is heard again */
    TEAM_TIME,    /* behind all mail that has come, and at `wake`: this rank decides */
    TEAM_PLANNED, /* of the leader: `data` is the plan of `step` for `writers`, itself among them */
    TEAM_WROTE,   /* this rank has written its part of `rank`'s plan `number`; `data` is its answer, NULL: it failed */
    TEAM_REFUSED, /* of the leader: what `rank` wrote is wrong */
    TEAM_TRIED,   /* of the leader: the end of TEAM_TRY is `end`, of `step` */
} TeamEventKind;

typedef struct {
    TeamEventKind kind;
    int rank, number;
    int64_t step;
    bool able;
    TeamEnd end;
    const void *data; // (size)
    size_t size;
    const int32_t *writers; // (n_writers)
    int n_writers;
} TeamEvent;

typedef enum {
    TEAM_SEND,     /* `data` to `rank` */
    TEAM_FOLLOW,   /* `rank` leads, or will */
    TEAM_LOST,     /* `rank`, which this rank followed, is gone */
    TEAM_WRITE,    /* this rank's part of `rank`'s plan `number`, which is `data`; then TEAM_WROTE */
    TEAM_TRY,      /* lead: save with all members, by TEAM_PLANNED if there are others; then TEAM_TRIED */
    TEAM_TAKE,     /* of the leader: `rank` answered `data` */
    TEAM_DROP,     /* of the leader: `rank`, a writer, is left out: `why` */
    TEAM_GATHERED, /* of the leader: all writers have answered or are left out */
    TEAM_OVER,     /* the save has ended: `end`, `rank`, `step`. TEAM_SENDs may follow */
} TeamActionKind;

typedef struct {
    TeamActionKind kind;
    int rank, number;
    int64_t step;
    TeamEnd end;
    char *data; // (size) the driver frees
    size_t size;
    const char *why;
} TeamAction;

typedef struct {
    bool here, able;   /* it has announced itself; it can write */
    bool gone, left;   /* see TEAM_GONE; its save has ended */
    bool dropped, due; /* of the leader: it failed; its answer is waited for */
    int follows;       /* the rank that it follows, itself if it leads; −1: none yet */
    TeamEnd end;       /* of one that left, with `end_step` */
    int64_t step, end_step;
    void *pieces; // (size) what it can write
    size_t size;
    TeamAction plan; /* TEAM_WRITE of its newest plan, until that is due; data NULL: none */
} TeamRank;

typedef struct {
    int rank, size;
    bool scattered; /* no rank has the whole state */
    TeamTimes times;
    TeamRank *ranks;     // (size)
    int leader;          /* the rank that this one follows, or itself; −1: none yet */
    bool leads, over;    /* this rank leads; its save has ended */
    bool met;            /* the time for announcements is over */
    double until;        /* when the present wait ends */
    int plan;            /* of the leader: number of the last plan, from 1 on */
    bool gathers;        /* of the leader: answers to it are taken */
    bool wrote;          /* of the leader: its own part is written */
    bool asked, less;    /* of the leader: this try had a plan; a writer was left out of it */
    int64_t step;        /* of the last plan of the rank that is followed; −1: none yet */
    double wake;         /* when TEAM_TIME is due; INFINITY: never */
    TeamAction *actions; // (n_actions)
    int n_actions, cap_actions;
} TeamState;

void team_state_init(TeamState *x, int rank, int size, bool scattered, TeamTimes times);
void team_on(TeamState *x, const TeamEvent *event, double now);
/* Whether a leader counts this rank as a writer now; itself, too. */
bool team_has(const TeamState *x, int rank);
void team_state_free(TeamState *x); /* takes a zeroed one */
