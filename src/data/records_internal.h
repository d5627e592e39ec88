/* Inside src/data: the state of a reader of rows. */
#pragma once

#include "data/gz.h"
#include "data/records.h"

/* ---- bytes (records_input.c): of a file, a pipe, or memory, unpacked ---- */

typedef struct {
    const char *name;
    int fd;                            /* −1: memory */
    const volatile sig_atomic_t *stop; /* of RecordsOptions */
    const uint8_t *memory;
    size_t memory_len;
    GzReader *gz;
    uint8_t *packed; /* a block of the file; then packed_at, packed_len: the part that is not unpacked */
    const uint8_t *packed_at;
    size_t packed_len;
    bool file_end, end, gz_whole;
} RecordsInput;

Status records_input_open(RecordsInput *in, const char *name, const char *path); /* path NULL: memory is set */
void records_input_close(RecordsInput *in);                                      /* takes a zeroed one with fd −1 */
/* Appends up to 1 MiB to `out`, of plain memory all; in->end: nothing is left. */
Status records_input_more(RecordsInput *in, Buf *out);

/* ---- rows ---- */

struct Records {
    RecordsOptions o;
    char *name;
    RecordsInput in;
    RecordsForm form;
    Buf buf;             /* bytes of the file from `base` on */
    size_t at, scan;     /* in buf: the next record, and the first byte that was not searched for its end */
    bool quoted;         /* at `scan`: within quotes */
    uint64_t base;       /* offset of buf in the file */
    size_t row_most;     /* bytes; 0: RAW_MOST */
    int64_t line;        /* of the next record */
    int64_t next_number; /* of the next row */
    /* The record read last: its text without the line end. */
    RecordText raw;
    int64_t raw_line;
    uint64_t raw_offset;
    bool has_raw, taken; /* taken: the row before was this record */
    int64_t empty;       /* empty lines before the record that are not returned yet */
    int64_t empty_line;
    int64_t columns;
    int position[RECORDS_MOST_COLUMNS]; /* −1: absent */
    int64_t in_quotes;                  /* TSV: rows with a wanted column in quotes */
    int64_t doubled, commas;            /* of these, with doubled quotes and with a comma within */
    Buf texts;                          /* unescaped texts of the row */
    Record current;
};

/* ---- one record (records_cells.c) ---- */

/* Counts the columns of a record. */
Status record_cells_count(const Records *r, int64_t *count);
/* The advice where another character than the form's separates the record's columns, else "". */
const char *record_hint(const Records *r);
/* Fills r->current.texts from the record, by r->position; JSON by key. */
Status record_cells_take(Records *r);
/* Finds the wanted columns in the header, which is the record. */
Status record_header(Records *r);
