/* Writing a checkpoint: files and digests into a .tmp folder, manifest last, rename, flush, removal of older ones. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/tensor_file.h"
#include "state/checkpoint_internal.h"

typedef struct {
    const char *prefix;
    const float *values; // (params->size)
} Array;

static Status write_tensors(const char *dir, const char *name, const ParamTable *params, const Array *arrays, int n,
                            Manifest *m, uint64_t *bytes)
{
    static const char *const metadata[] = {"format", "pt"}; /* required by Hugging Face's reader */
    Status status = OK;
    SafetensorsWriter *w = NULL;
    Digest digest;
    uint64_t size;
    int count = 0;
    char *path = file_join(dir, name);
    TensorInfo *infos = mem_array((size_t)n * (size_t)params->count, sizeof *infos);
    for (int a = 0; a < n; a++)
        for (int i = 0; i < params->count; i++) {
            const Param *p = &params->params[i];
            infos[count++] = (TensorInfo){.name = mem_printf("%s%s", arrays[a].prefix, p->name),
                                          .dtype = F32,
                                          .n_dims = p->n_dims,
                                          .dims = {p->rows, p->cols},
                                          .count = param_exported(p)};
        }
    TRY_DONE(safetensors_writer_open(&w, path, infos, count, metadata, 1));
    for (int a = 0; a < n; a++)
        for (int i = 0; i < params->count; i++) {
            const Param *p = &params->params[i]; /* pad rows come last in memory, and are not written */
            TRY_DONE(
                safetensors_writer_write(w, arrays[a].values + p->offset, (size_t)param_exported(p) * sizeof(float)));
        }
    status = safetensors_writer_close(w, &digest);
    w = NULL;
    if (status != OK) goto done;
    TRY_DONE(file_size(path, &size));
    manifest_add(m, name, size, digest);
    *bytes += size;
done:
    safetensors_writer_abandon(w);
    for (int i = 0; i < count; i++) free(infos[i].name);
    free(infos);
    free(path);
    return status;
}

static Status write_small(const char *dir, const char *name, const void *data, size_t size, uint64_t *bytes)
{
    char *path = file_join(dir, name);
    Status status = file_write_durable(path, data, size);
    if (status == OK) *bytes += size;
    free(path);
    return status;
}

/* Adds the manifest lines known before writing: state.json and the caller's files. */
static Status list_small(const TrainingState *t, Manifest *m)
{
    m->step = t->step;
    manifest_add(m, CHECKPOINT_STATE, t->state_size, digest_of(t->state, t->state_size));
    for (int i = 0; i < t->n_files; i++) {
        const ModelFile *f = &t->files[i];
        if (!manifest_name_valid(f->name) || manifest_find(m, f->name) || strcmp(f->name, CHECKPOINT_MODEL) == 0 ||
            strcmp(f->name, CHECKPOINT_OPTIMIZER) == 0)
            return fail(E_FAIL, "'%s' cannot be the name of a file in a checkpoint, or was given twice", f->name);
        manifest_add(m, f->name, f->size, digest_of(f->data, f->size));
    }
    return OK;
}

/* Writes everything into the new folder `dir`, the manifest last. */
static Status write_folder(const char *dir, const TrainingState *t, const Manifest *small, uint64_t *bytes)
{
    Status status = OK;
    Manifest m = {.step = t->step};
    Buf text = {0};
    const Array model[] = {{"", t->weights}}, moments[] = {{"m.", t->m}, {"v.", t->v}};
    if (mkdir(dir, 0777) != 0) TRY_DONE(fail(E_IO, "%s: cannot create the folder: %m", dir));
    TRY_DONE(write_tensors(dir, CHECKPOINT_MODEL, t->params, model, 1, &m, bytes));
    TRY_DONE(write_tensors(dir, CHECKPOINT_OPTIMIZER, t->params, moments, 2, &m, bytes));
    TRY_DONE(write_small(dir, CHECKPOINT_STATE, t->state, t->state_size, bytes));
    for (int i = 0; i < t->n_files; i++)
        TRY_DONE(write_small(dir, t->files[i].name, t->files[i].data, t->files[i].size, bytes));
    for (int i = 0; i < small->count; i++)
        manifest_add(&m, small->files[i].name, small->files[i].size, small->files[i].digest);
    manifest_render(&m, &text);
    TRY_DONE(write_small(dir, CHECKPOINT_MANIFEST, text.data, text.len, bytes));
done:
    manifest_free(&m);
    buf_free(&text);
    return status;
}

static bool has_manifest(const char *path)
{
    char *manifest = file_join(path, CHECKPOINT_MANIFEST);
    bool there = file_exists(manifest);
    free(manifest);
    return there;
}

/* State of the path that the new checkpoint will take. */
typedef enum { ABSENT, SAME, OTHER, DAMAGED, FOREIGN } Standing;

static Status examine(const char *path, const Manifest *small, Standing *standing)
{
    Manifest m;
    *standing = ABSENT;
    if (!file_exists(path)) return OK;
    *standing = FOREIGN;
    if (!has_manifest(path)) return OK;
    Status status = checkpoint_read_manifest(path, &m);
    if (status == OK) {
        bool same = m.count == small->count + 2;
        for (int i = 0; same && i < small->count; i++) {
            const ManifestFile *want = &small->files[i], *found = manifest_find(&m, want->name);
            same = found && found->size == want->size && digest_equal(found->digest, want->digest);
        }
        *standing = same ? SAME : OTHER;
        manifest_free(&m);
        status = checkpoint_verify(path, NULL, NULL);
    }
    if (status == E_CORRUPT) *standing = DAMAGED;
    return status == E_CORRUPT ? OK : status;
}

/* Renames into place. An existing checkpoint becomes .old first, so that a crash here leaves one of the two. */
static Status publish(const char *temporary, const char *path, const char *aside, Standing standing)
{
    if (standing != ABSENT) {
        if (standing == FOREIGN && file_exists(aside))
            return fail(E_IO, "%s: not a Cairn checkpoint, but at a checkpoint's path; move it elsewhere", path);
        TRY(file_remove_tree(aside)); /* left by an earlier replacement: `path` is whole, and newer */
        TRY(file_rename(path, aside));
    }
    return file_rename(temporary, path);
}

/* Removes all but the `keep` newest. Steps beyond the one just saved belong to a run that took another course. */
static Status remove_older(const char *out, int64_t step, int keep)
{
    Status status = OK;
    CheckpointList list;
    TRY(checkpoint_find(out, &list));
    int kept = 0;
    for (int i = 0; i < list.count; i++) {
        const CheckpointInfo *c = &list.items[i];
        if (!has_manifest(c->path)) continue; /* not Cairn's */
        if (c->step <= step && !c->aside && (keep <= 0 || kept < keep))
            kept++;
        else
            TRY_DONE(checkpoint_remove(out, c));
    }
done:
    checkpoint_list_free(&list);
    return status;
}

Status checkpoint_write(const char *out, const TrainingState *t, int keep, uint64_t *bytes, char **note)
{
    Status status = OK;
    Manifest small = {0};
    Standing standing;
    uint64_t needed = checkpoint_bytes(t->params) + t->state_size;
    char *temporary = checkpoint_path(out, t->step, ".tmp"), *path = checkpoint_path(out, t->step, "");
    char *aside = checkpoint_path(out, t->step, ".old");
    for (int i = 0; i < t->n_files; i++) needed += t->files[i].size;
    TRY_DONE(list_small(t, &small));
    TRY_DONE(examine(path, &small, &standing));
    if (standing != SAME) {
        TRY_DONE(file_remove_tree(temporary));
        if (standing == DAMAGED) {
            TRY_DONE(checkpoint_remove(out, &(CheckpointInfo){.step = t->step, .path = path}));
            standing = ABSENT;
        }
        TRY_DONE(checkpoint_check_space(out, needed));
        status = write_folder(temporary, t, &small, bytes);
        if (status == OK) status = publish(temporary, path, aside, standing);
        if (status != OK) {
            char *why = mem_strdup(status_message());
            if (file_remove_tree(temporary) != OK) *note = mem_strdup(status_message());
            status = fail(status, "%s", why);
            free(why);
            goto done;
        }
    }
    if (remove_older(out, t->step, keep) != OK) *note = mem_strdup(status_message());
done:
    manifest_free(&small);
    free(temporary);
    free(path);
    free(aside);
    return status;
}
