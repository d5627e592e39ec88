/* manifest.json: the files of a checkpoint with sizes and digests, and a digest of the manifest itself. */

#include "state/checkpoint/checkpoint_internal.h"

bool manifest_name_valid(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n >= sizeof((ManifestFile *)0)->name || name[0] == '.') return false;
    for (size_t i = 0; i < n; i++)
        if (!isascii(name[i]) || (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i]))) return false;
    return strcmp(name, CHECKPOINT_MANIFEST) != 0;
}

const ManifestFile *manifest_find(const Manifest *m, const char *name)
{
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->files[i].name, name) == 0) return &m->files[i];
    return NULL;
}

void manifest_add(Manifest *m, const char *name, uint64_t size, Digest digest)
{
    CHECK(manifest_name_valid(name) && !manifest_find(m, name), "'%s' cannot be the name of a checkpoint's file", name);
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
    buf_printf(out, "{\n  \"cairn_checkpoint\": %d,\n  \"step\": %" PRId64 ",\n  \"files\": [", CHECKPOINT_FORMAT,
               m->step);
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
    Digest digest;
    const char *name = js_string(js_get(entry, "name"), "");
    int64_t size = js_int(js_get(entry, "bytes"), -1);
    if (!manifest_name_valid(name) || manifest_find(m, name))
        return fail(E_CORRUPT, "%s: the name of file %d is not valid or occurs twice: damaged", path, m->count);
    if (size < 0 || !digest_parse(js_string(js_get(entry, "xxh3_128"), ""), &digest))
        return fail(E_CORRUPT, "%s: no size and digest for '%s': damaged", path, name);
    manifest_add(m, name, (uint64_t)size, digest);
    return OK;
}

Status manifest_parse(const char *path, const char *text, size_t len, Manifest *m)
{
    static const char *const needed[] = {CHECKPOINT_MODEL, CHECKPOINT_OPTIMIZER, CHECKPOINT_STATE};
    Status status = OK;
    Json *doc = NULL;
    Buf canonical = {0};
    *m = (Manifest){0};
    if (js_parse(path, text, len, &doc) != OK) TRY_DONE(fail(E_CORRUPT, "%s: damaged", status_message()));
    const Json *files = js_get(doc, "files");
    int64_t format = js_int(js_get(doc, "cairn_checkpoint"), -1);
    if (format != CHECKPOINT_FORMAT)
        TRY_DONE(fail(E_CORRUPT,
                      "%s: expected a Cairn checkpoint of format %d, found format %" PRId64
                      " (-1: none): damaged, or written by another version",
                      path, CHECKPOINT_FORMAT, format));
    m->step = js_int(js_get(doc, "step"), -1);
    if (m->step < 0) TRY_DONE(fail(E_CORRUPT, "%s: no step: damaged", path));
    if (js_size(files) > 1000) TRY_DONE(fail(E_CORRUPT, "%s: lists %zu files: damaged", path, js_size(files)));
    for (size_t i = 0; i < js_size(files); i++) TRY_DONE(parse_entry(path, js_at(files, i), m));
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!manifest_find(m, needed[i])) TRY_DONE(fail(E_CORRUPT, "%s: does not list %s: damaged", path, needed[i]));
    manifest_render(m, &canonical);
    if (canonical.len != len || memcmp(canonical.data, text, len) != 0)
        TRY_DONE(fail(E_CORRUPT, "%s: its text does not agree with its own digest: damaged", path));
done:
    js_free(doc);
    buf_free(&canonical);
    if (status != OK) manifest_free(m);
    return status;
}
