/* The CPU's instruction for CRC-32C: crc32c_x86.c, or crc32c_absent.c for other CPUs. */
#pragma once

#include "base/std.h"

/* Continues the inverted value `crc` over `words` words of 8 bytes. Returns how many it did: all, or none where the CPU
   lacks the instruction. */
size_t crc32c_words(uint32_t *crc, const uint8_t *p, size_t words);
