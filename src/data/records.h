/* Records of a file of examples: TSV, CSV (RFC 4180), JSON lines, or plain lines; plain or packed by gz.

   TSV: a row ends at LF or CRLF, tabs separate columns, quotes are text (GLUE's files). CSV: commas separate columns; a
   column in double quotes may hold commas, line breaks and doubled quotes. Both have a header with the columns' names,
   or columns are given by position; blanks around a name of the header do not count. JSON lines: an object on each
   line; a column is a key; strings are texts, as are numbers and booleans as they are written. Lines: each line is the
   one column.

   A byte order mark at the start and empty lines at the end are skipped, in CSV and JSON lines all empty lines. All
   text must be UTF-8. Records are read one by one, so a file may have any size, and a row up to 64 MiB. Errors
   (E_FORMAT) name file, line and column. */
#pragma once

#include <signal.h>

#include "base/base.h"

typedef enum { RECORDS_BY_NAME, RECORDS_TSV, RECORDS_CSV, RECORDS_JSONL, RECORDS_LINES } RecordsForm;

enum { RECORDS_MOST_COLUMNS = 40, RECORDS_AS_FIRST = -1 };

/* What a column of JSON lines may hold beside a text, a finite number, true and false. */
typedef enum {
    RECORD_TEXT, /* nothing */
    RECORD_LIST, /* an array of these: its texts with commas between */
    RECORD_ANY,  /* any value: arrays and objects as JSON; null is no text */
    RECORD_JSON  /* any value, as JSON; the text of a table stays a text */
} RecordValue;

typedef struct {
    RecordsForm
        form; /* RECORDS_BY_NAME: .tsv, .csv, .jsonl, .ndjson or .json, .txt, then .gz or not; else by content */
    const char
        *columns[RECORDS_MOST_COLUMNS];  /* (n) names in the header, or positions "0", "1" …; each NULL or wanted */
    bool optional[RECORDS_MOST_COLUMNS]; /* a header or an object may lack the column */
    RecordValue values[RECORDS_MOST_COLUMNS];
    int n;
    int without_header; /* 0: header; > 0: so many columns; RECORDS_AS_FIRST: as many as the first row */
    bool short_rows;    /* rows with too few columns are returned too, see Record */
    bool plain_lines;   /* content that is neither JSON nor a header with the wanted columns is RECORDS_LINES */
    const char *advice; /* follows the message of a column or key that is missing; may be NULL */
    const volatile sig_atomic_t *stop; /* as signals_stop: ends a wait for a pipe with E_STOPPED; may be NULL */
} RecordsOptions;

/* A text, not NUL-terminated; p is NULL where the row lacks the column. */
typedef struct {
    const char *p;
    size_t len;
} RecordText;

typedef struct {
    int64_t number; /* from 0 */
    int64_t line;   /* its first, from 1 */
    int64_t count;  /* columns in the row; JSON: as many as wanted */
    RecordText texts[RECORDS_MOST_COLUMNS];
} Record;

typedef struct Records Records;
/* `path` "-" is the standard input. E_IO, E_FORMAT: no such file, no row in it, or a header without a wanted column. */
Status records_open(Records **records, const char *path, const RecordsOptions *o);
/* Reads memory, which must outlive it. Messages call it `name`. */
Status records_open_memory(Records **records, const char *name, const void *data, size_t size, const RecordsOptions *o);
void records_close(Records *records); /* takes NULL */
/* The next row, valid until the next call; NULL: no row is left. */
Status records_next(Records *records, const Record **row);
/* The share of the file that the rows so far took; NaN: of a pipe or of memory. */
double records_share(const Records *records);
/* From now on a row of more bytes, up to a block of 1 MiB, is E_MEMORY. */
void records_limit(Records *records, size_t bytes);
int64_t records_columns(const Records *records); /* in every row; JSON: as many as wanted */
bool records_are_json(const Records *records);
/* Behind the last row: warns where a TSV file of the user's has its texts in quotes, as CSV has them. */
void records_warn_quotes(const Records *records);

/* What the file's name says; RECORDS_BY_NAME: nothing. */
RecordsForm records_form_of_name(const char *path);

/* A text for a message: at most 40 bytes, whole characters, no control characters. */
typedef struct {
    char text[48];
} RecordShown;
RecordShown record_shown(RecordText text);
bool record_text_is(RecordText text, const char *wanted);
RecordText record_trim(RecordText text); /* without blanks around it, those that Python's str.strip removes */
bool record_number(RecordText text, double *value); /* a finite number, in digits */

/* ---- a user's own files ---- */

/* The file of `dir` that holds a split: its name and .tsv, .csv, .jsonl, .ndjson or .json, packed by gz or not; dev may
   be called validation too. The caller frees; NULL: there is none. E_USAGE: there are two. */
Status records_find(const char *dir, const char *split, char **path);
/* Cuts `list` at its commas in place, without blanks around the names; returns their number, or −1 if one is empty or
   holds a line break or tab. The caller frees *names. */
int record_names(char *list, char ***names);
bool record_positions(char *const *names, int n); /* all are numbers: columns of a file without a header */
