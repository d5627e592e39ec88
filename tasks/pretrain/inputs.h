/* The text files that `cairn vocab` and `cairn shards` read, and the identity of an input file. */
#pragma once

#include "base/base.h"

/* The files of `list`, files and folders with commas between. Of a folder its regular files by name, except hidden ones
   and *.json; with `only_text` also without *.jsonl and temporaries, and *.txt alone if there are any. E_FORMAT: a
   folder without such files, or a file of XML or a packed one. The caller frees with file_list_free, also after a
   failure. */
Status inputs_find(FileList *inputs, const char *list, bool only_text);

/* Adds name, size, first and last 64 KiB of a file to a digest, which detects another file of the same name. `head`
   gets the first bytes. */
Status input_identify(const char *path, uint64_t size, DigestStream *digest, Buf *head);
