/* Which files are read, how much text they will give, and how to know them again. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tasks/pretrain/wiki/wiki.h"

#define END_BYTES 65536

/* Text per byte of file, for the estimate: English Wikipedia and the dumps of the tests lie between 0.18 and 0.45 for
   plain XML, 0.8 and 1.6 for bz2. */
#define TEXT_PER_XML    0.45
#define TEXT_PER_PACKED 1.6
#define TEXT_PER_TEXT   1.05

static Status add_file(WikiFiles *files, const char *path, const struct stat *info)
{
    MEM_GROW(files->paths, files->n, files->cap);
    files->paths[files->n++] = mem_strdup(path);
    files->bytes += (uint64_t)info->st_size;
    return OK;
}

static int by_path(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static Status add_path(WikiFiles *files, const char *path, int depth);

static Status add_folder(WikiFiles *files, const char *path, int depth)
{
    DIR *folder = opendir(path);
    Status status = OK;
    if (!folder) return fail(E_IO, "%s: cannot read the folder: %m", path);
    for (struct dirent *entry; status == OK && (entry = readdir(folder));) {
        size_t len = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || (len > 5 && strcmp(entry->d_name + len - 5, ".json") == 0)) continue;
        char *child = file_join(path, entry->d_name);
        status = add_path(files, child, depth + 1);
        free(child);
    }
    closedir(folder);
    return status;
}

static Status add_path(WikiFiles *files, const char *path, int depth)
{
    struct stat info;
    if (stat(path, &info) != 0) return fail(E_IO, "%s: %m", path);
    if (S_ISDIR(info.st_mode)) {
        if (depth > 16) return fail(E_FORMAT, "%s: folders more than 16 deep, or in a circle", path);
        size_t before = files->n;
        TRY(add_folder(files, path, depth));
        if (depth > 0) return OK;
        if (files->n == before) return fail(E_FORMAT, "%s: an empty folder; expected dumps or text files in it", path);
        qsort(files->paths + before, files->n - before, sizeof *files->paths, by_path);
        return OK;
    }
    if (S_ISREG(info.st_mode)) return add_file(files, path, &info);
    return depth > 0 ? OK : fail(E_FORMAT, "%s: neither a file nor a folder", path);
}

/* Name, size, first and last bytes: enough to see that another file stands there now. */
static Status identify(WikiFiles *files, const char *path, DigestStream *digest)
{
    static const char xml[] = "<mediawiki";
    uint64_t size = 0;
    size_t n;
    TRY(file_size(path, &size));
    FILE *f = fopen(path, "rb");
    if (!f) return fail(E_IO, "%s: cannot open it: %m", path);
    char *bytes = mem_alloc(END_BYTES);
    digest_update(digest, file_basename(path), strlen(file_basename(path)) + 1);
    digest_update(digest, &size, sizeof size);
    n = fread(bytes, 1, END_BYTES, f);
    digest_update(digest, bytes, n);
    bool packed = n > 3 && (memcmp(bytes, "BZh", 3) == 0 || memcmp(bytes, "\x1f\x8b", 2) == 0);
    double share = packed ? TEXT_PER_PACKED : memmem(bytes, n, xml, sizeof xml - 1) ? TEXT_PER_XML : TEXT_PER_TEXT;
    files->text += share * (double)size;
    if (size > END_BYTES && fseeko(f, -(off_t)END_BYTES, SEEK_END) == 0) {
        n = fread(bytes, 1, END_BYTES, f);
        digest_update(digest, bytes, n);
    }
    Status status = ferror(f) ? fail(E_IO, "%s: cannot read it: %m", path) : OK;
    fclose(f);
    free(bytes);
    return status;
}

Status wiki_files_find(WikiFiles *files, const char *input)
{
    Status status = OK;
    *files = (WikiFiles){0};
    char *list = mem_strdup(input), *at = list;
    DigestStream *digest = digest_new();
    for (char *path = strsep(&at, ","); path && status == OK; path = strsep(&at, ","))
        status = *path ? add_path(files, path, 0) : fail(E_USAGE, "--input has an empty name in '%s'", input);
    for (size_t i = 0; i < files->n && status == OK; i++) status = identify(files, files->paths[i], digest);
    if (status == OK && files->bytes == 0) status = fail(E_FORMAT, "%s: nothing but empty files", input);
    files->identity = digest_value(digest);
    digest_free(digest);
    free(list);
    if (status != OK) wiki_files_free(files);
    return status;
}

void wiki_files_free(WikiFiles *files)
{
    for (size_t i = 0; i < files->n; i++) free(files->paths[i]);
    free(files->paths);
    *files = (WikiFiles){0};
}
