/* `cairn launch --probe`: latency and bandwidth between the ranks, by the same calls that training uses. */

#include "base/sort.h"
#include "comm/mesh/comm.h"
#include "launch/launch_internal.h"

extern char **environ;

enum {
    ROUND_TRIPS = 60,
    WARM_TRIPS = 10,
    BLOCKS = 4,      /* in a row, for the bandwidth of a pair */
    RING_ROUNDS = 5, /* the first warms up */
    MOST_PAIRS = 48,
    BLOCK_BYTES = 4 << 20,
    SUM_ELEMENTS = 4 << 20
};

typedef struct {
    int node, local_rank, local_size;
} RankOnHost;

typedef struct {
    Comm *comm;
    RankOnHost *places;  // (size)
    char *block, *other; // (BLOCK_BYTES) each
} Probe;

/* Seconds of half a round trip of 8 bytes, on rank `a`. */
static Status measure_latency(Probe *p, int a, int b, double *seconds)
{
    double times[ROUND_TRIPS];
    for (int k = -WARM_TRIPS; k < ROUND_TRIPS; k++) {
        double begin = clock_monotonic();
        if (p->comm->rank == a) {
            TRY(comm_send(p->comm, b, p->block, 8));
            TRY(comm_receive(p->comm, b, p->other, 8));
            if (k >= 0) times[k] = 0.5 * (clock_monotonic() - begin);
        } else {
            TRY(comm_receive(p->comm, a, p->other, 8));
            TRY(comm_send(p->comm, a, p->block, 8));
        }
    }
    if (p->comm->rank == a) *seconds = sort_median(times, ROUND_TRIPS);
    return OK;
}

/* Bytes per second from a to b, on rank `a`. */
static Status measure_pair(Probe *p, int a, int b, double *rate)
{
    double begin = 0;
    for (int k = -1; k < BLOCKS; k++) { /* the first warms up */
        if (k == 0) begin = clock_monotonic();
        if (p->comm->rank == a)
            TRY(comm_send(p->comm, b, p->block, BLOCK_BYTES));
        else
            TRY(comm_receive(p->comm, a, p->other, BLOCK_BYTES));
        if (k == -1 || k == BLOCKS - 1) { /* all has arrived */
            if (p->comm->rank == a)
                TRY(comm_receive(p->comm, b, p->other, 8));
            else
                TRY(comm_send(p->comm, a, p->block, 8));
        }
    }
    if (p->comm->rank == a) *rate = (double)BLOCKS * BLOCK_BYTES / (clock_monotonic() - begin);
    return OK;
}

/* The receiver of a rank when all send at once: the rank of the same local rank on the next host; on one host the next
   rank. */
static int receiver_of(const Probe *p, int rank)
{
    const Comm *c = p->comm;
    if (c->nodes == 1) return (rank + 1) % c->size;
    int node = (p->places[rank].node + 1) % c->nodes;
    for (int r = 0; r < c->size; r++) {
        const RankOnHost *other = &p->places[r];
        if (other->node == node && other->local_rank == p->places[rank].local_rank % other->local_size) return r;
    }
    return rank;
}

/* All ranks send and receive at once. Bytes per second that leave the slowest host, on every rank. */
static Status measure_all(Probe *p, double *rate)
{
    Comm *c = p->comm;
    Status status = OK;
    size_t *out = mem_array((size_t)c->size, sizeof *out), *in = mem_array((size_t)c->size, sizeof *in);
    double *each = mem_array((size_t)c->size, sizeof *each), times[RING_ROUNDS];
    int senders = 0, most = 1;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && receiver_of(p, r) == c->rank) in[r] = BLOCK_BYTES, senders++;
    for (int r = 0; r < c->size; r++)
        if (c->nodes > 1 && p->places[r].local_size > most) most = p->places[r].local_size;
    if (receiver_of(p, c->rank) != c->rank) out[receiver_of(p, c->rank)] = BLOCK_BYTES;
    char *arrived = mem_array((size_t)senders + 1, BLOCK_BYTES);
    for (int k = 0; k < RING_ROUNDS; k++) {
        TRY_DONE(comm_barrier(c));
        double begin = clock_monotonic(), mine;
        TRY_DONE(comm_alltoallv(c, p->block, out, arrived, in));
        mine = clock_monotonic() - begin;
        TRY_DONE(comm_allgather(c, &mine, sizeof mine, each));
        times[k] = 0;
        for (int r = 0; r < c->size; r++) times[k] = fmax(times[k], each[r]);
    }
    *rate = (double)most * BLOCK_BYTES / sort_median(times + 1, RING_ROUNDS - 1);
done:
    MEM_FREE(out, in, each, arrived);
    return status;
}

/* Seconds for the sum of SUM_ELEMENTS numbers over all ranks. */
static Status measure_sum(Probe *p, double *seconds)
{
    Comm *c = p->comm;
    Status status = OK;
    Intervals *parts = mem_array((size_t)c->size, sizeof *parts);
    float *x = mem_array(SUM_ELEMENTS, sizeof *x);
    double times[4];
    for (int64_t r = 0; r < c->size; r++)
        intervals_add(&parts[r], SUM_ELEMENTS * r / c->size, SUM_ELEMENTS * (r + 1) / c->size);
    void *scratch = mem_alloc(comm_reduce_bytes(parts, c->size, F32, 0));
    for (int k = 0; k < 4; k++) {
        TRY_DONE(comm_barrier(c));
        double begin = clock_monotonic();
        TRY_DONE(comm_allreduce(c, x, parts, F32, scratch));
        times[k] = clock_monotonic() - begin;
    }
    *seconds = sort_median(times + 1, 3);
done:
    intervals_free_all(parts, c->size);
    MEM_FREE(x, scratch);
    return status;
}

/* Measures all pairs of few ranks, else neighbours. All ranks get each figure, so that no rank runs ahead. */
static Status measure_pairs(Probe *p, double *latency)
{
    Comm *c = p->comm;
    int n = c->size * (c->size - 1) / 2, ring = 0, known = 0;
    if (n > MOST_PAIRS) ring = n = c->size < MOST_PAIRS ? c->size : MOST_PAIRS;
    double latencies[MOST_PAIRS];
    if (c->rank == 0) printf("%-56s %12s %10s\n", "between", "latency, us", "GB/s");
    for (int k = 0, a = 0, b = 0; k < n; k++) {
        if (ring) {
            a = (int)((int64_t)k * c->size / n);
            b = (a + 1) % c->size;
        } else if (++b == c->size) {
            b = ++a + 1;
        }
        double figures[2] = {0};
        if (c->rank == a || c->rank == b) {
            TRY(measure_latency(p, a, b, &figures[0]));
            TRY(measure_pair(p, a, b, &figures[1]));
        }
        TRY(comm_broadcast(c, figures, sizeof figures, a));
        bool far = p->places[a].node != p->places[b].node;
        if (far || c->nodes == 1) latencies[known++] = figures[0];
        char *names = mem_printf("%s, %s", comm_peer_name(c, a), comm_peer_name(c, b));
        if (c->rank == 0) printf("%-56s %12.1f %10.3f\n", names, 1e6 * figures[0], figures[1] / 1e9);
        free(names);
    }
    *latency = known ? sort_median(latencies, known) : 0;
    return OK;
}

static Status measure_network(Probe *p)
{
    Comm *c = p->comm;
    double latency = 0, rate = 0, sum = 0;
    const RankOnHost mine = {c->node, c->local_rank, c->local_size};
    TRY(comm_allgather(c, &mine, sizeof mine, p->places));
    TRY(measure_pairs(p, &latency));
    TRY(measure_all(p, &rate));
    TRY(measure_sum(p, &sum));
    if (c->rank != 0) return OK;
    printf("\n%d ranks on %d host%s, all sending at once: %.3f GB/s %s\n", c->size, c->nodes, c->nodes == 1 ? "" : "s",
           rate / 1e9, c->nodes == 1 ? "from each rank" : "out of each host");
    printf("sum of %d MiB over all ranks (fp32): %.1f ms\n", SUM_ELEMENTS >> 18, 1e3 * sum);
    printf("for `cairn plan`: --network %.3g,%.3g%s\n", rate / 1e9, 1e6 * latency,
           c->nodes == 1 ? "   (within one host: no network was measured)" : "");
    return OK;
}

Status probe_run(const Config *c)
{
    World world;
    Probe p = {0};
    CommOptions options = {.transport = "gloo",
                           .rendezvous = c->rendezvous,
                           .interfaces = c->iface,
                           .connect_s = c->connect_timeout,
                           .peer_timeout_s = c->peer_timeout};
    TRY(world_find(environ, &world));
    if (world.size == 1) return fail(E_USAGE, "a probe needs two ranks; give --ranks 2 or more, or --hosts");
    TRY(comm_open(&world, &options, &p.comm));
    p.places = mem_array((size_t)p.comm->size, sizeof *p.places);
    p.block = mem_alloc(BLOCK_BYTES);
    p.other = mem_alloc(BLOCK_BYTES);
    Status status = measure_network(&p);
    MEM_FREE(p.places, p.block, p.other);
    comm_close(p.comm);
    return status;
}
