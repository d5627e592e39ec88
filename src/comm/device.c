/* Connections between GPUs: the module cairn_nccl.so, opened with the help of a Comm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/module.h"
#include "comm/comm_internal.h"
#include "comm/nccl.h"

struct CommDevice {
    Comm *comm;
    const NcclModule *module;
    void *nccl;
};

typedef struct {
    char bus[64];
    int32_t node;
    int32_t told_apart; /* NCCL_HOSTID: somebody tries several ranks on one GPU, and knows it */
} Seat;

/* Two ranks on one GPU: NCCL would say so in words that help nobody. */
static Status check_seats(Comm *c, const char *bus)
{
    Seat mine = {.node = c->node, .told_apart = getenv("NCCL_HOSTID") != NULL};
    Seat *all = mem_array((size_t)c->size, sizeof *all);
    snprintf(mine.bus, sizeof mine.bus, "%s", bus);
    Status status = comm_allgather(c, &mine, sizeof mine, all);
    for (int b = 1; b < c->size && status == OK; b++)
        for (int a = 0; a < b && status == OK; a++) {
            if (all[a].node != all[b].node || strcmp(all[a].bus, all[b].bus) != 0 || all[b].told_apart) continue;
            status =
                fail(E_USAGE,
                     "%s and rank %d are on the same GPU (%s). Start one rank per GPU; each takes the GPU of its local "
                     "rank, of those in CUDA_VISIBLE_DEVICES",
                     comm_peer_name(c, a), b, all[b].bus);
        }
    free(all);
    return status;
}

/* Rank 0's, or why it has none. */
static Status share_id(Comm *c, const NcclModule *m, void *id)
{
    struct {
        int32_t bad;
        char error[252];
        char id[NCCL_ID_BYTES];
    } x = {0};
    if (c->rank == 0) x.bad = m->new_id(x.id, x.error, sizeof x.error);
    TRY(comm_broadcast(c, &x, sizeof x, 0));
    memcpy(id, x.id, sizeof x.id);
    x.error[sizeof x.error - 1] = '\0';
    return x.bad ? fail(E_FAIL, "NCCL on %s: %s", comm_peer_name(c, 0), x.error) : OK;
}

Status comm_device_open(Comm *c, const char *bus, CommDevice **device)
{
    Status status = OK, own;
    char id[NCCL_ID_BYTES], error[512] = "", name[32];
    void *module;
    double failed;
    CommDevice *d = mem_alloc(sizeof *d);
    *device = NULL;
    d->comm = c;
    TRY_DONE(check_seats(c, bus));
    own =
        module_load("transport", "nccl", NCCL_MODULE_ABI, "Build it (NCCL, WITH_NCCL=ON), or use --comm gloo", &module);
    if (own == OK) own = module_symbol(module, "transport", "nccl", "cairn_comm_nccl", (void **)&d->module);
    failed = own != OK;
    TRY_DONE(comm_sum(c, &failed, 1));
    if (failed > 0) {
        status =
            own != OK ? own : fail(E_USAGE, "transport 'nccl': %d of %d ranks cannot load it", (int)failed, c->size);
        goto done;
    }
    /* The network that was chosen, or that --iface named, is NCCL's too; its own setting goes before. */
    snprintf(name, sizeof name, "=%s", c->group->interface);
    if (c->nodes > 1) setenv("NCCL_SOCKET_IFNAME", name, 0);
    TRY_DONE(share_id(c, d->module, id));
    d->nccl = d->module->open(id, c->rank, c->size, COMM_CONNECT_S, error, sizeof error);
    if (!d->nccl) {
        status =
            fail(E_PEER, "rank %d: NCCL did not connect the ranks within %.0f s: %s", c->rank, COMM_CONNECT_S, error);
        goto done;
    }
    *device = d;
    d = NULL;
done:
    free(d);
    return status;
}

static Status outcome(CommDevice *d, int bad, const char *error)
{
    Loss loss;
    Watch *watch = d->comm->group->watch; /* NULL: one rank */
    if (watch && watch_verdict(watch, bad ? 1 : 0, &loss)) {
        d->module->abort(d->nccl);
        return comm_tell_loss(d->comm, "nccl", &loss);
    }
    if (!bad) return OK;
    d->module->abort(d->nccl);
    return fail(E_PEER, "rank %d: NCCL, %s", d->comm->rank, error);
}

static NcclType type_of(Dtype t)
{
    CHECK(t == F32 || t == BF16 || t == F16, "%s by NCCL", dtype_name(t));
    return t == F32 ? NCCL_F32 : t == BF16 ? NCCL_BF16 : NCCL_F16;
}

Status comm_device_allreduce(CommDevice *d, void *x, size_t count, Dtype type, void *stream)
{
    char error[512] = "";
    return outcome(d, d->module->all_reduce(d->nccl, x, x, count, type_of(type), stream, error, sizeof error), error);
}

Status comm_device_reduce_scatter(CommDevice *d, const void *x, void *own, size_t count, Dtype type, void *stream)
{
    char error[512] = "";
    return outcome(d, d->module->reduce_scatter(d->nccl, x, own, count, type_of(type), stream, error, sizeof error),
                   error);
}

Status comm_device_allgather(CommDevice *d, const void *own, void *all, size_t count, Dtype type, void *stream)
{
    char error[512] = "";
    return outcome(d, d->module->all_gather(d->nccl, own, all, count, type_of(type), stream, error, sizeof error),
                   error);
}

Status comm_device_check(CommDevice *d)
{
    char error[512] = "";
    return outcome(d, d->module->check(d->nccl, error, sizeof error), error);
}

void comm_device_close(CommDevice *d)
{
    if (!d) return;
    d->module->close(d->nccl);
    free(d);
}
