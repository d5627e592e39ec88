/* Folders, renaming and removal, and the parts of paths. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/sort.h"

/* %m in messages is the system's error (errno), so clean-up calls must keep errno. */

static Status sync_parent(const char *path)
{
    char *parent = file_directory(path);
    Status status = file_sync_directory(parent);
    free(parent);
    return status;
}

Status file_make_directories(const char *path)
{
    Status status = OK;
    if (file_is_directory(path)) return OK;
    char *part = mem_strdup(path);
    for (char *end = part + (*part == '/'); status == OK && *part; *end++ = '/') {
        end += strcspn(end, "/");
        bool at_end = *end == '\0';
        *end = '\0';
        if (mkdir(part, 0777) == 0) {
            status = sync_parent(part);
        } else {
            int why = errno; /* any error is fine if the directory exists */
            bool exists = file_is_directory(part);
            errno = why == EEXIST ? ENOTDIR : why;
            if (!exists) status = fail(E_IO, "%s: cannot make the directory %s: %m", path, part);
        }
        if (at_end) break;
    }
    if (!*part) status = fail(E_IO, "cannot make a directory with an empty name");
    free(part);
    return status;
}

Status file_try_directory(const char *path)
{
    int missing = 0;
    char *place = mem_strdup(path), *file = NULL;
    while (!file_exists(place) && strcmp(place, ".") != 0 && strcmp(place, "/") != 0) {
        char *above = file_directory(place);
        free(place);
        place = above;
        missing++;
    }
    free(place);
    Status status = OK;
    place = mem_strdup(path);
    TRY_DONE(file_make_directories(path));
    file = mem_printf("%s/cairn-try.tmp.%ld", path, (long)getpid());
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) TRY_DONE(fail(E_IO, "%s: no file can be made in this folder: %m", path));
    close(fd);
    unlink(file);
done:
    for (; missing > 0 && (rmdir(place) == 0 || status != OK); missing--) { /* after a failure some were not made */
        char *above = file_directory(place);
        free(place);
        place = above;
    }
    MEM_FREE(place, file);
    return status == E_IO ? E_USAGE : status;
}

Status file_try_place(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* a device or a pipe */
        return S_ISDIR(st.st_mode) ? fail(E_USAGE, "%s: is a folder; expected the name of a file", path) : OK;
    char *folder = file_directory(path);
    Status status = file_is_directory(folder)
                        ? file_try_directory(folder)
                        : fail(E_USAGE, "%s: cannot be written: the folder %s does not exist", path, folder);
    free(folder);
    return status;
}

Status file_rename(const char *from, const char *to)
{
    Status status = OK;
    char *old_place = file_directory(from), *new_place = file_directory(to);
    if (rename(from, to) != 0) TRY_DONE(fail(E_IO, "%s: cannot rename to %s: %m", from, to));
    TRY_DONE(file_sync_directory(new_place));
    if (strcmp(old_place, new_place) != 0) TRY_DONE(file_sync_directory(old_place));
done:
    MEM_FREE(old_place, new_place);
    return status;
}

static Status remove_entry(int parent, const char *name, const char *path);

/* Takes over `fd`. Symbolic links inside are removed, never followed. */
static Status remove_entries(int fd, const char *path)
{
    Status status = OK;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        status = fail(E_IO, "%s: cannot list: %m", path);
        close(fd);
        return status;
    }
    while (status == OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno) status = fail(E_IO, "%s: cannot list: %m", path);
        if (!entry) break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *below = file_join(path, entry->d_name);
        status = remove_entry(dirfd(dir), entry->d_name, below);
        free(below);
    }
    closedir(dir);
    return status;
}

/* `name` in the directory `parent`; `path` is for messages. */
static Status remove_entry(int parent, const char *name, const char *path)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return OK;
    int why = errno; /* EISDIR, and EPERM on some systems, for a directory */
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOTDIR || errno == ELOOP) errno = why;
        return fail(E_IO, "%s: cannot remove: %m", path);
    }
    TRY(remove_entries(fd, path));
    if (unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
        return fail(E_IO, "%s: cannot remove the directory: %m", path);
    }
    return OK;
}

Status file_remove_tree(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    char *name = mem_strndup(path, len);
    const char *last = file_basename(name);
    Status status = *last == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0
                        ? fail(E_IO, "'%s': refusing to remove this; give the name of a file or folder", path)
                        : remove_entry(AT_FDCWD, name, name);
    free(name);
    return status;
}

static bool is_temporary(const char *name)
{
    const char *digits = strrchr(name, '.');
    size_t before = digits ? (size_t)(digits - name) : 0;
    return before > 4 && strncmp(digits - 4, ".tmp", 4) == 0 && digits[1] != '\0' &&
           strspn(digits + 1, "0123456789") == strlen(digits + 1);
}

Status file_list(const char *folder, FileList *list)
{
    Status status = OK;
    *list = (FileList){0};
    DIR *dir = opendir(folder);
    if (!dir) return errno == ENOENT ? OK : fail(E_IO, "%s: cannot list: %m", folder);
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno) TRY_DONE(fail(E_IO, "%s: cannot list: %m", folder));
        if (!entry) break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        MEM_PUSH(list->paths, list->count, list->cap, file_join(folder, entry->d_name));
    }
    if (list->count > 0) qsort(list->paths, (size_t)list->count, sizeof *list->paths, sort_by_text);
done:
    closedir(dir);
    if (status != OK) file_list_free(list);
    return status;
}

void file_list_free(FileList *list)
{
    mem_free_texts(list->paths, list->count);
    *list = (FileList){0};
}

Status file_remove_temporaries(const char *directory)
{
    FileList list;
    Status status = file_list(directory, &list);
    for (int i = 0; i < list.count && status == OK; i++)
        if (is_temporary(file_basename(list.paths[i])) && unlink(list.paths[i]) != 0 && errno != ENOENT)
            status = fail(E_IO, "%s: cannot remove: %m", list.paths[i]);
    file_list_free(&list);
    return status;
}

char *file_join(const char *directory, const char *name)
{
    size_t len = strlen(directory);
    return mem_printf("%s%s%s", directory, len == 0 || directory[len - 1] == '/' ? "" : "/", name);
}

char *file_directory(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--; /* "a/b//" → "a/b" */
    while (len > 0 && path[len - 1] != '/') len--; /* → "a/" */
    while (len > 1 && path[len - 1] == '/') len--; /* → "a" */
    return len ? mem_strndup(path, len) : mem_strdup(".");
}

const char *file_basename(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
