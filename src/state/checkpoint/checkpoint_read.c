/* Verifying a checkpoint: every byte of its files passes through their digests. */
#include "state/checkpoint/checkpoint_internal.h"

static const char *const needed[] = {MODEL_WEIGHTS, CHECKPOINT_OPTIMIZER, CHECKPOINT_STATE};

static void append_text(Buf *to, const uint8_t *block, size_t len) { buf_append(to, block, len); }

static void append_digest(Buf *to, const uint8_t *block, size_t len)
{
    Digest digest = digest_of(block, len);
    buf_append(to, &digest, sizeof digest);
}

Status checkpoint_read_manifest(const char *dir, Manifest *m)
{
    Status status = OK;
    int64_t step;
    const char *suffix;
    char *name = mem_strdup(dir);
    TRY_DONE(manifest_read(dir, m));
    if (m->model) TRY_DONE(fail(E_CORRUPT, "%s/%s: that of a model, expected a checkpoint's", dir, MANIFEST_NAME));
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!manifest_find(m, needed[i]))
            TRY_DONE(fail(E_CORRUPT, "%s/%s: does not list %s: damaged", dir, MANIFEST_NAME, needed[i]));
    size_t len = strlen(name);
    while (len > 1 && name[len - 1] == '/') name[--len] = '\0';
    if (checkpoint_parse_name(file_basename(name), &step, &suffix) && step != m->step)
        TRY_DONE(fail(E_CORRUPT, "%s/%s: is of step %" PRId64 ", the folder's name says %" PRId64 ": mixed up", dir,
                      MANIFEST_NAME, m->step, step));
done:
    free(name);
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
    return manifest_verify_file(dir, f, is_state ? append_text : append_digest, is_state ? state : digests);
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
