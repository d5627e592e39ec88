#include "text/characters.h"

#include "text/compose.h"
#include "text/utf8.h"

bool character_is_space(uint32_t scalar) { return unicode_record(scalar).bits & UC_WHITE; }

bool character_is_word(uint32_t scalar) { return unicode_record(scalar).bits & UC_WORD; }

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
