#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

enum { USUAL_COLUMNS = 80 };

int terminal_columns(int fd)
{
    struct winsize size;
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : USUAL_COLUMNS;
}

bool terminal_redraws(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && term && strcmp(term, "dumb") != 0;
}

bool terminal_colours(int fd)
{
    const char *no = getenv("NO_COLOR");
    return terminal_redraws(fd) && strncmp(getenv("TERM"), "vt", 2) != 0 && !(no && *no); /* DEC's had none */
}

int terminal_width(const char *text, size_t len)
{
    int width = 0;
    for (size_t i = 0; i < len; i++) width += (text[i] & 0xC0) != 0x80;
    return width;
}

/* Bytes of a word of `len` that fit into `room` columns, at least one character: up to the last comma, dash or slash if
   there is one. */
static size_t cut_word(const char *word, size_t len, int room)
{
    size_t fits = 0, after = 0;
    for (size_t i = 0; i < len && terminal_width(word, i + 1) <= room; i++) {
        fits = i + 1;
        if (strchr(",-/", word[i])) after = i + 1;
    }
    while (fits < len && (word[fits] & 0xC0) == 0x80) fits++;
    return after ? after : fits ? fits : len;
}

void terminal_wrap(Buf *out, const char *text, int indent, int columns)
{
    int column = indent, room = columns - indent;
    for (const char *p = text; *p;) {
        size_t len = strcspn(p, " ");
        int width = terminal_width(p, len);
        if (column > indent && column + 1 + width > columns) {
            buf_printf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            buf_puts(out, " ");
            column++;
        }
        for (; column == indent && width > room && room > 0; width = terminal_width(p, len)) {
            size_t part = cut_word(p, len, room);
            if (part == len) break;
            buf_append(out, p, part);
            buf_printf(out, "\n%*s", indent, "");
            p += part;
            len -= part;
        }
        buf_append(out, p, len);
        column += width;
        p += len;
        p += strspn(p, " ");
    }
    buf_puts(out, "\n");
}
