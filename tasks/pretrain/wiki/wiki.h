/* The stage from dumps to text: files → pieces → units → sentences → parts. One thread reads, cuts and writes, in
   order; the others unpack pieces and clean articles. The output depends on input and options alone. Memory: a few
   pieces and batches per thread, never a whole file. */
#pragma once

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
    const char *column;                /* of CSV, TSV and JSON lines: the text's */
    TextForm form;                     /* of plain text; FORM_UNKNOWN: found from its first lines */
    const volatile sig_atomic_t *stop; /* not 0: end with E_STOPPED; may be NULL */
} WikiOptions;

/* Logs the input, the disk space needed and everything left out. Resumes a stopped run with the same input and options.
   The caller must hold the folder's lock (base/lock.h). E_FORMAT: no input, or no text in it; E_USAGE: the folder has
   other contents; E_IO: also if the disk has too little room. `counts` may be NULL. */
Status wiki_make_text(const WikiOptions *options, WikiCounts *counts);

/* The files of `input`. Of a folder these are all regular files in it and below, in byte order of their paths, except
   hidden ones and *.json. E_FORMAT: no files. The caller frees with wiki_files_free. */
typedef struct {
    char **paths; // (n)
    size_t n, cap;
    uint64_t bytes;  /* of all */
    double text;     /* estimated bytes of text that they give */
    Digest identity; /* of names, sizes and both ends of each file */
} WikiFiles;
Status wiki_files_find(WikiFiles *files, const char *input);
void wiki_files_free(WikiFiles *files); /* takes a zeroed one */
