/* Replaces hdf5_file.c, hdf5_lists.c and hdf5_write.c where Cairn is built without the library. */
#include "data/hdf5_file.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static Status fail_absent(const char *what)
{
    return fail(E_USAGE, "%s: this cairn was built without HDF5; install libhdf5-dev and build again (-DWITH_HDF5=ON)",
                what);
}

bool hdf5_available(void) { return false; }

Status hdf5_open(const char *path, Hdf5File **f)
{
    *f = NULL;
    return fail_absent(path);
}
Status hdf5_create(const char *path, const Hdf5Spec *specs, int n, int64_t rows, int gzip, int64_t chunk_rows,
                   Hdf5Writer **w)
{
    *w = NULL;
    return fail_absent(path);
}

/* Without an open file the rest is only called to free NULL. */
void hdf5_close(Hdf5File *f) {}
void hdf5_abandon(Hdf5Writer *w) {}
void hdf5_lists_free(Hdf5Lists *l) {}

const char *hdf5_path(const Hdf5File *f) { return ""; }
Hdf5Shape hdf5_shape(const Hdf5Column *c) { return (Hdf5Shape){0}; }
Status hdf5_column(Hdf5File *f, const char *name, Hdf5Column **c) { return fail_absent(name); }
Status hdf5_read(Hdf5Column *c, int64_t first, int64_t n, int32_t *out) { return fail_absent("HDF5"); }
Status hdf5_read_lists(Hdf5Column *c, int64_t first, int64_t n, int64_t most, Hdf5Lists *out)
{
    return fail_absent("HDF5");
}
Status hdf5_list_lengths(Hdf5Column *c, int64_t first, int64_t n, int64_t most, int32_t *lengths)
{
    return fail_absent("HDF5");
}
Status hdf5_write(Hdf5Writer *w, int column, int64_t first, int64_t n, const void *values)
{
    return fail_absent("HDF5");
}
Status hdf5_write_lists(Hdf5Writer *w, int column, int64_t first, int64_t n, const void *values, const int64_t *offset)
{
    return fail_absent("HDF5");
}
Status hdf5_finish(Hdf5Writer *w) { return fail_absent("HDF5"); }
