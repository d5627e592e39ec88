/* The stage from dumps to text: files → pieces → units → sentences → parts. One thread reads, cuts and writes, in
   order; the others unpack pieces and clean articles. What is written depends on input and options alone. Memory: some
   pieces and batches per thread, never a file. */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_WIKI_H
#define CAIRN_TASKS_PRETRAIN_WIKI_WIKI_H

#include <signal.h>

#include "base/base.h"
#include "tasks/pretrain/wiki/article.h"
#include "tasks/pretrain/wiki/cutter.h"

typedef struct {
    const char *input; /* files and folders, with commas between */
    const char *output_dir;
    int threads;                       /* that unpack and clean; 0: one per usable core, at most POOL_MOST */
    size_t part_size;                  /* bytes of a part */
    size_t max_article;                /* bytes of a page's XML or of a document; from 4096 */
    TextForm form;                     /* of plain text; FORM_UNKNOWN: by its look */
    const volatile sig_atomic_t *stop; /* not 0: end with E_STOPPED; may be NULL */
} WikiOptions;

/* Logs what it reads, what it needs on disk and what was left out. Goes on where an earlier run with the same input and
   options was stopped. The folder must be the caller's alone (state/lock.h). E_FORMAT: no input, or no text in it;
   E_USAGE: the folder holds something else; E_IO: also when the disk has too little room. `counts` may be NULL. */
Status wiki_make_text(const WikiOptions *options, WikiCounts *counts);

/* The files behind `input`: of folders all regular files in them and below, in byte order of their paths, without
   hidden ones and *.json. E_FORMAT: none. The caller frees with wiki_files_free. */
typedef struct {
    char **paths; // (n)
    size_t n, cap;
    uint64_t bytes;  /* of all */
    double text;     /* about how many bytes of text will come of them */
    Digest identity; /* of names, sizes and both ends of each file */
} WikiFiles;
Status wiki_files_find(WikiFiles *files, const char *input);
void wiki_files_free(WikiFiles *files); /* takes a zeroed one */

#endif
