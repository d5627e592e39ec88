/* The input files, an estimate of their text, and their identity. */
#include <sys/stat.h>

#include "base/sort.h"
#include "tasks/pretrain/inputs.h"
#include "tasks/pretrain/kind.h"
#include "tasks/pretrain/wiki/wiki.h"

/* Text per byte of file, for the estimate: English Wikipedia and the dumps of the tests lie between 0.18 and 0.45 for
   plain XML, 0.8 and 1.6 for bz2. */
#define TEXT_PER_XML    0.45
#define TEXT_PER_PACKED 1.6
#define TEXT_PER_TEXT   1.05

static Status add_path(WikiFiles *files, const char *path, int depth);

static Status add_folder(WikiFiles *files, const char *path, int depth)
{
    FileList list;
    Status status = file_list(path, &list);
    for (int i = 0; i < list.count && status == OK; i++) {
        const char *name = file_basename(list.paths[i]);
        if (name[0] != '.' && !str_ends_with(name, ".json")) status = add_path(files, list.paths[i], depth + 1);
    }
    file_list_free(&list);
    return status;
}

static Status add_path(WikiFiles *files, const char *path, int depth)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return fail(E_IO, "%s: cannot read it: %m; expected a dump, a text file or a folder of them", path);
    if (S_ISDIR(info.st_mode)) {
        if (depth > 16) return fail(E_FORMAT, "%s: folders nested more than 16 deep, or in a loop", path);
        size_t before = files->n;
        TRY(add_folder(files, path, depth));
        if (depth > 0) return OK;
        if (files->n == before) return fail(E_FORMAT, "%s: an empty folder; expected dumps or text files in it", path);
        qsort(files->paths + before, files->n - before, sizeof *files->paths, sort_by_text);
        return OK;
    }
    if (!S_ISREG(info.st_mode))
        return depth > 0 ? OK
                         : fail(E_FORMAT, "%s: neither a file nor a folder; pack or write the text into a file", path);
    MEM_PUSH(files->paths, files->n, files->cap, mem_strdup(path));
    files->bytes += (uint64_t)info.st_size;
    return OK;
}

/* Adds a file to the identity and to the estimate of text. */
static Status identify_file(WikiFiles *files, const char *path, DigestStream *digest)
{
    uint64_t size = 0;
    Buf head = {0};
    TRY(file_size(path, &size));
    Status status = input_identify(path, size, digest, &head);
    if (status == OK) {
        Kind kind = kind_of(head.data ? head.data : "", head.len);
        files->text += (double)size * (kind == KIND_BZ2 || kind == KIND_GZ ? TEXT_PER_PACKED
                                       : kind == KIND_DUMP                 ? TEXT_PER_XML
                                                                           : TEXT_PER_TEXT);
    }
    buf_free(&head);
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
    for (size_t i = 0; i < files->n && status == OK; i++) status = identify_file(files, files->paths[i], digest);
    if (status == OK && files->bytes == 0) status = fail(E_FORMAT, "%s: nothing but empty files", input);
    files->identity = digest_value(digest);
    digest_free(digest);
    free(list);
    if (status != OK) wiki_files_free(files);
    return status;
}

void wiki_files_free(WikiFiles *files)
{
    mem_free_texts(files->paths, (int64_t)files->n);
    *files = (WikiFiles){0};
}
