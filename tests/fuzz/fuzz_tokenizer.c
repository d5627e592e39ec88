/* Any bytes as text. The first byte chooses the options, and one more byte if its highest bit is set. Properties: every
   id is in the vocabulary; bytes that are not UTF-8 count as U+FFFD; cutting the text at a space changes nothing,
   unless an added token has one; a pair fits. */
#include <string.h>

#include "text/text.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char pieces[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n##a\n##b\n##c\nab\n##bc\nabc\nA\nB\n##A\n.\n,\n[\n]\n=\n"
    "e\n##e\n\xC3\xA9\n##\xC3\xA9\n\xE4\xB8\xAD\n##\xE4\xB8\xAD\n\xCF\x83\n##\xCF\x83\ni\n##i\nCLS\n"
    "\xEA\xB0\x80\n\xE1\x84\x80\n##\xE1\x85\xA1\nUNK\nSEP\nPAD\nMASK\n\xE2\x89\xA0\n";

static void same(const TokenIds *a, const TokenIds *b, const char *what)
{
    CHECK(a->count == b->count && (a->count == 0 || memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0), "%s",
          what);
}

static void make_vocabs(Vocab *vocabs[3])
{
    static const char *const never[] = {"a.b", "i"};
    AddedToken added[] = {{"ab.", 0, .special = true},
                          {"<e>", 0, .normalized = true, .rstrip = true},
                          {"\xC3\x89=", 0, .normalized = true, .lstrip = true},
                          {"[a", 0, .special = true, .normalized = true},
                          {"\xCC\x81", 0, .normalized = true},
                          {"a b", 0, .single_word = true},
                          {"\xE4\xB8\xAD", 0, .normalized = true, .single_word = true, .lstrip = true, .rstrip = true},
                          {"c", 0, .special = true, .single_word = true}};
    for (int i = 0; i < 3; i++) {
        CHECK(vocab_parse("built-in", pieces, sizeof pieces - 1, NULL, &vocabs[i]) == OK, "%s", status_message());
        int32_t n = i == 0 ? 0 : i == 1 ? 5 : 8, next = vocab_size(vocabs[i]);
        for (int k = 0; k < n; k++) {
            int32_t piece = vocab_find(vocabs[i], added[k].text, strlen(added[k].text));
            added[k].id = piece < 0 ? next++ : piece;
        }
        CHECK(vocab_set_added(vocabs[i], added, n) == OK, "%s", status_message());
        if (i) CHECK(vocab_set_never_split(vocabs[i], never, 2) == OK, "%s", status_message());
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Vocab *vocabs[3]; /* without added tokens, with some, with spaces in some */
    if (!vocabs[0]) make_vocabs(vocabs);
    if (size == 0) return 0;
    uint8_t choice = data[0], more = 0;
    if (choice >> 7 && size > 1) {
        more = data[1];
        data++;
        size--;
    }
    const Vocab *vocab = vocabs[(more >> 2) % 3];
    TokenizerOptions options = tokenizer_options(choice & 1);
    options.strip_accents = (choice >> 1) % 3 - 1;
    options.split_chinese = choice >> 4 & 1;
    options.split_special = choice >> 5 & 1;
    options.kind = choice >> 6 & 1 ? TOKENIZER_PYTHON : TOKENIZER_FAST;
    options.clean_text = !(more & 1);
    options.split_words = !(more & 2);
    Tokenizer *t = tokenizer_new(vocab, options);
    const char *text = (const char *)data + 1, *end = (const char *)data + size;
    size_t len = size - 1;
    TokenIds ids = {0}, again = {0};
    tokenizer_encode(t, text, len, &ids);
    for (size_t i = 0; i < ids.count; i++) {
        CHECK(ids.ids[i] >= 0 && ids.ids[i] < vocab_size(vocab), "id %d", (int)ids.ids[i]);
    }

    Buf repaired = {0};
    for (const char *p = text; p < end;) {
        char one[4];
        uint32_t scalar = utf8_decode(&p, end);
        buf_append(&repaired, one, (size_t)utf8_encode(scalar, one));
    }
    CHECK(text_utf8_error(repaired.data ? repaired.data : "", repaired.len) < 0, "repaired text is not UTF-8");
    tokenizer_encode(t, repaired.data ? repaired.data : "", repaired.len, &again);
    same(&ids, &again, "bytes that are not UTF-8 are not left out");

    again.count = 0;
    const char *space = len && vocab != vocabs[2] ? memchr(text, ' ', len) : NULL;
    if (space) {
        tokenizer_encode(t, text, (size_t)(space - text), &again);
        tokenizer_encode(t, space, (size_t)(end - space), &again);
        same(&ids, &again, "a text cut at a space differs");
    }

    int32_t framed[64];
    uint8_t types[64];
    int max = 3 + choice % 62, n = tokenizer_pair(t, &ids, &again, max < 64 ? max : 64, framed, types);
    CHECK(n >= 3 && n <= max && framed[n - 1] == vocab_special(vocab).sep, "a pair of %d", n);
    buf_free(&repaired);
    token_ids_free(&ids);
    token_ids_free(&again);
    tokenizer_free(t);
    return 0;
}
