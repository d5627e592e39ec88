/* The output of `cairn wiki`: DIR/part-00000.txt …, DIR/manifest.json last, and DIR/progress.json until then
   (docs/data.md has the formats). Each part is written aside and gets its name when it is whole; after each,
   progress.json says where to go on. */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_TEXT_PARTS_H
#define CAIRN_TASKS_PRETRAIN_WIKI_TEXT_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "tasks/pretrain/wiki/article.h"

#define TEXT_PROBLEMS 100 /* most that are written down */

typedef struct {
    uint64_t bytes;
    int64_t articles, sentences;
    Digest digest;
} TextPart;

/* Where the input goes on: in a file of the list, at a place; offset 0 is its start. */
typedef struct {
    size_t file;
    TextPlace place;
} TextCursor;

typedef struct {
    const char *dir;
    const char *identity; /* of inputs and options: another's output is never mixed with this one's */
    const char *input;    /* as it was given */
    const char *options;  /* JSON */
    uint64_t part_size;
    TextPart *parts; // (n_parts) finished ones
    size_t n_parts, parts_cap;
    WikiCounts counts; /* up to `cursor` */
    TextCursor cursor; /* where the next text comes from */
    Buf problems;      /* JSON strings with commas between */
    size_t n_problems;
    FileWriter writer; /* of the part at hand, if `open` */
    bool open;
    TextPart part;
} TextParts;

/* With dir, identity, input, options and part_size set: reads what an earlier run left. *finished: all is there, and
   counts and parts are set. Else it goes on at `cursor`. E_USAGE: the folder has other output; E_CORRUPT: a finished
   part is not as it was written. */
Status text_parts_open(TextParts *p, bool *finished);
/* The text of a batch, and what else is to be remembered of it; `problems`: a line each. `cursor` is where the next
   batch begins. */
Status text_parts_add(TextParts *p, const Buf *text, const WikiCounts *counts, const Buf *problems, TextCursor cursor);
/* Closes the last part and writes the manifest. */
Status text_parts_finish(TextParts *p);
void text_parts_free(TextParts *p); /* gives up the part at hand; takes a zeroed one */

#endif
