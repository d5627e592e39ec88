/* A block of bz2, read as the list of its bytes: Huffman codes, bytes moved to the front, the sorted order of Burrows
   and Wheeler. Private to unpack_bz2.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    BZ2_MOST_BYTES = 900000, /* of a block, before runs are spread out */
    BZ2_MOST_TABLES = 6,
    BZ2_MOST_SYMBOLS = 258,
    BZ2_MOST_LENGTH = 20, /* of a code, in bits */
    BZ2_GROUP = 50,       /* symbols with the codes of one table */
    BZ2_MOST_GROUPS = BZ2_MOST_BYTES / BZ2_GROUP + 1,
    BZ2_LOOKUP_BITS = 10,
};

typedef struct {
    uint16_t lookup[1 << BZ2_LOOKUP_BITS]; /* 16 × symbol + length of the codes that are short enough; else 0 */
    uint32_t limit[BZ2_MOST_LENGTH + 2];   /* of each length, the first 20 bits beyond its codes */
    int32_t base[BZ2_MOST_LENGTH + 1];     /* index of a code in `symbols`, less the code */
    uint16_t symbols[BZ2_MOST_SYMBOLS];    /* in order of codes */
} Bz2Code;

typedef struct {
    Bz2Code codes[BZ2_MOST_TABLES];
    uint8_t selectors[BZ2_MOST_GROUPS];
    uint8_t bytes[256]; /* those that occur, moved to the front when they are used */
    uint32_t count[256];
    uint32_t n, first, checksum;
    uint32_t next[BZ2_MOST_BYTES + 1]; /* (n) a byte, and above it the place of the byte that follows */
} Bz2Block;

/* Bits [first_bit, first_bit + n_bits) of `data`, first_bit below 8, from the block's magic number up to the next one.
   `first` is the entry whose place is that of the text's first byte. False: damaged, or of a bzip2 before 1.0
   ("randomised"). */
bool bz2_block_read(Bz2Block *k, const uint8_t *data, unsigned first_bit, uint64_t n_bits);
