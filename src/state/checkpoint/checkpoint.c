/* Names, lists, space, removal. Writing is in checkpoint_write.c and checkpoint_saver.c, reading in checkpoint_read.c.
 */
#include <unistd.h>

#include "state/checkpoint/checkpoint_internal.h"

/* ---- Names ---- */

char *checkpoint_path(const char *out, int64_t step, const char *suffix)
{
    char *name = mem_printf("checkpoint-%" PRId64 "%s", step, suffix);
    char *path = file_join(out, name);
    free(name);
    return path;
}

bool checkpoint_parse_name(const char *name, int64_t *step, const char **suffix)
{
    static const char prefix[] = "checkpoint-";
    if (!str_starts_with(name, prefix)) return false;
    const char *digits = name + strlen(prefix);
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 18 || (n > 1 && digits[0] == '0')) return false; /* as written by checkpoint_path */
    *step = strtoll(digits, NULL, 10);
    *suffix = digits + n;
    return true;
}

/* ---- Lists ---- */

static int newest_first(const void *a, const void *b)
{
    const CheckpointInfo *x = a, *y = b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    return (int)x->aside - (int)y->aside;
}

/* Folders in `out` called checkpoint-<step><suffix>, with one of the two suffixes. */
static Status list_folders(const char *out, const char *suffix, const char *other, CheckpointList *list)
{
    FileList entries;
    *list = (CheckpointList){0};
    TRY(file_list(out, &entries));
    for (int i = 0; i < entries.count; i++) {
        int64_t step;
        const char *path = entries.paths[i], *found;
        if (!checkpoint_parse_name(file_basename(path), &step, &found) || !file_is_directory(path)) continue;
        if (strcmp(found, suffix) != 0 && strcmp(found, other) != 0) continue;
        MEM_PUSH(list->items, list->count, list->cap,
                 (CheckpointInfo){.step = step, .aside = *found != '\0', .path = mem_strdup(path)});
    }
    file_list_free(&entries);
    if (list->count > 0) qsort(list->items, (size_t)list->count, sizeof *list->items, newest_first);
    return OK;
}

Status checkpoint_find(const char *out, CheckpointList *list) { return list_folders(out, "", ".old", list); }

void checkpoint_list_free(CheckpointList *list)
{
    for (int i = 0; i < list->count; i++) free(list->items[i].path);
    free(list->items);
    *list = (CheckpointList){0};
}

/* ---- Removal ---- */

/* The manifest goes first, so that the rest of an interrupted removal cannot pass for a checkpoint. */
static Status remove_manifest_first(const char *path)
{
    char *manifest = file_join(path, MANIFEST_NAME);
    Status status = OK;
    if (unlink(manifest) != 0 && errno != ENOENT && errno != ENOTDIR)
        status = fail(E_IO, "%s: cannot remove: %m", manifest);
    free(manifest);
    return status == OK ? file_remove_tree(path) : status;
}

Status checkpoint_remove(const char *out, const CheckpointInfo *c)
{
    Status status = OK;
    char *temporary = checkpoint_path(out, c->step, ".tmp");
    TRY_DONE(remove_manifest_first(temporary));
    TRY_DONE(file_rename(c->path, temporary));
    TRY_DONE(remove_manifest_first(temporary));
done:
    free(temporary);
    return status;
}

static Status rename_aside(const char *out, const CheckpointInfo *c)
{
    char *aside = checkpoint_path(out, c->step, ".damaged");
    Status status = file_remove_tree(aside); /* of an earlier time */
    if (status == OK) status = file_rename(c->path, aside);
    if (status == OK) log_warn("%s is now %s", c->path, aside);
    free(aside);
    return status;
}

Status checkpoint_set_aside(const char *out, int64_t from, int64_t to, const char *except)
{
    Status status = OK;
    CheckpointList list;
    char *kept = realpath(except, NULL);
    TRY_DONE(checkpoint_find(out, &list));
    for (int i = 0; i < list.count; i++) {
        char *here = realpath(list.items[i].path, NULL);
        bool keep = here && kept && strcmp(here, kept) == 0;
        free(here);
        if (!keep && list.items[i].step >= from && list.items[i].step < to) TRY_DONE(rename_aside(out, &list.items[i]));
    }
done:
    checkpoint_list_free(&list);
    free(kept);
    return status;
}

Status checkpoint_remove_leftovers(const char *out)
{
    Status status = OK;
    CheckpointList list;
    TRY(list_folders(out, ".tmp", ".tmp", &list));
    for (int i = 0; i < list.count; i++) TRY_DONE(remove_manifest_first(list.items[i].path));
done:
    checkpoint_list_free(&list);
    return status;
}

/* ---- Space ---- */

static uint64_t tensors_bytes(const ParamTable *params)
{
    enum { HEADER = 160 }; /* per tensor beside its name */
    uint64_t bytes = 0;
    for (int i = 0; i < params->count; i++) {
        const Param *p = &params->params[i];
        bytes += (uint64_t)param_exported(p) * sizeof(float) + strlen(p->name) + HEADER;
    }
    return bytes;
}

uint64_t checkpoint_bytes(const ParamTable *params, const ParamTable *kfac)
{
    enum { SMALL = 64 * 1024 }; /* manifest, state.json and blocks */
    return SMALL + 3 * tensors_bytes(params) + (kfac ? tensors_bytes(kfac) : 0);
}

Status checkpoint_check_space(const char *directory, uint64_t bytes)
{
    uint64_t available;
    TRY(file_free_bytes(directory, &available));
    if (available >= bytes) return OK;
    return fail(E_IO,
                "%s: a checkpoint needs %" PRIu64 " bytes (%.1f MiB), only %" PRIu64
                " (%.1f MiB) are free there; make room or choose another output folder",
                directory, bytes, (double)bytes / (1 << 20), available, (double)available / (1 << 20));
}

/* ---- The newest good one ---- */

Status checkpoint_newest(const char *out, int64_t from, int64_t to, CheckpointSeen *seen, char **path)
{
    Status status = OK;
    CheckpointList list;
    int damaged = 0;
    *path = NULL;
    TRY(checkpoint_find(out, &list));
    for (int i = 0; i < list.count && !*path; i++) {
        const char *dir = list.items[i].path;
        if (list.items[i].step >= from && list.items[i].step < to) continue;
        Status one = checkpoint_verify(dir, seen);
        if (one == OK)
            *path = mem_strdup(dir);
        else if (one == E_CORRUPT)
            log_warn("%s; looking for the checkpoint before it", status_message());
        else
            TRY_DONE(one);
        damaged += one != OK;
    }
    if (damaged > 0 && !*path)
        TRY_DONE(fail(E_CORRUPT,
                      "%s: all %d checkpoints are damaged (the newest is %s); restore a good one, or "
                      "start over in another output folder",
                      out, damaged, list.items[0].path));
done:
    checkpoint_list_free(&list);
    return status;
}
