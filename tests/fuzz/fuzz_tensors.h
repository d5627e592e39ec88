/* For the fuzz targets of the tensor readers: a directory in memory, and a reader of all tensors. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/tensor_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char fuzz_place[64];

static inline void fuzz_remove_place(void) { (void)file_remove_tree(fuzz_place); }

/* A path in the target's own directory, which is removed when the process ends. Valid until the next call with this
 * slot. */
static inline const char *fuzz_path(int slot, const char *name)
{
    static char paths[4][128];
    if (!*fuzz_place) {
        snprintf(fuzz_place, sizeof fuzz_place, "%s/cairn-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        CHECK(mkdtemp(fuzz_place), "cannot make %s", fuzz_place);
        atexit(fuzz_remove_place);
    }
    snprintf(paths[slot], sizeof paths[slot], "%s/%s", fuzz_place, name);
    return paths[slot];
}

static inline void fuzz_store(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && ftruncate(fd, (off_t)size) == 0, "cannot write %s",
          path);
    close(fd);
}

/* Opens and reads everything, up to a limit. An opened file must keep the promises of tensor_file.h. */
static inline void fuzz_read(const char *path, size_t file_bytes)
{
    TensorFile *f;
    Status status = tensor_file_open(path, &f);
    if (status != OK) {
        CHECK(!f && *status_message(), "a refusal without a message");
        return;
    }
    size_t left = (size_t)1 << 22;
    for (int i = 0; i < tensor_file_count(f); i++) {
        const TensorInfo *t = tensor_file_info(f, i);
        size_t bytes = (size_t)t->count * dtype_size(t->dtype);
        CHECK(bytes <= file_bytes && t->bytes == bytes, "'%s' takes %zu of %zu bytes", t->name, bytes, file_bytes);
        CHECK(tensor_file_find(f, t->name) == i, "'%s' is not found", t->name);
        if (bytes > left) break;
        left -= bytes;
        void *raw = malloc(bytes + 1);
        float *values = malloc((size_t)t->count * sizeof *values + 1);
        Status a = tensor_file_read_raw(f, i, raw, bytes), b = tensor_file_read_f32(f, i, values, t->count);
        CHECK(a == b, "'%s': raw %d, f32 %d", t->name, (int)a, (int)b);
        if (a == OK && t->dtype == F32) CHECK(memcmp(raw, values, bytes) == 0, "'%s': raw and f32 differ", t->name);
        free(raw);
        free(values);
    }
    tensor_file_close(f);
}
