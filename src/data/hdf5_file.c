/* Reading through HDF5's C library. */
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/hdf5_file.h"
#include "data/hdf5_heap.h"
#include "data/hdf5_library.h"

#define MOST_ROWS  (INT64_C(1) << 40)
#define MOST_WIDTH 65536
#define MOST_CHUNK ((uint64_t)64 << 20)

struct Hdf5Column {
    Hdf5File *file;
    char name[48];
    hid_t id;
    Hdf5Shape shape;
    bool is_signed, big_endian;
    bool chunked;
    uint64_t address, chunk_lists; /* of lists: where the descriptors lie (0: nowhere), descriptors in a chunk */
    struct Hdf5Column *next;
};

struct Hdf5File {
    char *path;
    hid_t id;
    uint64_t size;
    Heap heap; /* its descriptor is open as long as the file */
    Hdf5Column *columns;
};

/* ---- the library ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char message[256];

void hdf5_lock(void)
{
    static bool started;
    pthread_mutex_lock(&lock);
    if (!started) setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0); /* read when the library starts */
    started = true;
    H5open();
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* it would print; and remembers this per thread */
}

void hdf5_unlock(void) { pthread_mutex_unlock(&lock); }

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
    const char *why = f->id < 0 ? hdf5_says() : ""; /* the next call forgets it */
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
    f->heap.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->heap.fd < 0) TRY_DONE(fail(E_IO, "%s: %m", path));
    TRY_DONE(file_size(path, &f->size));
    hdf5_lock();
    status = open_locked(f);
    hdf5_unlock();
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
        hdf5_unlock();
    }
    for (Hdf5Column *c = f->columns, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    if (f->heap.fd >= 0) close(f->heap.fd);
    heap_free(&f->heap);
    free(f->path);
    free(f);
}

const char *hdf5_path(const Hdf5File *f) { return f->path; }
const char *hdf5_name(const Hdf5Column *c) { return c->name; }
Hdf5Shape hdf5_shape(const Hdf5Column *c) { return c->shape; }

/* ---- columns ---- */

#define BAD(c, ...) column_bad(c, __VA_ARGS__)
static Status column_bad(const Hdf5Column *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static Status column_bad(const Hdf5Column *c, const char *format, ...)
{
    Buf why = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&why, format, args);
    va_end(args);
    Status status = fail(E_FORMAT, "%s: dataset %s: %s", c->file->path, c->name, why.data);
    buf_free(&why);
    return status;
}

static Status check_type(Hdf5Column *c)
{
    hid_t type = H5Dget_type(c->id), number = type;
    Status status = OK;
    if (type < 0) return BAD(c, "its type cannot be read: %s", hdf5_says());
    if (H5Tget_class(type) == H5T_VLEN) {
        c->shape.lists = true;
        number = H5Tget_super(type);
    }
    size_t bytes = number >= 0 ? H5Tget_size(number) : 0;
    if (number < 0 || H5Tget_class(number) != H5T_INTEGER || (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8) ||
        H5Tget_precision(number) != 8 * bytes)
        status = BAD(c, "expected whole numbers of 1, 2, 4 or 8 bytes, or lists of them");
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
    if (!fits) return BAD(c, "it has %d dimensions; expected %s", rank, c->shape.lists ? "1 (of lists)" : "1 or 2");
    if (dims[0] > MOST_ROWS || dims[1] < 1 || dims[1] > MOST_WIDTH)
        return BAD(c, "it is %llu × %llu; expected at most 2^40 rows of 1 to %d numbers", (unsigned long long)dims[0],
                   (unsigned long long)dims[1], MOST_WIDTH);
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
            return BAD(c, "it is packed with filter %d; expected gzip (deflate), shuffle or none", (int)filter);
        if (c->shape.lists)
            return BAD(c, "it is a compressed dataset of lists, which is not read: h5repack -f NONE makes it plain");
    }
    return n < 0 ? BAD(c, "its filters cannot be read: %s", hdf5_says()) : OK;
}

/* Bytes of a row in the dataset itself. */
static uint64_t row_bytes(const Hdf5Column *c)
{
    return c->shape.lists ? HEAP_DESCRIPTOR : (uint64_t)c->shape.width * (uint64_t)c->shape.bytes;
}

static Status check_storage(Hdf5Column *c)
{
    hid_t made = H5Dget_create_plist(c->id);
    Status status = OK;
    if (made < 0) return BAD(c, "its storage cannot be read: %s", hdf5_says());
    H5D_layout_t layout = H5Pget_layout(made);
    uint64_t whole = row_bytes(c) * (uint64_t)c->shape.rows;
    c->shape.chunk_rows = 1;
    TRY_DONE(check_filters(c, made));
    if (H5Pget_external_count(made) != 0 ||
        (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT))
        TRY_DONE(BAD(c, "its bytes do not lie in this file"));
    if (layout == H5D_CHUNKED) {
        hsize_t chunk[2] = {0, 1};
        int rank = H5Pget_chunk(made, 2, chunk);
        uint64_t unit = c->shape.lists ? HEAP_DESCRIPTOR : (uint64_t)c->shape.bytes;
        if (rank < 1 || rank > 2 || chunk[0] == 0 || chunk[1] == 0 || chunk[0] > MOST_CHUNK || chunk[1] > MOST_CHUNK ||
            chunk[0] * chunk[1] > MOST_CHUNK / unit)
            TRY_DONE(BAD(c, "chunks of %llu × %llu; expected at most %llu MiB", (unsigned long long)chunk[0],
                         (unsigned long long)chunk[1], (unsigned long long)MOST_CHUNK >> 20));
        c->chunked = true;
        c->chunk_lists = chunk[0];
        if (H5Pget_nfilters(made) > 0) c->shape.chunk_rows = (int64_t)chunk[0];
        /* deflate makes at most about 1:1030, and chunks that are not there are read as zeros */
        if (whole / 2048 > c->file->size)
            TRY_DONE(BAD(c, "%lld rows are more than the file can hold", (long long)c->shape.rows));
    } else if (whole > c->file->size) {
        TRY_DONE(BAD(c, "%lld rows need %llu bytes; the file has %llu", (long long)c->shape.rows,
                     (unsigned long long)whole, (unsigned long long)c->file->size));
    }
    if (c->shape.lists && !c->chunked) {
        haddr_t at = layout == H5D_CONTIGUOUS ? H5Dget_offset(c->id) : HADDR_UNDEF;
        if (layout != H5D_CONTIGUOUS && c->shape.rows > 0)
            TRY_DONE(BAD(c, "lists are read from contiguous or chunked datasets; h5repack makes one"));
        c->address = at == HADDR_UNDEF ? 0 : at;
        if (c->address && (c->address > c->file->size || whole > c->file->size - c->address))
            TRY_DONE(BAD(c, "%lld rows at byte %llu do not lie in the file", (long long)c->shape.rows,
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
        TRY_DONE(BAD(c, "it is a link to somewhere else; expected the dataset itself"));
    access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, 1, 0, 1.0); /* a chunk is wanted once */
    c->id = H5Dopen2(f->id, name, access);
    if (c->id < 0) TRY_DONE(BAD(c, "expected a dataset: %s", hdf5_says()));
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
    hdf5_unlock();
    return status;
}

/* ---- rows ---- */

static Status check_rows(const Hdf5Column *c, int64_t first, int64_t n)
{
    CHECK(first >= 0 && n >= 0 && first <= c->shape.rows && n <= c->shape.rows - first, "rows %lld + %lld of %lld",
          (long long)first, (long long)n, (long long)c->shape.rows);
    return OK;
}

Status hdf5_read(Hdf5Column *c, int64_t first, int64_t n, int32_t *out)
{
    hsize_t from[2] = {(hsize_t)first, 0}, count[2] = {(hsize_t)n, (hsize_t)c->shape.width};
    Status status = OK;
    TRY(check_rows(c, first, n));
    CHECK(!c->shape.lists, "%s holds lists", c->name);
    if (n == 0) return OK;
    hdf5_lock();
    hid_t space = H5Dget_space(c->id), memory = H5Screate_simple(H5Sget_simple_extent_ndims(space), count, NULL);
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, from, NULL, count, NULL) < 0 ||
        H5Dread(c->id, H5T_NATIVE_INT32, memory, space, H5P_DEFAULT, out) < 0)
        status =
            BAD(c, "rows %lld to %lld cannot be read: %s", (long long)first, (long long)(first + n - 1), hdf5_says());
    H5Sclose(memory);
    H5Sclose(space);
    hdf5_unlock();
    return status;
}

void hdf5_lists_free(Hdf5Lists *l)
{
    free(l->values);
    free(l->offset);
    *l = (Hdf5Lists){0};
}

/* Descriptors from a byte of the file on; `row` is the first, for messages. */
static Status read_descriptors(const Hdf5Column *c, uint64_t address, uint64_t row, uint64_t n, uint8_t *out)
{
    size_t bytes = (size_t)n * HEAP_DESCRIPTOR;
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(c->file->heap.fd, out + done, bytes - done, (off_t)(address + done));
        if (got <= 0)
            return BAD(c, "row %llu cannot be read: %s", (unsigned long long)row,
                       got ? strerror(errno) : "the file ends");
        done += (size_t)got;
    }
    return OK;
}

/* Position in the file of the chunk that begins at this row. Older libraries do not report it, and newer ones differ in
   whether they count a user block. */
static bool chunk_address(const Hdf5Column *c, const hsize_t at[1], uint64_t *address)
{
#if H5_VERSION_GE(1, 10, 5)
    hsize_t stored = 0;
    unsigned mask = 0;
    haddr_t place = HADDR_UNDEF;
    if (c->file->heap.base != 0) return false;
    if (H5Dget_chunk_info_by_coord(c->id, at, &mask, &place, &stored) < 0 || place == HADDR_UNDEF) return false;
    return *address = place, true;
#else
    (void)c, (void)at, (void)address;
    return false;
#endif
}

static Status whole_chunk(const Hdf5Column *c, const hsize_t at[1], uint64_t within, uint64_t rows, uint8_t *out)
{
    uint8_t *chunk = mem_array(c->chunk_lists, HEAP_DESCRIPTOR);
    uint32_t mask = 0;
    bool read = H5Dread_chunk(c->id, H5P_DEFAULT, at, &mask, chunk) >= 0;
    if (read) memcpy(out, chunk + within * HEAP_DESCRIPTOR, rows * HEAP_DESCRIPTOR);
    free(chunk);
    return read ? OK : BAD(c, "the chunk of row %llu cannot be read: %s", (unsigned long long)at[0], hdf5_says());
}

/* Descriptors of one chunk. Lists are not packed: a chunk lies in the file as it is, however large, and only what is
   wanted of it is read. What was never written is empty. */
static Status some_descriptors(Hdf5Column *c, uint64_t row, uint64_t rows, uint8_t *out)
{
    uint64_t within = row % c->chunk_lists, bytes = c->chunk_lists * HEAP_DESCRIPTOR, address;
    hsize_t at[1] = {row - within}, stored = 0;
    Status status = OK;
    bool known = false;
    hdf5_lock();
    if (H5Dget_chunk_storage_size(c->id, at, &stored) < 0 || stored == 0)
        memset(out, 0, rows * HEAP_DESCRIPTOR);
    else if (stored != bytes)
        status = BAD(c, "the chunk of row %llu has %llu bytes; expected %llu", (unsigned long long)row,
                     (unsigned long long)stored, (unsigned long long)bytes);
    else if (!(known = chunk_address(c, at, &address)))
        status = whole_chunk(c, at, within, rows, out);
    hdf5_unlock();
    if (!known) return status;
    if (address > c->file->size || bytes > c->file->size - address)
        return BAD(c, "the chunk of row %llu does not lie in the file", (unsigned long long)row);
    return read_descriptors(c, address + within * HEAP_DESCRIPTOR, row, rows, out);
}

static Status chunk_descriptors(Hdf5Column *c, uint64_t first, uint64_t n, uint8_t *out)
{
    uint64_t unit = c->chunk_lists;
    for (uint64_t done = 0; done < n;) {
        uint64_t left = unit - (first + done) % unit, rows = left < n - done ? left : n - done;
        TRY(some_descriptors(c, first + done, rows, out + done * HEAP_DESCRIPTOR));
        done += rows;
    }
    return OK;
}

static Status descriptors(Hdf5Column *c, int64_t first, int64_t n, uint8_t **out)
{
    TRY(check_rows(c, first, n));
    CHECK(c->shape.lists, "%s holds no lists", c->name);
    *out = mem_array((size_t)n, HEAP_DESCRIPTOR);
    if (c->chunked) return chunk_descriptors(c, (uint64_t)first, (uint64_t)n, *out);
    return c->address
               ? read_descriptors(c, c->address + (uint64_t)first * HEAP_DESCRIPTOR, (uint64_t)first, (uint64_t)n, *out)
               : OK;
}

Status hdf5_list_lengths(Hdf5Column *c, int64_t first, int64_t n, int64_t most, int32_t *lengths)
{
    uint8_t *raw = NULL;
    Status status = descriptors(c, first, n, &raw);
    for (int64_t i = 0; i < n && status == OK; i++) {
        HeapRow row = heap_row(raw + i * HEAP_DESCRIPTOR);
        if (row.count > most)
            status = BAD(c, "row %lld is said to have %u numbers; expected at most %lld", (long long)(first + i),
                         row.count, (long long)most);
        lengths[i] = (int32_t)row.count;
    }
    free(raw);
    return status;
}

/* A number of the file, clamped to 32 bits. */
static int32_t number(const Hdf5Column *c, const uint8_t *p)
{
    int bytes = c->shape.bytes;
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x = x << 8 | p[c->big_endian ? i : bytes - 1 - i];
    if (!c->is_signed) return x > INT32_MAX ? INT32_MAX : (int32_t)x;
    int64_t y = (int64_t)(x << (64 - 8 * bytes)) >> (64 - 8 * bytes);
    return y > INT32_MAX ? INT32_MAX : y < INT32_MIN ? INT32_MIN : (int32_t)y;
}

static void numbers(const Hdf5Column *c, const uint8_t *p, uint32_t n, int32_t *out)
{
    if (c->shape.bytes == 2 && c->is_signed && !c->big_endian)
        for (uint32_t i = 0; i < n; i++) out[i] = (int16_t)(p[2 * i] | p[2 * i + 1] << 8);
    else if (c->shape.bytes == 1 && c->is_signed)
        for (uint32_t i = 0; i < n; i++) out[i] = (int8_t)p[i];
    else
        for (uint32_t i = 0; i < n; i++) out[i] = number(c, p + (size_t)i * (size_t)c->shape.bytes);
}

Status hdf5_read_lists(Hdf5Column *c, int64_t first, int64_t n, int64_t most, Hdf5Lists *out)
{
    uint8_t *raw = NULL;
    Status status = OK;
    int64_t used = 0;
    if (n + 1 > out->cap_rows) {
        out->offset = mem_resize(out->offset, (size_t)n + 1, sizeof *out->offset);
        out->cap_rows = n + 1;
    }
    out->offset[0] = 0;
    TRY_DONE(descriptors(c, first, n, &raw));
    for (int64_t i = 0; i < n; i++) {
        HeapRow row = heap_row(raw + i * HEAP_DESCRIPTOR);
        const uint8_t *bytes = NULL;
        if (row.count > most)
            TRY_DONE(BAD(c, "row %lld is said to have %u numbers; expected at most %lld", (long long)(first + i),
                         row.count, (long long)most));
        status = heap_read(&c->file->heap, row, c->shape.bytes, &bytes);
        if (status != OK) {
            Buf why = {0};
            buf_puts(&why, status_message());
            status = BAD(c, "row %lld: %s", (long long)(first + i), why.data);
            buf_free(&why);
            goto done;
        }
        if (used + row.count > out->cap_values) {
            out->cap_values = 2 * out->cap_values + row.count + 4096;
            out->values = mem_resize(out->values, (size_t)out->cap_values, sizeof *out->values);
        }
        if (row.count) numbers(c, bytes, row.count, out->values + used);
        out->offset[i + 1] = used += row.count;
    }
done:
    free(raw);
    return status;
}
