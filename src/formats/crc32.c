/* CRC-32 (ISO 3309, reflected 0xEDB88320), eight bytes at a time with eight tables built on first use. */
#include <pthread.h>

#include "formats/reader_internal.h"

static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
}

uint32_t crc32_zip(const void *data, size_t len)
{
    pthread_once(&once, make_table);
    const uint8_t *p = data;
    uint32_t c = ~0u;
    for (; len >= 8; len -= 8, p += 8) {
        uint32_t a = reader_le32(p) ^ c, b = reader_le32(p + 4);
        c = table[7][a & 255] ^ table[6][a >> 8 & 255] ^ table[5][a >> 16 & 255] ^ table[4][a >> 24] ^
            table[3][b & 255] ^ table[2][b >> 8 & 255] ^ table[1][b >> 16 & 255] ^ table[0][b >> 24];
    }
    while (len--) c = c >> 8 ^ table[0][(c ^ *p++) & 255];
    return ~c;
}
