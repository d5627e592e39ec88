/* Unpacks bz2 block by block (at most 900 kB before runs are spread out, independent of each other). It is our own
   because libbz2, which follows the list of a block's bytes one after the other, has a third of the speed. Source: the
   format of bzip2 1.0 (Seward), Burrows and Wheeler 1994. */
#pragma once

#include <stdint.h>

#include "base/base.h"

/* Room for a block and its text on the way, 5 MB, for one call at a time. */
typedef struct Bz2Room Bz2Room;
Bz2Room *bz2_room_new(void);
void bz2_room_free(Bz2Room *room); /* takes NULL */

/* One block: bits [first_bit, first_bit + n_bits) of `data`, first_bit below 8, from the block's magic number up to the
   next one. Its text replaces the contents of `out`. E_FORMAT: damaged, or of a bzip2 before 1.0 ("randomised").
   E_MEMORY: more than `most` bytes. */
Status unpack_bz2_block(Bz2Room *room, const uint8_t *data, unsigned first_bit, uint64_t n_bits, size_t most, Buf *out);
