#include "train/planner/snapshot_room.h"

#include <sys/stat.h>

#include "base/machine_memory.h"
#include "state/snapshot/snapshot.h"
#include "train/parts/place.h"

enum { SMALL_FILES = 512 << 10 }; /* bytes for a run's small files, more than they take */

/* ---- the need ---- */

Status snapshots_wish(const Config *c, int ranks, SnapshotWish *wish)
{
    const char *text = c->snapshot_steps, *launcher = getenv("CAIRN_RENDEZVOUS");
    *wish = (SnapshotWish){.automatic = strcmp(text, "auto") == 0};
    if (wish->automatic) {
        wish->wanted = ranks > 1 || (launcher && *launcher);
        return OK;
    }
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 15 || text[digits] != '\0')
        return fail(E_USAGE, "--snapshot-steps '%s': expected auto, 0 for never, or a number of steps", text);
    wish->every = strtoll(text, NULL, 10);
    wish->wanted = wish->every > 0;
    return OK;
}

Status snapshots_replicas(const Config *c, int hosts, int *n)
{
    const char *text = c->snapshot_replicas;
    char *end;
    long number = strtol(text, &end, 10);
    *n = hosts > 1 ? 1 : 0;
    if (strcmp(text, "auto") == 0) return OK;
    if (!(*text >= '0' && *text <= '9') || *end != '\0' || number > 1000)
        return fail(E_USAGE, "--snapshot-replicas '%s': expected auto, or a number of other hosts", text);
    if (number >= hosts && number > 0)
        return fail(E_USAGE, "--snapshot-replicas %ld needs %ld hosts, the ranks are on %d", number, number + 1, hosts);
    *n = (int)number;
    return OK;
}

static uint64_t slice_bytes(const Holding *h, int r)
{
    const HeldPart own = holding_part(h, r);
    return snapshot_bytes(&own, SMALL_FILES);
}

uint64_t snapshots_most_bytes(const Holding *h, const SnapshotCopies *placed)
{
    uint64_t most = 0;
    for (int r = 0; r < holding_ranks(h); r++) {
        uint64_t sum = slice_bytes(h, r);
        for (int i = 0; i < placed->count; i++)
            if (placed->items[i].holder == r) sum += slice_bytes(h, placed->items[i].slice);
        if (sum > most) most = sum;
    }
    return most;
}

uint64_t snapshots_rank_bytes(const Holding *h, int copies, uint64_t *all)
{
    uint64_t sum = 0;
    for (int r = 0; r < holding_ranks(h); r++) sum += slice_bytes(h, r);
    if (all) *all = (uint64_t)(1 + copies) * sum;
    return (uint64_t)(1 + copies) * snapshots_most_bytes(h, &(SnapshotCopies){0});
}

/* ---- where copies lie ---- */

void snapshots_place(const Comm *comm, int replicas, SnapshotCopies *placed)
{
    *placed = (SnapshotCopies){0};
    if (!comm || replicas == 0) return;
    int *node = mem_array((size_t)comm->size, sizeof *node);
    for (int r = 0; r < comm->size; r++) node[r] = comm_node(comm, r);
    copies_place(placed, node, comm->size, comm->nodes, replicas);
    free(node);
}

Status snapshots_need(const Config *c, const Ranks *ranks, const PlanInput *in, uint64_t *bytes)
{
    const Comm *comm = ranks_comm(ranks);
    SnapshotWish wish;
    SnapshotCopies placed;
    int copies;
    *bytes = 0;
    TRY(snapshots_wish(c, ranks_size(ranks), &wish));
    TRY(snapshots_replicas(c, comm ? comm->nodes : 1, &copies));
    if (!wish.wanted) return OK;
    snapshots_place(comm, copies, &placed);
    *bytes = snapshots_most_bytes(&in->place->holding, &placed);
    copies_free(&placed);
    return OK;
}

/* ---- the room ---- */

typedef struct {
    uint64_t need, free;
    int ranks;
} Sum;

Status snapshot_claim(const char *dir, int64_t node, SnapshotClaim *mine)
{
    struct stat st;
    *mine = (SnapshotClaim){.node = node, .free_memory = machine_free_bytes()};
    if (stat(dir, &st) != 0) return fail(E_IO, "--snapshot-dir %s: %m", dir);
    mine->device = (uint64_t)st.st_dev;
    return file_free_bytes(dir, &mine->free_there);
}

static uint64_t more(const SnapshotClaim *c) { return c->need > c->held ? c->need - c->held : 0; }

/* Over the ranks of the same host, or, with `there`, of the same folder. They measured at different moments, or are in
   different cgroups, so the largest figure counts. */
static Sum sum_of(const SnapshotClaim *all, int n, const SnapshotClaim *of, bool there)
{
    Sum sum = {0};
    for (int i = 0; i < n; i++) {
        const SnapshotClaim *c = &all[i];
        uint64_t free = there ? c->free_there : c->free_memory;
        if (c->node != of->node || (there && c->device != of->device)) continue;
        sum.need += more(c);
        sum.ranks++;
        if (free > sum.free) sum.free = free;
    }
    return sum;
}

static const char *plural(int n) { return n == 1 ? "" : "s"; }

Status snapshot_room(const SnapshotClaim *all, int n, const char *dir, const char *(*host)(void *, int), void *context)
{
    for (int i = 0; i < n; i++) {
        Sum there = sum_of(all, n, &all[i], true), memory = sum_of(all, n, &all[i], false);
        if (there.need > there.free)
            return fail(E_MEMORY,
                        "--snapshot-dir %s on %s: snapshots of %d rank%s (with the copies they hold for others) take "
                        "%.1f MiB there, %.1f MiB are free. Enlarge it (mount -o remount,size=…; of a container: "
                        "--shm-size), name another tmpfs, use more hosts, or --snapshot-steps 0",
                        dir, host(context, i), there.ranks, plural(there.ranks), MIB(there.need), MIB(there.free));
        if (more(&all[i]) > all[i].free_memory) memory = (Sum){more(&all[i]), all[i].free_memory, 1};
        if (memory.need > memory.free)
            return fail(E_MEMORY,
                        "snapshots of %d rank%s (with the copies they hold for others) take %.1f MiB of the memory of "
                        "%s, %.1f MiB are free (or left by the cgroup's limit). End what else runs there, raise the "
                        "limit, use more hosts, or --snapshot-steps 0",
                        memory.ranks, plural(memory.ranks), MIB(memory.need), host(context, i), MIB(memory.free));
    }
    return OK;
}
