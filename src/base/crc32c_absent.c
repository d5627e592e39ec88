#include "base/crc32c_internal.h"

bool crc32c_has_words(void) { return false; }

uint32_t crc32c_words(uint32_t crc, const uint8_t *p, size_t words)
{
    (void)p;
    (void)words;
    return crc;
}
