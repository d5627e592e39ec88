#include "tasks/pretrain/kind.h"

#include "data/gz.h"

const char *kind_text(Kind kind)
{
    static const char *const texts[] = {
#define X(name, text) text,
        KIND_LIST(X)
#undef X
    };
    return texts[kind];
}

size_t kind_mark(const char *head, size_t len) { return str_begins(head, len, "\xef\xbb\xbf") ? 3 : 0; }

size_t kind_blanks(const char *head, size_t len)
{
    size_t n = 0;
    while (n < len && head[n] && strchr(" \t\r\n", head[n])) n++;
    return n;
}

static Kind kind_of_xml(const char *p, size_t len)
{
    static const char *const others[] = {"<?xml version", "<!DOCTYPE", "<html"};
    size_t look = len < KIND_HEAD ? len : KIND_HEAD;
    if (str_begins(p, len, "<page>") || (str_begins(p, len, "<") && memmem(p, look, "<mediawiki", 10)))
        return KIND_DUMP;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (str_begins(p, len, others[i])) return KIND_XML;
    return KIND_TEXT;
}

Kind kind_of(const char *head, size_t len)
{
    static const struct {
        const char *bytes;
        Kind kind;
    } packed[] = {{"\xfd"
                   "7zXZ",
                   KIND_XZ},
                  {"7z\xbc\xaf", KIND_7Z},
                  {"\x28\xb5\x2f\xfd", KIND_ZSTD},
                  {"PK\x03\x04", KIND_ZIP}};
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (str_begins(head, len, packed[i].bytes)) return packed[i].kind;
    if (str_begins(head, len, "BZh") && len > 3 && head[3] >= '1' && head[3] <= '9') return KIND_BZ2;
    if (gz_begins(head, len)) return KIND_GZ;
    size_t mark = kind_mark(head, len), at = mark + kind_blanks(head + mark, len - mark);
    return kind_of_xml(head + at, len - at);
}
