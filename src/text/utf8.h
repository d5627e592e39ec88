/* UTF-8, scalar by scalar. */
#pragma once

#include <stdint.h>

#define UTF8_BAD 0xFFFDu

/* Returns the scalar at *at < end and moves *at past it. A byte that begins no whole sequence gives UTF8_BAD alone. */
uint32_t utf8_decode(const char **at, const char *end);

/* Writes 1 to 4 bytes and returns how many. */
int utf8_encode(uint32_t scalar, char out[4]);
