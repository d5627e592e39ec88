#include <bzlib.h>

#include "data/bz2.h"

enum { HEADER = 4, MAGIC = 6, CHECKSUM = 4, TRAILER = MAGIC + CHECKSUM }; /* bytes */

Status bz2_available(void) { return OK; }

/* Moves bits 8 - `by` places to the left, into n bytes. `from` has n + 1. */
static void shift(uint8_t *to, const uint8_t *from, size_t n, unsigned by)
{
    for (size_t i = 0; i < n; i++) to[i] = (uint8_t)((from[i] << 8 | from[i + 1]) >> by);
}

/* A stream of the one block: a header, the block's bits from a whole byte on, and a trailer with the stream's checksum,
   which is the block's. The caller frees it. */
static char *make_stream(const uint8_t *data, unsigned first_bit, uint64_t n_bits, unsigned *len)
{
    unsigned bytes = (unsigned)((n_bits + 7) / 8), used = n_bits % 8; /* used: bits of the last byte, or 0 */
    uint8_t trailer[1 + TRAILER + 1] = {0, 0x17, 0x72, 0x45, 0x38, 0x50, 0x90};
    *len = HEADER + bytes + TRAILER;
    char *stream = mem_alloc(*len);
    uint8_t *block = (uint8_t *)stream + HEADER, *end = block + n_bits / 8;
    memcpy(stream, "BZh9", HEADER);
    shift(block, data, bytes, 8 - first_bit);
    memcpy(trailer + 1 + MAGIC, block + MAGIC, CHECKSUM);
    if (used > 0) trailer[0] = (uint8_t)(*end >> (8 - used));
    shift(end, trailer, used > 0 ? 1 + TRAILER : TRAILER, used);
    return stream;
}

Status bz2_unpack_block(const uint8_t *data, unsigned first_bit, uint64_t n_bits, unsigned room, Buf *out)
{
    unsigned len, text = room - 1;
    out->len = 0;
    if (n_bits < 8 * (MAGIC + CHECKSUM)) return fail(E_FORMAT, "damaged");
    if (out->cap < room) {
        out->data = mem_resize(out->data, room, 1);
        out->cap = room;
    }
    char *stream = make_stream(data, first_bit, n_bits, &len);
    int result = BZ2_bzBuffToBuffDecompress(out->data, &text, stream, len, 0, 0);
    free(stream);
    if (result == BZ_MEM_ERROR) mem_exhausted(4u << 20);
    if (result == BZ_OK) out->len = text;
    out->data[out->len] = '\0';
    return result == BZ_OK             ? OK
           : result == BZ_OUTBUFF_FULL ? fail(E_MEMORY, "it unpacks to more than %u bytes", room - 1)
                                       : fail(E_FORMAT, "damaged");
}
