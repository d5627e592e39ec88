/* --audit: what a step computes twice must have the same bits. `recompute` compares each recomputed tensor with its
   first time (plan_audit); P% computes that share of the steps twice as a whole, on another rank where ranks compute
   alike, and compares the digests of gradients and losses. In a pipeline the places of another one compute the
   share, and a place's digest is of the gradients that it holds. A difference is a fault of a machine: the step is done
   again, and a rank that is wrong twice is excluded. Weights and moments must still be what the last update made them
   (plan_watch), and the weights those of the other ranks; else the run ends, and a state before the damage is taken at
   its next start (docs/reproducibility.md). */
#pragma once

#include "train/job/job.h"

/* What one rank found in one computation of a step. */
typedef struct {
    AuditFound recomputed;
    AuditFound changed;  /* in weights and moments since the last update */
    int64_t chunk;       /* whose plan has `recomputed` */
    int64_t partner;     /* the rank whose share it computed beside its own; −1: the step was computed once */
    uint64_t own, other; /* digests of its own share's gradients and of the partner's */
    uint64_t own_vectors, other_vectors; /* of a coupled step: of its embeddings, likewise; else 0 */
    uint64_t weights;                    /* digest after the last update; where the step was computed twice */
    int64_t part;                        /* ranks of the same part hold the same weights */
    bool follows;                        /* its own share's two digests differ because of what another place sent */
    /* Names of what was found, by this rank's plans. */
    int64_t instr, element;
    char instr_name[PLAN_NAME_MAX], op[24], tensor[48], array[48];
} AuditFinding;

/* ---- blame: a function of the findings (audit_blame.c) ---- */

#define AUDIT_ATTEMPTS 3 /* computations of a step, at most */

typedef struct {
    bool recomputed; /* in the last attempt: a tensor was made again with other bits */
    bool wrong;      /* in the last attempt: a share's gradients are not those of most computations of it */
    bool suspect;    /* in the last attempt: this rank or another one is wrong */
    bool changed;    /* its weights or moments changed since the last update */
    bool apart;      /* its weights are not those of most ranks; of all ranks where there is no most */
    bool excluded;
} AuditBlame;

/* `history` (attempts, ranks) are the findings of all computations of a step so far; fills `blame` (ranks). Excluded is
   a rank that found the same tensor wrong twice, or whose gradients were wrong twice; after the last attempt every rank
   that is wrong or suspect. */
void audit_blame(const AuditFinding *history, int attempts, int ranks, AuditBlame *blame);

/* Sets `follows` in the findings of an attempt that computed a step twice (ranks). Every place computes with what it
   was sent, so the first boundary of a share that differs accuses the place that sent it, and the gradients of all
   other places follow. `sent` (ranks, 2, chunks, 2): what works of each chunk sent back and forward, for the own share
   and for the partner's. */
void audit_follow(const Grid *g, const uint64_t *sent, AuditFinding *now);

/* ---- of a run ---- */

typedef struct Audit Audit;

/* Collective. E_PEER where a rank's place is among those that an earlier process of this run excluded. */
Status audit_check_excluded(const Run *run);
/* Collective. *a is NULL without --audit. */
Status audit_open(Audit **a, const Run *run);
void audit_close(Audit *a); /* takes NULL */

bool audit_twice(const Audit *a, int64_t step); /* that step is computed twice; takes NULL */
/* The rank whose share this one computes too: another one where possible, of the same place. `attempt` from 0. */
int audit_partner(const Audit *a, int attempt);
/* After a computation of its own share, or of the partner's (`other`): keeps what the works sent. */
void audit_take_sent(Audit *a, bool other);
bool audit_notes(const Audit *a,
                 int64_t step); /* before that step session_note keeps what it begins from; takes NULL */
/* Collective. Compares what all ranks found. *again: the step must be computed again. E_PEER: a rank is excluded; the
   report is written. E_DIFFERS: a rank's state is damaged, and which saved states may be is written. Takes NULL. */
Status audit_judge(Audit *a, int64_t step, int attempt, const AuditFinding *mine, bool *again);
