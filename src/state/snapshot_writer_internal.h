/* A snapshot file being written, shared by snapshot_open.c and snapshot_write.c. Private to state/. */
#ifndef CAIRN_STATE_SNAPSHOT_WRITER_INTERNAL_H
#define CAIRN_STATE_SNAPSHOT_WRITER_INTERNAL_H

#include <pthread.h>

#include "state/snapshot_internal.h"

struct Snapshot {
    char *path;
    int fd;
    uint8_t *data;
    size_t size;
    const SnapshotHeader *header;
    Intervals part;
    SnapshotAfter after;
    void *after_context;
    /* the thread */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under `lock` */
    bool work, copied, finished, closing;
    /* the generation in progress; owned by the thread while `work` is true */
    SnapshotSource source;
    int slot;
    Status status;
    char *message;
    double processor_s, clock_s;
    int64_t newest;
};

SnapshotMark *snapshot_mark(const Snapshot *s, int slot);
void snapshot_start_thread(Snapshot *s);
void snapshot_stop_thread(Snapshot *s); /* takes one without a thread */

#endif
