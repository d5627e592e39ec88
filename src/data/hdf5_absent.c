/* Stands for hdf5_file.c and hdf5_write.c where the library was absent when Cairn was built. */
#include "data/hdf5_file.h"

#define WITHOUT(path)                                                                                                  \
    fail(E_USAGE, "%s: this cairn was built without HDF5; install libhdf5-dev and build again (-DWITH_HDF5=ON)", path)

bool hdf5_available(void) { return false; }

Status hdf5_open(const char *path, Hdf5File **f)
{
    *f = NULL;
    return WITHOUT(path);
}

Status hdf5_create(const char *path, const Hdf5Spec *specs, int n, int64_t rows, int gzip, int64_t chunk_rows,
                   Hdf5Writer **w)
{
    (void)specs, (void)n, (void)rows, (void)gzip, (void)chunk_rows;
    *w = NULL;
    return WITHOUT(path);
}

/* Nothing can be open: the rest is never called but to free NULL. */
void hdf5_close(Hdf5File *f) { (void)f; }
void hdf5_abandon(Hdf5Writer *w) { (void)w; }
void hdf5_lists_free(Hdf5Lists *l) { *l = (Hdf5Lists){0}; }

const char *hdf5_path(const Hdf5File *f) { return (void)f, ""; }
const char *hdf5_name(const Hdf5Column *c) { return (void)c, ""; }
Hdf5Shape hdf5_shape(const Hdf5Column *c) { return (void)c, (Hdf5Shape){0}; }

Status hdf5_column(Hdf5File *f, const char *name, Hdf5Column **c)
{
    (void)f;
    *c = NULL;
    return WITHOUT(name);
}

Status hdf5_read(Hdf5Column *c, int64_t first, int64_t n, int32_t *out)
{
    (void)c, (void)first, (void)n, (void)out;
    return WITHOUT("HDF5");
}

Status hdf5_read_lists(Hdf5Column *c, int64_t first, int64_t n, int64_t most, Hdf5Lists *out)
{
    (void)c, (void)first, (void)n, (void)most, (void)out;
    return WITHOUT("HDF5");
}

Status hdf5_list_lengths(Hdf5Column *c, int64_t first, int64_t n, int64_t most, int32_t *lengths)
{
    (void)c, (void)first, (void)n, (void)most, (void)lengths;
    return WITHOUT("HDF5");
}

Status hdf5_write(Hdf5Writer *w, int column, int64_t first, int64_t n, const void *values)
{
    (void)w, (void)column, (void)first, (void)n, (void)values;
    return WITHOUT("HDF5");
}

Status hdf5_write_lists(Hdf5Writer *w, int column, int64_t first, int64_t n, const void *values, const int64_t *offset)
{
    (void)w, (void)column, (void)first, (void)n, (void)values, (void)offset;
    return WITHOUT("HDF5");
}

Status hdf5_finish(Hdf5Writer *w) { return (void)w, WITHOUT("HDF5"); }
