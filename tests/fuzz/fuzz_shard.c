/* HDF5 files of any shape, made through HDF5's own API, as shards; and any bytes as the heap of lists. An accepted file
   must be within the limits; a refusal must name the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/hdf5_heap.h"
#include "data/shard_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    const uint8_t *at, *end;
} Input;

static uint32_t byte(Input *in) { return in->at < in->end ? *in->at++ : 0; }

/* A number of one byte, or of four after 255. */
static int32_t number(Input *in)
{
    uint32_t x = byte(in);
    if (x < 255) return (int32_t)x;
    for (int i = 0; i < 4; i++) x = x << 8 | byte(in);
    return (int32_t)x;
}

/* ---- rows and shapes ---- */

static const ShardLimits limits = {.vocab_size = 200, .max_length = 24, .max_predictions = 4, .cls = 101};

typedef struct {
    Hdf5Spec spec;
    int64_t rows;
} Column;

/* A column's rows: lists have a length each, others a width. Narrow types keep the low bytes. */
static Status write_column(Hdf5Writer *w, int i, const Column *c, Input *in)
{
    int64_t offset[17] = {0}, bytes = c->spec.bytes;
    uint8_t values[16 * 64 * 4];
    for (int64_t row = 0; row < c->rows; row++) {
        int64_t n = c->spec.width ? c->spec.width : byte(in) % 64;
        for (int64_t k = 0; k < n; k++) {
            int32_t value = number(in);
            memcpy(values + (offset[row] + k) * bytes, &value, (size_t)bytes);
        }
        offset[row + 1] = offset[row] + n;
    }
    return c->spec.width ? hdf5_write(w, i, 0, c->rows, values) : hdf5_write_lists(w, i, 0, c->rows, values, offset);
}

/* Rows, then per column a byte for its kind (absent, lists, bytes per number, another number of rows), its width, and
   the values. */
static bool write_file(const char *path, Input *in)
{
    Column columns[N_SHARD_COLUMNS];
    Hdf5Spec specs[N_SHARD_COLUMNS];
    Hdf5Writer *w = NULL;
    int n = 0;
    int64_t rows = 1 + byte(in) % 8;
    for (int i = 0; i < N_SHARD_COLUMNS && n < 8; i++) {
        uint32_t kind = byte(in), width = byte(in);
        if (kind & 1) continue;
        Column *c = &columns[n];
        c->rows = kind & 16 ? rows + 1 : rows;
        c->spec = (Hdf5Spec){shard_column_names[i], 1 << ((kind >> 2) % 3), kind & 2 ? 0 : 1 + width % 64, c->rows};
        specs[n++] = c->spec;
    }
    int gzip = byte(in) % 2;
    CHECK(hdf5_create(path, specs, n, rows, gzip, 3, &w) == OK, "%s", status_message());
    for (int i = 0; i < n; i++) CHECK(write_column(w, i, &columns[i], in) == OK, "%s", status_message());
    CHECK(hdf5_finish(w) == OK, "%s", status_message());
    return n > 0;
}

static void check(const Sequences *s)
{
    for (int64_t i = 0; i < s->e.count; i++) {
        int64_t length = example_length(&s->e, i), masked = example_masked(&s->e, i);
        CHECK(length >= 1 && length <= limits.max_length && masked <= limits.max_predictions, "lengths");
        CHECK(s->e.label[i] >= -1 && s->e.label[i] <= 1, "label %d", s->e.label[i]);
        for (int64_t k = s->e.offset[i]; k < s->e.offset[i + 1]; k++)
            CHECK(s->e.ids[k] >= 0 && s->e.ids[k] < limits.vocab_size && s->e.types[k] <= 1, "id %d", s->e.ids[k]);
        for (int64_t k = s->e.masked_offset[i]; k < s->e.masked_offset[i + 1]; k++)
            CHECK(s->e.masked_place[k] >= 1 && s->e.masked_place[k] < length && s->e.masked_label[k] >= 0 &&
                      s->e.masked_label[k] < limits.vocab_size,
                  "mask %d", s->e.masked_place[k]);
    }
}

/* Bytes in the heaps of the file, where the library has nothing to read: number of changes, then place and value. */
static void spoil_heaps(const char *path, Input *in)
{
    Buf file = {0};
    int changes = (int)(byte(in) % 8);
    if (changes == 0) return;
    CHECK(file_read(path, 1 << 24, &file) == OK, "%s", status_message());
    for (int i = 0; i < changes; i++) {
        size_t which = byte(in) % 4, at = byte(in) | byte(in) << 8;
        uint8_t value = (uint8_t)byte(in);
        for (char *heap = file.data; (heap = memmem(heap, (size_t)(file.data + file.len - heap), "GCOL", 4)); heap++)
            if (which-- == 0 && (size_t)(file.data + file.len - heap) > 8 + at % 4088) {
                heap[8 + at % 4088] = (char)value;
                break;
            }
    }
    CHECK(file_write_durable(path, file.data, file.len) == OK, "%s", status_message());
    buf_free(&file);
}

static void fuzz_file(Input *in)
{
    static char path[64];
    ShardFile f;
    ShardRows rows = {0};
    Sequences got = {0};
    if (!path[0]) snprintf(path, sizeof path, "/dev/shm/cairn-fuzz-%ld.hdf5", (long)getpid());
    if (!write_file(path, in)) return;
    spoil_heaps(path, in);
    Status status = shard_open(&f, path, limits);
    if (status == OK) {
        int32_t counts[16];
        status = shard_counts(&f, 0, f.rows, counts);
        if (status == OK) status = shard_read(&f, 0, f.rows, 0, &rows, &got);
        int64_t expected = 0;
        for (int64_t i = 0; i < f.rows && status == OK; i++) expected += counts[i];
        CHECK(status != OK || got.e.count == expected, "%lld sequences, %lld counted", (long long)got.e.count,
              (long long)expected);
        shard_close(&f);
    }
    CHECK(status == OK || strstr(status_message(), path), "message '%s'", status_message());
    check(&got);
    shard_rows_free(&rows);
    sequences_free(&got);
    unlink(path);
}

/* ---- heaps ---- */

/* Four descriptors, then the file. */
static void fuzz_heap(Input *in)
{
    uint8_t descriptors[4 * HEAP_DESCRIPTOR] = {0};
    size_t size = (size_t)(in->end - in->at), first = size < sizeof descriptors ? size : sizeof descriptors;
    Heap h = {.fd = memfd_create("heap", 0), .size = size - first};
    memcpy(descriptors, in->at, first);
    CHECK(h.fd >= 0 && write(h.fd, in->at + first, size - first) == (ssize_t)(size - first), "a file in memory");
    for (int i = 0; i < 8; i++) {
        HeapRow row = heap_row(descriptors + i % 4 * HEAP_DESCRIPTOR);
        const uint8_t *bytes;
        volatile uint8_t sum = 0;
        if (heap_read(&h, row, 2, &bytes) == OK)
            for (size_t k = 0; k < 2 * (size_t)row.count; k++) sum = (uint8_t)(sum + bytes[k]);
    }
    close(h.fd);
    heap_free(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input in = {data, data + size};
    log_set_level(LOG_ERROR);
    if (byte(&in) & 1)
        fuzz_heap(&in);
    else if (hdf5_available())
        fuzz_file(&in);
    return 0;
}
