#include "train/snapshot_room.h"

#include <sys/stat.h>

#include "base/machine_memory.h"

#define MIB(bytes) ((double)(bytes) / (1 << 20))

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

/* Of the ranks of this one's host, or, with `there`, of its folder. They looked at different moments, or are in
   different cgroups: the largest figure counts, and each one's own for itself. */
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
