/* HDF5's global heap, where the numbers of variable-length rows lie (HDF5 File Format Specification 3.0, III.E). Read
   here and not by the library, which believes the lengths it finds there. */
#ifndef CAIRN_DATA_HDF5_HEAP_H
#define CAIRN_DATA_HDF5_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

#define HEAP_DESCRIPTOR                                                                                                \
    16 /* bytes of a row in the dataset: count (4), collection's address (8), object's number (4)                      \
        */

typedef struct {
    int fd;
    uint64_t base, size; /* where the addresses count from; the file's size */
    struct HeapCollection {
        uint64_t address, size, cap;
        uint8_t *bytes; // (size)
        uint64_t next;  /* where the last search ended */
    } collections[8];
    int turn;
} Heap;

typedef struct {
    uint32_t count; /* numbers */
    uint64_t address;
    uint32_t object;
} HeapRow;

HeapRow heap_row(const uint8_t descriptor[HEAP_DESCRIPTOR]);
/* The row's bytes, `width` per number; they stay until 7 other collections were read. E_FORMAT says what is wrong with
   the address or the length, without file and row. A row without numbers gives none. */
Status heap_read(Heap *h, HeapRow row, int width, const uint8_t **bytes);
void heap_free(Heap *h); /* not the descriptor; takes a zeroed one */

#endif
