#include "train/spare.h"

#include <inttypes.h>
#include <stdlib.h>

#include "report/report.h"
#include "state/checkpoint.h"

static char *spare_parent(const char *out) { return file_join(out, "survivors"); }

char *spare_path(const char *out, int n)
{
    if (n == SPARE_NONE) return mem_strdup(out);
    return mem_printf("%s/survivors/%d", out, n);
}

Status spare_take(FolderLock *lock, const char *out, double seconds, double spare_seconds, int most, int *n)
{
    *n = SPARE_NONE;
    Status status = lock_take_within(lock, out, seconds);
    while (status == E_FAIL && *n + 1 < most) {
        char *path = spare_path(out, ++*n);
        status = lock_take_within(lock, path, spare_seconds);
        free(path);
    }
    return status;
}

static int64_t saved_in(const char *folder, int64_t least)
{
    CheckpointList list = {0};
    int64_t step = -1;
    if (checkpoint_find(folder, &list) != OK) return -1;
    for (int i = 0; i < list.count && list.items[i].step >= least && step < 0; i++)
        if (checkpoint_verify(list.items[i].path, NULL, NULL) == OK) step = list.items[i].step;
    checkpoint_list_free(&list);
    return step;
}

int64_t spare_saved(const char *out, int64_t least)
{
    char *parent = spare_parent(out);
    FileList folders = {0};
    int64_t step = saved_in(out, least);
    if (file_list(parent, &folders) != OK) log_debug("%s", status_message());
    for (int i = 0; i < folders.count && step < 0; i++) step = saved_in(folders.paths[i], least);
    file_list_free(&folders);
    free(parent);
    return step;
}

/* A step that OUT has already is the same state. */
static Status move_checkpoints(const char *out, const char *folder)
{
    CheckpointList list = {0};
    Status status = OK;
    TRY(checkpoint_find(folder, &list));
    for (int i = 0; i < list.count && status == OK; i++) {
        char *to = file_join(out, file_basename(list.items[i].path));
        if (!file_exists(to)) {
            status = file_rename(list.items[i].path, to);
            if (status == OK) log_info("%s is moved to %s: survivors of a lost rank saved it", list.items[i].path, to);
        }
        free(to);
    }
    checkpoint_list_free(&list);
    return status;
}

/* Survivors may still write there. */
static Status join_folder(const char *out, const char *folder)
{
    FolderLock lock = {0};
    Status status = OK;
    TRY(lock_take(&lock, folder));
    TRY_DONE(move_checkpoints(out, folder));
    TRY_DONE(metrics_join(out, folder));
    TRY_DONE(file_remove_tree(folder));
done:
    lock_release(&lock);
    return status;
}

Status spare_join(const char *out)
{
    char *parent = spare_parent(out);
    FileList folders = {0};
    Status status = OK;
    TRY_DONE(file_list(parent, &folders));
    for (int i = 0; i < folders.count; i++) TRY_DONE(join_folder(out, folders.paths[i]));
    if (file_exists(parent)) TRY_DONE(file_remove_tree(parent));
done:
    file_list_free(&folders);
    free(parent);
    return status;
}
