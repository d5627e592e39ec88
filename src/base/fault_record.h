/* The faults of a run: who had them, and the time they took. `cairn launch` counts those of one command; a reader has
   all of faults.jsonl, and launches.jsonl, in which each `cairn launch` sums up (docs/files.md). */
#ifndef CAIRN_BASE_FAULT_RECORD_H
#define CAIRN_BASE_FAULT_RECORD_H

#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

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
    int launches; /* commands that have summed up; the seconds below are theirs */
    double launch_s, trained_s, ending_s, pause_s;
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

#endif
