/* The store of a rank: a connection to its server, which is opened at the place of the meeting. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/socket.h"
#include "comm/meet/store_internal.h"

struct Store {
    StoreClient *client;
    char *where;
    const volatile sig_atomic_t *stop; /* may be NULL */
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
    return status_context(store_client_set(s->client, name, data, size), "store %s", s->where);
}

Status store_get(Store *s, const char *name, double timeout_s, void **data, size_t *size)
{
    Status status = OK;
    double end = clock_monotonic() + timeout_s;
    TRY(check_sizes(name, 0));
    *data = NULL;
    for (;;) {
        double left = end - clock_monotonic();
        status = store_client_get(s->client, name, left < 0 ? 0 : left < 0.1 ? left : 0.1, data, size);
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

void store_hurry(Store *s, double answer_s) { store_client_hurry(s->client, answer_s); }

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
    bool served = skip_prefix(&at, "served://"); /* by the launcher */
    if (served || skip_prefix(&at, "tcp://"))
        return store_client_open(w, at, !served && w->rank == 0, key, timeout_s, s->stop, &s->client);
    if (skip_prefix(&at, "file:"))
        return fail(E_USAGE,
                    "rendezvous '%s': ranks do not meet in a folder. Leave --rendezvous out for ranks of one "
                    "host; for several hosts give tcp://HOST[:PORT] with rank 0's host, or use cairn launch",
                    s->where);
    return fail(E_USAGE, "rendezvous '%s': expected tcp://HOST[:PORT] or auto", at);
}

Status store_open(const World *w, const char *where, const char *token, double timeout_s,
                  const volatile sig_atomic_t *stop, Store **store)
{
    Status status = OK;
    bool here = false;
    Store *s = mem_alloc(sizeof *s);
    s->stop = stop;
    *store = NULL;
    if (!where || !*where || strcmp(where, "auto") == 0)
        TRY_DONE(default_place(w, &s->where, &here));
    else
        s->where = mem_strdup(where);
    log_debug("rank %d of %d meets the others at %s", w->rank, w->size, s->where);
    TRY_DONE(connect_client(s, w, key_of(w, token, here), timeout_s));
    *store = s;
    s = NULL;
done:
    if (s && s->where) status = status_context(status, "meeting at %s", s->where);
    store_close(s);
    return status;
}

void store_close(Store *s)
{
    if (!s) return;
    store_client_close(s->client);
    MEM_FREE(s->where, s);
}
