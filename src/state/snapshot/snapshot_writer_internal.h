/* A snapshot file being written, shared by snapshot_open.c and snapshot_write.c. Private to
   state/snapshot/. */
#ifndef CAIRN_STATE_SNAPSHOT_SNAPSHOT_WRITER_INTERNAL_H
#define CAIRN_STATE_SNAPSHOT_SNAPSHOT_WRITER_INTERNAL_H

#include <pthread.h>
#include <semaphore.h>

#include "state/snapshot/snapshot_internal.h"

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

#endif
