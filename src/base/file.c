#include "base/file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mapping.h"

/* %m in messages is the system's error (errno), so clean-up calls must keep errno. */

enum { READ_BYTES = 256 * 1024 };

/* ---- Reading ---- */

int file_open(const char *path, int flags)
{
    int fd;
    do fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static const char *kind_of_file(mode_t mode)
{
    return S_ISREG(mode)    ? "a regular file"
           : S_ISDIR(mode)  ? "a folder"
           : S_ISFIFO(mode) ? "a named pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static bool is_nameless_pipe(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC;
}

void file_wait(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0) (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

/* Opens a regular file, or another thing that `takes` accepts. */
static Status open_kind(const char *path, int flags, bool (*takes)(int fd, mode_t mode), int *fd)
{
    struct stat st;
    *fd = file_open(path, flags);
    int why = *fd < 0 ? errno : EINVAL;
    bool unlike = *fd >= 0 ? fstat(*fd, &st) == 0 && !S_ISREG(st.st_mode)
                           : (why == ENXIO || why == EISDIR) && stat(path, &st) == 0;
    if (*fd >= 0 && (!unlike || (takes && takes(*fd, st.st_mode)))) return OK;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    errno = why;
    Status status = unlike ? fail(E_IO, "%s: expected a regular file, found %s", path, kind_of_file(st.st_mode))
                           : fail(E_IO, "%s: cannot open: %m", path);
    errno = why;
    return status;
}

Status file_open_regular(const char *path, int flags, int *fd) { return open_kind(path, flags, NULL, fd); }

static bool takes_pipe(int fd, mode_t mode) { return S_ISFIFO(mode) && is_nameless_pipe(fd); }

static bool takes_stream(int fd, mode_t mode)
{
    (void)fd;
    return S_ISFIFO(mode) || S_ISCHR(mode);
}

Status file_open_input(const char *path, bool stream, int *fd)
{
    TRY(open_kind(path, O_RDONLY, stream ? takes_stream : takes_pipe, fd));
    file_wait(*fd);
    return OK;
}

ssize_t file_read_some(int fd, void *out, size_t len)
{
    ssize_t n;
    do n = read(fd, out, len);
    while (n < 0 && errno == EINTR);
    return n;
}

ssize_t file_read_at(int fd, uint64_t at, void *out, size_t len)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = pread(fd, (uint8_t *)out + got, len - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return n;
        if (n == 0) break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

/* Some file systems lack it. */
static int send_range(int fd, off_t begin, off_t end, unsigned flags)
{
    if (end <= begin || sync_file_range(fd, begin, end - begin, flags) == 0) return 0;
    return errno == EINVAL || errno == ENOSYS || errno == ESPIPE ? 0 : -1;
}

int file_send(int fd, off_t end, FileSent *sent)
{
    FileSent before = *sent;
    if (end <= before.end) return 0;
    *sent = (FileSent){before.end, end};
    if (send_range(fd, sent->begin, end, SYNC_FILE_RANGE_WRITE) != 0) return -1;
    return send_range(fd, before.begin, before.end, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER);
}

int file_sync(int fd)
{
    int result;
    do result = fsync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

Status file_map(FileMap *map, const char *path)
{
    Status status = OK;
    *map = (FileMap){0};
    int fd;
    TRY(file_open_regular(path, O_RDONLY, &fd));
    struct stat st;
    if (fstat(fd, &st) != 0) TRY_DONE(fail(E_IO, "%s: cannot examine: %m", path));
    map->data = (const uint8_t *)"";
    if (st.st_size > 0) {
        map->data = mapping_open(fd, (size_t)st.st_size, false);
        if (!map->data) TRY_DONE(fail(E_IO, "%s: cannot map %lld bytes: %m", path, (long long)st.st_size));
        map->size = (size_t)st.st_size;
    }
done:
    close(fd);
    return status;
}

Status file_map_check(const FileMap *map, const char *path)
{
    if (!map->size || !mapping_cut(map->data)) return OK;
    return fail(E_IO, "%s: the file became shorter than %zu bytes while it was read", path, map->size);
}

void file_unmap(FileMap *map)
{
    if (map->size) mapping_close(map->data, map->size);
    *map = (FileMap){0};
}

/* Appends the bytes of a file to `out` (up to `max` of them), to `stream` and their number to *size; each may
   be NULL. */
static Status read_whole(const char *path, size_t max, Buf *out, DigestStream *stream, uint64_t *size)
{
    Status status = OK;
    uint64_t total = 0;
    int fd;
    TRY(file_open_input(path, false, &fd));
    char *piece = mem_alloc(READ_BYTES);
    for (;;) {
        ssize_t n = file_read_some(fd, piece, READ_BYTES);
        if (n < 0) TRY_DONE(fail(E_IO, "%s: cannot read: %m", path));
        if ((uint64_t)n > max - total)
            TRY_DONE(fail(E_FORMAT, "%s: larger than the %zu bytes that such a file may have", path, max));
        if (out) buf_append(out, piece, (size_t)n);
        if (n == 0) break;
        if (stream) digest_update(stream, piece, (size_t)n);
        total += (uint64_t)n;
    }
    if (size) *size = total;
done:
    close(fd);
    free(piece);
    return status;
}

Status file_read(const char *path, size_t max, Buf *out)
{
    if (out->data) out->len = 0;
    return read_whole(path, max, out, NULL, NULL);
}

Status file_digest(const char *path, Digest *digest, uint64_t *size)
{
    DigestStream *stream = digest_new();
    Status status = read_whole(path, SIZE_MAX, NULL, stream, size);
    if (status == OK && digest) *digest = digest_value(stream);
    digest_free(stream);
    return status;
}

Status file_write_all(int fd, const char *path, const void *data, size_t len)
{
    for (const char *p = data, *end = p + len; p < end;) {
        ssize_t n = write(fd, p, (size_t)(end - p));
        if (n >= 0)
            p += n;
        else if (errno != EINTR)
            return fail(E_IO, "%s: cannot be written: %m", path);
    }
    return OK;
}

/* ---- Properties ---- */

void file_open_standard(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd && open("/", O_RDONLY) != fd) _exit(1);
}

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

bool file_exists_in(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    bool there = file_exists(path);
    free(path);
    return there;
}

char *file_find_beside(const char *path, const char *name)
{
    char *folder = file_is_directory(path) ? mem_strdup(path) : file_directory(path);
    char *found = file_join(folder, name);
    free(folder);
    if (file_exists(found)) return found;
    free(found);
    return NULL;
}

bool file_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool file_is_there(int fd, const char *path)
{
    struct stat mine, there;
    if (fstat(fd, &mine) != 0) return true;
    if (stat(path, &there) != 0) return errno != ENOENT && errno != ENOTDIR; /* a file server may fail */
    return mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

Status file_size(const char *path, uint64_t *size)
{
    struct stat st;
    if (stat(path, &st) != 0) return fail(E_IO, "%s: cannot examine: %m", path);
    if (!S_ISREG(st.st_mode)) return fail(E_IO, "%s: expected a regular file", path);
    *size = (uint64_t)st.st_size;
    return OK;
}

Status file_free_bytes(const char *path, uint64_t *bytes)
{
    struct statvfs fs;
    char *place = mem_strdup(path);
    int result = statvfs(place, &fs);
    while (result != 0 && errno == ENOENT && strcmp(place, ".") != 0 && strcmp(place, "/") != 0) {
        char *above = file_directory(place);
        free(place);
        place = above;
        result = statvfs(place, &fs);
    }
    free(place);
    if (result != 0) return fail(E_IO, "%s: cannot read the free space: %m", path);
    *bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    return OK;
}

Status file_sync_directory(const char *path)
{
    int fd = file_open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return fail(E_IO, "%s: cannot open the directory: %m", path);
    int result = file_sync(fd), why = errno;
    close(fd);
    errno = why;
    /* EINVAL: a file system on which directories cannot be flushed one by one. Nothing else is possible. */
    if (result != 0 && why != EINVAL) return fail(E_IO, "%s: cannot make the directory durable: %m", path);
    return OK;
}
