#include "state/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* "process 123 on host n01", as the holder wrote it. */
static void read_holder(int fd, char *text, size_t size)
{
    ssize_t n = pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (text[0] == '\0') strncpy(text, "another process", size - 1);
}

static void write_holder(int fd)
{
    char host[256] = "", text[320];
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "?");
    int n = snprintf(text, sizeof text, "process %ld on host %s\n", (long)getpid(), host);
    /* only for the message above: where it cannot be written, the lock holds all the same */
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) log_debug("cannot write into the lock: %m");
}

Status lock_take(FolderLock *lock, const char *folder)
{
    Status status = OK;
    char holder[320] = "";
    *lock = (FolderLock){.fd = -1};
    TRY(file_make_directories(folder));
    char *path = file_join(folder, ".lock");
    int fd, result;
    do fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) TRY_DONE(fail(E_IO, "%s: cannot open: %m", path));
    do result = flock(fd, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    if (result == 0) {
        write_holder(fd);
        *lock = (FolderLock){.held = true, .fd = fd};
        fd = -1;
    } else if (errno == EWOULDBLOCK) {
        read_holder(fd, holder, sizeof holder);
        status =
            fail(E_FAIL, "%s: this output folder is in use by %s; wait for it to end, or choose another --output-dir",
                 folder, holder);
    } else if (errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP || errno == EINVAL) {
        log_warn("%s: this file system knows no locks (%m); make sure that no second process uses this folder", folder);
    } else {
        status = fail(E_IO, "%s: cannot lock: %m", path);
    }
done:
    if (fd >= 0) close(fd);
    free(path);
    return status;
}

void lock_release(FolderLock *lock)
{
    if (lock->held) {
        if (ftruncate(lock->fd, 0) != 0) log_debug("cannot clear the lock: %m");
        close(lock->fd);
    }
    *lock = (FolderLock){.fd = -1};
}
