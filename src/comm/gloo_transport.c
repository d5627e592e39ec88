/* The transport gloo: loads its module and gives it the store. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/module.h"
#include "comm/comm_internal.h"
#include "comm/gloo.h"

typedef struct {
    Store *store;
    Watch *watch;
    int copy;
} Rendezvous;

typedef struct {
    const GlooModule *module;
    void *gloo;
} GlooTransport;

/* A write by Gloo to a closed connection raises SIGPIPE in the writing thread. Gloo's own threads inherit the mask;
   with `all` it has every signal, because signals belong to the main thread. */
static void signals_off(sigset_t *before, bool all)
{
    sigset_t set;
    if (all) {
        sigfillset(&set);
    } else {
        sigemptyset(&set);
        sigaddset(&set, SIGPIPE);
    }
    pthread_sigmask(SIG_BLOCK, &set, before);
}

static void signals_on(const sigset_t *before)
{
    sigset_t pipe_signal;
    const struct timespec now = {0};
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    if (!sigismember(before, SIGPIPE))
        while (sigtimedwait(&pipe_signal, NULL, &now) > 0) {}
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

static Status gloo_exchange(void *self, const CommMessage *messages, int n, double timeout_s, int *peer)
{
    GlooTransport *t = self;
    char error[512] = "";
    GlooMessage *m = mem_array((size_t)n, sizeof *m);
    for (int i = 0; i < n; i++)
        m[i] = (GlooMessage){messages[i].peer, messages[i].send, messages[i].data, messages[i].bytes};
    sigset_t before;
    signals_off(&before, false);
    int bad = t->module->exchange(t->gloo, m, n, timeout_s, peer, error, sizeof error);
    signals_on(&before);
    free(m);
    return bad ? fail(E_PEER, "%s", error) : OK;
}

static void gloo_abort(void *self)
{
    GlooTransport *t = self;
    t->module->abort(t->gloo);
}

static void gloo_close(void *self)
{
    GlooTransport *t = self;
    t->module->close(t->gloo);
    free(t);
}

static const CommTransport gloo_transport = {"gloo", gloo_exchange, gloo_abort, gloo_close};

static char *name_of(const Rendezvous *r, const char *name) { return mem_printf("gloo-%d/%s", r->copy, name); }

static int rendezvous_set(void *store, const char *name, const void *data, size_t size)
{
    Rendezvous *r = store;
    char *full = name_of(r, name);
    Status status = store_set(r->store, full, data, size);
    free(full);
    return status != OK;
}

/* Waits in short pieces, because the address of a lost rank never comes. */
static int rendezvous_get(void *store, const char *name, double timeout_s, void **data, size_t *size)
{
    Rendezvous *r = store;
    char *full = name_of(r, name);
    double end = clock_monotonic() + timeout_s;
    Status status;
    Loss loss;
    do status = store_get(r->store, full, 0.2, data, size);
    while (status != OK && status != E_STOPPED && clock_monotonic() < end && !watch_verdict(r->watch, 0, &loss));
    free(full);
    return status != OK;
}

static int rendezvous_lost(void *store)
{
    const Rendezvous *r = store;
    Loss loss;
    return watch_verdict(r->watch, 0, &loss);
}

static Status load(const GlooModule **m)
{
    void *module;
    TRY(module_load("transport", "gloo", GLOO_ABI, "Build it (libgloo-dev, WITH_GLOO=ON) or set CAIRN_BACKEND_DIR",
                    &module));
    return module_symbol(module, "transport", "gloo", "cairn_comm_gloo", (void **)m);
}

Status gloo_ready(void)
{
    const GlooModule *m;
    return load(&m);
}

Status gloo_open(const Comm *c, const CommGroup *g, int copy, void **transport_self, const CommTransport **transport)
{
    char error[512] = "";
    sigset_t before;
    const GlooModule *m;
    TRY(load(&m));
    double timeout_s = c->peer_timeout_s < 10               ? 10
                       : c->peer_timeout_s < COMM_CONNECT_S ? c->peer_timeout_s
                                                            : COMM_CONNECT_S;
    Rendezvous r = {c->store, g->watch, copy};
    const GlooOptions options = {.rank = c->rank,
                                 .size = c->size,
                                 .address = g->address,
                                 .timeout_s = timeout_s,
                                 .store = &r,
                                 .set = rendezvous_set,
                                 .get = rendezvous_get,
                                 .lost = rendezvous_lost};
    signals_off(&before, true);
    void *gloo = m->open(&options, error, sizeof error);
    signals_on(&before);
    if (!gloo)
        return fail(E_PEER, "rank %d at %s: Gloo did not connect the ranks within %.0f s: %s", c->rank, g->address,
                    timeout_s, error);
    GlooTransport *t = mem_alloc(sizeof *t);
    *t = (GlooTransport){m, gloo};
    *transport_self = t;
    *transport = &gloo_transport;
    return OK;
}
