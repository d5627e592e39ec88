/* Loads the module of Gloo, and exchanges its addresses over the watch. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/module.h"
#include "comm/mesh/comm_internal.h"
#include "comm/mesh/gloo.h"

/* A connection that is being made. */
typedef struct {
    const Comm *comm;
    char prefix[32]; /* of its names: its number, and the first of its ranks */
} Opening;

typedef struct GlooConnection {
    const GlooModule *module;
    void *gloo;
} GlooConnection;

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
    int error = errno; /* of the module */
    sigset_t pipe_signal;
    const struct timespec now = {0};
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    if (!sigismember(before, SIGPIPE))
        while (sigtimedwait(&pipe_signal, NULL, &now) > 0) {}
    pthread_sigmask(SIG_SETMASK, before, NULL);
    errno = error;
}

/* The status of a call of the module that failed. */
static Status failed(const char *error)
{
    if (errno == ENOMEM) mem_exhausted(0);
    return fail(E_PEER, "%s", error);
}

static void end(const char *text)
{
    log_printf(LOG_ERROR, "Gloo: %s", text);
    _exit(status_exit_code(E_PEER));
}

Status gloo_exchange(const Comm *c, const GlooMessage *messages, int n, double timeout_s, int *peer)
{
    char error[512] = "";
    sigset_t before;
    signals_off(&before, false);
    int bad = c->gloo->module->exchange(c->gloo->gloo, messages, n, timeout_s, peer, error, sizeof error);
    signals_on(&before);
    return bad ? failed(error) : OK;
}

Status gloo_post(const Comm *c, const GlooMessage *message, uint64_t tag, void **ticket)
{
    char error[512] = "";
    sigset_t before;
    signals_off(&before, false);
    *ticket = c->gloo->module->post(c->gloo->gloo, message, tag, error, sizeof error);
    signals_on(&before);
    return *ticket ? OK : failed(error);
}

Status gloo_wait(const Comm *c, void *ticket, double timeout_s)
{
    char error[512] = "";
    sigset_t before;
    signals_off(&before, false);
    int bad = c->gloo->module->wait(c->gloo->gloo, ticket, timeout_s, error, sizeof error);
    signals_on(&before);
    return bad ? failed(error) : OK;
}

void gloo_abort(void *connection)
{
    const GlooConnection *g = connection;
    g->module->abort(g->gloo);
}

void gloo_close(GlooConnection *g)
{
    g->module->close(g->gloo);
    free(g);
}

static void keep_address(CommGroup *g, Mail mail) { MEM_PUSH(g->addresses, g->n_addresses, g->cap_addresses, mail); }

/* Gloo's rendezvous: a value goes to all ranks of the connection. */
static int address_set(void *rendezvous, const char *name, const void *data, size_t size)
{
    const Opening *r = rendezvous;
    const Comm *c = r->comm;
    Buf text = {0};
    buf_printf(&text, "%s%s", r->prefix, name);
    text.len++; /* its NUL */
    buf_append(&text, data, size);
    for (int i = 0; i < c->size; i++)
        if (i != c->rank) watch_send(c->group->watch, comm_world_rank(c, i), MAIL_ADDRESS, text.data, text.len);
    keep_address(c->group, (Mail){.size = text.len, .data = text.data});
    return 0;
}

static int address_get(void *rendezvous, const char *name, double timeout_s, void **data, size_t *size)
{
    const Opening *r = rendezvous;
    CommGroup *g = r->comm->group;
    double end = clock_monotonic() + timeout_s;
    Loss loss;
    Mail mail;
    for (int i = 0;;) {
        for (; i < g->n_addresses; i++) {
            size_t begin = strlen(g->addresses[i].data) + 1;
            if (!str_starts_with(g->addresses[i].data, r->prefix)) continue;
            if (strcmp(g->addresses[i].data + strlen(r->prefix), name) != 0 || begin > g->addresses[i].size) continue;
            *size = g->addresses[i].size - begin;
            *data = mem_alloc(*size + 1);
            memcpy(*data, g->addresses[i].data + begin, *size);
            return 0;
        }
        if (watch_receive(g->watch, MAIL_ADDRESS, end, &mail))
            keep_address(g, mail);
        else if (watch_verdict(g->watch, 0, &loss) || clock_monotonic() > end)
            return 1;
    }
}

static int opening_lost(void *rendezvous)
{
    Watch *watch = ((const Opening *)rendezvous)->comm->group->watch;
    Loss loss;
    int left = watch_left(watch, 0); /* one whose Gloo failed, because no rank has done its work yet */
    if (left >= 0) watch_report(watch, left, LOSS_LEFT, 0);
    return watch_verdict(watch, 0, &loss);
}

static void forget_addresses(const Opening *r)
{
    CommGroup *g = r->comm->group;
    int kept = 0;
    for (int i = 0; i < g->n_addresses; i++)
        if (str_starts_with(g->addresses[i].data, r->prefix))
            free(g->addresses[i].data);
        else
            g->addresses[kept++] = g->addresses[i];
    g->n_addresses = kept;
}

static Status load_gloo(const GlooModule **m)
{
    void *module;
    TRY(module_load("transport", "gloo", GLOO_ABI, "Build it (libgloo-dev, WITH_GLOO=ON) or set CAIRN_BACKEND_DIR",
                    &module));
    return module_symbol(module, "transport", "gloo", "cairn_comm_gloo", (void **)m);
}

Status gloo_ready(void)
{
    const GlooModule *m;
    return load_gloo(&m);
}

Status gloo_open(Comm *c, int copy)
{
    const char *address = c->group->cards[c->group->rank].address;
    char error[512] = "";
    sigset_t before;
    const GlooModule *m;
    TRY(load_gloo(&m));
    double timeout_s = c->peer_timeout_s < 10               ? 10
                       : c->peer_timeout_s < COMM_CONNECT_S ? c->peer_timeout_s
                                                            : COMM_CONNECT_S;
    Opening r = {.comm = c};
    snprintf(r.prefix, sizeof r.prefix, "%d-%d/", copy, comm_world_rank(c, 0));
    const GlooOptions options = {.rank = c->rank,
                                 .size = c->size,
                                 .address = address,
                                 .timeout_s = timeout_s,
                                 .store = &r,
                                 .set = address_set,
                                 .get = address_get,
                                 .lost = opening_lost,
                                 .fatal = end};
    signals_off(&before, true);
    void *gloo = m->open(&options, error, sizeof error);
    signals_on(&before);
    forget_addresses(&r);
    if (!gloo && (errno == ENOMEM || strstr(error, strerror(ENOMEM)))) /* Gloo's own texts have the system's error */
        return fail(E_MEMORY,
                    "rank %d at %s: no memory to connect the ranks: %s. Raise the limit on the address "
                    "space (ulimit -v), or free memory",
                    c->rank, address, error);
    if (!gloo)
        return fail(E_PEER, "rank %d at %s: Gloo did not connect the ranks within %.0f s: %s%s", c->rank, address,
                    timeout_s, error,
                    strstr(error, strerror(EADDRINUSE))
                        ? ". It takes a port for each pair of ranks on a host: start fewer ranks there, wait a minute "
                          "for ports of an earlier run, or allow more (sysctl net.ipv4.ip_local_port_range)"
                        : "");
    c->gloo = mem_alloc(sizeof *c->gloo);
    *c->gloo = (GlooConnection){m, gloo};
    return OK;
}
