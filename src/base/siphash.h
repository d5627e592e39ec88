/* SipHash-2-4 with 128 bits of result, a keyed hash: without the key it cannot be computed or guessed (Aumasson
   and Bernstein, "SipHash: a fast short-input PRF", 2012). For handshakes and names; not for encryption. */
#pragma once

#include "base/std.h"

typedef struct {
    uint8_t bytes[16];
} Hash128;

Hash128 siphash(Hash128 key, const void *data, size_t len);
/* A key from a text of any length. */
Hash128 siphash_key(const char *text);
/* In constant time. */
int hash128_equal(Hash128 a, Hash128 b);
/* 32 hexadecimal digits and a NUL. */
void hash128_format(Hash128 h, char out[33]);
/* From the system's generator; the second as hash128_format writes it. */
void hash128_random(Hash128 *h);
void hash128_random_hex(char out[33]);
