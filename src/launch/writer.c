/* Writes standard output and error from a thread, so that the launcher never waits for their reader. */
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"
#include "launch/launch_internal.h"

enum { MOST_BYTES = 16 << 20 /* that wait; later lines are dropped */ };

typedef struct OutputPiece {
    struct OutputPiece *next;
    int fd;
    size_t size;
    char text[];
} OutputPiece;

/* One writer if both descriptors lead to the same place, so that lines keep their order. Otherwise one for each, so
   that an unread pipe does not delay errors. */
typedef struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    OutputPiece *first, **last;
    size_t waiting; /* bytes, including those being written */
    int64_t dropped;
} Writer;

static Writer writers[2];
static int n_writers; /* 0: not started */

static Writer *writer_of(int fd) { return &writers[n_writers == 2 && fd == STDERR_FILENO]; }

static void append_piece(Writer *w, int fd, const char *text, size_t size)
{
    OutputPiece *p = mem_alloc(sizeof *p + size);
    *p = (OutputPiece){.fd = fd, .size = size};
    memcpy(p->text, text, size);
    *w->last = p;
    w->last = &p->next;
    w->waiting += size;
}

static void report_dropped(Writer *w)
{
    char text[128];
    int n = snprintf(text, sizeof text, "warning: %lld lines are not shown: the output was not read\n",
                     (long long)w->dropped);
    if (w->dropped) append_piece(w, STDERR_FILENO, text, (size_t)n);
    w->dropped = 0;
}

static void *write_pieces(void *arg)
{
    Writer *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->first) pthread_cond_wait(&w->changed, &w->lock);
        OutputPiece *p = w->first;
        w->first = p->next;
        if (!w->first) w->last = &w->first;
        pthread_mutex_unlock(&w->lock);
        wire_write(p->fd, p->text, p->size, INFINITY);
        pthread_mutex_lock(&w->lock);
        w->waiting -= p->size;
        if (w->dropped && w->waiting < MOST_BYTES / 2) report_dropped(w);
        free(p);
        pthread_cond_broadcast(&w->changed);
    }
    return NULL;
}

void writer_put(int fd, const char *text, size_t size)
{
    Writer *w = writer_of(fd);
    if (!n_writers) {
        wire_write(fd, text, size, INFINITY);
        return;
    }
    pthread_mutex_lock(&w->lock);
    if (w->dropped || w->waiting + size > MOST_BYTES)
        w->dropped++;
    else
        append_piece(w, fd, text, size);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void put_log(const char *line, size_t size) { writer_put(STDERR_FILENO, line, size); }

void writer_begin(void)
{
    struct stat out, err;
    bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
                out.st_ino == err.st_ino;
    int wanted = same ? 1 : 2, n = 0;
    for (int i = 0; i < wanted; i++) {
        Writer *w = &writers[i];
        w->last = &w->first;
        thread_lock_init(&w->lock, &w->changed);
        n += thread_start(&w->thread, write_pieces, w) == OK;
    }
    if (n < wanted) return; /* without threads the launcher writes, and may wait */
    n_writers = n;
    log_set_sink(put_log);
}

void writer_end(int signals, double patience_s)
{
    struct pollfd stop = {.fd = signals, .events = POLLIN};
    double until = clock_monotonic() + patience_s;
    bool given_up = false;
    for (int i = 0; i < n_writers; i++) {
        Writer *w = &writers[i];
        pthread_mutex_lock(&w->lock);
        while ((w->waiting > 0 || w->dropped) && !given_up) {
            thread_wait_until(&w->changed, &w->lock, clock_monotonic() + 0.1);
            given_up = poll(&stop, 1, 0) > 0 || clock_monotonic() > until;
        }
        pthread_mutex_unlock(&w->lock);
    }
    if (!given_up)
        log_set_sink(NULL); /* else later messages also go to the thread, and this process does not wait for them */
}
