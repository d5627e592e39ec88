/* Reading through HDF5's C library. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/library.h"
#include "data/hdf5_library.h"

#define MOST_ROWS  (INT64_C(1) << 40)
#define MOST_WIDTH 65536
#define MOST_CHUNK ((uint64_t)64 << 20)

/* ---- the library ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char message[256];

/* Without memory the library calls itself until no stack is left, so that the handler of base/library needs another. */
static void start(void)
{
    static char room[1 << 16];
    stack_t own = {.ss_sp = room, .ss_size = sizeof room}, before;
    sigaltstack(&own, &before);
    setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0); /* read when the library starts */
    H5open();
#ifdef CAIRN_FUZZ /* freed blocks stay with the library: each open file takes half a megabyte */
    H5set_free_list_limits(-1, -1, -1, -1, -1, -1);
#endif
    sigaltstack(&before, NULL);
}

void hdf5_lock(void)
{
    static bool started;
    pthread_mutex_lock(&lock);
    library_enter("HDF5");
    if (!started) start();
    started = true;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* no printing; the setting is per thread */
}

void hdf5_unlock(const char *path)
{
    if (library_leave()) {
        log_printf(LOG_ERROR, "%s: the system refused memory to the library HDF5; " LIBRARY_ADVICE, path);
        _exit(status_exit_code(E_MEMORY));
    }
    pthread_mutex_unlock(&lock);
}

static herr_t keep_message(unsigned n, const H5E_error2_t *e, void *data)
{
    (void)n, (void)data;
    snprintf(message, sizeof message, "%s", e->desc ? e->desc : "unknown error");
    return 0;
}

const char *hdf5_says(void)
{
    snprintf(message, sizeof message, "unknown error");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_message, NULL); /* the innermost comes last */
    return message;
}

bool hdf5_available(void) { return true; }

/* ---- files ---- */

static Status open_locked(Hdf5File *f)
{
    hsize_t userblock = 0;
    size_t address = 0, length = 0;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    f->id = H5Fopen(f->path, H5F_ACC_RDONLY, access);
    const char *why = f->id < 0 ? hdf5_says() : ""; /* the next call clears it */
    H5Pclose(access);
    if (f->id < 0) return fail(E_FORMAT, "%s: not an HDF5 file that can be read, or not a whole one: %s", f->path, why);
    hid_t made = H5Fget_create_plist(f->id);
    bool known = made >= 0 && H5Pget_userblock(made, &userblock) >= 0 && H5Pget_sizes(made, &address, &length) >= 0;
    if (made >= 0) H5Pclose(made);
    if (!known || address != 8 || length != 8)
        return fail(E_FORMAT, "%s: addresses of %zu and lengths of %zu bytes; expected 8 and 8", f->path, address,
                    length);
    f->heap.base = userblock;
    f->heap.size = f->size;
    return OK;
}

Status hdf5_open(const char *path, Hdf5File **out)
{
    Hdf5File *f = mem_alloc(sizeof *f);
    Status status = OK;
    *out = NULL;
    f->path = mem_strdup(path);
    f->id = -1;
    TRY_DONE(file_open_regular(path, O_RDONLY, &f->heap.fd));
    TRY_DONE(file_size(path, &f->size));
    hdf5_lock();
    status = open_locked(f);
    hdf5_unlock(path);
done:
    if (status != OK) {
        hdf5_close(f);
        return status;
    }
    *out = f;
    return OK;
}

void hdf5_close(Hdf5File *f)
{
    if (!f) return;
    if (f->id >= 0) {
        hdf5_lock();
        for (Hdf5Column *c = f->columns; c; c = c->next) H5Dclose(c->id);
        H5Fclose(f->id);
        hdf5_unlock(f->path);
    }
    for (Hdf5Column *c = f->columns, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    if (f->heap.fd >= 0) close(f->heap.fd);
    heap_free(&f->heap);
    MEM_FREE(f->path, f);
}

const char *hdf5_path(const Hdf5File *f) { return f->path; }
Hdf5Shape hdf5_shape(const Hdf5Column *c) { return c->shape; }

/* ---- columns ---- */

static Status check_type(Hdf5Column *c)
{
    hid_t type = H5Dget_type(c->id), number = type;
    Status status = OK;
    if (type < 0) return hdf5_bad_column(c, "its type cannot be read: %s", hdf5_says());
    if (H5Tget_class(type) == H5T_VLEN) {
        c->shape.lists = true;
        number = H5Tget_super(type);
    }
    size_t bytes = number >= 0 ? H5Tget_size(number) : 0;
    if (number < 0 || H5Tget_class(number) != H5T_INTEGER || (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) ||
        H5Tget_precision(number) != 8 * bytes)
        status = hdf5_bad_column(c, "expected whole numbers of 1, 2, 4 or 8 bytes, or lists of them");
    c->shape.bytes = (int)bytes;
    c->is_signed = status == OK && H5Tget_sign(number) != H5T_SGN_NONE;
    c->big_endian = status == OK && H5Tget_order(number) == H5T_ORDER_BE;
    if (number != type && number >= 0) H5Tclose(number);
    H5Tclose(type);
    return status;
}

static Status check_space(Hdf5Column *c)
{
    hsize_t dims[2] = {0, 1};
    hid_t space = H5Dget_space(c->id);
    int rank = space >= 0 && H5Sget_simple_extent_type(space) == H5S_SIMPLE ? H5Sget_simple_extent_ndims(space) : -1;
    bool fits = (rank == 1 || rank == 2) && !(rank == 2 && c->shape.lists);
    if (fits) H5Sget_simple_extent_dims(space, dims, NULL);
    if (space >= 0) H5Sclose(space);
    if (!fits)
        return hdf5_bad_column(c, "it has %d dimensions; expected %s", rank,
                               c->shape.lists ? "1 (of lists)" : "1 or 2");
    if (dims[0] > MOST_ROWS || dims[1] < 1 || dims[1] > MOST_WIDTH)
        return hdf5_bad_column(c, "it is %llu × %llu; expected at most 2^40 rows of 1 to %d numbers",
                               (unsigned long long)dims[0], (unsigned long long)dims[1], MOST_WIDTH);
    c->shape.rows = (int64_t)dims[0];
    c->shape.width = c->shape.lists ? 0 : (int64_t)dims[1];
    return OK;
}

static Status check_filters(Hdf5Column *c, hid_t made)
{
    int n = H5Pget_nfilters(made);
    for (int i = 0; i < n; i++) {
        unsigned flags, info;
        size_t values = 0;
        H5Z_filter_t filter = H5Pget_filter2(made, (unsigned)i, &flags, &values, NULL, 0, NULL, &info);
        if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_FLETCHER32)
            return hdf5_bad_column(c, "it uses filter %d; expected gzip (deflate), shuffle or none", (int)filter);
        if (c->shape.lists)
            return hdf5_bad_column(
                c, "it is a compressed dataset of lists, which is not read: h5repack -f NONE makes it plain");
    }
    return n < 0 ? hdf5_bad_column(c, "its filters cannot be read: %s", hdf5_says()) : OK;
}

static Status check_storage(Hdf5Column *c)
{
    hid_t made = H5Dget_create_plist(c->id);
    Status status = OK;
    if (made < 0) return hdf5_bad_column(c, "its storage cannot be read: %s", hdf5_says());
    H5D_layout_t layout = H5Pget_layout(made);
    uint64_t unit = c->shape.lists ? HEAP_DESCRIPTOR : (uint64_t)c->shape.bytes;
    uint64_t whole = unit * (uint64_t)(c->shape.lists ? 1 : c->shape.width) * (uint64_t)c->shape.rows;
    c->shape.chunk_rows = 1;
    TRY_DONE(check_filters(c, made));
    if (H5Pget_external_count(made) != 0 ||
        (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT))
        TRY_DONE(hdf5_bad_column(c, "its bytes do not lie in this file"));
    if (layout == H5D_CHUNKED) {
        hsize_t chunk[2] = {0, 1};
        int rank = H5Pget_chunk(made, 2, chunk);
        if (rank < 1 || rank > 2 || chunk[0] == 0 || chunk[1] == 0 || chunk[0] > MOST_CHUNK || chunk[1] > MOST_CHUNK ||
            chunk[0] * chunk[1] > MOST_CHUNK / unit)
            TRY_DONE(hdf5_bad_column(c, "chunks of %llu × %llu; expected at most %llu MiB",
                                     (unsigned long long)chunk[0], (unsigned long long)chunk[1],
                                     (unsigned long long)MOST_CHUNK >> 20));
        c->chunked = true;
        c->chunk_lists = chunk[0];
        if (H5Pget_nfilters(made) > 0) c->shape.chunk_rows = (int64_t)chunk[0];
        /* deflate makes at most about 1:1030, and chunks that are not there are read as zeros */
        if (whole / 2048 > c->file->size)
            TRY_DONE(hdf5_bad_column(c, "%lld rows are more than the file can hold", (long long)c->shape.rows));
    } else if (whole > c->file->size) {
        TRY_DONE(hdf5_bad_column(c, "%lld rows need %llu bytes; the file has %llu", (long long)c->shape.rows,
                                 (unsigned long long)whole, (unsigned long long)c->file->size));
    }
    if (c->shape.lists && !c->chunked) {
        haddr_t at = layout == H5D_CONTIGUOUS ? H5Dget_offset(c->id) : HADDR_UNDEF;
        if (layout != H5D_CONTIGUOUS && c->shape.rows > 0)
            TRY_DONE(hdf5_bad_column(c, "lists are read from contiguous or chunked datasets; h5repack makes one"));
        c->address = at == HADDR_UNDEF ? 0 : at;
        if (c->address && (c->address > c->file->size || whole > c->file->size - c->address))
            TRY_DONE(hdf5_bad_column(c, "%lld rows at byte %llu do not lie in the file", (long long)c->shape.rows,
                                     (unsigned long long)c->address));
    }
done:
    H5Pclose(made);
    return status;
}

static Status column_locked(Hdf5File *f, const char *name, Hdf5Column **out)
{
    H5L_info_t link;
    if (H5Lexists(f->id, name, H5P_DEFAULT) <= 0) return OK;
    Hdf5Column *c = mem_alloc(sizeof *c);
    *c = (Hdf5Column){.file = f, .id = -1};
    snprintf(c->name, sizeof c->name, "%s", name);
    Status status = OK;
    hid_t access = -1;
    if (H5Lget_info(f->id, name, &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD)
        TRY_DONE(hdf5_bad_column(c, "it is a link to somewhere else; expected the dataset itself"));
    access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, 1, 0, 1.0); /* each chunk is read once */
    c->id = H5Dopen2(f->id, name, access);
    if (c->id < 0) TRY_DONE(hdf5_bad_column(c, "expected a dataset: %s", hdf5_says()));
    TRY_DONE(check_type(c));
    TRY_DONE(check_space(c));
    TRY_DONE(check_storage(c));
    c->next = f->columns;
    f->columns = c;
    *out = c;
done:
    if (access >= 0) H5Pclose(access);
    if (status != OK) {
        if (c->id >= 0) H5Dclose(c->id);
        free(c);
    }
    return status;
}

Status hdf5_column(Hdf5File *f, const char *name, Hdf5Column **c)
{
    *c = NULL;
    hdf5_lock();
    Status status = column_locked(f, name, c);
    hdf5_unlock(f->path);
    return status;
}

/* ---- rows ---- */

void hdf5_check_rows(const Hdf5Column *c, int64_t first, int64_t n)
{
    CHECK(first >= 0 && n >= 0 && first <= c->shape.rows && n <= c->shape.rows - first, "rows %lld + %lld of %lld",
          (long long)first, (long long)n, (long long)c->shape.rows);
}

Status hdf5_read(Hdf5Column *c, int64_t first, int64_t n, int32_t *out)
{
    hsize_t from[2] = {(hsize_t)first, 0}, count[2] = {(hsize_t)n, (hsize_t)c->shape.width};
    Status status = OK;
    hdf5_check_rows(c, first, n);
    CHECK(!c->shape.lists, "%s holds lists", c->name);
    if (n == 0) return OK;
    hdf5_lock();
    hid_t space = H5Dget_space(c->id), memory = H5Screate_simple(H5Sget_simple_extent_ndims(space), count, NULL);
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, count, NULL) < 0 ||
        H5Dread(c->id, H5T_NATIVE_INT32, memory, space, H5P_DEFAULT, out) < 0)
        status = hdf5_bad_column(c, "rows %lld to %lld cannot be read: %s", (long long)first,
                                 (long long)(first + n - 1), hdf5_says());
    H5Sclose(memory);
    H5Sclose(space);
    hdf5_unlock(c->file->path);
    return status;
}
