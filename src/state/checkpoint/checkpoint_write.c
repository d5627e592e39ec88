/* Writing a checkpoint: files and digests into a .tmp folder, manifest last, rename, flush, removal of older ones. */
#include <sys/stat.h>

#include "base/test_switch.h"
#include "state/checkpoint/checkpoint_internal.h"
#include "state/models/export.h"

static int files_of(const TrainingState *t) { return t->kfac ? 3 : 2; }

static ExportTensors tensors_of(const TrainingState *t, int file)
{
    ExportTensors e = {.read = t->read, .context = t->read_context};
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++) {
        if (checkpoint_arrays[a].file != file) continue;
        e.params = checkpoint_arrays[a].space == SPACE_SETS ? t->kfac : t->params;
        e.prefixes[e.n++] = checkpoint_arrays[a].prefix;
        e.first = a - checkpoint_arrays[a].before;
    }
    return e;
}

/* `filled` NULL: makes the files for those that fill them. */
static Status make_files(const char *dir, const TrainingState *t, CheckpointFilled *filled)
{
    Status status = OK;
    for (int i = 0; i < files_of(t) && status == OK; i++) {
        const ExportTensors tensors = tensors_of(t, i);
        char *path = file_join(dir, checkpoint_files[i]);
        status = filled ? export_tensors(path, &tensors, &filled->digest[i]) : export_reserve(path, &tensors);
        if (status == OK && filled) status = file_size(path, &filled->size[i]);
        free(path);
    }
    return status;
}

static Status write_tensors(const char *dir, const TrainingState *t, CheckpointFilled *filled)
{
    Status status = t->fill ? t->fill(t->fill_context, t, filled) : OK;
    if (!t->read || (t->fill && status == OK)) return status;
    if (t->fill) log_warn("%s; this rank writes the checkpoint alone", status_message());
    return make_files(dir, t, filled);
}

/* Adds the manifest lines known before writing: state.json and the caller's files. */
static Status list_small_files(const TrainingState *t, Manifest *m)
{
    m->step = t->step;
    manifest_add(m, CHECKPOINT_STATE, t->state_size, digest_of(t->state, t->state_size));
    for (int i = 0; i < t->n_files; i++) {
        const ModelFile *f = &t->files[i];
        if (!manifest_name_valid(f->name) || manifest_find(m, f->name) || checkpoint_file_number(f->name) >= 0)
            return fail(E_FAIL, "'%s' cannot be the name of a file in a checkpoint, or was given twice", f->name);
        manifest_add(m, f->name, f->size, digest_of(f->data, f->size));
    }
    return OK;
}

/* Writes everything into the new folder, the manifest last. */
static Status write_folder(const CheckpointWriting *w)
{
    Status status = OK;
    const TrainingState *t = &w->state;
    const char *dir = w->temporary;
    Manifest m = {.step = t->step};
    CheckpointFilled filled;
    Buf text = {0};
    TRY_DONE(write_tensors(dir, t, &filled));
    for (int i = 0; i < files_of(t); i++) manifest_add(&m, checkpoint_files[i], filled.size[i], filled.digest[i]);
    TRY_DONE(file_write_in(dir, CHECKPOINT_STATE, t->state, t->state_size));
    for (int i = 0; i < t->n_files; i++)
        TRY_DONE(file_write_in(dir, t->files[i].name, t->files[i].data, t->files[i].size));
    for (int i = 0; i < w->small.count; i++)
        manifest_add(&m, w->small.files[i].name, w->small.files[i].size, w->small.files[i].digest);
    manifest_render(&m, &text);
    status = file_write_text(dir, MANIFEST_NAME, &text);
done:
    manifest_free(&m);
    return status;
}

static bool has_manifest(const char *path) { return file_exists_in(path, MANIFEST_NAME); }

static Status examine_existing(CheckpointWriting *w)
{
    Manifest m;
    w->existing = ABSENT;
    if (!file_exists(w->path)) return OK;
    w->existing = FOREIGN;
    if (!has_manifest(w->path)) return OK;
    Status status = checkpoint_read_manifest(w->path, &m);
    if (status == OK) {
        bool same = m.count == w->small.count + files_of(&w->state);
        for (int i = 0; same && i < w->small.count; i++) {
            const ManifestFile *want = &w->small.files[i], *found = manifest_find(&m, want->name);
            same = found && found->size == want->size && digest_equal(found->digest, want->digest);
        }
        w->existing = same ? SAME : OTHER;
        manifest_free(&m);
        status = checkpoint_verify(w->path, NULL);
    }
    if (status == E_CORRUPT) w->existing = DAMAGED;
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

Status checkpoint_begin(CheckpointWriting *w, const char *out, const TrainingState *t)
{
    uint64_t needed = checkpoint_bytes(t->params, t->kfac) + t->state_size;
    *w = (CheckpointWriting){.out = out,
                             .state = *t,
                             .temporary = checkpoint_path(out, t->step, ".tmp"),
                             .path = checkpoint_path(out, t->step, ""),
                             .aside = checkpoint_path(out, t->step, ".old")};
    for (int i = 0; i < t->n_files; i++) needed += t->files[i].size;
    TRY(list_small_files(t, &w->small));
    TRY(examine_existing(w));
    if (w->existing == SAME) return OK;
    TRY(file_remove_tree(w->temporary));
    if (w->existing == DAMAGED) {
        TRY(checkpoint_remove(out, &(CheckpointInfo){.step = t->step, .path = w->path}));
        w->existing = ABSENT;
    }
    TRY(checkpoint_check_space(out, needed));
    if (mkdir(w->temporary, 0777) != 0) return fail(E_IO, "%s: cannot create the folder: %m", w->temporary);
    return t->fill ? make_files(w->temporary, t, NULL) : OK;
}

Status checkpoint_end(CheckpointWriting *w, Status status, int keep, char **note)
{
    if (status == OK && w->existing != SAME) {
        status = write_folder(w);
        test_at("save", 0);
        if (status == OK) status = rename_into_place(w->temporary, w->path, w->aside, w->existing);
    }
    if (status == OK) {
        if (remove_older(w->out, w->state.step, keep) != OK) *note = mem_strdup(status_message());
    } else {
        char *why = mem_strdup(status_message());
        if (file_remove_tree(w->temporary) != OK) *note = mem_strdup(status_message());
        status = fail(status, "%s", why);
        free(why);
    }
    manifest_free(&w->small);
    MEM_FREE(w->temporary, w->path, w->aside);
    return status;
}
