/* Files. Reading never allocates what a header claims; writing is durable: to `path.tmp`, fsync, rename, fsync of the
   directory. Every error names the path and says what the system said. */
#ifndef CAIRN_BASE_FILE_H
#define CAIRN_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/mem.h"
#include "base/status.h"

/* A read-only mapping of a whole file. An empty file gives size 0 and data "". */
typedef struct {
    const uint8_t *data;
    size_t size;
} FileMap;

Status file_map(FileMap *map, const char *path);
void file_unmap(FileMap *map);
/* Whole file into a Buf; larger than `max` bytes is E_FORMAT. */
Status file_read(const char *path, size_t max, Buf *out);

/* A file being written aside. Use: open, write…, close (makes it durable and gives it its name) or abandon. */
typedef struct {
    char *path, *temporary;
    int fd;
    uint8_t *block; /* write buffer, flushed at FILE_BLOCK bytes */
    size_t used;
    uint64_t size;
    DigestStream *digest;
} FileWriter;

#define FILE_BLOCK ((size_t)1 << 20)

Status file_writer_open(FileWriter *w, const char *path);
Status file_writer_write(FileWriter *w, const void *data, size_t len);
/* fsync, rename over `path`, fsync its directory. `digest` and `size` may be NULL. Frees `w` whatever happens. */
Status file_writer_close(FileWriter *w, Digest *digest, uint64_t *size);
void file_writer_abandon(FileWriter *w); /* removes the temporary; takes a zeroed or closed one */

Status file_write_durable(const char *path, const void *data, size_t len);
Status file_digest(const char *path, Digest *digest, uint64_t *size);

bool file_exists(const char *path);
bool file_is_directory(const char *path);
Status file_size(const char *path, uint64_t *size);
Status file_make_directories(const char *path);          /* like mkdir -p */
Status file_sync_directory(const char *path);
Status file_rename(const char *from, const char *to);    /* and fsync of the directory */
Status file_remove_tree(const char *path);               /* a missing one is fine */
Status file_free_bytes(const char *path, uint64_t *bytes); /* for an unprivileged user, on the path's file system */
char *file_join(const char *directory, const char *name); /* caller frees */
char *file_directory(const char *path);                   /* "a/b" → "a", "b" → "."; caller frees */
const char *file_basename(const char *path);

#endif
