/* HDF5's global heap, where the numbers of variable-length rows lie (HDF5 File Format Specification 3.0, III.E). Read
   here, because the library trusts the lengths that it finds there. */
#pragma once

#include "base/base.h"

/* Bytes of a row in the dataset: count (4), collection's address (8), object's number (4). */
#define HEAP_DESCRIPTOR 16

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
/* The row's bytes, `width` per number; NULL for a row without numbers. Valid until 7 other collections were read.
   E_FORMAT for a bad address or length; the message lacks file and row. */
Status heap_read(Heap *h, HeapRow row, int width, const uint8_t **bytes);
void heap_free(Heap *h); /* not the descriptor; takes a zeroed one */
