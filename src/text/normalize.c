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
    WordFn *each;
    void *context;
    Scalars word;    /* the word so far, of text that is not all ASCII */
    unsigned seen;   /* bits of all scalars of the word */
    Scalars scratch; /* for composing */
    char *bytes;     /* a part of the word as UTF-8 */
    size_t bytes_cap;
} WordScan;

static char *room_for(WordScan *w, size_t bytes)
{
    if (bytes > w->bytes_cap) {
        w->bytes_cap = bytes + bytes / 2;
        w->bytes = mem_resize(w->bytes, w->bytes_cap, 1);
    }
    return w->bytes;
}

/* ---- ASCII: a run without white space, control characters and '[' ---- */

static void ascii_run(WordScan *w, const char *p, const char *end)
{
    char small[128];
    while (p < end) {
        const char *part = p;
        if (unicode_ascii[(uint8_t)*p++] & UC_PUNCT) {
            w->each(w->context, part, 1, 1);
            continue;
        }
        while (p < end && !(unicode_ascii[(uint8_t)*p] & UC_PUNCT)) p++;
        size_t len = (size_t)(p - part);
        if (w->lower) {
            char *lowered = len <= sizeof small ? small : room_for(w, len);
            for (size_t i = 0; i < len; i++) {
                uint8_t c = (uint8_t)part[i];
                lowered[i] = (char)(c | (c >= 'A' && c <= 'Z' ? 0x20 : 0));
            }
            part = lowered;
        }
        w->each(w->context, part, len, len);
    }
}

/* ---- Other text: scalar by scalar into w->word ---- */

static void emit_part(WordScan *w, const uint32_t *part, size_t count)
{
    char *bytes = room_for(w, 4 * count), *end = bytes;
    for (size_t i = 0; i < count; i++) end += utf8_encode(part[i], end);
    w->each(w->context, bytes, (size_t)(end - bytes), count);
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

/* ---- Runs between ASCII white space ---- */

/* Cuts the run at special pieces, unless they count as text. */
static void mixed_run(WordScan *w, const char *p, const char *end)
{
    while (p < end) {
        const char *chunk = p;
        unsigned seen = 0;
        int special = -1;
        for (; p < end; p++) {
            unsigned bits = unicode_ascii[(uint8_t)*p];
            if ((bits & UC_BRACKET) && (special = special_at(p, (size_t)(end - p))) >= 0 && w->special) break;
            if (special >= 0) seen |= UC_BEYOND;
            seen |= bits;
        }
        if (seen & (UC_DROP | UC_BEYOND))
            any_run(w, chunk, p);
        else
            ascii_run(w, chunk, p);
        if (p < end) {
            w->each(w->context, p, special_pieces[special].len, special_pieces[special].len);
            p += special_pieces[special].len;
        }
    }
}

void text_words(const TokenizerOptions *options, const char *text, size_t len, WordFn *each, void *context)
{
    WordScan w = {.lower = options->lower_case,
                  .strip = options->strip_accents < 0 ? options->lower_case : options->strip_accents > 0,
                  .chinese = options->split_chinese,
                  .special = !options->split_special,
                  .each = each,
                  .context = context};
    const char *p = text, *end = text + len;
    while (p < end) {
        const char *run = p;
        unsigned bits = 0, seen = 0;
        while (p < end && !((bits = unicode_ascii[(uint8_t)*p]) & UC_SPACE)) {
            seen |= bits;
            p++;
        }
        if (seen & (UC_DROP | UC_BEYOND | UC_BRACKET))
            mixed_run(&w, run, p);
        else
            ascii_run(&w, run, p);
        if (p < end) p++;
    }
    scalars_free(&w.word);
    scalars_free(&w.scratch);
    free(w.bytes);
}
