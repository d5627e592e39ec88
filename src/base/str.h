/* How a text begins and ends, lists of words in a text, numbers in bytes, switches of the environment. */
#pragma once

#include "base/std.h"

static inline bool str_starts_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Whether a text of `len` bytes begins so. */
static inline bool str_begins(const char *s, size_t len, const char *prefix)
{
    return len >= strlen(prefix) && memcmp(s, prefix, strlen(prefix)) == 0;
}

static inline bool str_ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

/* Whether the `len` bytes at `word` are one of the words of `list`, which have `between` between them. */
static inline bool str_list_has(const char *list, char between, const char *word, size_t len)
{
    const char *end = list + strlen(list);
    if (len == 0 || memchr(word, between, len)) return false;
    for (const char *p = list; (p = (const char *)memmem(p, (size_t)(end - p), word, len)) != NULL; p++)
        if ((p == list || p[-1] == between) && (p + len == end || p[len] == between)) return true;
    return false;
}

/* Whether a variable of the environment is set, and is neither empty nor "0". */
static inline bool env_is_on(const char *name)
{
    const char *text = getenv(name);
    return text && *text && strcmp(text, "0") != 0;
}

/* Little-endian numbers of up to 8 bytes. */
static inline void bytes_put(uint8_t *p, uint64_t x, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)(x >> (8 * i));
}
static inline uint64_t bytes_number(const uint8_t *p, size_t bytes)
{
    uint64_t x = 0;
    for (size_t i = 0; i < bytes; i++) x |= (uint64_t)p[i] << (8 * i);
    return x;
}
