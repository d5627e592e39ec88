/* Any bytes as the heap of lists: four descriptors, then the file. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/hdf5_heap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    uint8_t descriptors[4 * HEAP_DESCRIPTOR] = {0};
    size_t first = size < sizeof descriptors ? size : sizeof descriptors, rest = size - first;
    if (fd < 0) fd = memfd_create("heap", 0);
    Heap h = {.fd = fd, .size = rest};
    memcpy(descriptors, data, first);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)rest) == 0 && pwrite(fd, data + first, rest, 0) == (ssize_t)rest,
          "a file in memory");
    for (int i = 0; i < 8; i++) {
        HeapRow row = heap_row(descriptors + i % 4 * HEAP_DESCRIPTOR);
        const uint8_t *bytes;
        volatile uint8_t sum = 0;
        if (heap_read(&h, row, 2, &bytes) == OK)
            for (size_t k = 0; k < 2 * (size_t)row.count; k++) sum = (uint8_t)(sum + bytes[k]);
    }
    heap_free(&h);
    return 0;
}
