/* The faults of a run: which ranks and hosts had them, and the share of time that went into training. `cairn launch`
   has a record of one command; a reader has one of all lines of faults.jsonl, and of launches.jsonl, in which each
   `cairn launch` of a run with faults sums up (docs/files.md). */
#pragma once

#include "base/json.h"

/* A rank or host, and its number of faults. */
typedef struct {
    char *name;
    int count;
} FaultyPlace;

typedef struct {
    FaultyPlace *places; /* (n_places) in the order of their first faults */
    int n_places, cap;
    int count;        /* faults */
    int damaged;      /* lines that could not be read */
    int launches;     /* commands that have summed up; the seconds are theirs */
    double launch_s;  /* from their begin to their end */
    double trained_s; /* in training that counts */
} FaultRecord;

/* Counts a fault of a rank, or of a host (rank −1). */
void fault_record_add(FaultRecord *f, int64_t rank, const char *host);
/* Leaves *f zero where the run had no faults. E_IO. */
Status fault_record_read(const char *dir, FaultRecord *f);
/* The effective share of time (ETTR): that of training that counts; NaN: no command has summed up. */
double fault_record_share(const FaultRecord *f);
/* "2 faults: rank 1 on node1 (2). …": who had them, the share of time. Nothing without faults. */
void fault_record_text(const FaultRecord *f, Buf *out);
void fault_record_free(FaultRecord *f); /* takes a zeroed one */

/* Gives `take` each line of a file of the folder, which may be missing. *damaged (may be NULL) grows by those that are
   no JSON, or that it returns false for; they hinder nothing. E_IO. */
Status fault_record_lines(const char *dir, const char *name, bool (*take)(void *context, const Json *line),
                          void *context, int *damaged);
