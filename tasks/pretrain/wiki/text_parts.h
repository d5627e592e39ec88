/* The output of `cairn wiki`: DIR/part-00000.txt …, DIR/manifest.json last, and DIR/progress.json until then
   (formats: docs/data.md). A part is written under a temporary name and renamed when it is complete; then
   progress.json records the place to resume at. */
#pragma once

#include "base/base.h"
#include "tasks/pretrain/wiki/article.h"

#define TEXT_PROBLEMS 100 /* most problems in the manifest */

typedef struct {
    uint64_t bytes;
    int64_t articles, sentences;
    Digest digest;
} TextPart;

/* A place in the input: a file of the list, and a place in it; offset 0 is its start. */
typedef struct {
    size_t file;
    TextPlace place;
} TextCursor;

typedef struct {
    const char *dir;
    const char *identity; /* of inputs and options; output of another identity is refused */
    const char *input;    /* --input as given */
    const char *options;  /* JSON */
    uint64_t part_size;
    TextPart *parts; // (n_parts) finished ones
    size_t n_parts, parts_cap;
    WikiCounts counts; /* up to `cursor` */
    TextCursor cursor; /* the place of the next text */
    Buf problems;      /* JSON strings with commas between */
    size_t n_problems;
    FileWriter writer; /* of the current part, if `open` */
    bool open;
    TextPart part;
} TextParts;

/* With dir, identity, input, options and part_size set: reads the state of an earlier run. *finished: nothing is left
   to do, and counts and parts are set. Otherwise the run resumes at `cursor`. E_USAGE: the folder has other output;
   E_CORRUPT: a finished part has changed. */
Status text_parts_open(TextParts *p, bool *finished);
/* Writes the text of a batch and adds its counts and problems (a line each). `cursor` is the start of the next batch.
 */
Status text_parts_add(TextParts *p, const Buf *text, const WikiCounts *counts, const Buf *problems, TextCursor cursor);
/* Closes the last part and writes the manifest. */
Status text_parts_finish(TextParts *p);
void text_parts_free(TextParts *p); /* discards the current part; takes a zeroed one */
