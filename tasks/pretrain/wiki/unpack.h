/* Decompression for the readers of text: bz2 by libbz2, gz by zlib. Where the program was built without one of them,
   its functions say so (E_FAIL). */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_UNPACK_H
#define CAIRN_TASKS_PRETRAIN_WIKI_UNPACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

/* ---- bz2, block by block (at most 900 kB that know nothing of each other) ---- */

Status unpack_bz2_available(void);
/* One block: bits [first_bit, first_bit + n_bits) of `data`, from the block's magic number up to the next one. Its text
   is put in place of what `out` had. E_FORMAT: damaged. E_MEMORY: more than `most` bytes. */
Status unpack_bz2_block(const uint8_t *data, unsigned first_bit, uint64_t n_bits, size_t most, Buf *out);

/* ---- gz: a stream of members ---- */

typedef struct GzReader GzReader;
Status unpack_gz_open(GzReader **gz); /* E_FAIL: built without zlib */
void unpack_gz_close(GzReader *gz);   /* takes NULL */
/* Takes bytes from *data, *len and appends up to `most` bytes of text to `out`. *ended: the last member is complete, as
   far as given. E_FORMAT: damaged. */
Status unpack_gz(GzReader *gz, const uint8_t **data, size_t *len, size_t most, Buf *out, bool *ended);

#endif
