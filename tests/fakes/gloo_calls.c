/* Preloaded: call number CAIRN_TEST_GLOO of the system by Gloo fails with EIO, counted from 1 in all threads; with
   CAIRN_TEST_GLOO_OF those of this function alone, with CAIRN_TEST_GLOO_ON all later ones of the same function, too.
   The file CAIRN_TEST_GLOO_LOG then gets the function's name. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long made;
static long failing;
static const char *path, *of;
static const char *_Atomic failed; /* the function */

static void say(const char *text)
{
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (file < 0) return;
    if (syscall(SYS_write, file, text, strlen(text)) < 0 || syscall(SYS_write, file, "\n", 1) < 0) _exit(99);
    (void)close(file);
}

static bool fails(const char *name, void *caller)
{
    Dl_info info;
    if (failing <= 0 || (of && *of && strcmp(of, name) != 0) || !dladdr(caller, &info) || !info.dli_fname ||
        !strstr(info.dli_fname, "libgloo"))
        return false;
    if (atomic_fetch_add(&made, 1) + 1 == failing) {
        say(name);
        const char *on = getenv("CAIRN_TEST_GLOO_ON");
        if (on && *on) atomic_store(&failed, name);
    } else if (failed != name) {
        return false;
    }
    errno = EIO;
    return true;
}

#define FAILS(name) fails(#name, __builtin_return_address(0))

int socket(int domain, int type, int protocol)
{
    return FAILS(socket) ? -1 : (int)syscall(SYS_socket, domain, type, protocol);
}
int bind(int fd, const struct sockaddr *at, socklen_t size)
{
    return FAILS(bind) ? -1 : (int)syscall(SYS_bind, fd, at, size);
}
int listen(int fd, int most) { return FAILS(listen) ? -1 : (int)syscall(SYS_listen, fd, most); }
int accept(int fd, struct sockaddr *at, socklen_t *size)
{
    return FAILS(accept) ? -1 : (int)syscall(SYS_accept4, fd, at, size, 0);
}
int connect(int fd, const struct sockaddr *at, socklen_t size)
{
    return FAILS(connect) ? -1 : (int)syscall(SYS_connect, fd, at, size);
}
int getsockname(int fd, struct sockaddr *at, socklen_t *size)
{
    return FAILS(getsockname) ? -1 : (int)syscall(SYS_getsockname, fd, at, size);
}
int getpeername(int fd, struct sockaddr *at, socklen_t *size)
{
    return FAILS(getpeername) ? -1 : (int)syscall(SYS_getpeername, fd, at, size);
}
int getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    return FAILS(getsockopt) ? -1 : (int)syscall(SYS_getsockopt, fd, level, name, value, size);
}
int setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    return FAILS(setsockopt) ? -1 : (int)syscall(SYS_setsockopt, fd, level, name, value, size);
}
int fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *value = va_arg(list, void *);
    va_end(list);
    return FAILS(fcntl) ? -1 : (int)syscall(SYS_fcntl, fd, command, value);
}
int epoll_create(int size)
{
    (void)size;
    return FAILS(epoll_create) ? -1 : (int)syscall(SYS_epoll_create1, 0);
}
int epoll_ctl(int set, int what, int fd, struct epoll_event *event)
{
    return FAILS(epoll_ctl) ? -1 : (int)syscall(SYS_epoll_ctl, set, what, fd, event);
}
int epoll_wait(int set, struct epoll_event *events, int most, int milliseconds)
{
    return FAILS(epoll_wait) ? -1 : (int)syscall(SYS_epoll_pwait, set, events, most, milliseconds, NULL, 8);
}
ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    return FAILS(recv) ? -1 : syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
}
ssize_t read(int fd, void *data, size_t bytes) { return FAILS(read) ? -1 : syscall(SYS_read, fd, data, bytes); }
ssize_t writev(int fd, const struct iovec *pieces, int n)
{
    return FAILS(writev) ? -1 : syscall(SYS_writev, fd, pieces, n);
}

__attribute__((constructor)) static void begin(void)
{
    const char *number = getenv("CAIRN_TEST_GLOO");
    of = getenv("CAIRN_TEST_GLOO_OF");
    path = getenv("CAIRN_TEST_GLOO_LOG");
    failing = number ? strtol(number, NULL, 10) : 0;
}
