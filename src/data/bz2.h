/* Unpacks blocks of bz2 (at most 900 kB before runs are spread out, independent of each other), by libbz2. A program
   built without libbz2 fails (E_FAIL) and names it. */
#pragma once

#include "base/base.h"

Status bz2_available(void); /* E_FAIL: built without libbz2 */
/* One block: bits [first_bit, first_bit + n_bits) of `data`, first_bit below 8, from the block's magic number up to the
   next one. One more byte of `data` is read. Its text replaces the contents of `out`, whose capacity becomes at least
   `room`, above 0. Any thread may call it. E_FORMAT: damaged. E_MEMORY: the text and a NUL need more than `room`. */
Status bz2_unpack_block(const uint8_t *data, unsigned first_bit, uint64_t n_bits, unsigned room, Buf *out);
