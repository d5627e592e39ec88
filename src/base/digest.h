/* Digests: XXH3-128 (xxhash, which only digest.c includes) for state on disk, CRC-32C for TensorFlow's formats. */
#pragma once

#include "base/std.h"

typedef struct {
    uint64_t hi, lo;
} Digest;

/* Digest of data that comes in pieces; the same value as digest_of over all of it. One thread at a time. */
typedef struct DigestStream DigestStream;

DigestStream *digest_new(void);
void digest_update(DigestStream *s, const void *data, size_t len);
Digest digest_value(const DigestStream *s);
void digest_free(DigestStream *s); /* takes NULL */

Digest digest_of(const void *data, size_t len);
/* 32 hexadecimal digits and a NUL; returns `out`. DIGEST_TEXT lasts as SHORT_TEXT does (base/mem.h). */
const char *digest_format(Digest d, char out[33]);
#define DIGEST_TEXT(d) digest_format(d, (char[33]){""})
/* Reads what digest_format writes. False for any other text. */
bool digest_parse(const char *text, Digest *d);
int digest_equal(Digest a, Digest b);

/* CRC-32C, Castagnoli's polynomial (RFC 3720 B.4). Start with 0; pass the last value to continue. Uses the CPU's
 * instruction where there is one. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);
/* TensorFlow's masked form (tfevents, TF1 bundles). */
static inline uint32_t crc32c_mask(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }
