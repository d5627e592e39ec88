/* Any bytes as a vocabulary file. An accepted file must give every piece its id, and read back as written.
 */
#include <string.h>

#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char special[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    Vocab *vocab = NULL, *again = NULL;
    Buf text = {0};
    /* An odd first byte puts the special pieces in front, so that inputs get past their check. */
    if (size > 0 && data[0] & 1) buf_append(&text, special, sizeof special - 1);
    if (size > 1) buf_append(&text, data + 1, size - 1);
    if (vocab_parse("fuzz", text.data ? text.data : "", text.len, NULL, &vocab) != OK) {
        CHECK(!vocab && strstr(status_message(), "fuzz"), "message '%s'", status_message());
        buf_free(&text);
        return 0;
    }
    text.len = 0;
    for (int32_t i = 0; i < vocab_size(vocab); i++) {
        const char *piece = vocab_piece(vocab, i);
        CHECK(vocab_find(vocab, piece, strlen(piece)) == i, "piece %d is not found", (int)i);
        buf_printf(&text, "%s\n", piece);
    }
    Digest written = digest_of(text.data, text.len);
    CHECK(digest_equal(written, vocab_digest(vocab)), "the digest is not that of the file");
    CHECK(vocab_parse("again", text.data, text.len, NULL, &again) == OK, "%s", status_message());
    CHECK(vocab_size(again) == vocab_size(vocab), "%d pieces became %d", (int)vocab_size(vocab),
          (int)vocab_size(again));

    Tokenizer *t = tokenizer_new(vocab, tokenizer_options(data[0] & 2));
    TokenIds ids = {0};
    tokenizer_encode(t, text.data, text.len, &ids); /* its own pieces as text, to walk the whole trie */
    token_ids_free(&ids);
    tokenizer_free(t);
    vocab_free(vocab);
    vocab_free(again);
    buf_free(&text);
    return 0;
}
