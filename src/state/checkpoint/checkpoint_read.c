/* Verifying a checkpoint: every byte of its files passes through their digests. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/checkpoint/checkpoint_internal.h"

#define BLOCK        CHECKPOINT_BLOCK
#define MAX_MANIFEST ((size_t)1 << 20)
#define ANY_SIZE     UINT64_MAX

/* ---- One file against its line in the manifest ---- */

Status checkpoint_read_failed(const char *path, const char *what)
{
    bool damage = errno == ENOENT || errno == ENOTDIR || errno == EISDIR || errno == EIO || errno == EUCLEAN;
    return damage ? fail(E_CORRUPT, "%s: cannot %s: %m: damaged", path, what)
                  : fail(E_IO, "%s: cannot %s: %m", path, what);
}

Status checkpoint_open_file(const char *path, uint64_t size, int *fd)
{
    struct stat st;
    *fd = file_open(path, O_RDONLY);
    if (*fd < 0) return checkpoint_read_failed(path, "open");
    Status status = OK;
    if (fstat(*fd, &st) != 0)
        status = checkpoint_read_failed(path, "examine");
    else if (!S_ISREG(st.st_mode))
        status = fail(E_CORRUPT, "%s: not a regular file: damaged", path);
    else if (size != ANY_SIZE && (uint64_t)st.st_size != size)
        status = fail(E_CORRUPT, "%s: has %lld bytes, the manifest says %" PRIu64 ": damaged", path,
                      (long long)st.st_size, size);
    if (status == OK) return OK;
    close(*fd);
    *fd = -1;
    return status;
}

typedef void Sink(Buf *to, const uint8_t *block, size_t len);

/* Verifies the file's size and digest. Its blocks pass to `sink` where `to` is not NULL. */
static Status read_verified(const char *path, const ManifestFile *f, Sink *sink, Buf *to)
{
    Status status = OK;
    int fd;
    uint64_t at = 0;
    TRY(checkpoint_open_file(path, f->size, &fd));
    uint8_t *block = mem_alloc(BLOCK);
    DigestStream *digest = digest_new();
    for (;;) {
        ssize_t n = file_read_at(fd, at, block, BLOCK);
        if (n < 0) TRY_DONE(checkpoint_read_failed(path, "read"));
        if (n == 0) break;
        if ((uint64_t)n > f->size - at) TRY_DONE(fail(E_CORRUPT, "%s: the file grew during reading", path));
        digest_update(digest, block, (size_t)n);
        if (to) sink(to, block, (size_t)n);
        at += (uint64_t)n;
    }
    if (at != f->size)
        TRY_DONE(fail(E_CORRUPT, "%s: ends after %" PRIu64 " bytes, the manifest says %" PRIu64 ": damaged", path, at,
                      f->size));
    if (!digest_equal(digest_value(digest), f->digest))
        TRY_DONE(fail(E_CORRUPT, "%s: its digest is %s, the manifest says %s: damaged", path,
                      DIGEST_TEXT(digest_value(digest)), DIGEST_TEXT(f->digest)));
done:
    close(fd);
    digest_free(digest);
    free(block);
    return status;
}

/* ---- The manifest and the state ---- */

static void append_text(Buf *to, const uint8_t *block, size_t len) { buf_append(to, block, len); }

static void append_digest(Buf *to, const uint8_t *block, size_t len)
{
    Digest digest = digest_of(block, len);
    buf_append(to, &digest, sizeof digest);
}

static Status read_manifest_text(const char *dir, const char *path, Buf *text)
{
    char block[4096];
    ssize_t n;
    int fd;
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return fail(E_CORRUPT, "%s: %s is missing: not a complete Cairn checkpoint", dir, CHECKPOINT_MANIFEST);
    TRY(checkpoint_open_file(path, ANY_SIZE, &fd));
    while ((n = file_read_some(fd, block, sizeof block)) > 0 && text->len <= MAX_MANIFEST)
        buf_append(text, block, (size_t)n);
    Status status = n < 0   ? checkpoint_read_failed(path, "read")
                    : n > 0 ? fail(E_CORRUPT, "%s: expected a file of at most %zu bytes: damaged", path, MAX_MANIFEST)
                            : OK;
    close(fd);
    return status;
}

Status checkpoint_read_manifest(const char *dir, Manifest *m)
{
    Status status = OK;
    Buf text = {0};
    int64_t step;
    const char *suffix;
    char *path = file_join(dir, CHECKPOINT_MANIFEST), *name = mem_strdup(dir);
    *m = (Manifest){0};
    TRY_DONE(read_manifest_text(dir, path, &text));
    TRY_DONE(manifest_parse(path, text.data ? text.data : "", text.len, m));
    size_t len = strlen(name);
    while (len > 1 && name[len - 1] == '/') name[--len] = '\0';
    if (checkpoint_parse_name(file_basename(name), &step, &suffix) && step != m->step)
        TRY_DONE(fail(E_CORRUPT, "%s: is of step %" PRId64 ", the folder's name says %" PRId64 ": mixed up", path,
                      m->step, step));
done:
    MEM_FREE(path, name);
    buf_free(&text);
    if (status != OK) manifest_free(m);
    return status;
}

Digest checkpoint_identity(const Manifest *m)
{
    Buf text = {0};
    manifest_render(m, &text);
    Digest digest = digest_of(text.data, text.len);
    buf_free(&text);
    return digest;
}

int checkpoint_file_number(const char *name)
{
    for (int i = 0; i < CHECKPOINT_FILES; i++)
        if (strcmp(name, checkpoint_files[i]) == 0) return i;
    return -1;
}

static Status verify_file(const char *dir, const ManifestFile *f, Buf *state, Buf *digests)
{
    bool is_state = strcmp(f->name, CHECKPOINT_STATE) == 0;
    if (is_state && f->size > CHECKPOINT_MAX_STATE)
        return fail(E_CORRUPT, "%s/%s: %" PRIu64 " bytes, expected at most %" PRIu64, dir, f->name, f->size,
                    CHECKPOINT_MAX_STATE);
    char *path = file_join(dir, f->name);
    Status status =
        is_state ? read_verified(path, f, append_text, state) : read_verified(path, f, append_digest, digests);
    free(path);
    return status;
}

static Status verify_files(const char *dir, const Manifest *m, CheckpointSeen *seen)
{
    SeenFiles files = {.manifest = checkpoint_identity(m)};
    Buf digests[CHECKPOINT_FILES] = {{0}};
    Status status = OK;
    for (int i = 0; i < m->count; i++) {
        int number = checkpoint_file_number(m->files[i].name);
        if (number >= 0) files.size[number] = m->files[i].size;
        TRY_DONE(
            verify_file(dir, &m->files[i], seen ? &seen->state : NULL, seen && number >= 0 ? &digests[number] : NULL));
    }
    if (!seen) goto done;
    seen->step = m->step;
    buf_append(&seen->files, &files, sizeof files);
    for (int i = 0; i < CHECKPOINT_FILES; i++) buf_append(&seen->files, digests[i].data, digests[i].len);
done:
    for (int i = 0; i < CHECKPOINT_FILES; i++) buf_free(&digests[i]);
    return status;
}

Status checkpoint_verify(const char *dir, CheckpointSeen *seen)
{
    Manifest m;
    if (seen) checkpoint_seen_free(seen);
    TRY(checkpoint_read_manifest(dir, &m));
    Status status = verify_files(dir, &m, seen);
    manifest_free(&m);
    return status;
}

void checkpoint_seen_free(CheckpointSeen *seen)
{
    BUF_FREE(&seen->state, &seen->files);
    *seen = (CheckpointSeen){.step = -1};
}
