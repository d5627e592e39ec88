/* Preloaded: allocation number CAIRN_TEST_MALLOC of the process fails, counted from 1 in all threads. With
   CAIRN_TEST_MALLOC_KIND=map these are mappings, with those of the stacks of new threads; with "load" blocks of the
   allocator in dlopen; else all blocks. Under CAIRN_TEST_MALLOC_RANK no process fails but the one whose RANK is that.
   The file CAIRN_TEST_MALLOC_LOG then gets one line with the program or library that asked for it; with a number beyond
   the last, the count of all. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long made;
static long failing;
static const char *kind;
static _Thread_local bool loads;
static const char *path;

static void say(const char *text)
{
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (file < 0) return;
    if (write(file, text, strlen(text)) < 0 || write(file, "\n", 1) < 0) _exit(99);
    (void)close(file);
}

/* The innermost object of the stack beside this one and the C and C++ libraries, which allocate for others. */
static void say_caller(void)
{
    static const char *const between[] = {"malloc.so", "libc.so", "libstdc++.so", "ld-linux"};
    void *frames[64];
    int n = backtrace(frames, 64);
    const char *name = "?";
    for (int i = 0; i < n; i++) {
        Dl_info info;
        if (!dladdr(frames[i], &info) || !info.dli_fname) continue;
        const char *slash = strrchr(info.dli_fname, '/');
        name = slash ? slash + 1 : info.dli_fname;
        bool passed = false;
        for (size_t k = 0; k < sizeof between / sizeof *between; k++)
            passed = passed || strncmp(name, between[k], strlen(between[k])) == 0;
        if (!passed) break;
    }
    say(name);
}

static bool is_kind(const char *name) { return kind && strcmp(kind, name) == 0; }

static bool fails(bool map)
{
    if (failing <= 0 || map != is_kind("map") || (is_kind("load") && !loads) ||
        atomic_fetch_add(&made, 1) + 1 != failing)
        return false;
    say_caller(); /* what it allocates itself is no longer the one that fails */
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) { return fails(false) ? NULL : __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return fails(false) ? NULL : __libc_calloc(count, bytes); }
void *realloc(void *p, size_t bytes) { return fails(false) ? NULL : __libc_realloc(p, bytes); }
void *memalign(size_t alignment, size_t bytes) { return fails(false) ? NULL : __libc_memalign(alignment, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **p, size_t alignment, size_t bytes)
{
    void *q = memalign(alignment, bytes);
    if (q) *p = q;
    return q ? 0 : ENOMEM;
}

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t from)
{
    return fails(true) ? MAP_FAILED : (void *)syscall(SYS_mmap, at, bytes, access, flags, file, from);
}
void *mmap64(void *at, size_t bytes, int access, int flags, int file, off_t from)
{
    return mmap(at, bytes, access, flags, file, from);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real)
        real =
            (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    return fails(true) ? EAGAIN : real(thread, how, run, arg);
}

void *dlopen(const char *name, int flags)
{
    static void *(*real)(const char *, int);
    if (!real) real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    loads = true;
    void *handle = real(name, flags);
    loads = false;
    return handle;
}

__attribute__((constructor)) static void begin(void)
{
    void *frames[2];
    const char *number = getenv("CAIRN_TEST_MALLOC");
    kind = getenv("CAIRN_TEST_MALLOC_KIND");
    path = getenv("CAIRN_TEST_MALLOC_LOG");
    (void)backtrace(frames, 2); /* loads its library now */
    atomic_store(&made, 0);
    const char *rank = getenv("CAIRN_TEST_MALLOC_RANK"), *own = getenv("RANK");
    bool concerned = !rank || (own && strcmp(own, rank) == 0);
    failing = number && concerned ? strtol(number, NULL, 10) : 0;
}

__attribute__((destructor)) static void end(void)
{
    char text[32];
    if (failing <= 0 || atomic_load(&made) >= failing) return;
    (void)snprintf(text, sizeof text, "%ld", atomic_load(&made));
    say(text);
}
