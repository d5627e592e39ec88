#include "data/hdf5_heap.h"

#define HEADER     16 /* of a collection, and of an object in it */
#define LEAST_SIZE 4096
#define MOST_SIZE  ((uint64_t)64 << 20)

HeapRow heap_row(const uint8_t descriptor[HEAP_DESCRIPTOR])
{
    return (HeapRow){(uint32_t)bytes_number(descriptor, 4), bytes_number(descriptor + 4, 8),
                     (uint32_t)bytes_number(descriptor + 12, 4)};
}

static Status read_at(Heap *h, uint64_t at, uint8_t *out, uint64_t n)
{
    ssize_t got = file_read_at(h->fd, at, out, n);
    if (got < 0) return fail(E_IO, "%m");
    return (uint64_t)got == n ? OK : fail(E_FORMAT, "the file ends within a heap of lists");
}

/* All bytes of a collection; its header has the number. */
static Status load_collection(Heap *h, uint64_t address, struct HeapCollection **found)
{
    for (int i = 0; i < 8; i++)
        if (h->collections[i].size && h->collections[i].address == address) {
            *found = &h->collections[i];
            return OK;
        }
    struct HeapCollection *c = &h->collections[h->turn++ % 8];
    uint64_t at = h->base + address, first = LEAST_SIZE;
    c->size = 0;
    if (address >= h->size || at < address || at >= h->size || h->size - at < HEADER)
        return fail(E_FORMAT, "a list claims to begin at byte %llu, beyond the file's %llu",
                    (unsigned long long)address, (unsigned long long)h->size);
    if (first > h->size - at) first = h->size - at;
    if (c->cap < LEAST_SIZE) c->bytes = mem_resize(c->bytes, c->cap = LEAST_SIZE, 1);
    TRY(read_at(h, at, c->bytes, first));
    uint64_t size = bytes_number(c->bytes + 8, 8);
    if (memcmp(c->bytes, "GCOL\x01", 5) != 0)
        return fail(E_FORMAT, "expected a heap of lists at byte %llu", (unsigned long long)at);
    if (size < HEADER || size > MOST_SIZE || size > h->size - at)
        return fail(E_FORMAT, "the heap of lists at byte %llu claims %llu bytes; the file has %llu",
                    (unsigned long long)at, (unsigned long long)size, (unsigned long long)h->size);
    if (size > c->cap) c->bytes = mem_resize(c->bytes, c->cap = size, 1);
    if (size > first) TRY(read_at(h, at + first, c->bytes + first, size - first));
    c->address = address;
    c->size = size;
    c->next = HEADER;
    *found = c;
    return OK;
}

/* Objects follow each other: number (2), references (2), 4 unused, size (8), data padded to 8. The search starts at
   `from`, because rows are mostly read in order. */
static const uint8_t *find_object(struct HeapCollection *c, uint32_t object, uint64_t from, uint64_t *size)
{
    for (uint64_t at = from; c->size - at >= HEADER;) {
        uint64_t number = bytes_number(c->bytes + at, 2), bytes = bytes_number(c->bytes + at + 8, 8);
        if (number == 0 || bytes > c->size - at - HEADER) return NULL; /* the free space; or damage */
        uint64_t step = HEADER + (bytes + 7) / 8 * 8;
        if (number == object) {
            *size = bytes;
            c->next = step < c->size - at ? at + step : HEADER;
            return c->bytes + at + HEADER;
        }
        if (step >= c->size - at) return NULL;
        at += step;
    }
    return NULL;
}

Status heap_read(Heap *h, HeapRow row, int width, const uint8_t **bytes)
{
    struct HeapCollection *c = NULL;
    uint64_t size = 0;
    *bytes = NULL;
    if (row.count == 0) return OK;
    TRY(load_collection(h, row.address, &c));
    const uint8_t *data = find_object(c, row.object, c->next, &size);
    if (!data) data = find_object(c, row.object, HEADER, &size);
    if (!data)
        return fail(E_FORMAT, "the heap of lists at byte %llu has no object %u", (unsigned long long)row.address,
                    row.object);
    if ((uint64_t)row.count * (uint64_t)width > size)
        return fail(E_FORMAT, "a list claims %u numbers, but has %llu", row.count,
                    (unsigned long long)size / (unsigned)width);
    *bytes = data;
    return OK;
}

void heap_free(Heap *h)
{
    for (int i = 0; i < 8; i++) free(h->collections[i].bytes);
    *h = (Heap){0};
}
