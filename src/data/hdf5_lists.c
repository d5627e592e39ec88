/* Columns of lists: descriptors, a row each, and the heap that they point into. HDF5's library only finds the chunks.
 */

#include "data/hdf5_library.h"

void hdf5_lists_free(Hdf5Lists *l)
{
    MEM_FREE(l->values, l->offset);
    *l = (Hdf5Lists){0};
}

/* Descriptors that begin at a byte of the file. `row` is the first, for messages. */
static Status read_descriptors(const Hdf5Column *c, uint64_t address, uint64_t row, uint64_t n, uint8_t *out)
{
    ssize_t got = file_read_at(c->file->heap.fd, address, out, n * HEAP_DESCRIPTOR);
    if (got == (ssize_t)(n * HEAP_DESCRIPTOR)) return OK;
    return hdf5_bad_column(c, "row %llu cannot be read: %s", (unsigned long long)row,
                           got < 0 ? strerror(errno) : "the file ends");
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
    *address = place;
    return true;
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
    return read
               ? OK
               : hdf5_bad_column(c, "the chunk of row %llu cannot be read: %s", (unsigned long long)at[0], hdf5_says());
}

/* Descriptors of one chunk. Chunks of lists are not compressed, so only the wanted part is read. Chunks that were
   never written are empty. */
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
        status = hdf5_bad_column(c, "the chunk of row %llu has %llu bytes; expected %llu", (unsigned long long)row,
                                 (unsigned long long)stored, (unsigned long long)bytes);
    else if (!(known = chunk_address(c, at, &address)))
        status = whole_chunk(c, at, within, rows, out);
    hdf5_unlock(c->file->path);
    if (!known) return status;
    if (address > c->file->size || bytes > c->file->size - address)
        return hdf5_bad_column(c, "the chunk of row %llu does not lie in the file", (unsigned long long)row);
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

static Status load_descriptors(Hdf5Column *c, int64_t first, int64_t n, uint8_t **out)
{
    hdf5_check_rows(c, first, n);
    CHECK(c->shape.lists, "%s holds no lists", c->name);
    *out = mem_array((size_t)n, HEAP_DESCRIPTOR);
    if (c->chunked) return chunk_descriptors(c, (uint64_t)first, (uint64_t)n, *out);
    return c->address
               ? read_descriptors(c, c->address + (uint64_t)first * HEAP_DESCRIPTOR, (uint64_t)first, (uint64_t)n, *out)
               : OK;
}

static Status too_long(const Hdf5Column *c, int64_t row, uint32_t count, int64_t most)
{
    return hdf5_bad_column(c, "row %lld claims %u numbers; expected at most %lld", (long long)row, count,
                           (long long)most);
}

Status hdf5_list_lengths(Hdf5Column *c, int64_t first, int64_t n, int64_t most, int32_t *lengths)
{
    uint8_t *raw = NULL;
    Status status = load_descriptors(c, first, n, &raw);
    for (int64_t i = 0; i < n && status == OK; i++) {
        HeapRow row = heap_row(raw + i * HEAP_DESCRIPTOR);
        if (row.count > most) status = too_long(c, first + i, row.count, most);
        lengths[i] = (int32_t)row.count;
    }
    free(raw);
    return status;
}

/* A number of the file, clamped to 32 bits. */
static int32_t read_number(const Hdf5Column *c, const uint8_t *p)
{
    int bytes = c->shape.bytes;
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x = x << 8 | p[c->big_endian ? i : bytes - 1 - i];
    if (!c->is_signed) return x > INT32_MAX ? INT32_MAX : (int32_t)x;
    int64_t y = (int64_t)(x << (64 - 8 * bytes)) >> (64 - 8 * bytes);
    return y > INT32_MAX ? INT32_MAX : y < INT32_MIN ? INT32_MIN : (int32_t)y;
}

static void read_numbers(const Hdf5Column *c, const uint8_t *p, uint32_t n, int32_t *out)
{
    if (c->shape.bytes == 2 && c->is_signed && !c->big_endian)
        for (uint32_t i = 0; i < n; i++) out[i] = (int16_t)(p[2 * i] | p[2 * i + 1] << 8);
    else if (c->shape.bytes == 1 && c->is_signed)
        for (uint32_t i = 0; i < n; i++) out[i] = (int8_t)p[i];
    else
        for (uint32_t i = 0; i < n; i++) out[i] = read_number(c, p + (size_t)i * (size_t)c->shape.bytes);
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
    TRY_DONE(load_descriptors(c, first, n, &raw));
    for (int64_t i = 0; i < n; i++) {
        HeapRow row = heap_row(raw + i * HEAP_DESCRIPTOR);
        const uint8_t *bytes = NULL;
        if (row.count > most) TRY_DONE(too_long(c, first + i, row.count, most));
        TRY_DONE(status_context(heap_read(&c->file->heap, row, c->shape.bytes, &bytes), "%s: dataset %s: row %lld",
                                c->file->path, c->name, (long long)(first + i)));
        if (used + row.count > out->cap_values) {
            out->cap_values = 2 * out->cap_values + row.count + 4096;
            out->values = mem_resize(out->values, (size_t)out->cap_values, sizeof *out->values);
        }
        if (row.count) read_numbers(c, bytes, row.count, out->values + used);
        out->offset[i + 1] = used += row.count;
    }
done:
    free(raw);
    return status;
}
