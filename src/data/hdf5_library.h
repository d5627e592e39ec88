/* Shared by hdf5_file.c, hdf5_lists.c and hdf5_write.c: an open file, the lock around the library, its messages. */
#pragma once

#include <hdf5.h>

#include "data/hdf5_file.h"
#include "data/hdf5_heap.h"

struct Hdf5Column {
    Hdf5File *file;
    char name[48];
    hid_t id;
    Hdf5Shape shape;
    bool is_signed, big_endian;
    bool chunked;
    uint64_t address, chunk_lists; /* of lists: position of the descriptors (0: none), descriptors in a chunk */
    struct Hdf5Column *next;
};

struct Hdf5File {
    char *path;
    hid_t id;
    uint64_t size;
    Heap heap; /* its descriptor is open as long as the file */
    Hdf5Column *columns;
};

/* Every call of the library is between these two. The first call initialises the library. */
void hdf5_lock(void);
/* Ends the process where the library lacked memory: it then says that things are not there, and frees them twice. */
void hdf5_unlock(const char *path);
/* The library's message for its last error; valid until hdf5_unlock. */
const char *hdf5_says(void);

/* E_FORMAT with file and dataset. */
#define hdf5_bad_column(c, ...)                                                                                        \
    status_context(fail(E_FORMAT, __VA_ARGS__), "%s: dataset %s", (c)->file->path, (c)->name)
void hdf5_check_rows(const Hdf5Column *c, int64_t first, int64_t n);
