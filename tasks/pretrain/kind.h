/* What a file's first bytes say of it: packed, a dump of a wiki, other XML, or else text. */
#pragma once

#include <stddef.h>

#define KIND_HEAD 4096 /* bytes that kind_of looks at */

/* X(name, what the file is) */
#define KIND_LIST(X)                                                                                                   \
    X(KIND_TEXT, "text")                                                                                               \
    X(KIND_BZ2, "packed by bz2")                                                                                       \
    X(KIND_GZ, "packed by gz")                                                                                         \
    X(KIND_XZ, "packed by xz")                                                                                         \
    X(KIND_7Z, "packed by 7z")                                                                                         \
    X(KIND_ZSTD, "packed by zstd")                                                                                     \
    X(KIND_ZIP, "packed by zip")                                                                                       \
    X(KIND_DUMP, "a dump of a wiki (XML)")                                                                             \
    X(KIND_XML, "XML, but no dump of a wiki")

typedef enum {
#define X(name, text) name,
    KIND_LIST(X)
#undef X
} Kind;

/* XML may begin behind a byte order mark and blanks. */
Kind kind_of(const char *head, size_t len);
const char *kind_text(Kind kind);
/* `head` without a byte order mark, and then without blanks: the bytes that are left out. */
size_t kind_mark(const char *head, size_t len);
size_t kind_blanks(const char *head, size_t len);
