/* Files. A file that Cairn finds by a name in a folder, or that a flag names, must be a regular one: what else has the
   name is refused, and opening never waits for it. Reading never allocates what a header claims; writing is durable: to
   `path.tmp.<pid>`, fsync, rename, fsync of the directory, so that a file of that name is always whole, the old or the
   new one. Errors are E_IO unless stated otherwise; the message has the path and the system's reason, on a full disk
   also the bytes needed and free. A killed process leaves its temporaries behind; the owner of the directory removes
   them. Not for signal handlers. */
#pragma once

#include <sys/types.h>

#include "base/digest.h"
#include "base/mem.h"
#include "base/status.h"

/* A read-only mapping of a whole regular file. An empty file gives size 0 and data "". */
typedef struct {
    const uint8_t *data;
    size_t size;
} FileMap;

Status file_map(FileMap *map, const char *path);
/* To call after the last access: E_IO if the file became shorter, because the missing bytes were read as 0. */
Status file_map_check(const FileMap *map, const char *path);
void file_unmap(FileMap *map); /* takes a zeroed one */
/* Reads a whole file into a Buf, replacing its contents. Larger than `max` bytes is E_FORMAT. */
Status file_read(const char *path, size_t max, Buf *out);

/* Begins to write a file's pages up to `end` to the disk, and waits for those that were begun before. `sent` is zeroed
   at first. Pages that wait for the disk are memory that the kernel cannot take back: a control group near its limit,
   which counts them, would lose the process. −1 with errno: the bytes are lost, and fsync may not say so again. */
typedef struct {
    off_t begin, end; /* on their way */
} FileSent;
int file_send(int fd, off_t end, FileSent *sent);

/* A file under a temporary name. Devices and pipes are written directly; a pipe must have a reader. A symbolic link is
   followed. Use: open, write…, close (makes it durable and gives it its name) or abandon. After a failed write only
   abandon remains (close then abandons and fails). One writer per path and process at a time. */
typedef struct {
    char *path, *temporary; /* temporary NULL: in place */
    int fd;
    uint8_t *block; /* write buffer, flushed at FILE_BLOCK bytes */
    size_t used;
    uint64_t size; /* bytes given to the system */
    FileSent sent;
    DigestStream *digest;
    bool broken; /* a write failed, so the file must not get its name */
} FileWriter;

#define FILE_BLOCK ((size_t)1 << 20)

Status file_writer_open(FileWriter *w, const char *path); /* on failure `w` is zeroed */
Status file_writer_write(FileWriter *w, const void *data, size_t len);
/* Makes the file `len` bytes longer, with zeros that others replace; only close or abandon may follow. */
Status file_writer_extend(FileWriter *w, uint64_t len);
/* Replaces the first bytes of a regular file; only close or abandon may follow, and the digest is that of the bytes
   before. */
Status file_writer_begin(FileWriter *w, const void *data, size_t len);
/* fsync, rename over `path`, fsync its directory. `digest` and `size` may be NULL. Frees `w` in any case. On failure
   the temporary is removed, and an older file of that name is untouched unless only the last fsync failed. */
Status file_writer_close(FileWriter *w, Digest *digest, uint64_t *size);
void file_writer_abandon(FileWriter *w); /* removes the temporary; takes a zeroed or closed one */

Status file_write_durable(const char *path, const void *data, size_t len);
/* folder NULL: a path. A name "a/b" makes the folder a. */
Status file_write_in(const char *folder, const char *name, const void *data, size_t len);
Status file_write_text(const char *folder, const char *name, Buf *text); /* the same; frees the text */
/* All of it to an open descriptor, not durably. `path` is for messages. */
Status file_write_all(int fd, const char *path, const void *data, size_t len);
Status file_digest(const char *path, Digest *digest, uint64_t *size); /* either may be NULL */

/* Opens /dev/null for standard input, output and error where they are closed, because the next opened files would get
   their numbers and receive the log. A program calls this first. */
void file_open_standard(void);

/* open, read and fsync, which a signal does not interrupt. A pipe or device is opened as by O_NONBLOCK. */
int file_open(const char *path, int flags);
/* Opens a regular file as file_open does. On failure *fd is −1 and errno that of open. E_IO: it cannot be opened, or
   something else has the name. */
Status file_open_regular(const char *path, int flags, int *fd);
/* For reading: a regular file, or a pipe without a name, as the shell's <(…) and /dev/stdin are. `stream`: a named pipe
   or a device too; the caller polls before it reads, so that a signal ends the wait. */
Status file_open_input(const char *path, bool stream, int *fd);
void file_wait(int fd); /* from here on reads and writes wait; opening did not */
ssize_t file_read_some(int fd, void *out, size_t len);
/* Fewer bytes only where the file ends. −1 with errno: they cannot be read. */
ssize_t file_read_at(int fd, uint64_t at, void *out, size_t len);
int file_sync(int fd);

bool file_exists(const char *path);
bool file_exists_in(const char *folder, const char *name);
/* The file `name` in the folder `path`, or beside the file `path`; NULL: there is none. The caller frees. */
char *file_find_beside(const char *path, const char *name);
bool file_is_directory(const char *path);
bool file_is_there(int fd, const char *path); /* false: the open file was removed, or another one has its name */
Status file_size(const char *path, uint64_t *size);
Status file_make_directories(const char *path); /* like mkdir -p; new ones are durable */
/* Whether files can be made in the folder, by making one; what it made, folders too, is removed again. */
Status file_try_directory(const char *path);
/* Whether the file can be written into its folder, which exists. */
Status file_try_place(const char *path);
Status file_sync_directory(const char *path);
Status file_rename(const char *from, const char *to); /* and fsync of both directories */
/* Paths of a folder's entries, sorted by name, without "." and "..". */
typedef struct {
    char **paths; // (count)
    int count, cap;
} FileList;

Status file_list(const char *folder, FileList *list); /* a missing folder has no entries */
void file_list_free(FileList *list);                  /* takes a zeroed one */
/* Removes the temporaries of killed writers in a folder: files named `….tmp.<number>`. Only for the owner of the
   folder. A missing folder is fine. */
Status file_remove_temporaries(const char *directory);
/* Removes a file, or a folder with its contents. Symbolic links are not followed; a missing path is fine. */
Status file_remove_tree(const char *path);
/* Free bytes for an unprivileged user on the file system of the path, which need not exist. */
Status file_free_bytes(const char *path, uint64_t *bytes);
char *file_join(const char *directory, const char *name); /* caller frees */
char *file_directory(const char *path);                   /* "a/b" → "a", "b" → ".", "/b" → "/"; caller frees */
const char *file_basename(const char *path);              /* what follows the last slash; points into `path` */
