#include "train/keep/spare.h"

#include <unistd.h>

#include "report/report.h"
#include "state/checkpoint/checkpoint.h"

#define JOINED ".joined" /* OUT has the contents */

static char *spare_parent(const char *out) { return file_join(out, "survivors"); }

char *spare_path(const char *out, int n)
{
    if (n == SPARE_NONE) return mem_strdup(out);
    return mem_printf("%s/survivors/%d", out, n);
}

Status spare_take(FolderLock *lock, const char *out, double seconds, int most, int *n)
{
    *n = SPARE_NONE;
    Status status = lock_take_within(lock, out, seconds);
    while (status == E_FAIL && *n + 1 < most) {
        char *path = spare_path(out, ++*n);
        status = lock_take_within(lock, path, 0);
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
        if (checkpoint_verify(list.items[i].path, NULL) == OK) step = list.items[i].step;
    checkpoint_list_free(&list);
    return step;
}

/* Folders called <n><suffix>; others are not Cairn's. */
static Status find_folders(const char *parent, const char *suffix, FileList *list)
{
    int kept = 0;
    *list = (FileList){0};
    if (!file_is_directory(parent)) return OK;
    TRY(file_list(parent, list));
    for (int i = 0; i < list->count; i++) {
        char *path = list->paths[i];
        const char *name = file_basename(path);
        size_t digits = strspn(name, "0123456789");
        if (digits > 0 && strcmp(name + digits, suffix) == 0 && file_is_directory(path))
            list->paths[kept++] = path;
        else
            free(path);
    }
    list->count = kept;
    return OK;
}

int64_t spare_saved(const char *out, int64_t least)
{
    char *parent = spare_parent(out);
    FileList folders;
    int64_t step = saved_in(out, least);
    if (find_folders(parent, "", &folders) != OK) log_debug("%s", status_message());
    for (int i = 0; i < folders.count && step < 0; i++) step = saved_in(folders.paths[i], least);
    file_list_free(&folders);
    free(parent);
    return step;
}

static Status move_checkpoints(const char *out, const char *folder)
{
    CheckpointList list = {0};
    Status status = OK;
    TRY(checkpoint_find(folder, &list));
    for (int i = 0; i < list.count && status == OK; i++) {
        bool moved;
        status = checkpoint_move(&list.items[i], out, &moved);
        if (status == OK && moved)
            log_info("%s is moved to %s: survivors of a lost rank saved it", list.items[i].path, out);
    }
    checkpoint_list_free(&list);
    return status;
}

/* The lock waits for survivors that still write. The folder is only renamed under it: on NFS a folder cannot be removed
   while a file in it is open. */
static Status join_folder(const char *out, const char *folder)
{
    FolderLock lock = {0};
    Status status = OK;
    char *joined = mem_printf("%s" JOINED, folder);
    TRY_DONE(lock_take(&lock, folder));
    TRY_DONE(move_checkpoints(out, folder));
    TRY_DONE(metrics_join(out, folder));
    if (file_remove_tree(joined) != OK || file_rename(folder, joined) != OK) log_debug("%s", status_message());
done:
    lock_release(&lock);
    free(joined);
    return status;
}

static void remove_joined(const char *parent)
{
    FileList joined;
    if (find_folders(parent, JOINED, &joined) != OK) log_debug("%s", status_message());
    for (int i = 0; i < joined.count; i++)
        if (file_remove_tree(joined.paths[i]) != OK) log_debug("%s", status_message());
    if (rmdir(parent) != 0 && errno != ENOENT) log_debug("%s: cannot remove: %m", parent);
    file_list_free(&joined);
}

Status spare_join(const char *out)
{
    char *parent = spare_parent(out);
    FileList folders;
    Status status = OK;
    TRY_DONE(find_folders(parent, "", &folders));
    for (int i = 0; i < folders.count; i++) TRY_DONE(join_folder(out, folders.paths[i]));
    remove_joined(parent);
done:
    file_list_free(&folders);
    free(parent);
    return status;
}
