/* Cuts a stream of text into units: the pages of a MediaWiki dump, WikiExtractor's <doc>s, or documents of plain text.
   Units are gathered to batches, which threads turn into sentences. Where a batch ends depends on the text alone, not
   on the pieces it came in. */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_CUTTER_H
#define CAIRN_TASKS_PRETRAIN_WIKI_CUTTER_H

#include <stdbool.h>
#include <stdint.h>

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
    UNIT_LARGE, /* larger than the limit: left out. Of these and the next three, `len` bytes of its start are there. */
    UNIT_UNCLOSED, /* another page begins before it ends */
    UNIT_DAMAGED,  /* a part of the file is missing within it */
    UNIT_CUT,      /* the file ends within it */
} UnitState;

typedef struct {
    uint64_t offset; /* of its first byte in the file's text */
    size_t start, len;
    UnitState state;
} Unit;

/* A place in a file at which reading can go on. */
typedef struct {
    uint64_t mark;   /* for text_file_seek */
    uint64_t start;  /* offset, in the file's text, of the piece that has this mark */
    uint64_t offset; /* offset at which the next unit is looked for */
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
    TextForm wanted; /* of plain text: what it is taken for; FORM_UNKNOWN: by its look */
    size_t most;     /* bytes of a unit */
    Buf header;      /* FORM_PAGES: what stands before the first page */
    bool closed;     /* </mediawiki> was seen, behind the last page */
    /* the cutter's own */
    Buf text; /* not cut yet, from offset `base` on */
    uint64_t base;
    size_t at, scan;   /* in `text`: the unit's start or where one is looked for; where its end is looked for */
    bool open, large;  /* within a unit; which is too large, and was told */
    TextPlace *pieces; // (n_pieces) that `text` came from
    size_t n_pieces, pieces_cap;
    char last[32]; /* behind the last page */
    size_t last_len;
} Cutter;

void cutter_init(Cutter *c, TextForm wanted, size_t most);
void cutter_free(Cutter *c); /* takes a zeroed one */
/* Goes on at a place that a batch ended at; what comes next is the piece with the place's mark. Form and header stay.
 */
void cutter_resume(Cutter *c, TextPlace place);

/* The next piece of text. E_FORMAT: no text that is known here; the message does not name the file. */
Status cutter_feed(Cutter *c, const char *text, size_t len, uint64_t mark, bool end);
/* Something is missing here: the unit at hand is lost, and told in `batch`. */
void cutter_gap(Cutter *c, Batch *batch);
/* Moves whole units to `batch`, which may have some already. True: it is full and must be emptied before the next call.
   `end`: all text was fed; what is left is told as cut. */
bool cutter_take(Cutter *c, Batch *batch, bool end);

#endif
