/* Writing a checkpoint: files and digests into a .tmp folder, manifest last, rename, flush, removal of older ones. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/test_switch.h"
#include "state/checkpoint/checkpoint_internal.h"
#include "state/models/export.h"

static Status write_tensors(const char *dir, const char *name, const ParamTable *params, const ExportArray *arrays,
                            int n, Manifest *m)
{
    Digest digest;
    uint64_t size;
    char *path = file_join(dir, name);
    Status status = export_tensors(path, params, arrays, n, false, &digest);
    if (status == OK) status = file_size(path, &size);
    if (status == OK) manifest_add(m, name, size, digest);
    free(path);
    return status;
}

/* The same for all files of tensors that other processes help to fill. */
static Status write_together(const char *dir, const TrainingState *t, const ExportArray *model,
                             const ExportArray *moments, Manifest *m)
{
    static const char *const names[] = {CHECKPOINT_MODEL, CHECKPOINT_OPTIMIZER, CHECKPOINT_KFAC};
    Status status = OK;
    char *paths[3];
    CheckpointFilled filled;
    int n = checkpoint_fills_sets(t) ? 3 : 2;
    for (int i = 0; i < 3; i++) paths[i] = file_join(dir, names[i]);
    TRY_DONE(export_reserve(paths[0], t->params, model, 1));
    TRY_DONE(export_reserve(paths[1], t->params, moments, 2));
    if (n > 2) TRY_DONE(export_reserve(paths[2], t->kfac, &(ExportArray){.prefix = ""}, 1));
    TRY_DONE(t->fill(t->fill_context, t, &filled));
    for (int i = 0; i < n; i++) manifest_add(m, names[i], filled.files[i].size, filled.files[i].digest);
done:
    for (int i = 0; i < 3; i++) free(paths[i]);
    return status;
}

/* Adds the manifest lines known before writing: state.json and the caller's files. */
static Status list_small_files(const TrainingState *t, Manifest *m)
{
    m->step = t->step;
    manifest_add(m, CHECKPOINT_STATE, t->state_size, digest_of(t->state, t->state_size));
    for (int i = 0; i < t->n_files; i++) {
        const ModelFile *f = &t->files[i];
        if (!manifest_name_valid(f->name) || manifest_find(m, f->name) || strcmp(f->name, CHECKPOINT_MODEL) == 0 ||
            strcmp(f->name, CHECKPOINT_OPTIMIZER) == 0 || strcmp(f->name, CHECKPOINT_KFAC) == 0)
            return fail(E_FAIL, "'%s' cannot be the name of a file in a checkpoint, or was given twice", f->name);
        manifest_add(m, f->name, f->size, digest_of(f->data, f->size));
    }
    return OK;
}

/* Writes everything into the new folder `dir`, the manifest last. */
static Status write_folder(const char *dir, const TrainingState *t, const Manifest *small)
{
    Status status = OK;
    Manifest m = {.step = t->step};
    Buf text = {0};
    const ExportArray model[] = {{"", .values = t->weights}},
                      moments[] = {{"m.", .values = t->m}, {"v.", .values = t->v}},
                      sets[] = {{"", t->sets, t->read_sets, t->read_context}};
    if (mkdir(dir, 0777) != 0) TRY_DONE(fail(E_IO, "%s: cannot create the folder: %m", dir));
    if (t->fill) status = write_together(dir, t, model, moments, &m);
    if (t->fill && status != OK) {
        if (!t->weights) goto done;
        log_warn("%s; this rank writes the checkpoint alone", status_message());
        status = OK;
    }
    if (m.count == 0) {
        TRY_DONE(write_tensors(dir, CHECKPOINT_MODEL, t->params, model, 1, &m));
        TRY_DONE(write_tensors(dir, CHECKPOINT_OPTIMIZER, t->params, moments, 2, &m));
    }
    if (t->kfac && !checkpoint_fills_sets(t)) TRY_DONE(write_tensors(dir, CHECKPOINT_KFAC, t->kfac, sets, 1, &m));
    TRY_DONE(file_write_in(dir, CHECKPOINT_STATE, t->state, t->state_size));
    for (int i = 0; i < t->n_files; i++)
        TRY_DONE(file_write_in(dir, t->files[i].name, t->files[i].data, t->files[i].size));
    for (int i = 0; i < small->count; i++)
        manifest_add(&m, small->files[i].name, small->files[i].size, small->files[i].digest);
    manifest_render(&m, &text);
    TRY_DONE(file_write_in(dir, CHECKPOINT_MANIFEST, text.data, text.len));
done:
    manifest_free(&m);
    buf_free(&text);
    return status;
}

static bool has_manifest(const char *path) { return file_exists_in(path, CHECKPOINT_MANIFEST); }

/* The entry at the new checkpoint's path: none, the same checkpoint, another one, a damaged one, or not a checkpoint.
 */
typedef enum { ABSENT, SAME, OTHER, DAMAGED, FOREIGN } Existing;

static Status examine_existing(const char *path, const TrainingState *t, const Manifest *small, Existing *existing)
{
    Manifest m;
    *existing = ABSENT;
    if (!file_exists(path)) return OK;
    *existing = FOREIGN;
    if (!has_manifest(path)) return OK;
    Status status = checkpoint_read_manifest(path, &m);
    if (status == OK) {
        bool same = m.count == small->count + (t->kfac ? 3 : 2);
        for (int i = 0; same && i < small->count; i++) {
            const ManifestFile *want = &small->files[i], *found = manifest_find(&m, want->name);
            same = found && found->size == want->size && digest_equal(found->digest, want->digest);
        }
        *existing = same ? SAME : OTHER;
        manifest_free(&m);
        status = checkpoint_verify(path, NULL);
    }
    if (status == E_CORRUPT) *existing = DAMAGED;
    return status == E_CORRUPT ? OK : status;
}

/* Renames into place. An existing checkpoint becomes .old first, so that a crash here leaves one of the two. */
static Status rename_into_place(const char *temporary, const char *path, const char *aside, Existing existing)
{
    if (existing != ABSENT) {
        if (existing == FOREIGN && file_exists(aside))
            return fail(E_IO, "%s: not a Cairn checkpoint, but at a checkpoint's path; move it elsewhere", path);
        TRY(file_remove_tree(aside)); /* left by an earlier replacement: `path` is whole, and newer */
        TRY(file_rename(path, aside));
    }
    return file_rename(temporary, path);
}

Status checkpoint_move(const CheckpointInfo *from, const char *out, bool *moved)
{
    Status status = OK;
    Existing existing = ABSENT;
    char *path = checkpoint_path(out, from->step, ""), *aside = checkpoint_path(out, from->step, ".old");
    *moved = false;
    if (file_exists(path)) {
        status = checkpoint_verify(path, NULL);
        if (status != E_CORRUPT) goto done;
        status = checkpoint_verify(from->path, NULL);
        if (status == E_CORRUPT) {
            status = OK;
            goto done;
        }
        TRY_DONE(status);
        if (has_manifest(path))
            TRY_DONE(checkpoint_remove(out, &(CheckpointInfo){.step = from->step, .path = path}));
        else
            existing = FOREIGN;
    }
    TRY_DONE(rename_into_place(from->path, path, aside, existing));
    *moved = true;
done:
    MEM_FREE(path, aside);
    return status;
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

Status checkpoint_write(const char *out, const TrainingState *t, int keep, char **note)
{
    Status status = OK;
    Manifest small = {0};
    Existing existing;
    uint64_t needed = checkpoint_bytes(t->params, t->kfac) + t->state_size;
    char *temporary = checkpoint_path(out, t->step, ".tmp"), *path = checkpoint_path(out, t->step, "");
    char *aside = checkpoint_path(out, t->step, ".old");
    for (int i = 0; i < t->n_files; i++) needed += t->files[i].size;
    TRY_DONE(list_small_files(t, &small));
    TRY_DONE(examine_existing(path, t, &small, &existing));
    if (existing != SAME) {
        TRY_DONE(file_remove_tree(temporary));
        if (existing == DAMAGED) {
            TRY_DONE(checkpoint_remove(out, &(CheckpointInfo){.step = t->step, .path = path}));
            existing = ABSENT;
        }
        TRY_DONE(checkpoint_check_space(out, needed));
        status = write_folder(temporary, t, &small);
        test_at("save", 0);
        if (status == OK) status = rename_into_place(temporary, path, aside, existing);
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
    MEM_FREE(temporary, path, aside);
    return status;
}
