#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#define SENT_PIECE ((size_t)2 << 20) /* on its way to the disk at once; as much is written meanwhile */

/* The file to write. A symbolic link stays, and its target is replaced. */
static char *resolve(const char *path)
{
    struct stat st;
    char *target = lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? realpath(path, NULL) : NULL;
    return target ? target : mem_strdup(path);
}

/* Devices, pipes and sockets (/dev/stdout, /dev/full), which a file must not replace. */
static bool written_in_place(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

Status file_writer_open(FileWriter *w, const char *path)
{
    *w = (FileWriter){0};
    if (file_is_directory(path)) return fail(E_IO, "%s: a folder; expected the name of a file to write", path);
    char *target = resolve(path);
    char *temporary = written_in_place(target) ? NULL : mem_printf("%s.tmp.%ld", target, (long)getpid());
    int fd = file_open(temporary ? temporary : target, O_WRONLY | (temporary ? O_CREAT | O_TRUNC : 0));
    if (fd < 0 && !temporary && errno == ENXIO) {
        Status status = fail(E_IO, "%s: expected a regular file, found a socket or a pipe that nobody reads", target);
        free(target);
        return status;
    }
    if (fd < 0) {
        Status status = fail(E_IO, "%s: cannot %s it for writing: %m", temporary ? temporary : target,
                             temporary ? "create" : "open");
        MEM_FREE(temporary, target);
        return status;
    }
    file_wait(fd);
    *w = (FileWriter){
        .path = target, .temporary = temporary, .fd = fd, .block = mem_alloc(FILE_BLOCK), .digest = digest_new()};
    return OK;
}

/* The error (errno) of a call that did `what`. `missing` bytes were not written. */
static Status writing_failed(FileWriter *w, const char *what, uint64_t missing)
{
    int why = errno;
    uint64_t available;
    w->broken = true;
    if ((why == ENOSPC || why == EDQUOT) && file_free_bytes(w->path, &available) == OK) {
        errno = why;
        return fail(E_IO,
                    "%s: cannot %s: %m: at least %" PRIu64 " more bytes are needed after the %" PRIu64
                    " already written, %" PRIu64 " bytes are free there; make room or choose another place",
                    w->path, what, missing, w->size, available);
    }
    errno = why;
    return fail(E_IO, "%s: cannot %s: %m", w->path, what);
}

/* Writes without the buffer. Signals and short writes are not errors. */
static Status write_out(FileWriter *w, const uint8_t *data, size_t len)
{
    digest_update(w->digest, data, len);
    while (len > 0) {
        ssize_t n = write(w->fd, data, len < SENT_PIECE ? len : SENT_PIECE);
        if (n == 0) errno = EIO; /* no progress and no reason: do not try for ever */
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return writing_failed(w, "write", len);
        data += n;
        len -= (size_t)n;
        w->size += (uint64_t)n;
        if (file_send(w->fd, (off_t)w->size / (off_t)SENT_PIECE * (off_t)SENT_PIECE, &w->sent) != 0)
            return writing_failed(w, "write", len);
    }
    return OK;
}

static Status flush_block(FileWriter *w)
{
    size_t used = w->used;
    w->used = 0;
    return write_out(w, w->block, used);
}

Status file_writer_write(FileWriter *w, const void *data, size_t len)
{
    CHECK(w->path, "file_writer_write on a writer that is not open");
    if (w->broken) return fail(E_IO, "%s: cannot continue writing after an error", w->path);
    const uint8_t *p = data;
    while (len > 0) {
        if (w->used == 0 && len >= FILE_BLOCK) {
            size_t whole = len - len % FILE_BLOCK;
            TRY(write_out(w, p, whole));
            p += whole;
            len -= whole;
            continue;
        }
        size_t n = FILE_BLOCK - w->used < len ? FILE_BLOCK - w->used : len;
        memcpy(w->block + w->used, p, n);
        w->used += n;
        p += n;
        len -= n;
        if (w->used == FILE_BLOCK) TRY(flush_block(w));
    }
    return OK;
}

Status file_writer_extend(FileWriter *w, uint64_t len)
{
    TRY(flush_block(w));
    if (ftruncate(w->fd, (off_t)(w->size + len)) != 0) return writing_failed(w, "extend", len);
    w->size += len;
    return OK;
}

Status file_writer_begin(FileWriter *w, const void *data, size_t len)
{
    TRY(flush_block(w));
    ssize_t n = pwrite(w->fd, data, len, 0);
    if (n == (ssize_t)len) return OK;
    if (n >= 0) errno = EIO;
    return writing_failed(w, "write", len);
}

static Status make_durable(FileWriter *w)
{
    if (w->broken) return fail(E_IO, "%s: not put in place, since writing it failed", w->path);
    TRY(flush_block(w));
    int result = file_sync(w->fd);
    if (result != 0 && w->temporary) return writing_failed(w, "flush to the disk", 0);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0 && errno != EINTR) return writing_failed(w, "close", 0);
    return OK;
}

static void writer_free(FileWriter *w)
{
    if (w->fd >= 0) close(w->fd);
    digest_free(w->digest);
    MEM_FREE(w->block, w->temporary, w->path);
    *w = (FileWriter){0};
}

Status file_writer_close(FileWriter *w, Digest *digest, uint64_t *size)
{
    CHECK(w->path, "file_writer_close on a writer that is not open");
    Status status = make_durable(w);
    if (status == OK && w->temporary && rename(w->temporary, w->path) != 0)
        status = fail(E_IO, "%s: cannot rename to %s: %m", w->temporary, w->path);
    if (status != OK) {
        file_writer_abandon(w);
        return status;
    }
    if (w->temporary) {
        char *place = file_directory(w->path);
        status = file_sync_directory(place);
        free(place);
    }
    if (digest) *digest = digest_value(w->digest);
    if (size) *size = w->size;
    writer_free(w);
    return status;
}

void file_writer_abandon(FileWriter *w)
{
    if (!w->path) return;
    if (w->temporary) unlink(w->temporary);
    writer_free(w);
}

Status file_write_durable(const char *path, const void *data, size_t len)
{
    FileWriter w;
    TRY(file_writer_open(&w, path));
    Status status = file_writer_write(&w, data, len);
    if (status == OK) return file_writer_close(&w, NULL, NULL);
    file_writer_abandon(&w);
    return status;
}

Status file_write_in(const char *folder, const char *name, const void *data, size_t len)
{
    char *path = folder ? file_join(folder, name) : mem_strdup(name), *place = file_directory(path);
    Status status = folder && strchr(name, '/') ? file_make_directories(place) : OK;
    if (status == OK) status = file_write_durable(path, data, len);
    MEM_FREE(path, place);
    return status;
}

Status file_write_text(const char *folder, const char *name, Buf *text)
{
    Status status = file_write_in(folder, name, text->data, text->len);
    buf_free(text);
    return status;
}
