/* The input is a snapshot's file, or its beginning, padded with zeros to the length in its header; once as it is and
   once with corrected digests, so that more of it is accepted. An accepted snapshot must be consistent, and every byte
   that it refers to must exist. */
#include <stdlib.h>
#include <string.h>

#include "asan.h"
#include "state/snapshot/snapshot_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read(const uint8_t *data, size_t size)
{
    SnapshotFixed f;
    if (snapshot_check(data, size, &f) == OK) {
        const SnapshotHeader *h = (const SnapshotHeader *)(const void *)data;
        uint64_t bytes = 0;
        for (int space = 0; space < N_SPACES; space++) {
            const Intervals *part = &f.part[space];
            const ParamTable *t = &f.params[space];
            int64_t sum = 0;
            for (int i = 0; i < part->count; i++) sum += part->intervals[i].end - part->intervals[i].begin;
            if (sum != (space ? h->sets_slice : h->slice_size)) abort();
            for (int i = 0; i < t->count; i++)
                if (t->params[i].offset + param_held(&t->params[i]) > t->size) abort();
        }
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
    if (h->version != 1) h->version = SNAPSHOT_VERSION;
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
    if (size > full || full > MOST) return 0;
    /* Zeros between calls. New memory for each would cost more than the reader, for its pages. */
    static uint8_t copy[MOST] __attribute__((aligned(4096)));
    ASAN_POISON_MEMORY_REGION(copy + full, MOST - full);
    memcpy(copy, data, size);
    read(copy, full);
    make_right(copy, full);
    read(copy, full);
    memset(copy, 0, full);
    ASAN_UNPOISON_MEMORY_REGION(copy, MOST);
    return 0;
}
