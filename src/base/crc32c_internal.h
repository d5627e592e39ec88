/* The CPU's instruction for CRC-32C: crc32c_x86.c, or crc32c_absent.c where there is none. Both take and return the
   inverted value. */
#ifndef CAIRN_BASE_CRC32C_INTERNAL_H
#define CAIRN_BASE_CRC32C_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool crc32c_has_words(void);
uint32_t crc32c_words(uint32_t crc, const uint8_t *p, size_t words); /* of 8 bytes; only if it has them */

#endif
