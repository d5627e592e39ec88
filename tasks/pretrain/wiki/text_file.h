/* A file of text, plain or packed (bz2, gz), read in pieces. Pieces of a bz2 file are its blocks, found by their magic
   number at any bit, so that any number of threads may unpack them, whether the file has one stream or thousands. */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_TEXT_FILE_H
#define CAIRN_TASKS_PRETRAIN_WIKI_TEXT_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

typedef enum { PACKING_NONE, PACKING_BZ2, PACKING_GZ } Packing;

typedef enum {
    PIECE_WHOLE,
    PIECE_BROKEN, /* damaged: its text is missing, the next piece's comes after a gap */
    PIECE_CUT,    /* the file ends within it: what could be unpacked is there, nothing comes after it */
} PieceState;

typedef struct {
    uint64_t mark;  /* text_file_seek comes back to this piece */
    uint64_t place; /* its first byte in the file, for messages */
    uint64_t read;  /* bytes of the file read when it was made */
    Packing packing;
    Buf packed; /* bz2: bytes with the block's bits; else empty */
    unsigned first_bit;
    uint64_t n_bits;
    PieceState state;
    bool big; /* the block is larger than text ever is: unpack it again, alone */
    Buf text;
} TextPiece;
void text_piece_free(TextPiece *piece); /* takes a zeroed one */

typedef struct TextFile TextFile;
/* E_FORMAT: packed by a program that is not known here. E_FAIL: built without the library. */
Status text_file_open(TextFile **file, const char *path);
void text_file_close(TextFile *file); /* takes NULL */
Packing text_file_packing(const TextFile *file);
/* To the piece whose mark this was (0: the first). A gz file can only be read from its start: E_FAIL for other marks.
 */
Status text_file_seek(TextFile *file, uint64_t mark);
/* The next piece, in place of what `piece` had; *end: there is none. Its text is there but for bz2. E_IO only. */
Status text_file_next(TextFile *file, TextPiece *piece, bool *end);
/* Unpacks a bz2 piece's text; from any thread. `alone`: however large it is (46 MB at most). */
void text_piece_unpack(TextPiece *piece, bool alone);

/* The first magic number of bz2 in bits [from, n_bits) of `data`, which has 8 more bytes; *block: a block's, else a
   stream's end. UINT64_MAX if there is none. For tests. */
uint64_t text_file_find_magic(const uint8_t *data, uint64_t from, uint64_t n_bits, bool *block);

#endif
