#include "base/siphash.h"

#include <sys/random.h>

#include "base/base.h"

static uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static void rounds(uint64_t v[4], int n)
{
    for (int i = 0; i < n; i++) {
        v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
        v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
    }
}

Hash128 siphash(Hash128 key, const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t k0 = bytes_number(key.bytes, 8), k1 = bytes_number(key.bytes + 8, 8);
    uint64_t v[4] = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
                     k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    size_t whole = len & ~(size_t)7;
    Hash128 h;
    for (size_t i = 0; i <= whole; i += 8) {
        uint64_t m = i < whole ? bytes_number(p + i, 8)
                               : (len ? bytes_number(p + i, len - whole) : 0) | (uint64_t)(len & 0xff) << 56;
        v[3] ^= m;
        rounds(v, 2);
        v[0] ^= m;
    }
    v[2] ^= 0xee;
    rounds(v, 4);
    bytes_put(h.bytes, v[0] ^ v[1] ^ v[2] ^ v[3], 8);
    v[1] ^= 0xdd;
    rounds(v, 4);
    bytes_put(h.bytes + 8, v[0] ^ v[1] ^ v[2] ^ v[3], 8);
    return h;
}

Hash128 siphash_key(const char *text)
{
    const Hash128 fixed = {"cairn: a token\0"};
    return siphash(fixed, text, strlen(text));
}

int hash128_equal(Hash128 a, Hash128 b)
{
    int differ = 0;
    for (int i = 0; i < 16; i++) differ |= a.bytes[i] ^ b.bytes[i];
    return differ == 0;
}

void hash128_format(Hash128 h, char out[33])
{
    for (int i = 0; i < 16; i++) snprintf(out + (ptrdiff_t)2 * i, 3, "%02x", h.bytes[i]);
}

void hash128_random(Hash128 *h)
{
    CHECK(getrandom(h->bytes, sizeof h->bytes, 0) == (ssize_t)sizeof h->bytes, "no random numbers from the system");
}

void hash128_random_hex(char out[33])
{
    Hash128 h;
    hash128_random(&h);
    hash128_format(h, out);
}
