#include "state/models/manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include "state/models/model_file.h"

enum { FORMAT = 1 };
#define MOST_BYTES ((size_t)1 << 20)
#define ANY_SIZE   UINT64_MAX

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isascii(s[i]) || (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i]))) return false;
    return n > 0 && s[0] != '.';
}

bool manifest_name_valid(const char *name)
{
    const char *slash = strchr(name, '/'), *last = slash ? slash + 1 : name;
    if (strlen(name) >= sizeof((ManifestFile *)0)->name || (slash && !is_name(name, (size_t)(slash - name))))
        return false;
    return is_name(last, strlen(last)) && strcmp(name, MANIFEST_NAME) != 0;
}

const ManifestFile *manifest_find(const Manifest *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->files[i].name, name) == 0) return &m->files[i];
    return NULL;
}

void manifest_add(Manifest *m, const char *name, uint64_t size, Digest digest)
{
    CHECK(manifest_name_valid(name) && !manifest_find(m, name), "'%s' cannot be the name of a manifest's file", name);
    MEM_GROW(m->files, m->count, m->cap);
    ManifestFile *f = &m->files[m->count++];
    *f = (ManifestFile){.size = size, .digest = digest};
    memcpy(f->name, name, strlen(name) + 1);
}

void manifest_free(Manifest *m)
{
    free(m->files);
    *m = (Manifest){0};
}

void manifest_render(const Manifest *m, Buf *out)
{
    size_t start = out->len;
    buf_printf(out, "{\n  \"cairn_%s\": %d,", m->model ? "model" : "checkpoint", FORMAT);
    if (m->step >= 0) buf_printf(out, "\n  \"step\": %" PRId64 ",", m->step);
    buf_puts(out, "\n  \"files\": [");
    for (int i = 0; i < m->count; i++) {
        const ManifestFile *f = &m->files[i];
        buf_printf(out, "%s\n    {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"xxh3_128\": \"%s\"}", i > 0 ? "," : "",
                   f->name, f->size, DIGEST_TEXT(f->digest));
    }
    buf_puts(out, "\n  ],\n");
    buf_printf(out, "  \"xxh3_128_of_the_lines_above\": \"%s\"\n}\n",
               DIGEST_TEXT(digest_of(out->data + start, out->len - start)));
}

static Status parse_entry(const char *path, const Json *entry, Manifest *m)
{
    Digest digest = {0};
    const char *name = js_string(js_get(entry, "name"), "");
    if (!manifest_name_valid(name) || manifest_find(m, name))
        return fail(E_CORRUPT, "%s: the name of file %d is not valid or occurs twice: damaged", path, m->count);
    (void)digest_parse(js_string(js_get(entry, "xxh3_128"), ""), &digest); /* without it the text is another */
    manifest_add(m, name, (uint64_t)js_int(js_get(entry, "bytes"), 0), digest);
    return OK;
}

Status manifest_parse(const char *path, const char *text, size_t len, Manifest *m)
{
    Status status = OK;
    Json *doc = NULL;
    Buf canonical = {0};
    *m = (Manifest){0};
    if (js_parse(path, text, len, &doc) != OK) TRY_DONE(fail(E_CORRUPT, "%s: damaged", status_message()));
    const Json *files = js_get(doc, "files");
    const Json *model = js_get(doc, "cairn_model");
    int64_t format = js_int(model ? model : js_get(doc, "cairn_checkpoint"), -1);
    if (format != FORMAT)
        TRY_DONE(fail(E_CORRUPT,
                      "%s: expected the manifest of a Cairn checkpoint or model of format %d, found format %" PRId64
                      " (-1: none): damaged, or written by another version",
                      path, FORMAT, format));
    m->model = model != NULL;
    m->step = js_int(js_get(doc, "step"), -1);
    if (m->step < 0 && !m->model) TRY_DONE(fail(E_CORRUPT, "%s: no step: damaged", path));
    for (size_t i = 0; i < js_size(files); i++) TRY_DONE(parse_entry(path, js_at(files, i), m));
    manifest_render(m, &canonical);
    if (canonical.len != len || memcmp(canonical.data, text, len) != 0)
        TRY_DONE(fail(E_CORRUPT, "%s: its text does not agree with its own digest: damaged", path));
done:
    js_free(doc);
    buf_free(&canonical);
    if (status != OK) manifest_free(m);
    return status;
}

/* ---- files ---- */

Status manifest_read_failed(const char *path, const char *what)
{
    bool damage = errno == ENOENT || errno == ENOTDIR || errno == EISDIR || errno == EIO || errno == EUCLEAN;
    return damage ? fail(E_CORRUPT, "%s: cannot %s: %m: damaged", path, what)
                  : fail(E_IO, "%s: cannot %s: %m", path, what);
}

Status manifest_open_file(const char *path, uint64_t size, int *fd)
{
    if (file_open_regular(path, O_RDONLY, fd) != OK)
        return errno == EINVAL ? fail(E_CORRUPT, "%s: damaged", status_message()) : manifest_read_failed(path, "open");
    off_t there = lseek(*fd, 0, SEEK_END);
    if (size == ANY_SIZE || there == (off_t)size) return OK;
    close(*fd);
    *fd = -1;
    return fail(E_CORRUPT, "%s: has %lld bytes, the manifest says %" PRIu64 ": damaged", path, (long long)there, size);
}

Status manifest_verify_file(const char *dir, const ManifestFile *f, ManifestSink *sink, Buf *to)
{
    Status status = OK;
    int fd;
    uint64_t at = 0;
    char *path = file_join(dir, f->name);
    uint8_t *block = mem_alloc(MANIFEST_BLOCK);
    DigestStream *digest = digest_new();
    TRY_DONE(manifest_open_file(path, f->size, &fd));
    for (ssize_t n = 1; n > 0 && at <= f->size; at += (uint64_t)n) {
        n = file_read_at(fd, at, block, MANIFEST_BLOCK);
        if (n < 0) TRY_DONE(manifest_read_failed(path, "read"));
        digest_update(digest, block, (size_t)n);
        if (to && n > 0) sink(to, block, (size_t)n);
    }
    if (!digest_equal(digest_value(digest), f->digest))
        TRY_DONE(fail(E_CORRUPT, "%s: its digest is %s, the manifest says %s: damaged", path,
                      DIGEST_TEXT(digest_value(digest)), DIGEST_TEXT(f->digest)));
done:
    if (fd >= 0) close(fd);
    digest_free(digest);
    MEM_FREE(block, path);
    return status;
}

static Status read_text(const char *dir, const char *path, Buf *text)
{
    int fd;
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return fail(E_CORRUPT, "%s: %s is missing: not a complete folder of Cairn's", dir, MANIFEST_NAME);
    TRY(manifest_open_file(path, ANY_SIZE, &fd));
    buf_room(text, MOST_BYTES);
    ssize_t n = file_read_at(fd, 0, text->data, MOST_BYTES + 1);
    Status status = n < 0 ? manifest_read_failed(path, "read") : OK;
    if (n > (ssize_t)MOST_BYTES)
        status = fail(E_CORRUPT, "%s: expected a file of at most %zu bytes: damaged", path, MOST_BYTES);
    close(fd);
    text->len = n > 0 ? (size_t)n : 0;
    return status;
}

Status manifest_read(const char *dir, Manifest *m)
{
    Buf text = {0};
    char *path = file_join(dir, MANIFEST_NAME);
    *m = (Manifest){0};
    Status status = read_text(dir, path, &text);
    if (status == OK) status = manifest_parse(path, text.data, text.len, m);
    free(path);
    buf_free(&text);
    return status;
}

/* ---- models ---- */

/* Other programs, and `cairn shards`, write files of this name beside weights. A damaged one counts as ours. */
static bool is_ours(const char *path, const Buf *text)
{
    Json *doc = NULL;
    bool other = text->len && js_parse(path, text->data, text->len, &doc) == OK &&
                 (!strstr(text->data, "\"cairn_") || strstr(text->data, "\"cairn_shards\""));
    js_free(doc);
    return !other;
}

/* A text that was edited may be meant; other weights never are. */
static Status check_file(const char *dir, const ManifestFile *f)
{
    Status status = manifest_verify_file(dir, f, NULL, NULL);
    if (status != E_CORRUPT) return status;
    if (strcmp(f->name, MODEL_WEIGHTS) == 0)
        return fail(E_CORRUPT,
                    "%s. Restore the file, or train again; where another program replaced it on purpose, remove %s/%s",
                    status_message(), dir, MANIFEST_NAME);
    log_warn("%s, or edited. The folder is used as it is now. Restore the file, or, where the edit is meant, write a "
             "folder that agrees: cairn convert --model %s --output NEW",
             status_message(), dir);
    return OK;
}

Status manifest_check_model(const char *path)
{
    Manifest m = {0};
    Buf text = {0};
    Status status = OK;
    bool folder = file_is_directory(path), weights = folder || strcmp(file_basename(path), MODEL_WEIGHTS) == 0;
    char *dir = folder ? mem_strdup(path) : file_directory(path), *manifest = file_join(dir, MANIFEST_NAME);
    if (file_exists(manifest) && file_read(manifest, MOST_BYTES, &text) == OK && is_ours(manifest, &text))
        status = manifest_parse(manifest, text.data, text.len, &m);
    if (status == E_CORRUPT)
        status = fail(E_CORRUPT, "%s. Restore it, or remove it: the files of the folder are not compared then",
                      status_message());
    for (int i = 0; i < m.count && status == OK; i++)
        if (!str_ends_with(m.files[i].name, ".safetensors") || (weights && strcmp(m.files[i].name, MODEL_WEIGHTS) == 0))
            status = check_file(dir, &m.files[i]);
    manifest_free(&m);
    buf_free(&text);
    MEM_FREE(manifest, dir);
    return status;
}
