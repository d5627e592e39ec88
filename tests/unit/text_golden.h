/* Digests of tokens, and the lines of tests/golden/tokenizer.txt that they are compared with. */
#pragma once

#include "testing.h"

#include "text/normalize.h"
#include "text/text.h"
#include "text/utf8.h"

#define GOLDEN "tests/golden/tokenizer.txt"

static inline TokenizerOptions options_of(const char *letters)
{
    return (TokenizerOptions){.kind = strchr(letters, 'f') ? TOKENIZER_FAST : TOKENIZER_PYTHON,
                              .lower_case = strchr(letters, 'l') != NULL,
                              .strip_accents = strchr(letters, 'a')   ? 1
                                               : strchr(letters, 'A') ? 0
                                                                      : -1,
                              .split_chinese = strchr(letters, 'i') == NULL,
                              .split_special = strchr(letters, 's') != NULL,
                              .clean_text = strchr(letters, 'c') == NULL,
                              .split_words = strchr(letters, 'w') == NULL};
}

typedef struct {
    TextRules rules;
    Tokenizer *tokenizer; /* NULL: words, not ids */
    TokenIds ids;
    Buf out;
} Digester;

static inline void add_token(void *context, const char *text, size_t len, int32_t id)
{
    (void)id;
    buf_append(context, text, len);
    buf_append(context, " ", 1);
}

static inline void add_words(void *context, const Word *words, size_t n)
{
    Buf *out = context;
    for (const Word *w = words; w < words + n; w++) {
        uint32_t counted = 0;
        for (uint32_t i = 0; i < w->len; i++) counted += (w->text[i] & 0xC0) != 0x80;
        if (counted != w->chars)
            fail_msg("\"%.*s\" was given with %u characters", (int)w->len, w->text, (unsigned)w->chars);
        buf_append(out, w->text, w->len);
        buf_append(out, " ", 1);
    }
}

static inline void add_text(Digester *d, const char *text, size_t len)
{
    if (!d->tokenizer) {
        text_words(&d->rules, text, len, &(WordSink){&d->out, add_words, add_token});
        buf_append(&d->out, "\n", 1);
        return;
    }
    static const int32_t end = -1;
    d->ids.count = 0;
    tokenizer_encode(d->tokenizer, text, len, &d->ids);
    if (d->ids.count) buf_append(&d->out, d->ids.ids, d->ids.count * sizeof end);
    buf_append(&d->out, &end, sizeof end);
}

static inline uint32_t below(uint64_t *random, size_t n) { return (uint32_t)((testing_random(random) >> 33) % n); }

typedef struct {
    char kind[16], what[200], options[8], digest[17];
} Line;

/* Reads the line at *at and moves past it. False at the end. */
static inline bool next_line(const char **at, Line *line)
{
    for (;;) {
        const char *p = *at, *end = strchr(p, '\n');
        if (!end) return false;
        *at = end + 1;
        if (*p == '#') continue;
        if (sscanf(p, "%15s %199s %7s %16s", line->kind, line->what, line->options, line->digest) != 4) {
            fail_msg("%s: not a line of four words: %.*s", GOLDEN, (int)(end - p), p);
        }
        return true;
    }
}

static int checked, differing;

static inline void compare(Digester *d, const Line *line)
{
    char digest[33];
    digest_format(digest_of(d->out.data, d->out.len), digest);
    checked++;
    if (strncmp(digest, line->digest, 16) != 0) {
        differing++;
        print_error("%s %s, options %s: expected %s, found %.16s\n", line->kind, line->what, line->options,
                    line->digest, digest);
    }
    d->out.len = 0;
}

static inline void read_golden(Buf *golden)
{
    assert_ok(file_read(GOLDEN, (size_t)1 << 24, golden));
    checked = differing = 0;
}

static inline void free_digester(Digester *d)
{
    token_ids_free(&d->ids);
    buf_free(&d->out);
    text_rules_free(&d->rules);
}
