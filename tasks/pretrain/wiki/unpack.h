/* Unpacks bz2 by libbz2, block by block (at most 900 kB, independent of each other). A program built without libbz2
   fails (E_FAIL) and names it. */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_UNPACK_H
#define CAIRN_TASKS_PRETRAIN_WIKI_UNPACK_H

#include <stdint.h>

#include "base/base.h"

Status unpack_bz2_available(void);
/* One block: bits [first_bit, first_bit + n_bits) of `data`, from the block's magic number up to the next one. Its text
   replaces the contents of `out`. E_FORMAT: damaged. E_MEMORY: more than `most` bytes. */
Status unpack_bz2_block(const uint8_t *data, unsigned first_bit, uint64_t n_bits, size_t most, Buf *out);

#endif
