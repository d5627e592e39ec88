#include <emmintrin.h>

#include "base/std.h"
#include "base/stream_copy.h"

enum { VECTOR = sizeof(__m128i), LINE = 4 * VECTOR };

static __m128i load(const char *from, int i)
{
    return _mm_loadu_si128((const __m128i *)(const void *)(from + i * VECTOR));
}
static void store(char *to, int i, __m128i x) { _mm_stream_si128((__m128i *)(void *)(to + i * VECTOR), x); }

void stream_copy(void *to, const void *from, size_t bytes)
{
    char *p = to;
    const char *q = from;
    size_t head = -(uintptr_t)p % LINE;
    if (head > bytes) head = bytes;
    memcpy(p, q, head);
    for (p += head, q += head, bytes -= head; bytes >= LINE; p += LINE, q += LINE, bytes -= LINE) {
        __m128i a = load(q, 0), b = load(q, 1), c = load(q, 2), d = load(q, 3);
        store(p, 0, a);
        store(p, 1, b);
        store(p, 2, c);
        store(p, 3, d);
    }
    memcpy(p, q, bytes);
    _mm_sfence();
}
