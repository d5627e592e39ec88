#include "text/normalize.h"

#include <stdlib.h>
#include <string.h>

#include "text/compose.h"
#include "text/unicode_tables.h"
#include "text/utf8.h"

const SpecialPiece special_pieces[N_SPECIAL] = {{"[PAD]", 5}, {"[UNK]", 5}, {"[CLS]", 5}, {"[SEP]", 5}, {"[MASK]", 6}};

/* Index of the special piece that `text` begins with, or −1. */
static int special_at(const char *text, size_t len)
{
    for (int i = 0; i < N_SPECIAL; i++) {
        const SpecialPiece *s = &special_pieces[i];
        if (len >= s->len && memcmp(text, s->text, s->len) == 0) return i;
    }
    return -1;
}

typedef struct {
    bool lower, strip, chinese, special; /* special: cut at special pieces */
    WordsFn *each;
    void *context;
    Scalars word;    /* the word so far, of text that is not all ASCII */
    unsigned seen;   /* bits of all scalars of the word */
    Scalars scratch; /* for composing */
    char *bytes;     /* a part of the word as UTF-8 */
    size_t bytes_cap;
} WordScan;

static char *room_for(WordScan *w, size_t bytes)
{
    if (bytes + WORD_READABLE > w->bytes_cap) {
        w->bytes_cap = bytes + bytes / 2 + WORD_READABLE;
        w->bytes = mem_resize(w->bytes, w->bytes_cap, 1);
    }
    return w->bytes;
}

/* ---- ASCII: text without '[' and control characters, blanks as its only white space ---- */

#define LANES      16
#define ASCII_PART ((size_t)1024)
typedef int8_t Lanes __attribute__((vector_size(LANES))); /* signed: what is not ASCII is below 0 */

/* A copy of such text, lower-cased where asked for; a bit for each letter or digit, and for the first byte of a word.
 */
typedef struct {
    char text[ASCII_PART + WORD_READABLE];
    uint16_t letters[ASCII_PART / LANES + 4], starts[ASCII_PART / LANES + 4];
} AsciiCopy;

/* Bit i is that of lane i, all of whose bits are equal. */
static inline unsigned lane_bits(Lanes mask)
{
    const uint64_t each = UINT64_C(0x8040201008040201), sum = UINT64_C(0x0101010101010101);
    uint64_t half[2];
    memcpy(half, &mask, sizeof half);
    return (unsigned)((half[0] & each) * sum >> 56 | (half[1] & each) * sum >> 56 << 8);
}

/* Copies up to ASCII_PART bytes, LANES at a time, and returns how many: up to the first LANES with a byte of other
   text. Blanks follow the copy. */
static size_t copy_ascii(AsciiCopy *copy, const char *p, size_t len, bool lower)
{
    const Lanes blanks = (Lanes){0} + ' ', lowering = (Lanes){0} + (int8_t)(lower ? 'a' - 'A' : 0);
    size_t n = 0;
    unsigned before = 0;
    for (; n < len && n < ASCII_PART; n += LANES) {
        Lanes x = blanks;
        uint64_t other[2];
        if (len - n >= LANES)
            memcpy(&x, p + n, LANES);
        else
            memcpy(&x, p + n, len - n);
        Lanes stops = (x < ' ') | (x == '[') | (x == 0x7f);
        memcpy(other, &stops, sizeof other);
        if (other[0] | other[1]) break;
        Lanes upper = (x >= 'A') & (x <= 'Z'), small = x | ' ';
        Lanes letter = ((small >= 'a') & (small <= 'z')) | ((x >= '0') & (x <= '9'));
        unsigned letters = lane_bits(letter), others = lane_bits(~letter & (x != ' '));
        x |= upper & lowering;
        memcpy(copy->text + n, &x, LANES);
        copy->letters[n / LANES] = (uint16_t)letters;
        copy->starts[n / LANES] = (uint16_t)((letters & ~(letters << 1 | before)) | others);
        before = letters >> (LANES - 1);
    }
    memcpy(copy->text + n, &blanks, LANES);
    memset(copy->letters + n / LANES, 0, 8);
    memset(copy->starts + n / LANES, 0, 8);
    return n < len ? n : len;
}

/* The words of the first `n` bytes of the copy, which end at a blank. */
static void copied_words(const WordScan *w, const AsciiCopy *copy, size_t n)
{
    Word words[ASCII_PART];
    size_t found = 0;
    for (size_t block = 0; block < n; block += 64) {
        uint64_t starts, letters;
        memcpy(&starts, copy->starts + block / LANES, sizeof starts);
        if (n - block < 64) starts &= (UINT64_C(1) << (n - block)) - 1;
        for (; starts; starts &= starts - 1) {
            size_t at = block + (size_t)__builtin_ctzll(starts);
            memcpy(&letters, (const char *)copy->letters + at / 8, sizeof letters);
            letters >>= at % 8; /* 57 bits at least */
            unsigned len = letters == UINT64_MAX ? 64 : (unsigned)__builtin_ctzll(~letters);
            if (len >= 57)
                while (!(unicode_ascii[(uint8_t)copy->text[at + len]] & (UC_PUNCT | UC_SPACE))) len++;
            len += !len; /* punctuation */
            words[found++] = (Word){copy->text + at, len, len};
        }
    }
    if (found) w->each(w->context, words, found);
}

/* ---- Other text: scalar by scalar into w->word ---- */

static void emit_part(WordScan *w, const uint32_t *part, size_t count)
{
    char *bytes = room_for(w, 4 * count), *end = bytes;
    for (size_t i = 0; i < count; i++) end += utf8_encode(part[i], end);
    w->each(w->context, &(Word){bytes, (uint32_t)(end - bytes), (uint32_t)count}, 1);
}

static bool word_is_special(const Scalars *word)
{
    char ascii[8];
    if (word->count < 5 || word->count > 6 || word->v[0] != '[') return false;
    for (size_t i = 0; i < word->count; i++) ascii[i] = word->v[i] < 0x80 ? (char)word->v[i] : 0;
    int i = special_at(ascii, word->count);
    return i >= 0 && special_pieces[i].len == word->count;
}

static void strip_accents(WordScan *w)
{
    Scalars *word = &w->word;
    scalars_nfd(word, &w->scratch);
    size_t kept = 0;
    for (size_t i = 0; i < word->count; i++) {
        if (!(unicode_record(word->v[i]).bits & UC_MARK)) word->v[kept++] = word->v[i];
    }
    word->count = kept;
}

static void end_word(WordScan *w)
{
    Scalars *word = &w->word;
    unsigned seen = w->seen;
    w->seen = 0;
    if (word->count == 0) return;
    if (seen & UC_NFC) {
        scalars_nfc(word, &w->scratch);
        for (size_t i = 0; i < word->count; i++) seen |= unicode_record(word->v[i]).bits;
    }
    if (!word_is_special(word)) {
        if (w->lower && !w->special) { /* a special piece within a longer word counts as text */
            for (size_t i = 0; i < word->count; i++) {
                if (word->v[i] >= 'A' && word->v[i] <= 'Z') word->v[i] |= 0x20;
            }
        }
        if (w->strip && (seen & (UC_DECOMPOSES | UC_MARK))) strip_accents(w);
    }
    bool whole = word_is_special(word); /* stripped accents may have made it one */
    for (size_t i = 0; i < word->count;) {
        size_t start = i++;
        if (whole) {
            i = word->count;
        } else if (!(unicode_record(word->v[start]).bits & UC_PUNCT)) {
            while (i < word->count && !(unicode_record(word->v[i]).bits & UC_PUNCT)) i++;
        }
        emit_part(w, word->v + start, i - start);
    }
    word->count = 0;
}

static void add_scalar(WordScan *w, uint32_t scalar)
{
    unsigned bits = unicode_record(scalar).bits;
    if (bits & UC_DROP) return;
    bool alone = w->chinese && (bits & UC_CJK);
    if (alone || (bits & UC_SPACE)) end_word(w);
    if (bits & UC_SPACE) return;
    scalars_push(&w->word, scalar);
    w->seen |= bits;
    if (alone) end_word(w);
}

/* A run without ASCII white space. Special pieces in it are not lower-cased, and not cut out. */
static void any_run(WordScan *w, const char *p, const char *end)
{
    while (p < end) {
        int special = *p == '[' ? special_at(p, (size_t)(end - p)) : -1;
        if (special >= 0) {
            for (size_t i = 0; i < special_pieces[special].len; i++) add_scalar(w, (uint8_t)*p++);
            continue;
        }
        uint32_t scalar = utf8_decode(&p, end), lowered[2];
        if (w->lower && (unicode_record(scalar).bits & UC_LOWER)) {
            int n = unicode_lowered(scalar, lowered);
            for (int i = 0; i < n; i++) add_scalar(w, lowered[i]);
        } else {
            add_scalar(w, scalar);
        }
    }
    end_word(w);
}

/* ---- Texts ---- */

/* A run between ASCII white space. Cuts it at special pieces, unless they count as text. */
static void run_words(WordScan *w, const char *p, const char *end)
{
    while (p < end) {
        const char *chunk = p;
        int special = -1;
        for (; p < end; p++)
            if (*p == '[' && w->special && (special = special_at(p, (size_t)(end - p))) >= 0) break;
        any_run(w, chunk, p);
        if (special >= 0) {
            const SpecialPiece *s = &special_pieces[special];
            w->each(w->context, &(Word){s->text, (uint32_t)s->len, (uint32_t)s->len}, 1);
            p += s->len;
        }
    }
}

void text_words(const TokenizerOptions *options, const char *text, size_t len, WordsFn *each, void *context)
{
    WordScan w = {.lower = options->lower_case,
                  .strip = options->strip_accents < 0 ? options->lower_case : options->strip_accents > 0,
                  .chinese = options->split_chinese,
                  .special = !options->split_special,
                  .each = each,
                  .context = context};
    AsciiCopy copy;
    const char *p = text, *end = text + len;
    while (p < end) {
        size_t left = (size_t)(end - p), copied = copy_ascii(&copy, p, left, w.lower), whole = copied;
        if (copied < left) /* the last run may continue */
            while (whole > 0 && copy.text[whole - 1] != ' ') whole--;
        copied_words(&w, &copy, whole);
        p += whole;
        if (whole == left || (whole > 0 && copied == ASCII_PART)) continue;
        const char *run = p;
        while (p < end && !(unicode_ascii[(uint8_t)*p] & UC_SPACE)) p++;
        run_words(&w, run, p);
        if (p < end) p++;
    }
    scalars_free(&w.word);
    scalars_free(&w.scratch);
    free(w.bytes);
}
