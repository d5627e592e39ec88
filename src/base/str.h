/* How a text begins and ends, and lists of words in a text. */
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
