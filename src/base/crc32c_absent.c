#include "base/crc32c_internal.h"

size_t crc32c_words(uint32_t *crc, const uint8_t *p, size_t words)
{
    (void)crc, (void)p, (void)words;
    return 0;
}
