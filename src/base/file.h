/* Files. Reading never allocates what a header claims; writing is durable: to `path.tmp.<pid>`, fsync, rename, fsync of
   the directory, so that under its name a file is always whole, the old or the new one. Every error is E_IO if not said
   otherwise, names the path and says what the system said; a full disk also how much was needed and is free. A killed
   process leaves its temporaries behind; whoever owns the directory removes them. Not for signal handlers. */
#ifndef CAIRN_BASE_FILE_H
#define CAIRN_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/mem.h"
#include "base/status.h"

/* A read-only mapping of a whole regular file. An empty file gives size 0 and data "". Who cuts the file short
   meanwhile ends the process (SIGBUS): map only files that nobody writes in place. */
typedef struct {
    const uint8_t *data;
    size_t size;
} FileMap;

Status file_map(FileMap *map, const char *path);
void file_unmap(FileMap *map); /* takes a zeroed one */
/* Whole file into a Buf, in place of what was there; pipes too. Larger than `max` bytes is E_FORMAT. */
Status file_read(const char *path, size_t max, Buf *out);

/* A file being written aside; a device, pipe or socket is written as it is, and a symbolic link's target in its place.
   Use: open, write…, close (makes it durable and gives it its name) or abandon. After a failed write only abandon is
   left (close does that too, and fails). One writer per path and process at a time. */
typedef struct {
    char *path, *temporary; /* temporary NULL: in place */
    int fd;
    uint8_t *block; /* write buffer, flushed at FILE_BLOCK bytes */
    size_t used;
    uint64_t size; /* bytes given to the system */
    DigestStream *digest;
    bool broken; /* a write failed: the file may not get its name */
} FileWriter;

#define FILE_BLOCK ((size_t)1 << 20)

Status file_writer_open(FileWriter *w, const char *path); /* on failure `w` is zeroed */
Status file_writer_write(FileWriter *w, const void *data, size_t len);
/* fsync, rename over `path`, fsync its directory. `digest` and `size` may be NULL. Frees `w` whatever happens; where it
   fails, the temporary is gone and an older file of that name is untouched (except if only the last fsync failed). */
Status file_writer_close(FileWriter *w, Digest *digest, uint64_t *size);
void file_writer_abandon(FileWriter *w); /* removes the temporary; takes a zeroed or closed one */

Status file_write_durable(const char *path, const void *data, size_t len);
Status file_digest(const char *path, Digest *digest, uint64_t *size); /* either may be NULL */

/* Opens /dev/null in place of standard input, output and error where they are closed: else the next files that are
   opened get their numbers, and what is logged. A program calls it first. */
void file_open_standard(void);

bool file_exists(const char *path);
bool file_is_directory(const char *path);
Status file_size(const char *path, uint64_t *size);
Status file_make_directories(const char *path); /* like mkdir -p; new ones are durable */
Status file_sync_directory(const char *path);
Status file_rename(const char *from, const char *to); /* and fsync of both directories */
/* What killed writers left in a folder: files named `….tmp.<number>`. Only for the one that owns the folder. A missing
   folder is fine. */
Status file_remove_temporaries(const char *directory);
/* A file, or a folder with all in it; symbolic links are not followed; a missing one is fine. */
Status file_remove_tree(const char *path);
/* This user's folder for files of running processes: $XDG_RUNTIME_DIR/cairn, else /tmp/cairn-UID. Makes it. E_USAGE: it
   belongs to another user, or others can write to it. The caller frees `path`. */
Status file_user_folder(char **path);
/* For an unprivileged user, on the file system that the path lies on, or would. */
Status file_free_bytes(const char *path, uint64_t *bytes);
char *file_join(const char *directory, const char *name); /* caller frees */
char *file_directory(const char *path);                   /* "a/b" → "a", "b" → ".", "/b" → "/"; caller frees */
const char *file_basename(const char *path);              /* what follows the last slash; points into `path` */

#endif
