#include "base/digest.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#if XXH_DISPATCH
#    include <xxh_x86dispatch.h>
#endif

#if defined(__x86_64__)
#    include <nmmintrin.h>
#endif

#include "base/mem.h"
#include "base/status.h"

/* A DigestStream is an XXH3_state_t; the name keeps xxhash out of the header. */
static XXH3_state_t *state_of(DigestStream *s) { return (XXH3_state_t *)s; }

static Digest from_xxh(XXH128_hash_t h) { return (Digest){h.high64, h.low64}; }

DigestStream *digest_new(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) mem_exhausted(576);
    XXH3_128bits_reset(state);
    return (DigestStream *)state;
}

void digest_update(DigestStream *s, const void *data, size_t len)
{
    if (len) XXH3_128bits_update(state_of(s), data, len);
}

Digest digest_value(const DigestStream *s) { return from_xxh(XXH3_128bits_digest((const XXH3_state_t *)s)); }

void digest_free(DigestStream *s) { XXH3_freeState(state_of(s)); }

Digest digest_of(const void *data, size_t len) { return from_xxh(XXH3_128bits(data, len)); }

void digest_format(Digest d, char out[33])
{
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)d.hi, (unsigned long long)d.lo);
}

int digest_equal(Digest a, Digest b) { return a.hi == b.hi && a.lo == b.lo; }

/* CRC-32C (Castagnoli; RFC 3720 B.4), reflected polynomial 0x82f63b78. Both forms below work on the inverted value. */

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

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_words(uint32_t crc, const uint8_t *p, size_t words)
{
    uint64_t c = crc;
    for (size_t i = 0; i < words; i++) {
        uint64_t w;
        memcpy(&w, p + 8 * i, 8);
        c = _mm_crc32_u64(c, w);
    }
    return (uint32_t)c;
}

static int has_crc_words(void) { return __builtin_cpu_supports("sse4.2") != 0; }
#else
static uint32_t crc_words(uint32_t crc, const uint8_t *p, size_t words) { return crc_bytes(crc, p, 8 * words); }

static int has_crc_words(void) { return 0; }
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    if (len == 0) return crc; /* data may be NULL then */
    const uint8_t *p = data;
    size_t words = has_crc_words() ? len / 8 : 0;
    crc = ~crc;
    if (words) crc = crc_words(crc, p, words);
    return ~crc_bytes(crc, p + 8 * words, len - 8 * words);
}
