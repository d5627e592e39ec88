/* The input is a snapshot's file, or its beginning, which zeros follow to the length that its header says; once as it
   is and once with digests made right, so that more of it is taken. What is taken must be consistent, and every byte
   that it points to must be there. */
#include <stdlib.h>
#include <string.h>

#include "state/snapshot_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read(const uint8_t *data, size_t size)
{
    SnapshotView v;
    if (snapshot_view(data, size, &v) == OK) {
        const SnapshotFixed *f = &v.fixed;
        int64_t sum = 0;
        uint64_t bytes = 0;
        for (int i = 0; i < f->n_intervals; i++) sum += f->intervals[i].end - f->intervals[i].begin;
        if (sum != v.header->slice_size) abort();
        for (int i = 0; i < f->params.count; i++)
            if (f->params.params[i].offset + param_held(&f->params.params[i]) > f->params.size) abort();
        for (int i = 0; i < f->n_files; i++)
            for (uint64_t k = 0; k < f->files[i].size; k++) bytes += ((const uint8_t *)f->files[i].data)[k];
        if (bytes > 255 * (uint64_t)size) abort();
        for (int s = 0; s < SNAPSHOT_SLOTS; s++) (void)snapshot_slot_whole(data, v.header, s);
    }
    snapshot_view_free(&v);
}

static void make_right(uint8_t *data, size_t size)
{
    SnapshotHeader *h = (SnapshotHeader *)(void *)data;
    if (size < 2 * SNAPSHOT_PAGE) return;
    memcpy(h->magic, SNAPSHOT_MAGIC, sizeof h->magic);
    h->version = SNAPSHOT_VERSION;
    h->order = SNAPSHOT_ORDER;
    h->bytes = size;
    if (h->fixed_bytes <= size - 2 * SNAPSHOT_PAGE) h->fixed = digest_of(data + 2 * SNAPSHOT_PAGE, h->fixed_bytes);
    h->digest = snapshot_header_digest(h);
    for (int s = 0; s < SNAPSHOT_SLOTS; s++) {
        if (h->slot_offset[s] > size || size - h->slot_offset[s] < sizeof(SnapshotMark)) return;
        SnapshotMark m;
        memcpy(&m, data + h->slot_offset[s], sizeof m);
        m.digest = snapshot_mark_digest(h, &m);
        memcpy(data + h->slot_offset[s], &m, sizeof m);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 1 << 20 };
    SnapshotHeader h = {0};
    if (size >= sizeof h) memcpy(&h, data, sizeof h);
    size_t full = h.bytes > size && h.bytes <= MOST ? (size_t)h.bytes : size;
    uint8_t *copy = aligned_alloc(4096, (full + 4095) / 4096 * 4096 + 4096);
    if (!copy) return 0;
    memset(copy, 0, full);
    memcpy(copy, data, size);
    read(copy, full);
    make_right(copy, full);
    read(copy, full);
    free(copy);
    return 0;
}
