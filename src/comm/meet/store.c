/* The store of a rank: a connection to its server, which is opened at the place of the meeting. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/socket.h"
#include "comm/meet/store_internal.h"

#define REPORT_S 5.0 /* limit of the wait for the launcher's answer to a report */
#define REACH_S  1.0 /* limit of the first connection to it: the watch sends no signs of life meanwhile */

/* The launcher's store, where the ranks meet elsewhere. It is opened for the first report. */
typedef struct {
    World world;
    char *where, *token; /* `where` NULL: there is no launcher, or it was tried */
    Store *store;        /* NULL: none */
    pthread_mutex_t lock;
} Reports;

struct Store {
    StoreClient *client;
    char *where;
    const volatile sig_atomic_t *stop; /* may be NULL */
    int rank;
    bool served; /* by the launcher */
    pthread_mutex_t lock;
    atomic_int setting; /* threads that wait for the lock to set a value */
    Reports reports;
};

bool store_stopped(const volatile sig_atomic_t *stop) { return stop && *stop; }
Status store_fail_stopped(void) { return fail(E_STOPPED, "stopped by a signal while the ranks met"); }
void store_ignore_stop(Store *s) { s->stop = NULL; }

static Status check_sizes(const char *name, size_t size)
{
    if (strlen(name) == 0 || strlen(name) > STORE_MAX_NAME / 2)
        return fail(E_USAGE, "store: a name of %zu characters; 1 to %d are allowed", strlen(name), STORE_MAX_NAME / 2);
    if (size > STORE_MAX_VALUE)
        return fail(E_USAGE, "store: %s has %zu bytes; at most %zu are allowed", name, size, STORE_MAX_VALUE);
    return OK;
}

Status store_set(Store *s, const char *name, const void *data, size_t size)
{
    TRY(check_sizes(name, size));
    atomic_fetch_add(&s->setting, 1);
    pthread_mutex_lock(&s->lock);
    atomic_fetch_sub(&s->setting, 1);
    Status status = store_client_set(s->client, name, data, size);
    pthread_mutex_unlock(&s->lock);
    return status_context(status, "store %s", s->where);
}

Status store_get(Store *s, const char *name, double timeout_s, void **data, size_t *size)
{
    Status status = OK;
    double end = clock_monotonic() + timeout_s;
    TRY(check_sizes(name, 0));
    *data = NULL;
    for (;;) {
        double left = end - clock_monotonic();
        /* In short pieces, because other threads wait for the lock, which this one would take again before they run. */
        while (atomic_load(&s->setting)) usleep(500);
        pthread_mutex_lock(&s->lock);
        status = store_client_get(s->client, name, left < 0 ? 0 : left < 0.1 ? left : 0.1, data, size);
        pthread_mutex_unlock(&s->lock);
        if (status != OK || *data) break;
        if (store_stopped(s->stop)) {
            if (timeout_s > 0 && timeout_s < 0.5) usleep(50000); /* a caller that retries must not spin */
            status = store_fail_stopped();
            break;
        }
        if (left <= 0) {
            status = fail(E_PEER, "'%s' did not come within %.1f s", name, timeout_s);
            break;
        }
    }
    return status_context(status, "store %s", s->where);
}

void store_hurry(Store *s, double answer_s)
{
    pthread_mutex_lock(&s->lock);
    store_client_hurry(s->client, answer_s);
    pthread_mutex_unlock(&s->lock);
}

/* ---- where ---- */

/* *here: at this host, because neither a launcher nor a scheduler names one. */
static Status default_place(const World *w, char **where, bool *here)
{
    const char *left = getenv("CAIRN_RENDEZVOUS");
    if (left && *left && strcmp(left, "auto") != 0) {
        *where = mem_strdup(left);
        return OK;
    }
    if (w->master[0]) {
        bool v6 = strchr(w->master, ':') != NULL;
        *where = mem_printf(v6 ? "tcp://[%s]:%d" : "tcp://%s:%d", w->master, w->master_port);
        return OK;
    }
    if (w->local_size > 0 && w->local_size < w->size)
        return fail(E_USAGE,
                    "rank %d of %d (%s): the ranks are on several hosts, and have no place to meet. Give "
                    "--rendezvous tcp://HOST:PORT with rank 0's host, or start them with cairn launch",
                    w->rank, w->size, w->source);
    const char *loopback = socket_loopback();
    *where = mem_printf(strchr(loopback, ':') ? "tcp://[%s]" : "tcp://%s", loopback);
    *here = true;
    return OK;
}

static bool skip_prefix(const char **text, const char *with)
{
    size_t n = strlen(with);
    if (strncmp(*text, with, n) != 0) return false;
    *text += n;
    return true;
}

/* Ranks that meet at this host meet those of the same user alone. */
static Hash128 key_of(const World *w, const char *token, bool here)
{
    Hash128 key = siphash_key(token ? token : "");
    char *job = here ? mem_printf("%s user %u", w->job, (unsigned)geteuid()) : mem_strdup(w->job);
    Hash128 of_job = siphash(key, job, strlen(job));
    free(job);
    return of_job;
}

static Status connect_client(Store *s, const World *w, Hash128 key, double timeout_s)
{
    const char *at = s->where;
    s->served = skip_prefix(&at, "served://");
    if (s->served || skip_prefix(&at, "tcp://"))
        return store_client_open(w, at, !s->served && w->rank == 0, key, timeout_s, s->stop, &s->client);
    if (skip_prefix(&at, "file:"))
        return fail(E_USAGE,
                    "rendezvous '%s': ranks do not meet in a folder. Leave --rendezvous out for ranks of one "
                    "host; for several hosts give tcp://HOST[:PORT] with rank 0's host, or use cairn launch",
                    s->where);
    return fail(E_USAGE, "rendezvous '%s': expected tcp://HOST[:PORT] or auto", at);
}

static void find_launcher(Store *s, const World *w, const char *token)
{
    const char *where = getenv("CAIRN_LAUNCHER");
    if (s->served || !where || !*where) return;
    s->reports.world = *w;
    s->reports.where = mem_strdup(where);
    s->reports.token = mem_strdup(token ? token : "");
}

Status store_open(const World *w, const char *where, const char *token, double timeout_s,
                  const volatile sig_atomic_t *stop, Store **store)
{
    Status status = OK;
    bool here = false;
    Store *s = mem_alloc(sizeof *s);
    s->stop = stop;
    s->rank = w->rank;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->reports.lock, NULL);
    *store = NULL;
    if (!where || !*where || strcmp(where, "auto") == 0)
        TRY_DONE(default_place(w, &s->where, &here));
    else
        s->where = mem_strdup(where);
    log_debug("rank %d of %d meets the others at %s", w->rank, w->size, s->where);
    TRY_DONE(connect_client(s, w, key_of(w, token, here), timeout_s));
    find_launcher(s, w, token);
    *store = s;
    s = NULL;
done:
    if (s && s->where) status = status_context(status, "meeting at %s", s->where);
    store_close(s);
    return status;
}

/* The store that the launcher serves; NULL: none. */
static Store *launcher_store(Store *s)
{
    Reports *r = &s->reports;
    if (s->served) return s;
    pthread_mutex_lock(&r->lock);
    if (r->where && store_open(&r->world, r->where, r->token, REACH_S, NULL, &r->store) != OK)
        log_debug("the launcher hears no reports: %s", status_message());
    free(r->where);
    r->where = NULL;
    pthread_mutex_unlock(&r->lock);
    return r->store;
}

bool store_report(Store *s, const char *text, const char *name, ...)
{
    char full[32];
    va_list args;
    va_start(args, name);
    vsnprintf(full, sizeof full, name, args);
    va_end(args);
    Store *to = launcher_store(s);
    if (!to) return true;
    store_hurry(to, REPORT_S); /* the launcher may be suspended */
    if (store_set(to, full, text, strlen(text)) == OK) return true;
    log_debug("%s", status_message());
    return false;
}

void store_close(Store *s)
{
    if (!s) return;
    store_client_close(s->client);
    store_close(s->reports.store);
    MEM_FREE(s->reports.where, s->reports.token);
    pthread_mutex_destroy(&s->reports.lock);
    pthread_mutex_destroy(&s->lock);
    MEM_FREE(s->where, s);
}
