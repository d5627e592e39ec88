#include "base/lock.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/host.h"
#include "base/test_switch.h"

enum { POLL_NS = 50000000, WAIT_S = 10, WAIT_BATCH_S = 60 };

/* "process 123 on host n01", as written by the holder. */
static void read_holder(int fd, char *text, size_t size)
{
    ssize_t n = pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (text[0] == '\0') strncpy(text, "another process", size - 1);
}

static void write_holder(int fd)
{
    char host[256], text[320];
    host_name(host, sizeof host);
    int n = snprintf(text, sizeof text, "process %ld on host %s\n", (long)getpid(), host);
    /* only for the message above; the lock holds without it */
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) log_debug("cannot write into the lock: %m");
}

/* flock until `end` (clock_monotonic): 0, or errno; EINTR where a signal ended the wait. Signals come in pauses alone,
   with the mask `signals`, so that none is lost between two of them. */
static int lock_until(int fd, double end, const sigset_t *signals)
{
    const struct timespec pause = {.tv_nsec = POLL_NS};
    bool interrupted = false;
    for (;;) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) return 0;
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return errno;
        if (interrupted) return EINTR;
        if (clock_monotonic() >= end) return EWOULDBLOCK;
        interrupted = ppoll(NULL, 0, &pause, signals) != 0;
    }
}

bool lock_there(const FolderLock *lock) { return !lock->open || file_is_there(lock->fd, lock->path); }

/* `flags` for open; `log_wait`: warns of a wait, and reports a signal during it as E_STOPPED. */
static Status take_lock(FolderLock *lock, const char *folder, int flags, double seconds, bool log_wait)
{
    Status status = OK;
    char holder[320] = "";
    *lock = (FolderLock){.fd = -1};
    TRY(file_make_directories(folder));
    char *path = file_join(folder, ".lock");
    int fd;
    status = file_open_regular(path, O_RDWR | O_CREAT | flags, &fd);
    if (status != OK) TRY_DONE(errno == EEXIST ? E_FAIL : status);
    int error = lock_until(fd, 0, NULL);
    if (error == EWOULDBLOCK && seconds > 0) {
        sigset_t all, before;
        read_holder(fd, holder, sizeof holder);
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        if (log_wait)
            log_warn("%s: this output folder is in use by %s; waiting up to %.0f s for it to end", folder, holder,
                     seconds);
        error = lock_until(fd, clock_monotonic() + seconds, &before);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    errno = error; /* for %m */
    if (error == 0) {
        *lock = (FolderLock){.held = true, .open = true, .fd = fd, .path = path};
        fd = -1;
        path = NULL;
        write_holder(lock->fd);
        if (lock_there(lock)) goto done;
        lock_release(lock);
        status = fail(E_FAIL, "%s: removed, renamed or replaced while it was locked; start again", folder);
    } else if (error == EINTR && log_wait) {
        status = fail(E_STOPPED, "stopped while waiting for %s, which uses %s; nothing is lost", holder, folder);
    } else if (error == EWOULDBLOCK || error == EINTR) {
        read_holder(fd, holder, sizeof holder);
        status =
            fail(E_FAIL, "%s: this output folder is in use by %s; wait for it to end, or choose another --output-dir",
                 folder, holder);
    } else if (error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP || error == EINVAL) {
        log_warn("%s: this file system has no locks (%m); make sure that no second process uses this folder", folder);
        *lock = (FolderLock){.open = true, .fd = fd, .path = path};
        fd = -1;
        path = NULL;
    } else {
        status = fail(E_IO, "%s: cannot lock: %m", path);
    }
done:
    if (fd >= 0) close(fd);
    free(path);
    return status;
}

static bool in_batch_job(void)
{
    static const char *const names[] = {"PBS_JOBID", "SLURM_JOB_ID", "JOB_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *job = getenv(names[i]);
        if (job && *job) return true;
    }
    return false;
}

Status lock_take(FolderLock *lock, const char *folder)
{
    bool batch = in_batch_job();
    Status status = take_lock(lock, folder, 0, test_seconds("LOCK_WAIT", batch ? WAIT_BATCH_S : WAIT_S), true);
    return status == E_FAIL && batch ? fail(E_BUSY, "%s", status_message()) : status;
}

Status lock_take_within(FolderLock *lock, const char *folder, double seconds)
{
    return take_lock(lock, folder, 0, seconds, false);
}

Status lock_take_new(FolderLock *lock, const char *folder) { return take_lock(lock, folder, O_EXCL, 0, false); }

void lock_release(FolderLock *lock)
{
    if (lock->held && ftruncate(lock->fd, 0) != 0) log_debug("cannot clear the lock: %m");
    if (lock->open) close(lock->fd);
    free(lock->path);
    *lock = (FolderLock){.fd = -1};
}

bool lock_in_use(const char *folder)
{
    char *path = file_join(folder, ".lock");
    int fd = file_open(path, O_RDONLY);
    bool used = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    free(path);
    return used;
}
