/* The input is a snapshot's file, or its beginning, padded with zeros to the length in its header; once as it is and
   once with corrected digests, so that more of it is accepted. An accepted snapshot must be consistent, and every byte
   that it refers to must exist. */
#include <stdlib.h>
#include <string.h>

#include "state/snapshot_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read(const uint8_t *data, size_t size)
{
    SnapshotFixed f;
    if (snapshot_check(data, size, &f) == OK) {
        const SnapshotHeader *h = (const SnapshotHeader *)(const void *)data;
        int64_t sum = 0;
        uint64_t bytes = 0;
        for (int i = 0; i < f.part.count; i++) sum += f.part.intervals[i].end - f.part.intervals[i].begin;
        if (sum != h->slice_size) abort();
        for (int i = 0; i < f.params.count; i++)
            if (f.params.params[i].offset + param_held(&f.params.params[i]) > f.params.size) abort();
        for (int i = 0; i < f.n_files; i++)
            for (uint64_t k = 0; k < f.files[i].size; k++) bytes += ((const uint8_t *)f.files[i].data)[k];
        if (bytes > 255 * (uint64_t)size) abort();
        for (int s = 0; s < SNAPSHOT_SLOTS; s++) (void)snapshot_slot_whole(data, h, s);
    }
    snapshot_fixed_free(&f);
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
