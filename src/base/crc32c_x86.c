#include <nmmintrin.h>

#include "base/crc32c_internal.h"

__attribute__((target("sse4.2"))) static uint32_t add_words(uint64_t crc, const uint8_t *p, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t w;
        memcpy(&w, p + 8 * i, 8);
        crc = _mm_crc32_u64(crc, w);
    }
    return (uint32_t)crc;
}

size_t crc32c_words(uint32_t *crc, const uint8_t *p, size_t words)
{
    if (!__builtin_cpu_supports("sse4.2")) return 0;
    *crc = add_words(*crc, p, words);
    return words;
}
