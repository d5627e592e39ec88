/* Mends a paragraph after markup was cut out of it. */

#include "tasks/pretrain/wiki/sentences.h"
#include "tasks/pretrain/wiki/wikitext_internal.h"
#include "text/utf8.h"

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

/* ---- gaps ---- */

static bool is_mark(char c) { return c == WIKITEXT_MARK || c == WIKITEXT_MISSING; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool wikitext_word(uint32_t c)
{
    static const uint32_t stops[] = {0xD7, 0xF7, 0x60C, 0x61B, 0x61F, 0x6D4, 0x964, 0x965};
    if (c < 0x80) return wikitext_letter((char)c) || is_digit((char)c);
    if (c < 0xC0 || (c >= 0x2000 && c < 0x2C00) || (c >= 0x3000 && c < 0x3040) || c >= 0xFF00) return false;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (c == stops[i]) return false;
    return true;
}

/* Whether text[.. end) ends a sentence, perhaps with quotes or brackets behind its stop. */
static bool ends_sentence(const char *begin, const char *end)
{
    static const char *const stops[] = {".", "!", "?", "…", "。", "！", "？", "।", "؟", "۔"};
    while (end > begin && (strchr("\"')]", end[-1]) || (end - begin > 3 && memcmp(end - 3, "”", 3) == 0)))
        end -= strchr("\"')]", end[-1]) ? 1 : 3;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        size_t n = strlen(stops[i]);
        if ((size_t)(end - begin) >= n && memcmp(end - n, stops[i], n) == 0) return true;
    }
    return false;
}

/* Punctuation of Chinese and Japanese that ends a quotation, bracket or part of a sentence. */
static bool closes_wide(uint32_t c)
{
    static const uint16_t closing[] = {0x3001, 0x3002, 0x3009, 0x300B, 0x300D, 0x300F, 0x3011, 0x3015, 0x3017,
                                       0xFF01, 0xFF09, 0xFF0C, 0xFF1A, 0xFF1B, 0xFF1F, 0xFF61, 0xFF63, 0xFF64};
    for (size_t i = 0; i < sizeof closing / sizeof *closing; i++)
        if (c == closing[i]) return true;
    return false;
}

/* Whether a note may follow [.. end) without a blank: a letter, or punctuation that closes. What follows a capital
   letter or an apostrophe may be a part of the word: XIX{{e}}, l'{{x}}. */
static bool holds_note(const char *begin, const char *end)
{
    const char *p = end - 1;
    while (p > begin && ((unsigned char)*p & 0xC0) == 0x80) p--;
    uint32_t c = utf8_decode(&p, end);
    if (c < 0x80) return (c >= 'a' && c <= 'z') || strchr(",;:)]\"%!?.", (int)c);
    return wikitext_word(c) || c == 0xBB || c == 0x201D || c == 0x2026 || closes_wide(c);
}

/* Marks in a row, with the blanks among them. */
typedef struct {
    bool missing;     /* one of them gave words */
    bool blank, line; /* a blank or a line's start is before one of them */
    bool blank_after, line_after;
    const char *next, *end; /* the text behind them */
} Marks;

static const char *read_marks(const char *p, const char *end, Marks *m)
{
    for (bool blank = m->blank, line = m->line; p < end && (is_mark(*p) || *p == ' ' || *p == '\n'); p++) {
        if (is_mark(*p)) {
            m->missing |= *p == WIKITEXT_MISSING;
            m->blank |= blank;
            m->line |= line;
            blank = line = false;
        } else {
            blank = true;
            line |= *p == '\n';
        }
        m->blank_after = blank;
        m->line_after = line;
    }
    m->next = p;
    m->end = end;
    return p;
}

/* Whether a sentence, or a quotation or bracket at its start, can begin with this. */
static bool opens(uint32_t c)
{
    static const uint32_t openings[] = {'"', '\'', '(', '[', 0xA1, 0xAB, 0xBF, 0x2013, 0x2014, 0x2018, 0x201C, 0x201E};
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++)
        if (c == openings[i]) return true;
    return sentences_may_begin(c) && !closes_wide(c);
}

/* Letters of scripts without capitals, with which a sentence may begin or continue. */
static bool is_caseless(uint32_t c) { return c >= 0x590 && wikitext_word(c) && (c < 0x1E00 || c >= 0x2000); }

/* Whether words are missing at marks behind the mended text [begin, at), which ends without a blank. What gives no
   words, as a note, follows a word or stop without a blank, or stands alone on lines. What gives words has blanks
   around it, or a blank and punctuation, or is a part of a word. A whole item in brackets may be missing: (x; MARK). */
static bool is_gap(const Marks *m, const char *begin, const char *at, int depth)
{
    const char *p = m->next;
    bool ended = p == m->end;
    uint32_t next = ended ? 0 : utf8_decode(&p, m->end);
    if (m->missing) return true;
    if (at == begin) return !ended && !m->line_after && (!opens(next) || is_caseless(next));
    char before = at[-1];
    if (before == '(' || (depth > 0 && strchr(",;", before)))
        return ended || !strchr(",;)", next < 0x80 ? (int)next : 'x');
    if (ends_sentence(begin, at) || (before == ':' && m->line))
        return !ended && !m->line_after && (!opens(next) || (is_caseless(next) && (m->blank || !m->blank_after)));
    if (m->line && (ended || m->line_after)) return !ended && !opens(next);
    if (m->blank || !holds_note(begin, at)) return true;               /* born on {{x}}, 3.5{{x}} */
    if (before == '"' && at - begin > 1 && at[-2] == ' ') return true; /* "{{x}}" */
    return !ended && !m->blank_after && wikitext_word(next);
}

static bool is_separator(char c) { return c == ',' || c == ';' || c == ':'; }

void wikitext_mend(const Words *from, bool marks, Words *to)
{
    const unsigned char *p = (const unsigned char *)from->data, *end = p + from->len;
    char *q = to->data, *begin = q;
    int depth = 0; /* of round brackets */
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
            depth++;
            break;
        case CLOSE:
            p++;
            depth -= depth > 0;
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
            if (!marks || !is_mark((char)*p)) {
                p++;
                break;
            }
            bool blank = q > begin && q[-1] == ' ';
            Marks m = {.blank = blank, .line = blank && p[-1] == '\n'};
            p = (const unsigned char *)read_marks((const char *)p, (const char *)end, &m);
            bool gap = is_gap(&m, begin, q - blank, depth);
            if (m.blank && !blank && q > begin && q[-1] != '(') *q++ = ' ', blank = true;
            if (gap) *q++ = SENTENCE_GAP, blank = false;
            if (m.blank_after && !blank && q > begin && q[-1] != '(') *q++ = ' ';
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
