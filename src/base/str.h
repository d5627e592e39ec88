/* How a text begins and ends. */
#ifndef CAIRN_BASE_STR_H
#define CAIRN_BASE_STR_H

#include <stdbool.h>
#include <string.h>

static inline bool str_starts_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

static inline bool str_ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

#endif
