#include "base/mapping.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

/* The handler walks this list, so entries are never freed: a closed one is used again. */
typedef struct Entry {
    struct Entry *next;
    atomic_uintptr_t begin; /* 0: unused */
    atomic_size_t bytes;
    atomic_bool cut;
} Entry;

static _Atomic(Entry *) entries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of changes to the list */

static Entry *find(uintptr_t at)
{
    for (Entry *e = atomic_load(&entries); e; e = e->next) {
        uintptr_t begin = atomic_load(&e->begin);
        if (begin && at >= begin && at - begin < atomic_load(&e->bytes)) return e;
    }
    return NULL;
}

/* mmap is a plain system call here, so it may be called in a handler. */
static void replace_page(int number, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    Entry *e = info->si_code == BUS_ADRERR ? find(at) : NULL;
    if (e && mmap((void *)(at & ~(page - 1)), page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                  0) != MAP_FAILED)
        atomic_store(&e->cut, true);
    else
        signal(number, SIG_DFL); /* the access is repeated and ends the process */
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = replace_page, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

static void add(void *data, size_t bytes)
{
    pthread_mutex_lock(&lock);
    Entry *e = atomic_load(&entries);
    while (e && atomic_load(&e->begin)) e = e->next;
    bool fresh = !e;
    if (fresh) e = mem_alloc(sizeof *e);
    atomic_store(&e->cut, false);
    atomic_store(&e->bytes, bytes);
    atomic_store(&e->begin, (uintptr_t)data);
    if (fresh) {
        e->next = atomic_load(&entries);
        atomic_store(&entries, e);
    }
    pthread_mutex_unlock(&lock);
}

void *mapping_open(int fd, size_t bytes, bool writable)
{
    install(); /* each time: a library may have set a handler of its own */
    void *data = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                      writable ? MAP_SHARED | MAP_POPULATE : MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) return NULL;
    add(data, bytes);
    return data;
}

bool mapping_cut(const void *data)
{
    const Entry *e = find((uintptr_t)data);
    return e && atomic_load(&e->cut);
}

void mapping_close(const void *data, size_t bytes)
{
    if (!data) return;
    Entry *e = find((uintptr_t)data);
    if (e) atomic_store(&e->begin, 0);
    munmap((void *)(uintptr_t)data, bytes);
}
