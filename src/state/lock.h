/* One process per output folder: a lock (flock) on OUT/.lock, in which the holder writes its process id and host. The
   system releases it when the process ends, however it ends; the file stays. */
#ifndef CAIRN_STATE_LOCK_H
#define CAIRN_STATE_LOCK_H

#include <stdbool.h>

#include "base/base.h"

typedef struct {
    bool held;
    int fd;
} FolderLock;

/* Makes `folder` if it is not there. E_FAIL if another process (or lock) has it: the message names process and host. On
   a file system without locks a warning is given, and `held` stays false. */
Status lock_take(FolderLock *lock, const char *folder);
void lock_release(FolderLock *lock); /* takes a zeroed one */

#endif
