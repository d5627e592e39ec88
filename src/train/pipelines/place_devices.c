#include "train/pipelines/place_devices.h"

/* A GPU's thread blocks for each wire: a message that waits for its peer keeps them. */
enum { WIRE_BLOCKS = 2 };

/* CUDA's queues: lanes that share one wait for each other, and so may ranks; or each launch waits for its end. */
static Status check_queues(void)
{
    const char *set = getenv("CUDA_DEVICE_MAX_CONNECTIONS"), *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    if (blocking && atoi(blocking) != 0)
        return fail(
            E_USAGE,
            "CUDA_LAUNCH_BLOCKING=%s: a pipeline between GPUs begins messages that end in later works, and must "
            "not wait for each. Unset it (CAIRN_CUDA_SYNC=1 waits for our kernels), or use --comm gloo",
            blocking);
    if (!set || atoi(set) >= DEVICE_LANES) return OK;
    return fail(E_USAGE,
                "CUDA_DEVICE_MAX_CONNECTIONS=%s: a pipeline between GPUs has %d lanes, which must not wait for each "
                "other. Leave the variable unset, or give at least %d",
                set, DEVICE_LANES, DEVICE_LANES);
}

static int rank_of(const Grid *g, int place, int pipeline) { return place * g->replicas + pipeline; }

/* In the order of replicas; of chimera those of the place's lower stage, since both its stages have the same holders.
 */
static Status open_holders(const Grid *g, int rank, Comm *c, PlaceDevices *d)
{
    int n = grid_holders(g), *ranks = mem_array((size_t)n, sizeof *ranks);
    for (int q = 0; q < n; q++) ranks[q] = grid_holder(g, grid_first_stage(g, rank), q);
    Status status = n > 1 ? comm_device_open(c, ranks, n, 0, &d->holders) : OK;
    free(ranks);
    return status;
}

static Status open_uses(const Grid *g, int place, int pipeline, Comm *c, PlaceDevices *d)
{
    int first, last, chunk;
    pipeline_home(&g->shape, 0, 0, &first, &chunk);
    pipeline_home(&g->shape, g->stages - 1, 0, &last, &chunk);
    if (g->directions == 2 || first == last || (place != first && place != last)) return OK;
    const int ranks[] = {rank_of(g, first, pipeline), rank_of(g, last, pipeline)};
    return comm_device_open(c, ranks, 2, 0, &d->uses);
}

static Status open_wires(const Grid *g, int place, int pipeline, Comm *c, Device *device, void *room, PlaceDevices *d)
{
    d->n_wires = exec_pipeline_wires(&g->shape, place, d->wires);
    for (int i = 0; i < d->n_wires; i++) {
        PipelineWire *w = &d->wires[i];
        const int ranks[] = {rank_of(g, w->from, pipeline), rank_of(g, w->to, pipeline)};
        TRY(comm_device_open(c, ranks, 2, WIRE_BLOCKS, &w->device));
        bool sends = w->from == place;
        TRY(exec_connect_devices(device, w->device, &(CommPass){.send = sends, .peer = sends ? 1 : 0}, 1, room));
    }
    return OK;
}

/* After E_PEER the other ranks cannot be reached. */
static Status agree(Ranks *ranks, Status own) { return own == E_PEER ? own : ranks_all(ranks, own); }

Status place_devices_open(const Grid *g, bool tied, bool tree, Ranks *ranks, const Backend *b, PlaceDevices **devices)
{
    PlaceDevices *d = *devices = mem_alloc(sizeof *d);
    Comm *c = ranks_comm(ranks);
    int place = ranks_rank(ranks) / g->replicas, pipeline = ranks_rank(ranks) % g->replicas;
    size_t bytes = 2 * (size_t)ranks_size(ranks);
    void *room = NULL;
    Status status = g->stages > 1 ? check_queues() : OK;
    if (status == OK) status = b->device->alloc(b->device, bytes, &room);
    TRY_DONE(ranks_all(ranks, status));
    TRY_DONE(agree(ranks, open_holders(g, ranks_rank(ranks), c, d)));
    if (tree && d->holders) TRY_DONE(agree(ranks, exec_connect_all(b->device, d->holders, room)));
    if (tied) TRY_DONE(open_uses(g, place, pipeline, c, d));
    status = open_wires(g, place, pipeline, c, b->device, room, d);
done:
    if (room) b->device->release(b->device, room, bytes);
    return status;
}

const char *place_devices_describe(const PlaceDevices *d)
{
    CHECK(d->holders || d->n_wires > 0, "devices of a place that has no other rank");
    return comm_device_describe(d->holders ? d->holders : d->wires[0].device);
}

void place_devices_close(PlaceDevices *d)
{
    if (!d) return;
    for (int i = 0; i < d->n_wires; i++) comm_device_close(d->wires[i].device);
    comm_device_close(d->uses);
    comm_device_close(d->holders);
    free(d);
}
