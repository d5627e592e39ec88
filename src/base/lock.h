/* One process per output folder: a lock (flock) on OUT/.lock, in which the holder writes its process id and host. The
   system releases it when the process ends, however it ends; the file stays. */
#pragma once

#include "base/base.h"

typedef struct {
    bool held, open; /* open without held: the file system has no locks */
    int fd;          /* of OUT/.lock */
    char *path;
} FolderLock;

/* Locks `folder`, which it creates if missing. While another process (or another FolderLock) holds the lock, this says
   so once and waits up to 10 s, because a killed process keeps its lock until it is torn down. In a batch job it waits
   up to 60 s, because a requeued job may start while the ranks of the last start still save. A signal with a handler
   ends the wait with E_STOPPED. Still held: E_FAIL, in a batch job E_BUSY; the message names process and host. On a
   file system without locks this warns, and `held` stays false. */
Status lock_take(FolderLock *lock, const char *folder);
/* lock_take without messages, with a wait of at most `seconds`; returns E_FAIL if the lock is still held. */
Status lock_take_within(FolderLock *lock, const char *folder, double seconds);
/* False: OUT/.lock is gone or is another file, so the folder was removed, renamed or replaced, and another process may
   lock it. */
bool lock_there(const FolderLock *lock);
/* Takes the lock of a folder that has none, which is created if missing. E_FAIL: OUT/.lock exists. */
Status lock_take_new(FolderLock *lock, const char *folder);
void lock_release(FolderLock *lock); /* takes a zeroed one */
/* True: a process holds the folder's lock now. */
bool lock_in_use(const char *folder);
