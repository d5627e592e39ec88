/* SipHash-2-4 with 128 bits of result, a keyed hash: without the key a hash can neither be made nor guessed (Aumasson
   and Bernstein, "SipHash: a fast short-input PRF", 2012). For handshakes and names; it encrypts nothing. */
#ifndef CAIRN_COMM_SIPHASH_H
#define CAIRN_COMM_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint8_t bytes[16];
} Hash128;

Hash128 siphash(Hash128 key, const void *data, size_t len);
/* A key from a text of any length. */
Hash128 siphash_key(const char *text);
/* Takes the same time wherever they differ. */
int hash128_equal(Hash128 a, Hash128 b);
/* 32 hexadecimal digits and a NUL. */
void hash128_format(Hash128 h, char out[33]);
/* From the system's generator. */
void hash128_random(Hash128 *h);

#endif
