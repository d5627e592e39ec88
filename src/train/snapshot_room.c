#include "train/snapshot_room.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/machine_memory.h"
#include "state/snapshot.h"

#define MIB(bytes) ((double)(bytes) / (1 << 20))

/* ---- the need ---- */

Status snapshots_wish(const Config *c, int ranks, SnapshotWish *wish)
{
    const char *text = c->snapshot_steps, *launcher = getenv("CAIRN_RENDEZVOUS");
    *wish = (SnapshotWish){.automatic = strcmp(text, "auto") == 0};
    if (wish->automatic) {
        wish->wanted = (ranks > 1 || (launcher && *launcher)) && c->kfac_interval == 0; /* whose inverses they lack */
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

uint64_t snapshots_slices_bytes(const ParamTable *params, const Intervals *slices, int n, int copies, uint64_t *all)
{
    enum { SMALL_FILES = 512 << 10 };
    uint64_t most = 0, sum = 0;
    for (int r = 0; r < n; r++) {
        uint64_t bytes = snapshot_bytes(params, &slices[r], SMALL_FILES);
        if (bytes > most) most = bytes;
        sum += bytes;
    }
    if (all) *all = (uint64_t)(1 + copies) * sum;
    return (uint64_t)(1 + copies) * most;
}

uint64_t snapshots_rank_bytes(const ParamTable *params, const Exchange *x, int copies, uint64_t *all)
{
    int n = x ? x->buckets.ranks : 1;
    Intervals *slices = exchange_slices(params, x);
    uint64_t most = snapshots_slices_bytes(params, slices, n, copies, all);
    for (int r = 0; r < n; r++) intervals_free(&slices[r]);
    free(slices);
    return most;
}

Status snapshots_need(const Config *c, const Ranks *ranks, const ParamTable *params, const Exchange *x, uint64_t *bytes)
{
    const Comm *comm = ranks_comm(ranks);
    SnapshotWish wish;
    int copies;
    *bytes = 0;
    TRY(snapshots_wish(c, ranks_size(ranks), &wish));
    TRY(snapshots_replicas(c, comm ? comm->nodes : 1, &copies));
    if (wish.wanted) *bytes = snapshots_rank_bytes(params, x, copies, NULL);
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
