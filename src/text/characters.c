#include "text/characters.h"

#include <ctype.h>

#include "text/compose.h"
#include "text/utf8.h"

bool character_ends_word(UnicodeSource source, uint32_t scalar)
{
    bool control = scalar == 0x0b || scalar == 0x0c || scalar == 0x85;
    if (source == UNICODE_PYTHON) control |= scalar >= 0x1c && scalar <= 0x1f;
    return control || (unicode_record_of(source, scalar).bits & UC_SPACE);
}

bool character_is_space(uint32_t scalar) { return character_ends_word(UNICODE_PYTHON, scalar); }

static bool in_ranges(const uint32_t (*ranges)[2], size_t n, uint32_t scalar)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle][1] < scalar)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && ranges[low][0] <= scalar;
}

bool character_is_word(uint32_t scalar)
{
    if (scalar < 0x80) return isalnum((int)scalar) || scalar == '_';
    return in_ranges(unicode_words, UNICODE_WORDS, scalar);
}

bool character_is_library_word(uint32_t scalar)
{
    return character_is_word(scalar) != in_ranges(unicode_other_words, UNICODE_OTHER_WORDS, scalar);
}

void characters_lower(const char *text, size_t len, Buf *out)
{
    enum { CAPITAL_SIGMA = 0x3a3, SIGMA = 0x3c3, FINAL_SIGMA = 0x3c2 };
    const char *end = text + len;
    bool within = false; /* the scalar before belongs to a word */
    while (text < end) {
        char bytes[8];
        uint32_t scalar = utf8_decode(&text, end), lowered[2] = {scalar};
        int n = unicode_record(scalar).bits & UC_LOWER ? unicode_lowered(scalar, lowered) : 1, used = 0;
        if (scalar == CAPITAL_SIGMA) {
            const char *ahead = text;
            bool follows = text < end && character_is_word(utf8_decode(&ahead, end));
            lowered[0] = within && !follows ? FINAL_SIGMA : SIGMA;
        }
        for (int i = 0; i < n; i++) used += utf8_encode(lowered[i], bytes + used);
        buf_append(out, bytes, (size_t)used);
        within = character_is_word(scalar);
    }
}
