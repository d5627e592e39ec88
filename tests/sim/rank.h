/* A rank of the simulation: what rank.c and survivor.c share. Its main thread does one thing after the other: it waits
   for something, and calls `next` then. Its watch, its votes and the writing of checkpoints go on beside that. */
#pragma once

#include "sim.h"

#define VOTES_OF_SIGNALS ((1u << VOTE_HUP << 1) - 1)

typedef enum {
    WAITS_NOT,      /* it has ended */
    WAITS_TIME,     /* until `due` */
    WAITS_GO,       /* for the rendezvous, until `due` */
    WAITS_LINES,    /* for the other ranks to connect, until `due` */
    WAITS_ROUND,    /* for all to be connected, until `due` */
    WAITS_MEETING,  /* for a decision of the votes */
    WAITS_EXCHANGE, /* for bytes of all others */
    WAITS_PART,     /* for its own part of a checkpoint */
    WAITS_SAVER,    /* for its saver */
    WAITS_TEAM      /* for other survivors, until `due` */
} Wait;

/* An exchange of all ranks that has come to all of them when all have come to it. */
typedef struct {
    int come, code; /* ranks that have come; the exit code with which one of them failed */
    int64_t step, value;
    uint64_t sum;
    double ready; /* INFINITY: not all have come */
} Exchange;

typedef struct {
    int come;
    uint32_t voted, decided; /* by those that have come; on the first rank that knows */
    bool known;
} Meeting;

/* What the ranks of a start share. */
typedef struct {
    int n, number;
    int connected;       /* ranks that have ended their connecting */
    uint64_t *unreached; // (n) the others that each has not reached
    bool failed;         /* one of them has not reached all others */
    Exchange *exchanges; // (n_exchanges)
    Meeting *meetings;   // (n_meetings)
    int64_t n_exchanges, n_meetings;
    uint32_t signals; /* votes for the signals that any rank has received */
} Start;

typedef struct Post {
    struct Post *next;
    int from;
    const char *data;
    size_t size;
} Post;

/* A scattered state in memory: of some steps, a bit for each rank whose slice is there. A rank keeps two steps; a host
   may have three, because its ranks are a step apart at times. */
enum { KEPT = 3 };
typedef struct {
    int64_t step[KEPT];
    uint64_t slices[KEPT], content[KEPT];
} Memory;

/* Who writes what, and where. */
typedef struct {
    int place;
    uint64_t content;
    uint64_t parts[SIM_RANKS]; /* of each rank */
} Plan;

typedef struct {
    TeamState x;
    int done; /* of its actions */
    int follows;
    double began, told, freed,
        wrote;                /* last news that prolongs its wait; end of what kept it busy; own part of a plan */
    double led_at;            /* when it began to lead; INFINITY */
    bool begun, able, failed; /* failed: once, to write a part */
    int64_t has_step;         /* that it can save */
    uint64_t content;
    Memory has;
    /* as writer */
    TeamAction job;
    bool written, wrongly;
    /* as leader */
    uint64_t followed;       /* ranks that it has ever followed */
    uint64_t missed;         /* when it began to lead: ranks that were gone, or for which it had waited in vain */
    bool took, kept, locked; /* it has a folder; the run's since the run began; by a lock of its own */
    int place;
    double lock_until;
    int64_t step;
    Plan plan; /* as writer, too */
    uint64_t answered;
    bool drops, lacks; /* a writer was left out ever, or of this plan */
    uint64_t left_out; /* ranks that it may not ask again */
    bool writes, saved;
    Post *mail, **mail_end;
} Survivor;

struct Trainer {
    Proc *proc;
    Start *start;
    int rank, size;
    Wait wait;
    double due, hung;      /* hung: it does nothing until then */
    double full, wrong;    /* until when what it writes fails, or is wrong */
    double slow, slowness; /* until when that takes so many times as long */
    void (*next)(Trainer *t);
    bool busy; /* `next` is being called */
    /* behind a meeting, an exchange, both (`all`), a save, the end of its parts */
    void (*met_next)(Trainer *t), (*exchanged_next)(Trainer *t), (*saved_next)(Trainer *t), (*parted_next)(Trainer *t);
    void (*all_next)(Trainer *t, int code);
    /* the watch and the votes */
    bool watching, met; /* met: all are connected */
    WatchState watch;
    Votes votes;
    bool *open;    // (size) lines to ranks that have proved who they are
    Letter *early; /* that came before it was watching */
    Letter **early_end;
    int interrupts, signal;              /* the first one that asks for a stop */
    bool aborted, judged, ends, leaving; /* aborted: its waits were ended */
    int64_t counted;                     /* decisions that were checked */
    double judged_at, signal_at, hurry_at;
    /* exchanges */
    int64_t exchanges, exchanged; /* that it has come to; that it has ended */
    double began;                 /* the present one, or the present meeting */
    int code;                     /* that it says to the others, or ends with */
    int64_t value;
    uint64_t share;
    /* training */
    bool trains, locked, stops; /* stops: a signal has asked for it */
    int64_t step;
    uint64_t content;
    double save_again, lock_until;
    /* saves: the saver of rank 0, and this rank's part of a scattered state */
    enum { SAVER_IDLE, SAVER_PARTS, SAVER_WRITES, SAVER_NAMES, SAVER_PRUNES } saver;
    double saver_due;
    int64_t saver_step;
    uint64_t saver_content;
    bool saver_failed; /* its last save */
    enum { PART_NONE, PART_BEGINS, PART_WRITES, PART_WRITTEN } part;
    double part_due;
    bool pending, part_failed;
    Memory memory; /* the slices that it holds */
    bool survives;
    Survivor team;
    bool stands; /* its save has ended well, and its process waits for a rank of the next start */
};

static inline Trainer *trainer_of(const Trainer *t, int rank)
{
    const Proc *p = start_rank(t->proc->start, rank);
    return p ? p->trainer : NULL;
}

/* ---- rank.c ---- */

void wait_until(Trainer *t, double at, void (*next)(Trainer *t));
void wait_for(Trainer *t, Wait what, double until, void (*next)(Trainer *t));
/* True: the rank does not go on here; if it does later, then with `again`. */
bool comes_to(Trainer *t, Point at, int number, void (*again)(Trainer *t));
void report(Trainer *t, Report what, int about, bool silent);
void report_loss(Trainer *t);
PeerState rank_peer(const Trainer *t, int rank);
void say_to_all(Trainer *t, Letter l);
/* Calls `next` if all have come; else the rank is lost. */
void meet(Trainer *t, void (*next)(Trainer *t));
void exchange(Trainer *t, void (*next)(Trainer *t));
Exchange *last_exchange(const Trainer *t);
/* Both, with the code of the first rank that failed. */
void all(Trainer *t, int code, void (*next)(Trainer *t, int code));
/* All have sent what they had to: the watching ends. */
void leave_watch(Trainer *t);
void begin_watch(Trainer *t);
bool knows_all(const Trainer *t);
void look_for_ended(Trainer *t);

/* ---- rank_check.c ---- */

/* A new verdict. */
void check_verdict(const Trainer *t);
/* That rank counts as silent. */
void check_silent(const Trainer *t, int rank);
/* Before a rank learns of a loss, and with its signs of life. */
void check_times(const Trainer *t);

/* ---- train.c ---- */

void come(Trainer *t);
void connected(Trainer *t);
void peer_lost(Trainer *t);
/* It ends with this code. */
void leave(Trainer *t, int code);
bool sees_folder(const Trainer *t);
uint64_t all_parts(const Trainer *t);
void saver_turn(Trainer *t);
void part_turn(Trainer *t);
void saver_give_up(Trainer *t);

/* ---- survivor.c ---- */

/* A rank is lost while it trains. */
void survive(Trainer *t);
/* Mail, also before it knows of a loss. */
void survivor_hears(Trainer *t, int from, const char *data, size_t size);
void survivor_free(Trainer *t);
void survivor_give(Trainer *t, TeamEvent e);
/* What has come, and who is gone. */
void survivor_hear(Trainer *t);
void survivor_send(Trainer *t);
/* Goes on with its machine's actions. */
void survivor_turn(Trainer *t);
/* Seconds that this survivor takes to write these parts of the state. */
double survivor_seconds(const Trainer *t, uint64_t parts);
/* Whether that rank takes part, and this one knows so. */
bool survivor_takes_part(const Trainer *t, const Trainer *its);
void survivor_check_follow(const Trainer *t);

/* ---- survivor_lead.c ---- */

void survivor_try(Trainer *t);
void survivor_gathered(Trainer *t);

/* ---- disk.c, besides sim.h ---- */

bool disk_held_by(const Proc *p, int place);
bool disk_has(int place, int64_t step);
/* The newest checkpoint of the run's folder, whose lock `p` has; −1: none. */
int64_t disk_resume(Proc *p, uint64_t *content);
void disk_give_up(Proc *p, int place);
