/* The transport gloo: loads its module, and gives it the store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/module.h"
#include "comm/comm_internal.h"
#include "comm/gloo.h"

typedef struct {
    Store *store;
    int copy;
} Rendezvous;

typedef struct {
    const GlooModule *module;
    void *gloo;
} GlooTransport;

static Status gloo_exchange(void *self, const CommMessage *messages, int n, double timeout_s, int *peer)
{
    GlooTransport *t = self;
    char error[512] = "";
    GlooMessage *m = mem_array((size_t)n, sizeof *m);
    for (int i = 0; i < n; i++)
        m[i] = (GlooMessage){messages[i].peer, messages[i].send, messages[i].data, messages[i].bytes};
    int bad = t->module->exchange(t->gloo, m, n, timeout_s, peer, error, sizeof error);
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

static int rendezvous_get(void *store, const char *name, double timeout_s, void **data, size_t *size)
{
    Rendezvous *r = store;
    char *full = name_of(r, name);
    Status status = store_get(r->store, full, timeout_s, data, size);
    free(full);
    return status != OK;
}

Status gloo_open(const Comm *c, const CommGroup *g, int copy, void **transport_self, const CommTransport **transport)
{
    void *module;
    char error[512] = "";
    GlooTransport *t = mem_alloc(sizeof *t);
    Rendezvous r = {c->store, copy};
    const GlooOptions options = {.rank = c->rank,
                                 .size = c->size,
                                 .address = g->address,
                                 .timeout_s = g->connect_s,
                                 .store = &r,
                                 .set = rendezvous_set,
                                 .get = rendezvous_get};
    Status status = module_load("transport", "gloo", GLOO_ABI,
                                "Build it (libgloo-dev, WITH_GLOO=ON) or set CAIRN_BACKEND_DIR", &module);
    if (status == OK) status = module_symbol(module, "transport", "gloo", "cairn_comm_gloo", (void **)&t->module);
    if (status == OK) {
        t->gloo = t->module->open(&options, error, sizeof error);
        if (!t->gloo)
            status = fail(E_PEER, "rank %d at %s: Gloo did not connect the ranks within %.0f s: %s", c->rank,
                          g->address, g->connect_s, error);
    }
    if (status != OK) {
        free(t);
        return status;
    }
    *transport_self = t;
    *transport = &gloo_transport;
    return OK;
}
