/* CRC-32C (Castagnoli; RFC 3720 B.4), reflected polynomial 0x82f63b78. */
#include "base/crc32c_internal.h"
#include "base/digest.h"

/* Portable version, four bits at a time; also for the bytes that do not fill a word. */
static uint32_t crc_bytes(uint32_t crc, const uint8_t *p, size_t len)
{
    static const uint32_t nibble[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        crc = (crc >> 4) ^ nibble[crc & 15];
        crc = (crc >> 4) ^ nibble[crc & 15];
    }
    return crc;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    if (len == 0) return crc; /* data may be NULL then */
    const uint8_t *p = data;
    crc = ~crc;
    size_t done = 8 * crc32c_words(&crc, p, len / 8);
    return ~crc_bytes(crc, p + done, len - done);
}
