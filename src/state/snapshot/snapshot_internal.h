/* The layout of a snapshot file, shared by snapshot*.c. Private to state/snapshot/.

       page 0    SnapshotHeader: never changes
       page 1    SnapshotOwner: the current holder; for people, without a digest
       page 2 …  the fixed part: intervals, tensors, small files (snapshot_fixed.c)
       slot 0    SnapshotMark in a page; the state's text; weights, m, v, inverses; each begins on a page
       slot 1    the same

   Numbers are in native byte order, because the file never leaves machines of one kind; `order` records it. */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <sys/stat.h>

#include "state/snapshot/snapshot.h"

#define SNAPSHOT_PAGE    ((uint64_t)4096)
#define SNAPSHOT_MAGIC   "CairnMem"
#define SNAPSHOT_VERSION 2 /* with K-FAC; without it 1, in which sets_size and sets_slice are 0 */
#define SNAPSHOT_ORDER   0x01020304u
#define SNAPSHOT_SUFFIX  ".snapshot"
#define SNAPSHOT_STATE   ((uint64_t)64 << 10) /* room for the state's text */
#define SNAPSHOT_RANKS   1000000              /* maximum world size */

typedef struct {
    char magic[8];
    uint32_t version, order;
    Digest run, params;
    int32_t world, slice, holder, unused;
    int64_t params_size, slice_size; /* elements */
    uint64_t bytes, fixed_bytes, slot_offset[SNAPSHOT_SLOTS];
    Digest fixed;
    char output[1008];
    int64_t sets_size, sets_slice; /* elements of K-FAC's sets */
    Digest digest;                 /* of everything before */
} SnapshotHeader;

typedef struct {
    int64_t pid;
    char host[256];
} SnapshotOwner;

typedef struct {
    uint64_t generation; /* 0: invalid */
    int64_t step;
    double stamp;
    uint64_t state_bytes;
    Digest payload; /* of the text and the arrays, without the gaps between them */
    Digest digest;  /* of everything before, and of the header's digest without its holder */
} SnapshotMark;

uint64_t snapshot_round(uint64_t bytes); /* up to a page */
Digest snapshot_header_digest(const SnapshotHeader *h);
/* The digest of a slot, alike for all holders of a slice. */
Digest snapshot_mark_digest(const SnapshotHeader *h, const SnapshotMark *m);
static inline int64_t snapshot_slice_size(const SnapshotHeader *h, int array) // elements of an array
{
    return snapshot_space(array) ? h->sets_slice : h->slice_size;
}
uint64_t snapshot_array_offset(const SnapshotHeader *h, int array); /* from the slot's start */
uint64_t snapshot_slot_size(const SnapshotHeader *h);
bool snapshot_slot_whole(const uint8_t *data, const SnapshotHeader *h, int slot);

void snapshot_fixed_render(const SnapshotPlace *place, Buf *out);
/* E_FORMAT for any bytes that snapshot_fixed_render would not write. */
Status snapshot_fixed_parse(const uint8_t *data, const SnapshotHeader *h, SnapshotFixed *fixed);
void snapshot_fixed_free(SnapshotFixed *fixed); /* takes a zeroed one */

/* Checks the bytes of a file, except its slots; E_FORMAT with the fault. `fixed` points into them. */
Status snapshot_check(const uint8_t *data, size_t size, SnapshotFixed *fixed);

/* "cairn-0-0123456789abcdef-4-0-0.snapshot"; caller frees. */
char *snapshot_name(const char *output, int world, int slice, int holder);
/* The prefix of a run's file names; `output` NULL: of every run of this user. */
char *snapshot_prefix(const char *output);
/* file_open() that follows no link; −1 with errno. */
int snapshot_open_path(const char *path, int flags);
/* E_FORMAT unless it is a regular file of this user that no other user may read or change. */
Status snapshot_check_owner(int fd, struct stat *st);
bool snapshot_locked(int fd); /* by another process */
bool snapshot_lock(int fd);

/* A snapshot file being written. */
struct Snapshot {
    char *path;
    int fd;
    uint8_t *data;
    size_t size;
    SnapshotHeader *header; /* a copy, which holds if the file is cut */
    Intervals part[N_SPACES];
    SnapshotAfter after;
    void *after_context;
    /* the generation in progress */
    bool begun, copied; /* begun and not polled yet; the source may change */
    pthread_t thread;
    bool started;     /* the thread exists, and the rest is its own until it ends */
    sem_t copy_ended; /* posted by the thread */
    SnapshotSource source;
    int slot;
    Status status;
    char *message;
    double processor_s, clock_s;
    int64_t newest;
};

SnapshotMark *snapshot_mark(const Snapshot *s, int slot);
