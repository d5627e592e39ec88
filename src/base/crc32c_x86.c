#include <nmmintrin.h>
#include <string.h>

#include "base/crc32c_internal.h"

bool crc32c_has_words(void) { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) uint32_t crc32c_words(uint32_t crc, const uint8_t *p, size_t words)
{
    uint64_t c = crc;
    for (size_t i = 0; i < words; i++) {
        uint64_t w;
        memcpy(&w, p + 8 * i, 8);
        c = _mm_crc32_u64(c, w);
    }
    return (uint32_t)c;
}
