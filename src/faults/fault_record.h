/* The faults of a run: who had them, and the time they took. `cairn launch` counts those of one command; a reader has
   all of faults.jsonl, and launches.jsonl, in which each `cairn launch` sums up, also from the lines that rank 0 writes
   to starts.jsonl (docs/files.md). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"

/* Seconds of a `cairn launch`. The first is all of it; the rest of them is agents and work after the last step. */
#define FAULT_SECONDS_LIST(X)                                                                                          \
    X(launch_s)                                                                                                        \
    X(trained_s) /* by which the run's grew */                                                                         \
    X(notice_s)  /* from a fault's last step to the fault as the launcher saw it */                                    \
    X(ending_s)  /* from there to the end of all ranks */                                                              \
    X(pause_s)                                                                                                         \
    X(start_s) /* of ranks, until training */                                                                          \
    X(again_s) /* in steps that were lost, and made again */

typedef struct {
#define X(name) double name;
    FAULT_SECONDS_LIST(X)
#undef X
} FaultSeconds;

/* A rank or host, and its number of faults. */
typedef struct {
    char *name;
    int count;
} FaultyPlace;

typedef struct {
    FaultyPlace *places; /* (n_places) in the order of their first faults */
    int n_places, cap;
    int count;    /* faults */
    int damaged;  /* lines that could not be read */
    int launches; /* commands that have summed up; the seconds are theirs */
    FaultSeconds seconds;
} FaultRecord;

/* Counts a fault of a rank, or of a host (rank −1). */
void fault_record_add(FaultRecord *f, int64_t rank, const char *host);
/* Leaves *f zero where the run had no faults. */
Status fault_record_read(const char *dir, FaultRecord *f);
/* The share of the time that went into training that counts (ETTR); NaN: no command has summed up. */
double fault_record_share(const FaultRecord *f);
/* "2 faults: rank 1 on node1 (2). …": who had them, the share, the time lost by cause. Nothing without faults. */
void fault_record_text(const FaultRecord *f, Buf *out);
void fault_record_free(FaultRecord *f); /* takes a zeroed one */

/* Gives `take` each line of a file of the folder, which may be missing. *damaged (may be NULL) grows by those that are
   no JSON, or that it returns false for; they hinder nothing. */
Status fault_record_lines(const char *dir, const char *name, bool (*take)(void *context, const Json *line),
                          void *context, int *damaged);
/* Appends a line to a file of the folder, and frees it. A folder that cannot be written is reported elsewhere. */
void fault_record_append(const char *dir, const char *name, Buf *line);

/* ---- starts.jsonl ---- */

#define LAUNCH_JOB "launch-" /* begins CAIRN_JOB under `cairn launch` */

typedef struct {
    const char *job;  /* CAIRN_JOB, which each `cairn launch` makes */
    double time;      /* when training began, by clock_wall */
    int64_t step;     /* that it resumed from */
    double trained_s; /* in training until that step, all processes of the run */
    double start_s;   /* from the process's begin */
    double again_s;   /* in training behind that step before, which was lost */
} StartRecord;
void fault_record_start(const char *dir, const StartRecord *s);
/* Notes that a launcher has ended that needs no line of launches.jsonl. */
void fault_record_ended(const char *dir, const char *job);

/* The starts of a launcher, summed. */
typedef struct {
    int count;
    double begun;     /* clock_wall at the first start's begin */
    double last;      /* clock_wall when training began last */
    int64_t step;     /* from which it began last */
    double trained_s; /* before the first */
    double start_s, again_s;
} StartSums;
StartSums fault_record_starts(const char *dir, const char *job);
/* True: the launcher of this job has ended, or a line of launches.jsonl has it. */
bool fault_record_summed(const char *dir, const char *job);
/* The job of the last start where that is false, because its launcher was killed or still runs; else NULL. The caller
   frees it. */
char *fault_record_unsummed(const char *dir);
