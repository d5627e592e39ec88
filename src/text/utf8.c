#include "text/utf8.h"

#include "text/text.h"

/* Decodes the whole, shortest-form sequence at p < end into *scalar and returns its length; 0 without one. */
static int decode_sequence(const uint8_t *p, const uint8_t *end, uint32_t *scalar)
{
    uint8_t lead = p[0];
    if (lead < 0x80) {
        *scalar = lead;
        return 1;
    }
    int len = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || end - p < len) return 0;
    /* The second byte's range excludes overlong forms, surrogates and values beyond U+10FFFF. */
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high) return 0;
    uint32_t c = lead & (0xFFu >> (len + 1));
    for (int i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    *scalar = c;
    return len;
}

uint32_t utf8_decode(const char **at, const char *end)
{
    uint32_t scalar;
    int len = decode_sequence((const uint8_t *)*at, (const uint8_t *)end, &scalar);
    *at += len ? len : 1;
    return len ? scalar : UTF8_BAD;
}

int utf8_encode(uint32_t scalar, char out[4])
{
    if (scalar < 0x80) {
        out[0] = (char)scalar;
        return 1;
    }
    int len = scalar < 0x800 ? 2 : scalar < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (scalar & 0x3F));
        scalar >>= 6;
    }
    out[0] = (char)((0xF00u >> len & 0xFFu) | scalar);
    return len;
}

int64_t text_utf8_error(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + len;
    while (p < end) {
        uint64_t eight;
        while (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & UINT64_C(0x8080808080808080)))) p += 8;
        if (p == end) break;
        uint32_t scalar;
        int bytes = decode_sequence(p, end, &scalar);
        if (!bytes) return p - (const uint8_t *)text;
        p += bytes;
    }
    return -1;
}
