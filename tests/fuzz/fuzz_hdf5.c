/* HDF5 files of any shape, made through HDF5's own API and spoiled, as shards. Slow, because the library writes and
   reads them; fuzz_hdf5_reader has the reader without the library, fuzz_shard the checks of rows alone. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shard_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Narrow types keep the low bytes. */
static Status write_column(Hdf5Writer *w, int i, const Column *c, Input *in)
{
    int32_t values[MOST_ROWS * MOST_WIDTH];
    int64_t offset[MOST_ROWS + 1];
    uint8_t packed[sizeof values];
    take_rows(in, c, values, offset);
    for (int64_t k = 0; k < offset[c->rows]; k++) memcpy(packed + k * c->spec.bytes, &values[k], (size_t)c->spec.bytes);
    return c->spec.width ? hdf5_write(w, i, 0, c->rows, packed) : hdf5_write_lists(w, i, 0, c->rows, packed, offset);
}

static bool write_file(const char *path, Input *in)
{
    Column columns[MOST_COLUMNS];
    Hdf5Spec specs[MOST_COLUMNS];
    Hdf5Writer *w = NULL;
    int64_t rows;
    int n = take_columns(in, columns, &rows), gzip = byte(in) % 2;
    for (int i = 0; i < n; i++) specs[i] = columns[i].spec;
    CHECK(hdf5_create(path, specs, n, rows, gzip, 3, &w) == OK, "%s", status_message());
    for (int i = 0; i < n; i++) CHECK(write_column(w, i, &columns[i], in) == OK, "%s", status_message());
    CHECK(hdf5_finish(w) == OK, "%s", status_message());
    return n > 0;
}

/* Bytes in the heaps of the file, where the library has nothing to read: number of changes, then place and value. */
static void spoil_heaps(const char *path, Input *in)
{
    uint64_t bytes;
    int changes = (int)(byte(in) % 8), fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && file_size(path, &bytes) == OK, "%s: %m", path);
    char *file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *end = file + bytes;
    CHECK(file != MAP_FAILED, "%s: %m", path);
    for (int i = 0; i < changes; i++) {
        size_t which = byte(in) % 4, at = byte(in) | byte(in) << 8;
        uint8_t value = (uint8_t)byte(in);
        for (char *heap = file; (heap = memmem(heap, (size_t)(end - heap), "GCOL", 4)); heap++)
            if (which-- == 0 && (size_t)(end - heap) > 8 + at % 4088) {
                heap[8 + at % 4088] = (char)value;
                break;
            }
    }
    munmap(file, bytes);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[64];
    Input in = {data, data + size};
    log_set_level(LOG_ERROR);
    if (!hdf5_available()) return 0;
    if (!path[0]) snprintf(path, sizeof path, "/dev/shm/cairn-fuzz-%ld.hdf5", (long)getpid());
    if (!write_file(path, &in)) return 0;
    spoil_heaps(path, &in);
    check_shard(path);
    unlink(path);
    return 0;
}
