#include "tasks/pretrain/inputs.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "tasks/pretrain/kind.h"

#define END_BYTES 65536

static bool is_input(const char *path, bool only_text)
{
    const char *name = file_basename(path);
    struct stat info;
    if (name[0] == '.' || str_ends_with(name, ".json") || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    return !only_text || !(str_ends_with(name, ".jsonl") || strstr(name, ".tmp."));
}

static void add_input(FileList *inputs, const char *path)
{
    MEM_PUSH(inputs->paths, inputs->count, inputs->cap, mem_strdup(path));
}

static Status add_folder(FileList *inputs, const char *dir, bool only_text)
{
    FileList list;
    int before = inputs->count, texts = 0;
    TRY(file_list(dir, &list));
    for (int i = 0; i < list.count && only_text; i++)
        texts += is_input(list.paths[i], true) && str_ends_with(list.paths[i], ".txt");
    for (int i = 0; i < list.count; i++)
        if (is_input(list.paths[i], only_text) && (texts == 0 || str_ends_with(list.paths[i], ".txt")))
            add_input(inputs, list.paths[i]);
    file_list_free(&list);
    return inputs->count > before ? OK : fail(E_FORMAT, "%s: no text files in it", dir);
}

/* Refuses a file that `cairn wiki` or another program must read first. What is no regular file, or cannot be read, is
   the reader's. */
static Status check_text(const char *path)
{
    char head[KIND_HEAD];
    struct stat info;
    FILE *f = stat(path, &info) == 0 && S_ISREG(info.st_mode) ? fopen(path, "rb") : NULL;
    if (!f) return OK;
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    Kind kind = kind_of(head, n);
    if (kind == KIND_TEXT) return OK;
    if (kind == KIND_DUMP || kind == KIND_BZ2 || kind == KIND_GZ)
        return fail(E_FORMAT,
                    "%s: expected text with a sentence per line, found a file that is %s; `cairn wiki --input %s "
                    "--output-dir text/` makes text from dumps and texts, plain, bz2 or gz",
                    path, kind_text(kind), path);
    return fail(E_FORMAT, "%s: expected text with a sentence per line, found a file that is %s; %s", path,
                kind_text(kind), kind == KIND_XML ? "give its text alone" : "unpack it first");
}

Status inputs_find(FileList *inputs, const char *list, bool only_text)
{
    Status status = OK;
    char *copy = mem_strdup(list), *at = copy;
    *inputs = (FileList){0};
    for (char *path = strsep(&at, ","); path && status == OK; path = strsep(&at, ","))
        if (file_is_directory(path))
            status = add_folder(inputs, path, only_text);
        else
            add_input(inputs, path);
    free(copy);
    for (int i = 0; i < inputs->count && status == OK; i++) status = check_text(inputs->paths[i]);
    return status;
}

Status input_identify(const char *path, uint64_t size, DigestStream *digest, Buf *head)
{
    int fd;
    TRY(file_open_regular(path, O_RDONLY, &fd));
    FILE *f = fdopen(fd, "rb");
    char *bytes = mem_alloc(END_BYTES);
    digest_update(digest, file_basename(path), strlen(file_basename(path)) + 1);
    digest_update(digest, &size, sizeof size);
    size_t n = fread(bytes, 1, END_BYTES, f);
    digest_update(digest, bytes, n);
    head->len = 0;
    buf_append(head, bytes, n);
    if (size > END_BYTES && fseeko(f, (off_t)size - END_BYTES, SEEK_SET) == 0)
        digest_update(digest, bytes, fread(bytes, 1, END_BYTES, f));
    Status status = ferror(f) ? fail(E_IO, "%s: cannot read it: %m", path) : OK;
    fclose(f);
    free(bytes);
    return status;
}
