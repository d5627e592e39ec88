/* Text of SVG and HTML, and its width. */
#include "report/report.h"

void markup_text(Buf *out, const char *text)
{
    Buf valid = {0};
    buf_utf8(&valid, text);
    for (const char *s = valid.data; *s; s++) {
        if (*s == '<')
            buf_puts(out, "&lt;");
        else if (*s == '>')
            buf_puts(out, "&gt;");
        else if (*s == '&')
            buf_puts(out, "&amp;");
        else if (*s == '"')
            buf_puts(out, "&quot;");
        else if ((unsigned char)*s < 0x20 && *s != '\n' && *s != '\t')
            buf_puts(out, "?"); /* XML has no way to write these */
        else
            buf_append(out, s, 1);
    }
    buf_free(&valid);
}

static double letter_width(unsigned char c)
{
    if (c >= 0xc0) return 1.0; /* first byte of a character beyond ASCII */
    if (c >= 0x80) return 0;
    if (strchr("mwMW@%", c)) return 1.0;
    if (strchr("ijlI.,:;'|!()[]", c)) return 0.42;
    return c >= 'A' && c <= 'Z' ? 0.74 : 0.64;
}

double markup_text_width(const char *s, double size)
{
    double sum = 0;
    for (; *s; s++) sum += letter_width((unsigned char)*s) * size;
    return sum;
}

void markup_fitting(Buf *out, const char *s, double size, double room)
{
    size_t len = 0;
    if (markup_text_width(s, size) <= room) {
        markup_text(out, s);
        return;
    }
    for (double sum = size; s[len]; len++) {
        sum += letter_width((unsigned char)s[len]) * size;
        if (sum > room) break;
    }
    char *head = mem_strndup(s, len); /* whole characters: their later bytes have no width */
    markup_text(out, head);
    buf_puts(out, "\xe2\x80\xa6");
    free(head);
}
