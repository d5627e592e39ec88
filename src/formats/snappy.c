/* Snappy's raw block format, decoding only. Source: format_description.txt of google/snappy: a varint with the decoded
   length, then literals and copies; the low two bits of a tag select the kind. */
#include "formats/reader_internal.h"

/* The densest input is a copy of 64 bytes encoded in 3, so a larger claim is false. */
#define SNAPPY_MAX_RATIO 22

bool snappy_length(const uint8_t *data, size_t len, size_t *decoded, size_t *header)
{
    uint64_t value = 0;
    for (size_t i = 0; i < len && i < 5; i++) {
        value |= (uint64_t)(data[i] & 0x7f) << (7 * i);
        if (data[i] & 0x80) continue;
        if (value > UINT32_MAX || value > (uint64_t)len * SNAPPY_MAX_RATIO) return false;
        *decoded = (size_t)value;
        *header = i + 1;
        return true;
    }
    return false;
}

bool snappy_decode(const uint8_t *data, size_t len, uint8_t *out, size_t out_len)
{
    size_t decoded = 0, at = 0, done = 0;
    if (!snappy_length(data, len, &decoded, &at) || decoded != out_len) return false;
    while (at < len) {
        uint8_t tag = data[at++];
        size_t n = (size_t)(tag >> 2) + 1, left = len - at;
        if ((tag & 3) == 0) {
            if (n > 60) { /* 61…64: the length − 1 follows in 1…4 bytes */
                size_t width = n - 60;
                if (left < width) return false;
                n = bytes_number(data + at, width) + 1;
                at += width;
                left -= width;
            }
            if (n > left || n > out_len - done) return false;
            memcpy(out + done, data + at, n);
            at += n;
            done += n;
            continue;
        }
        size_t width = (tag & 3) == 1 ? 1 : (tag & 3) == 2 ? 2 : 4;
        if (left < width) return false;
        size_t back = bytes_number(data + at, width);
        at += width;
        if (width == 1) {
            n = (size_t)((tag >> 2) & 7) + 4;
            back |= (size_t)(tag >> 5) << 8;
        }
        if (back == 0 || back > done || n > out_len - done) return false;
        for (size_t i = 0; i < n; i++, done++) out[done] = out[done - back]; /* may overlap: a repeat */
    }
    return done == out_len;
}
