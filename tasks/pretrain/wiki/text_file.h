/* A file of text, plain or packed (bz2, gz), read in pieces. Pieces of a bz2 file are its blocks, found by their magic
   number at any bit, so that any number of threads may unpack them, whether the file has one stream or thousands. */
#pragma once

#include "base/base.h"

/* RECORDS: rows of CSV, TSV or JSON lines, packed by gz or not; the text of each becomes a document of paragraphs. */
typedef enum { PACKING_NONE, PACKING_BZ2, PACKING_GZ, PACKING_RECORDS } Packing;

typedef enum {
    PIECE_WHOLE,
    PIECE_BROKEN, /* damaged: its text is missing */
    PIECE_CUT,    /* the file ends within it: its text may be incomplete, and no piece follows */
} PieceState;

typedef struct {
    uint64_t mark;  /* for text_file_seek */
    uint64_t place; /* its first byte in the file, for messages */
    uint64_t read;  /* bytes of the file up to its end */
    Packing packing;
    Buf packed; /* bz2: bytes with the block's bits; else empty */
    unsigned first_bit;
    uint64_t n_bits;
    PieceState state;
    bool big; /* larger than any block of real text: unpack it again, alone */
    Buf text;
} TextPiece;
void text_piece_free(TextPiece *piece); /* takes a zeroed one */

typedef struct TextFile TextFile;
/* `column` is the text's in files that are named .csv, .tsv, .jsonl and so on (data/records.h). E_FORMAT: an
   unsupported compression, or no such column. E_FAIL: built without the library. */
Status text_file_open(TextFile **file, const char *path, const char *column);
void text_file_close(TextFile *file); /* takes NULL */
Packing text_file_packing(const TextFile *file);
/* Moves to the piece with this mark (0: the first). A gz file and records can only be read from their start: E_FAIL for
   other marks. */
Status text_file_seek(TextFile *file, uint64_t mark);
/* Overwrites `piece` with the next one; *end: no piece is left. A bz2 piece has no text yet. E_IO; E_FORMAT: a bad row.
 */
Status text_file_next(TextFile *file, TextPiece *piece, bool *end);
/* Unpacks a bz2 piece's text, on any thread. `alone`: of any size (46 MB at most). */
void text_piece_unpack(TextPiece *piece, bool alone);

/* The first magic number of bz2 in bits [from, n_bits) of `data`, which has 8 more bytes; *block: a block's, else a
   stream's end. UINT64_MAX without one. Public for tests. */
uint64_t text_file_find_magic(const uint8_t *data, uint64_t from, uint64_t n_bits, bool *block);
