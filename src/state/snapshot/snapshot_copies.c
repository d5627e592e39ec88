#include "state/snapshot/snapshot_copies.h"

#define PIECE ((uint64_t)16 << 20) /* bytes of a message */

void copies_place(SnapshotCopies *c, const int *node, int ranks, int nodes, int replicas)
{
    c->items = mem_array((size_t)ranks * (size_t)replicas, sizeof *c->items);
    for (int k = 1; k <= replicas; k++)
        for (int r = 0; r < ranks; r++) {
            int place = 0, there = 0, host = (node[r] + k) % nodes;
            for (int q = 0; q < r; q++) place += node[q] == node[r];
            for (int q = 0; q < ranks; q++) there += node[q] == host;
            place %= there;
            for (int q = 0; q < ranks; q++)
                if (node[q] == host && place-- == 0) c->items[c->count++] = (SnapshotCopy){.slice = r, .holder = q};
        }
}

void copies_free(SnapshotCopies *c)
{
    free(c->items);
    *c = (SnapshotCopies){0};
}

/* Sends the generation, then the slot; for a slot that is not whole only a 0. */
static Status send_slot(const SnapshotCopies *c, int to, const Snapshot *own, int slot, bool whole)
{
    int64_t generation = whole ? c->generation : 0;
    uint64_t bytes = whole ? snapshot_slot_bytes(own) : 0;
    TRY(comm_send(c->comm, to, &generation, sizeof generation));
    for (uint64_t at = 0; at < bytes; at += PIECE)
        TRY(comm_send(c->comm, to, snapshot_slot_data(own, slot) + at, bytes - at < PIECE ? bytes - at : PIECE));
    return OK;
}

static Status receive_slot(const SnapshotCopies *c, const SnapshotCopy *copy, bool *whole)
{
    int slot = snapshot_receive_begin(copy->file, c->keep);
    int64_t generation;
    uint64_t bytes = snapshot_slot_bytes(copy->file);
    *whole = true;
    TRY(comm_receive(c->comm, copy->slice, &generation, sizeof generation));
    if (generation == 0) return OK;
    uint8_t *room = snapshot_slot_data(copy->file, slot);
    for (uint64_t at = 0; at < bytes; at += PIECE)
        TRY(comm_receive(c->comm, copy->slice, room + at, bytes - at < PIECE ? bytes - at : PIECE));
    *whole = snapshot_receive_end(copy->file, slot, c->generation) == OK;
    return OK;
}

Status copies_exchange(void *context, Snapshot *own, int slot, bool whole)
{
    const SnapshotCopies *c = context;
    int rank = c->comm->rank;
    char *damaged = NULL;
    Status status = OK;
    for (int i = 0; i < c->count; i++) {
        const SnapshotCopy *copy = &c->items[i];
        bool good = true;
        if (copy->slice == rank) TRY_DONE(send_slot(c, copy->holder, own, slot, whole));
        if (copy->holder == rank) TRY_DONE(receive_slot(c, copy, &good));
        if (!good && !damaged) damaged = mem_strdup(status_message());
    }
    if (damaged) status = fail(E_CORRUPT, "%s", damaged);
done:
    free(damaged);
    return status;
}
