#include <bzlib.h>
#include <string.h>

#include "tasks/pretrain/wiki/unpack.h"

Status unpack_bz2_available(void) { return OK; }

/* `n` bits from bit `first` of `data`, as a number. */
static uint64_t bits_at(const uint8_t *data, uint64_t first, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++) value = value << 1 | (data[(first + i) / 8] >> (7 - (first + i) % 8) & 1);
    return value;
}

/* Makes a bz2 file of one block: header, the block's bits moved to a byte boundary, the end's magic number and checksum
   (with one block, the block's), padding. */
static void make_file(const uint8_t *data, unsigned first_bit, uint64_t n_bits, Buf *file)
{
    static const uint8_t end[6] = {0x17, 0x72, 0x45, 0x38, 0x50, 0x90};
    size_t bytes = (size_t)(n_bits / 8);
    unsigned left = (unsigned)(n_bits % 8);
    uint8_t tail[11];
    file->len = 0;
    buf_append(file, "BZh9", 4);
    buf_append(file, data, bytes); /* makes room */
    uint8_t *to = (uint8_t *)file->data + 4;
    if (first_bit)
        for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)(data[i] << first_bit | data[i + 1] >> (8 - first_bit));
    /* The rest: `left` bits, then 48 + 32, then zeros. */
    uint64_t checksum = bits_at(data, first_bit + 48, 32);
    memset(tail, 0, sizeof tail);
    unsigned at = 0;
    for (unsigned i = 0; i < left + 80; i++, at++) {
        unsigned bit = i < left        ? (unsigned)bits_at(data, first_bit + 8 * (uint64_t)bytes + i, 1)
                       : i < left + 48 ? end[(i - left) / 8] >> (7 - (i - left) % 8) & 1u
                                       : (unsigned)(checksum >> (31 - (i - left - 48)) & 1u);
        tail[at / 8] = (uint8_t)(tail[at / 8] | bit << (7 - at % 8));
    }
    buf_append(file, tail, (at + 7) / 8);
}

Status unpack_bz2_block(const uint8_t *data, unsigned first_bit, uint64_t n_bits, size_t most, Buf *out)
{
    Buf file = {0};
    bz_stream stream = {0};
    Status status = OK;
    out->len = 0;
    if (n_bits < 80) return fail(E_FORMAT, "a bz2 block of %d bits", (int)n_bits);
    make_file(data, first_bit, n_bits, &file);
    int result = BZ2_bzDecompressInit(&stream, 0, 0);
    if (result != BZ_OK) mem_exhausted(4u << 20);
    stream.next_in = file.data;
    stream.avail_in = (unsigned)file.len;
    for (;;) {
        if (out->cap - out->len < 2) { /* Buf keeps a byte for its NUL */
            size_t wanted = out->cap ? 2 * out->cap : (size_t)1 << 20;
            out->data = mem_resize(out->data, wanted, 1);
            out->cap = wanted;
        }
        size_t room = out->cap - out->len - 1;
        stream.next_out = out->data + out->len;
        stream.avail_out = (unsigned)room;
        result = BZ2_bzDecompress(&stream);
        out->len += room - stream.avail_out;
        if (result == BZ_STREAM_END) break;
        if (result != BZ_OK || (stream.avail_in == 0 && stream.avail_out > 0)) {
            status = fail(E_FORMAT, "damaged");
            break;
        }
        if (out->len > most) {
            status = fail(E_MEMORY, "it unpacks to more than %zu bytes", most);
            break;
        }
    }
    if (status != OK) out->len = 0;
    if (out->data) out->data[out->len] = '\0';
    BZ2_bzDecompressEnd(&stream);
    buf_free(&file);
    return status;
}
