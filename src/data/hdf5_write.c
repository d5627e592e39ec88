/* Writing through HDF5's C library. */
#include <fcntl.h>
#include <unistd.h>

#include "data/hdf5_library.h"

#define MOST_COLUMNS 8
#define LIST_ROWS    1024 /* lists given to the library at once */

struct Hdf5Writer {
    char *path, *temporary;
    hid_t id;
    hid_t transfer; /* how rows are given to the library */
    int n;
    struct WriterColumn {
        Hdf5Spec spec;
        hid_t id, type; /* type: of a row */
    } columns[MOST_COLUMNS];
    hvl_t lists[LIST_ROWS];
};

/* The type of numbers in the file, which they have in memory, too. */
static hid_t number_type(int bytes) { return bytes == 1 ? H5T_STD_I8LE : bytes == 2 ? H5T_STD_I16LE : H5T_STD_I32LE; }

static Status create_column(Hdf5Writer *w, struct WriterColumn *c, const Hdf5Spec *spec, int64_t rows, int gzip,
                            int64_t chunk_rows)
{
    if (spec->rows) rows = spec->rows;
    hsize_t dims[2] = {(hsize_t)rows, (hsize_t)spec->width};
    int rank = spec->width > 1 ? 2 : 1;
    hid_t made = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(rank, dims, NULL);
    c->spec = *spec;
    H5Pset_obj_track_times(made, 0); /* the same rows, the same bytes */
    if (gzip && spec->width > 0 && rows > 0) {
        hsize_t chunk[2] = {(hsize_t)(chunk_rows < rows ? chunk_rows : rows), (hsize_t)spec->width};
        H5Pset_chunk(made, rank, chunk);
        H5Pset_deflate(made, (unsigned)gzip);
    }
    c->type = spec->width == 0 ? H5Tvlen_create(number_type(spec->bytes)) : H5Tcopy(number_type(spec->bytes));
    c->id = H5Dcreate2(w->id, spec->name, c->type, space, H5P_DEFAULT, made, H5P_DEFAULT);
    H5Sclose(space);
    H5Pclose(made);
    if (c->id < 0) return fail(E_IO, "%s: dataset %s cannot be made: %s", w->temporary, spec->name, hdf5_says());
    return OK;
}

static Status create_locked(Hdf5Writer *w, const Hdf5Spec *specs, int n, int64_t rows, int gzip, int64_t chunk_rows)
{
    hid_t made = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_obj_track_times(made, 0);
    w->id = H5Fcreate(w->temporary, H5F_ACC_TRUNC, made, H5P_DEFAULT);
    H5Pclose(made);
    /* The library zeroes its buffer at each write of lists: 1 MiB, unless it is told that less will do. */
    w->transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_buffer(w->transfer, sizeof w->lists, NULL, NULL);
    if (w->id < 0) return fail(E_IO, "%s: cannot be made: %s", w->temporary, hdf5_says());
    for (; w->n < n; w->n++) TRY(create_column(w, &w->columns[w->n], &specs[w->n], rows, gzip, chunk_rows));
    return OK;
}

/* Closes all handles; false if the library could not write everything. */
static bool close_locked(Hdf5Writer *w)
{
    bool good = true;
    for (int i = 0; i < MOST_COLUMNS; i++) {
        if (w->columns[i].type > 0) H5Tclose(w->columns[i].type);
        if (w->columns[i].id > 0) good &= H5Dclose(w->columns[i].id) >= 0;
    }
    if (w->transfer > 0) H5Pclose(w->transfer);
    if (w->id > 0) good &= H5Fclose(w->id) >= 0;
    w->id = 0;
    return good;
}

static void writer_free(Hdf5Writer *w)
{
    unlink(w->temporary);
    MEM_FREE(w->path, w->temporary, w);
}

Status hdf5_create(const char *path, const Hdf5Spec *specs, int n, int64_t rows, int gzip, int64_t chunk_rows,
                   Hdf5Writer **out)
{
    Hdf5Writer *w = mem_alloc(sizeof *w);
    CHECK(n <= MOST_COLUMNS, "%d columns", n);
    w->path = mem_strdup(path);
    w->temporary = mem_printf("%s.tmp.%ld", path, (long)getpid());
    hdf5_lock();
    Status status = create_locked(w, specs, n, rows, gzip, chunk_rows);
    hdf5_unlock(w->path);
    if (status != OK) hdf5_abandon(w);
    *out = status == OK ? w : NULL;
    return status;
}

static Status write_rows(Hdf5Writer *w, int column, int64_t first, int64_t n, const void *values)
{
    const struct WriterColumn *c = &w->columns[column];
    hsize_t from[2] = {(hsize_t)first, 0}, count[2] = {(hsize_t)n, (hsize_t)c->spec.width};
    Status status = OK;
    hid_t space = H5Dget_space(c->id), memory = H5Screate_simple(H5Sget_simple_extent_ndims(space), count, NULL);
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, count, NULL) < 0 ||
        H5Dwrite(c->id, c->type, memory, space, w->transfer, values) < 0)
        status =
            fail(E_IO, "%s: dataset %s, rows from %lld: %s", w->temporary, c->spec.name, (long long)first, hdf5_says());
    H5Sclose(memory);
    H5Sclose(space);
    return status;
}

Status hdf5_write(Hdf5Writer *w, int column, int64_t first, int64_t n, const void *values)
{
    CHECK(column < w->n && w->columns[column].spec.width > 0, "column %d", column);
    if (n == 0) return OK;
    hdf5_lock();
    Status status = write_rows(w, column, first, n, values);
    hdf5_unlock(w->path);
    return status;
}

Status hdf5_write_lists(Hdf5Writer *w, int column, int64_t first, int64_t n, const void *values, const int64_t *offset)
{
    const char *bytes = values;
    Status status = OK;
    CHECK(column < w->n && w->columns[column].spec.width == 0, "column %d", column);
    hdf5_lock();
    for (int64_t done = 0; done < n && status == OK;) {
        int64_t rows = n - done < LIST_ROWS ? n - done : LIST_ROWS;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t *at = offset + done + i;
            w->lists[i].len = (size_t)(at[1] - at[0]);
            w->lists[i].p = w->lists[i].len ? (void *)(uintptr_t)(bytes + at[0] * w->columns[column].spec.bytes) : NULL;
        }
        status = write_rows(w, column, first + done, rows, w->lists);
        done += rows;
    }
    hdf5_unlock(w->path);
    return status;
}

/* The file's bytes to the disk. */
static Status sync_file(const char *path)
{
    int fd = file_open(path, O_RDWR);
    bool good = fd >= 0 && file_sync(fd) == 0;
    Status status = good ? OK : fail(E_IO, "%s: %m", path);
    if (fd >= 0) close(fd);
    return status;
}

Status hdf5_finish(Hdf5Writer *w)
{
    Status status = OK;
    hdf5_lock();
    if (!close_locked(w)) status = fail(E_IO, "%s: %s", w->temporary, hdf5_says());
    hdf5_unlock(w->path);
    if (status == OK) status = sync_file(w->temporary);
    if (status == OK) status = file_rename(w->temporary, w->path);
    writer_free(w);
    return status;
}

void hdf5_abandon(Hdf5Writer *w)
{
    if (!w) return;
    hdf5_lock();
    close_locked(w);
    hdf5_unlock(w->path);
    writer_free(w);
}
