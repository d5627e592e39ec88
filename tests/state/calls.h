/* This program's own open, mkdir, read, pread, write, fsync, rename, unlink and unlinkat. They count and record the
   calls of the code under test, and fail on request. Include once per program. */
#pragma once

#include "testing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

typedef enum { CALL_OPEN, CALL_MKDIR, CALL_READ, CALL_WRITE, CALL_FSYNC, CALL_RENAME, CALL_UNLINK } CallKind;

#define CALLS_WRITING (1u << CALL_MKDIR | 1u << CALL_WRITE | 1u << CALL_FSYNC | 1u << CALL_RENAME | 1u << CALL_UNLINK)
#define CALLS_READING (1u << CALL_OPEN | 1u << CALL_READ)

static struct {
    unsigned watched; /* counted kinds, as bits; 0: off */
    int count;
    int fail_at;    /* the call, from 1, that fails with `error`; 0: none */
    bool from_then; /* … and all after it */
    int error;
    bool failed;
    bool trickle; /* every other write is interrupted, the others take 100 bytes at most */
    /* Called after each that succeeded: `path`, the second name of a rename, the bytes written. */
    void (*done)(CallKind kind, const char *path, const char *to, const void *data, size_t len, bool directory);
} calls;

static void calls_watch(unsigned kinds, int fail_at, int error)
{
    memset(&calls, 0, sizeof calls);
    calls.watched = kinds;
    calls.fail_at = fail_at;
    calls.error = error;
}

static void calls_stop(void) { calls.watched = 0; }

static bool calls_fail(CallKind kind)
{
    if (!(calls.watched & 1u << kind)) return false;
    calls.count++;
    if (calls.fail_at == 0 || calls.count < calls.fail_at || (calls.count > calls.fail_at && !calls.from_then))
        return false;
    calls.failed = true;
    errno = calls.error;
    return true;
}

static void calls_path_of(int fd, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, size - 1);
    path[n > 0 ? n : 0] = '\0';
}

static void calls_done(CallKind kind, const char *path, const char *to, const void *data, size_t len, bool directory)
{
    int why = errno;
    if (calls.done && (calls.watched & 1u << kind)) calls.done(kind, path, to, data, len, directory);
    errno = why;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (calls_fail(CALL_OPEN)) return -1;
    int fd = openat(AT_FDCWD, path, flags, mode);
    if (fd >= 0 && flags & O_CREAT) calls_done(CALL_OPEN, path, NULL, NULL, 0, false);
    return fd;
}

int mkdir(const char *path, mode_t mode)
{
    if (calls_fail(CALL_MKDIR)) return -1;
    int result = mkdirat(AT_FDCWD, path, mode);
    if (result == 0) calls_done(CALL_MKDIR, path, NULL, NULL, 0, true);
    return result;
}

ssize_t read(int fd, void *out, size_t len)
{
    if (fd > 2 && calls_fail(CALL_READ)) return -1;
    return syscall(SYS_read, fd, out, len);
}

ssize_t pread(int fd, void *out, size_t len, off_t at)
{
    if (calls_fail(CALL_READ)) return -1;
    return syscall(SYS_pread64, fd, out, len, at);
}

ssize_t write(int fd, const void *data, size_t len)
{
    char path[1024];
    if (fd <= 2) return syscall(SYS_write, fd, data, len);
    if (calls_fail(CALL_WRITE)) return -1;
    if (calls.watched && calls.trickle) {
        if (calls.count % 2) {
            errno = EINTR;
            return -1;
        }
        if (len > 100) len = 100;
    }
    ssize_t n = syscall(SYS_write, fd, data, len);
    if (n > 0 && calls.done) {
        calls_path_of(fd, path, sizeof path);
        calls_done(CALL_WRITE, path, NULL, data, (size_t)n, false);
    }
    return n;
}

int fsync(int fd)
{
    char path[1024];
    struct stat st;
    if (calls_fail(CALL_FSYNC)) return -1;
    if (calls.done && fstat(fd, &st) == 0) {
        calls_path_of(fd, path, sizeof path);
        calls_done(CALL_FSYNC, path, NULL, NULL, 0, S_ISDIR(st.st_mode));
    }
    return 0; /* without the disk's work, because no test here cuts the real power */
}

int rename(const char *from, const char *to)
{
    if (calls_fail(CALL_RENAME)) return -1;
    int result = renameat(AT_FDCWD, from, AT_FDCWD, to);
    if (result == 0) calls_done(CALL_RENAME, from, to, NULL, 0, false);
    return result;
}

static int remove_at(int at, const char *name, int flags)
{
    char path[2048] = "";
    if (calls_fail(CALL_UNLINK)) return -1;
    int result = (int)syscall(SYS_unlinkat, at, name, flags);
    if (result == 0 && calls.done) {
        if (at != AT_FDCWD) {
            calls_path_of(at, path, 1024);
            strcat(path, "/");
        }
        strncat(path, name, sizeof path - strlen(path) - 1);
        calls_done(CALL_UNLINK, path, NULL, NULL, 0, (flags & AT_REMOVEDIR) != 0);
    }
    return result;
}

int unlink(const char *path) { return remove_at(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *name, int flags) { return remove_at(at, name, flags); }
