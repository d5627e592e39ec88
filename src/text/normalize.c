#include "text/normalize.h"

#include "text/compose.h"
#include "text/parts.h"
#include "text/utf8.h"

const AddedToken special_tokens[N_SPECIAL] = {{.text = "[PAD]", .id = -1, .special = true},
                                              {.text = "[UNK]", .id = -1, .special = true},
                                              {.text = "[CLS]", .id = -1, .special = true},
                                              {.text = "[SEP]", .id = -1, .special = true},
                                              {.text = "[MASK]", .id = -1, .special = true}};

typedef struct {
    const TextRules *rules;
    const WordSink *sink;
    bool python, lower, strip;
    bool used;  /* there is something to free */
    bool keeps; /* special tokens are in the text, and not lower-cased */
    UnicodeSource source;
    unsigned dropped; /* bits of the scalars that are left out */
    Buf *normal;      /* gets the normalised text, before words are cut; NULL: words are cut at once */
    Scalars word;     /* the word so far, of text that is not all ASCII */
    unsigned seen;    /* bits of all scalars of the word */
    Scalars scratch;  /* for composing */
    Buf lowered, normalised;
    Parts parts, normalised_parts;
    char *bytes; /* a part of the word as UTF-8 */
    size_t bytes_cap;
} WordScan;

static inline unsigned bits_of(const WordScan *w, uint32_t scalar) { return unicode_record_of(w->source, scalar).bits; }

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
    if (found) w->sink->words(w->sink->context, words, found);
}

/* ---- Other text: scalar by scalar into w->word ---- */

/* Writes scalars as UTF-8. NUL, which no piece has, becomes two bytes that no piece has either: words have no NUL. */
static inline char *write_scalars(const uint32_t *part, size_t count, char *end)
{
    for (const uint32_t *stop = part + count; part < stop; part++) {
        if (*part - 1 < 0x7F) {
            *end++ = (char)*part;
        } else if (*part) {
            end += utf8_encode(*part, end);
        } else {
            *end++ = '\xC0';
            *end++ = '\x80';
        }
    }
    return end;
}

static void emit_part(WordScan *w, const uint32_t *part, size_t count)
{
    char *bytes = room_for(w, 4 * count);
    size_t len = (size_t)(write_scalars(part, count, bytes) - bytes);
    if (w->rules->whole.nodes && lookup_exactly(&w->rules->whole, bytes, len) == 1) {
        if (w->sink->token) w->sink->token(w->sink->context, bytes, len, -1);
        return;
    }
    w->sink->words(w->sink->context, &(Word){bytes, (uint32_t)len, (uint32_t)count}, 1);
}

/* Python's special tokens and words of never_split. */
static bool stays_whole(WordScan *w)
{
    const Scalars *word = &w->word;
    if (!w->rules->whole.nodes) return false;
    char *bytes = room_for(w, 4 * word->count);
    return word->count &&
           lookup_exactly(&w->rules->whole, bytes, (size_t)(write_scalars(word->v, word->count, bytes) - bytes)) >= 0;
}

static void strip_accents(WordScan *w)
{
    Scalars *word = &w->word;
    scalars_nfd(w->source, word, &w->scratch);
    size_t kept = 0;
    for (size_t i = 0; i < word->count; i++) {
        if (!(bits_of(w, word->v[i]) & UC_MARK)) word->v[kept++] = word->v[i];
    }
    word->count = kept;
}

static void lower_word(WordScan *w)
{
    Scalars word = w->word;
    w->word = w->scratch;
    w->scratch = word;
    w->word.count = 0;
    for (size_t i = 0; i < word.count; i++) {
        uint32_t lowered[2] = {word.v[i]};
        int n = bits_of(w, word.v[i]) & UC_LOWER ? unicode_lowered(word.v[i], lowered) : 1;
        for (int k = 0; k < n; k++) scalars_push(&w->word, lowered[k]);
    }
}

/* Cuts w->word around punctuation. */
static void cut_word(WordScan *w, bool whole)
{
    Scalars *word = &w->word;
    for (size_t i = 0; i < word->count;) {
        size_t start = i++;
        if (whole) {
            i = word->count;
        } else if (!(bits_of(w, word->v[start]) & UC_PUNCT)) {
            while (i < word->count && !(bits_of(w, word->v[i]) & UC_PUNCT)) i++;
        }
        emit_part(w, word->v + start, i - start);
    }
    word->count = 0;
}

static void append_scalars(Buf *out, const uint32_t *part, size_t count)
{
    char bytes[4];
    for (size_t i = 0; i < count; i++) buf_append(out, bytes, (size_t)(write_scalars(part + i, 1, bytes) - bytes));
}

static void end_word(WordScan *w)
{
    const TokenizerOptions *o = &w->rules->options;
    Scalars *word = &w->word;
    unsigned seen = w->seen;
    bool whole = !o->split_words;
    w->seen = 0;
    if (word->count == 0) return;
    if (w->python && !whole) {
        if (seen & UC_NFC) {
            scalars_nfc(word, &w->scratch);
            for (size_t i = 0; i < word->count; i++) seen |= bits_of(w, word->v[i]);
        }
        whole = stays_whole(w);
        if (!whole && w->keeps) { /* a special token in a longer word */
            lower_word(w);
            whole = stays_whole(w);
        }
    }
    if (!whole && w->strip && (seen & (UC_DECOMPOSES | UC_MARK | UC_NFC))) {
        strip_accents(w);
        whole = w->python && stays_whole(w);
    }
    if (w->normal) {
        append_scalars(w->normal, word->v, word->count);
        word->count = 0;
    } else {
        cut_word(w, whole);
    }
}

static void add_scalar(WordScan *w, uint32_t scalar, unsigned bits)
{
    static const uint32_t blank = ' ';
    if (bits & w->dropped) return;
    bool alone = w->rules->options.split_chinese && (bits & UC_CJK);
    bool space = bits & UC_WHITE;
    if (alone || space) {
        end_word(w);
        if (w->normal) append_scalars(w->normal, alone || w->dropped ? &blank : &scalar, 1);
    }
    if (space) return;
    scalars_push(&w->word, scalar);
    w->seen |= bits;
    if (!alone) return;
    end_word(w);
    if (w->normal) append_scalars(w->normal, &blank, 1);
}

/* Normalises text without tokens in it. */
static void normalise(WordScan *w, const char *p, const char *end)
{
    const TextRules *r = w->rules;
    while (p < end) {
        size_t kept = 0;
        if (w->keeps && lookup_longest(&r->raw, p, end, &kept) >= 0) {
            for (const char *stop = p + kept; p < stop;) {
                uint32_t scalar = utf8_decode(&p, stop);
                add_scalar(w, scalar, bits_of(w, scalar));
            }
            continue;
        }
        uint32_t scalar = utf8_decode(&p, end), lowered[2];
        unsigned bits = bits_of(w, scalar);
        if (w->lower && (bits & UC_LOWER)) {
            int n = unicode_lowered(scalar, lowered);
            for (int i = 0; i < n; i++) add_scalar(w, lowered[i], bits_of(w, lowered[i]));
        } else {
            add_scalar(w, scalar, bits);
        }
    }
    end_word(w);
}

/* ---- Texts ---- */

static void emit_token(WordScan *w, const AddedToken *t)
{
    if (w->sink->token) w->sink->token(w->sink->context, t->text, strlen(t->text), t->id);
}

/* Text between raw tokens, with normalised tokens in it. */
static void normalised_words(WordScan *w, const char *p, const char *end)
{
    w->normalised.len = 0;
    w->normal = &w->normalised;
    normalise(w, p, end);
    w->normal = NULL;
    if (!w->normalised.len) return;
    parts_library(w->rules, &w->rules->normal, w->normalised.data, w->normalised.data + w->normalised.len,
                  &w->normalised_parts);
    for (size_t i = 0; i < w->normalised_parts.count; i++) {
        const Part *part = &w->normalised_parts.v[i];
        if (part->token) emit_token(w, part->token);
        for (const char *at = part->start; !part->token && at < part->stop;) {
            uint32_t scalar = utf8_decode(&at, part->stop);
            bool space = bits_of(w, scalar) & UC_WHITE;
            if (!space) scalars_push(&w->word, scalar);
            if (space || at == part->stop) cut_word(w, !w->rules->options.split_words);
        }
    }
}

static void unit_words(WordScan *w, const char *p, const char *end)
{
    const TextRules *r = w->rules;
    if (p == end) return;
    w->used = true;
    if (w->python && r->options.lower_case) { /* before tokens are looked for */
        w->lowered.len = 0;
        text_lowered(&r->raw, p, end, &w->lowered);
        p = w->lowered.data;
        end = p + w->lowered.len;
    }
    const bool *begins = w->python ? r->normal.begins : r->raw.begins;
    const char *at = p;
    while (at < end && !begins[(uint8_t)*at]) at++;
    if (at == end && (w->python || !r->normal.nodes)) {
        normalise(w, p, end);
        return;
    }
    if (w->python)
        parts_python(r, p, end, &w->parts);
    else
        parts_library(r, &r->raw, p, end, &w->parts);
    for (size_t i = 0; i < w->parts.count; i++) {
        const Part *part = &w->parts.v[i];
        if (part->token)
            emit_token(w, part->token);
        else if (!w->python && r->normal.nodes)
            normalised_words(w, part->start, part->stop);
        else
            normalise(w, part->start, part->stop);
    }
}

static WordScan begin_scan(const TextRules *rules, const WordSink *sink)
{
    const TokenizerOptions *o = &rules->options;
    bool python = o->kind == TOKENIZER_PYTHON;
    return (WordScan){.rules = rules,
                      .sink = sink,
                      .python = python,
                      .lower = o->lower_case,
                      .keeps = python && o->lower_case && (o->split_special || rules->across),
                      .strip = o->strip_accents < 0 ? o->lower_case : o->strip_accents > 0,
                      .source = python ? UNICODE_PYTHON : UNICODE_LIBRARY,
                      .dropped = !o->clean_text ? 0
                                 : python       ? UC_DROP | UC_UNASSIGNED
                                                : UC_DROP};
}

static void end_scan(WordScan *w)
{
    scalars_free(&w->word);
    scalars_free(&w->scratch);
    BUF_FREE(&w->lowered, &w->normalised);
    MEM_FREE(w->parts.v, w->normalised_parts.v, w->bytes);
}

void text_normalised(const TextRules *rules, const char *text, size_t len, Buf *out)
{
    WordScan w = begin_scan(rules, NULL);
    w.normal = out;
    normalise(&w, text, text + len);
    end_scan(&w);
}

void text_words(const TextRules *rules, const char *text, size_t len, const WordSink *sink)
{
    WordScan w = begin_scan(rules, sink);
    AsciiCopy copy;
    const char *p = text, *end = text + len;
    while (p < end) {
        size_t left = (size_t)(end - p), copied = 0, whole = 0;
        if (rules->ascii) {
            whole = copied = copy_ascii(&copy, p, left, w.lower);
            if (copied < left) /* the last run may continue */
                while (whole > 0 && copy.text[whole - 1] != ' ') whole--;
            copied_words(&w, &copy, whole);
            p += whole;
            if (whole == left || (whole > 0 && copied == ASCII_PART)) continue;
        }
        const char *run = p;
        while (p < end && (rules->across || !(unicode_ascii[(uint8_t)*p] & UC_SPACE))) p++;
        unit_words(&w, run, p);
        if (p < end) p++;
    }
    if (w.used) end_scan(&w);
}
