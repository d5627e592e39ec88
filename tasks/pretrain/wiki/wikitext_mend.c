/* Mends a paragraph after markup was cut out of it. */
#include <string.h>

#include "tasks/pretrain/wiki/wikitext_internal.h"

#define LEAST_PROSE 6 /* blanks of a list item that is kept */

/* Bytes of the blank (*what 1) or invisible character (2) at p; 0 for other characters. */
static size_t odd_character(const unsigned char *p, size_t left, int *what)
{
    *what = 1;
    if (p[0] == 0xC2 && left >= 2) {
        if (p[1] == 0xA0 || p[1] == 0x85) return 2; /* no-break space */
        *what = 2;
        return p[1] == 0xAD || p[1] < 0xA0 ? 2 : 0; /* soft hyphen, C1 controls */
    }
    if (p[0] == 0xE2 && left >= 3 && p[1] == 0x80) {
        if (p[2] <= 0x8A || p[2] == 0xA8 || p[2] == 0xA9 || p[2] == 0xAF) return 3; /* U+2000 … */
        *what = 2;
        return (p[2] >= 0x8B && p[2] <= 0x8F) || (p[2] >= 0xAA && p[2] <= 0xAE) ? 3 : 0; /* zero width, directions */
    }
    if (p[0] == 0xE2 && left >= 3 && p[1] == 0x81) {
        *what = p[2] == 0x9F ? 1 : 2;
        return p[2] >= 0x9F && p[2] <= 0xAF ? 3 : 0;
    }
    if (p[0] == 0xE3 && left >= 3 && p[1] == 0x80 && p[2] == 0x80) return 3; /* ideographic space */
    *what = 2;
    return p[0] == 0xEF && left >= 3 && p[1] == 0xBB && p[2] == 0xBF ? 3 : 0; /* byte order mark */
}

bool wikitext_wants_word(const Words *words)
{
    static const char *const wanting[] = {"a",      "an",   "and",  "as", "at",  "be",   "between", "by",
                                          "called", "for",  "from", "in", "is",  "like", "of",      "on",
                                          "or",     "than", "the",  "to", "via", "was",  "were",    "with"};
    size_t end = words->len, n = 0;
    if (end == 0 || words->data[end - 1] != ' ') return false;
    end--;
    while (n < end && wikitext_letter(words->data[end - n - 1])) n++;
    for (size_t i = 0; n > 0 && i < sizeof wanting / sizeof *wanting; i++)
        if (strlen(wanting[i]) == n && memcmp(wanting[i], words->data + end - n, n) == 0) return true;
    return false;
}

/* Whether nothing fills the gap at p: the end, a stop, or "or" and "and" follow. */
static bool is_open_gap(const unsigned char *p, const unsigned char *end)
{
    while (p < end && (*p == ' ' || *p == WIKITEXT_GAP || *p == '\'' || *p == '"')) p++;
    if (p == end || strchr(".,;:)", *p)) return true;
    return (end - p > 3 && memcmp(p, "or ", 3) == 0) || (end - p > 4 && memcmp(p, "and ", 4) == 0);
}

enum { PLAIN, BLANK, COMMA, OPEN, CLOSE, ODD, CONTROL };
static const uint8_t classes[256] = {
    [0] = CONTROL,   [1] = CONTROL,  [2] = CONTROL,  [3] = CONTROL,  [4] = CONTROL,  [5] = CONTROL,  [6] = CONTROL,
    [7] = CONTROL,   [8] = CONTROL,  ['\t'] = BLANK, ['\n'] = BLANK, [11] = BLANK,   [12] = BLANK,   ['\r'] = BLANK,
    [14] = CONTROL,  [15] = CONTROL, [16] = CONTROL, [17] = CONTROL, [18] = CONTROL, [19] = CONTROL, [20] = CONTROL,
    [21] = CONTROL,  [22] = CONTROL, [23] = CONTROL, [24] = CONTROL, [25] = CONTROL, [26] = CONTROL, [27] = CONTROL,
    [28] = BLANK,    [29] = BLANK,   [30] = BLANK,   [31] = BLANK,   [' '] = BLANK,  [','] = COMMA,  ['.'] = COMMA,
    [';'] = COMMA,   ['('] = OPEN,   [')'] = CLOSE,  [0xC2] = ODD,   [0xE2] = ODD,   [0xE3] = ODD,   [0xEF] = ODD,
    [127] = CONTROL,
};

static bool is_separator(char c) { return c == ',' || c == ';' || c == ':'; }

void wikitext_mend(const Words *from, Words *to)
{
    const unsigned char *p = (const unsigned char *)from->data, *end = p + from->len;
    char *q = to->data, *begin = q;
    while (p < end) {
        const unsigned char *run = p;
        size_t n;
        int what;
        while (p < end && classes[*p] == PLAIN) p++;
        memcpy(q, run, (size_t)(p - run));
        q += p - run;
        if (p == end) break;
        switch (classes[*p]) {
        case BLANK:
            p++;
            if (q > begin && q[-1] != ' ' && q[-1] != '(') *q++ = ' ';
            break;
        case COMMA: {
            unsigned char after = p + 1 < end ? p[1] : ' ';
            bool word_end = after == ' ' || after == '\n' || after == ')' || after == 0xC2;
            if (q > begin && q[-1] == '(' && *p != '.') { /* a gap before it */
                p++;
                break;
            }
            if (word_end && q > begin && q[-1] == ' ') q--;
            if (q > begin && q[-1] == ',' && *p == ',') { /* a gap between them */
                p++;
                break;
            }
            *q++ = (char)*p++;
            break;
        }
        case OPEN:
            *q++ = (char)*p++;
            break;
        case CLOSE:
            p++;
            while (q > begin && (q[-1] == ' ' || is_separator(q[-1]))) q--;
            if (q > begin && q[-1] == '(')
                q--;
            else
                *q++ = ')';
            break;
        case ODD:
            n = odd_character(p, (size_t)(end - p), &what);
            if (n == 0)
                *q++ = (char)*p++;
            else if (what == 1 && q > begin && q[-1] != ' ' && q[-1] != '(')
                *q++ = ' ', p += n;
            else
                p += n;
            break;
        default: /* controls */
            if (*p++ == WIKITEXT_GAP && is_open_gap(p, end)) *q++ = WIKITEXT_GAP;
        }
    }
    while (q > begin && q[-1] == ' ') q--;
    to->len = (size_t)(q - begin);
}

bool wikitext_has_markup(const char *text, size_t len)
{
    static const char *const marks[] = {"[[",     "]]",      "{{",      "}}",    "<ref", "</",   "''",    "|",
                                        "&nbsp;", "&ndash;", "&mdash;", "&amp;", "&lt;", "&gt;", "[http", "=="};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (memmem(text, len, marks[i], strlen(marks[i]))) return true;
    return false;
}

bool wikitext_is_prose(const Words *words)
{
    size_t n = words->len, blanks = 0;
    while (n > 0 && strchr("\"')]", words->data[n - 1])) n--;
    if (n == 0 || !strchr(".!?", words->data[n - 1])) return false;
    for (size_t i = 0; i < n; i++) blanks += words->data[i] == ' ';
    return blanks >= LEAST_PROSE;
}
