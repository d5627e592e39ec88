/* HDF5 files as far as shards need them: columns (datasets of the root group) whose rows are integers, lists of a fixed
   width, or lists of any length ("variable-length" in HDF5).

   No number in a file is trusted. Shapes, types and storage are checked when a column is opened, and allocations never
   exceed what the file's size and the caller's limits allow. Refused: datasets whose bytes lie in other files, filters
   other than deflate, shuffle and fletcher32, chunks above 64 MiB. hdf5_heap.c reads the lists, not the library, and
   checks every length (docs/files.md 8).

   hdf5_file.c, hdf5_lists.c and hdf5_write.c alone know the library. Where it is absent, hdf5_absent.c replaces them
   and every open fails. One lock surrounds the library, so any thread may call. HDF5's own file locking fails on
   network file systems; it is off unless HDF5_USE_FILE_LOCKING is set. */
#pragma once

#include "base/base.h"

bool hdf5_available(void);

/* ---- reading ---- */
typedef struct Hdf5File Hdf5File;
typedef struct Hdf5Column Hdf5Column;

typedef struct {
    bool lists;         /* rows of any length */
    int64_t rows;       /* at most 2^40 */
    int64_t width;      /* numbers per row, 1 to 65536; lists: 0 */
    int64_t chunk_rows; /* rows that are compressed together; 1: none are */
    int bytes;          /* of a number in the file */
} Hdf5Shape;

/* E_IO: cannot be read. E_FORMAT: not an HDF5 file, or cut short. */
Status hdf5_open(const char *path, Hdf5File **f);
void hdf5_close(Hdf5File *f); /* with its columns; takes NULL */
const char *hdf5_path(const Hdf5File *f);
/* *c is NULL where the file has no such dataset. The column lives as long as the file. */
Status hdf5_column(Hdf5File *f, const char *name, Hdf5Column **c);
Hdf5Shape hdf5_shape(const Hdf5Column *c);
/* Rows first … first + n − 1. Numbers beyond 32 bits are clamped. */
Status hdf5_read(Hdf5Column *c, int64_t first, int64_t n, int32_t *out); // (n, width)

/* Lists: the numbers of row i are values[offset[i] .. offset[i+1]). Zero-initialise; used again by the next read. */
typedef struct {
    int32_t *values; // (offset[n])
    int64_t *offset; // (n + 1)
    int64_t cap_values, cap_rows;
} Hdf5Lists;
void hdf5_lists_free(Hdf5Lists *l); /* takes a zeroed one */
/* A row of more than `most` numbers is E_FORMAT. */
Status hdf5_read_lists(Hdf5Column *c, int64_t first, int64_t n, int64_t most, Hdf5Lists *out);
/* The length of each list, without reading it. */
Status hdf5_list_lengths(Hdf5Column *c, int64_t first, int64_t n, int64_t most, int32_t *lengths); // (n)

/* ---- writing ---- */
typedef struct {
    const char *name; /* lives as long as the writer */
    int bytes;        /* of a number: 1, 2, 4; signed */
    int64_t width;    /* 0: lists; 1: a number per row */
    int64_t rows;     /* 0: as many as the file's */
} Hdf5Spec;

typedef struct Hdf5Writer Hdf5Writer;
/* Same calls, same bytes: no times are stored. `gzip` 0: contiguous; else the level, in chunks of `chunk_rows` rows
   (lists never). Under `path` it is durable and whole after hdf5_finish only. */
Status hdf5_create(const char *path, const Hdf5Spec *specs, int n, int64_t rows, int gzip, int64_t chunk_rows,
                   Hdf5Writer **w);
/* `values` are of the column's bytes. A column's rows come in order. */
Status hdf5_write(Hdf5Writer *w, int column, int64_t first, int64_t n, const void *values); // (n, width)
/* Row i of the call is values[offset[i] .. offset[i+1]). */
Status hdf5_write_lists(Hdf5Writer *w, int column, int64_t first, int64_t n, const void *values, const int64_t *offset);
Status hdf5_finish(Hdf5Writer *w); /* frees it whatever happens */
void hdf5_abandon(Hdf5Writer *w);  /* takes NULL */
