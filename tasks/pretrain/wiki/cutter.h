/* Cuts a stream of text into units: the pages of a MediaWiki dump, WikiExtractor's <doc>s, or documents of plain text.
   Units are collected in batches, which threads turn into sentences. The ends of batches depend on the text alone, not
   on the pieces in which it was read. */
#pragma once

#include "base/base.h"

typedef enum {
    FORM_UNKNOWN,
    FORM_PAGES,      /* <page> … </page> */
    FORM_DOCS,       /* <doc …> … </doc> */
    FORM_SENTENCES,  /* one per line; a blank line ends a document */
    FORM_PARAGRAPHS, /* a blank line ends a paragraph, two end a document */
} TextForm;
const char *text_form_name(TextForm form);

typedef enum {
    UNIT_WHOLE,
    UNIT_LARGE, /* larger than the limit: left out. For this and the next three states, `len` bytes of its start exist.
                 */
    UNIT_UNCLOSED, /* another page begins before it ends */
    UNIT_DAMAGED,  /* a part of the file is missing within it */
    UNIT_CUT,      /* the file ends within it */
} UnitState;

typedef struct {
    uint64_t offset; /* of its first byte in the file's text */
    size_t start, len;
    UnitState state;
} Unit;

/* A place in a file at which reading can resume. */
typedef struct {
    uint64_t mark;   /* for text_file_seek */
    uint64_t start;  /* offset, in the file's text, of the piece that has this mark */
    uint64_t offset; /* offset from which the next unit is searched */
} TextPlace;

typedef struct {
    TextForm form;
    Buf data;
    Unit *units; // (n)
    size_t n, cap;
    TextPlace end;
} Batch;
void batch_free(Batch *batch); /* takes a zeroed one */

typedef struct {
    TextForm form;   /* known after enough of the text was seen */
    TextForm wanted; /* the form of plain text; FORM_UNKNOWN: found from its first lines */
    size_t most;     /* bytes of a unit */
    Buf header;      /* FORM_PAGES: the text before the first page */
    bool closed;     /* </mediawiki> follows the last page */
    /* private to the cutter */
    Buf text; /* not cut yet, from offset `base` on */
    uint64_t base;
    size_t at, scan;   /* in `text`: the unit's start, or the place from which one is searched; the same for its end */
    bool open, large;  /* within a unit; within one that is too large, and was reported */
    TextPlace *pieces; // (n_pieces) that `text` came from
    size_t n_pieces, pieces_cap;
    char last[32]; /* the text after the last page */
    size_t last_len;
} Cutter;

void cutter_init(Cutter *c, TextForm wanted, size_t most);
void cutter_free(Cutter *c); /* takes a zeroed one */
/* Resumes at a place where a batch ended. The next piece must be the one with the place's mark. Form and header stay.
 */
void cutter_resume(Cutter *c, TextPlace place);

/* Takes the next piece of text. E_FORMAT: text of an unknown form; the message does not name the file. */
Status cutter_feed(Cutter *c, const char *text, size_t len, uint64_t mark, bool end);
/* Text is missing after the last piece: the current unit is lost, and reported in `batch`. */
void cutter_gap(Cutter *c, Batch *batch);
/* Moves whole units to `batch`, which may have some already. True: it is full and must be emptied before the next call.
   `end`: all text was fed; an open unit is reported as cut. */
bool cutter_take(Cutter *c, Batch *batch, bool end);
