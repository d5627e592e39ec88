/* Any bytes as a tokenizer's files: the first line as tokenizer_config.json, the rest as tokenizer.json. A tokenizer
   that is accepted must be written as files that give the same pieces and tokens, and must encode its own tokens. */
#include <string.h>

#include "base/json.h"
#include "text/tokenizer_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(const Vocab *vocab, const TokenizerConfig *config)
{
    TokenizerOptions options = tokenizer_options(config->words.lower_case != 0);
    Tokenizer *t = tokenizer_new(vocab, options);
    TokenIds ids = {0};
    int n;
    const AddedToken *added = vocab_added(vocab, &n);
    for (int i = 0; i < n; i++) tokenizer_encode(t, added[i].text, strlen(added[i].text), &ids);
    for (size_t i = 0; i < ids.count; i++)
        CHECK(ids.ids[i] >= 0 && ids.ids[i] < vocab_size(vocab), "id %d", ids.ids[i]);
    token_ids_free(&ids);
    tokenizer_free(t);
}

static void check_round_trip(const Vocab *vocab)
{
    TokenizerText texts[TOKENIZER_MAX_TEXTS];
    TokenizerOptions options = tokenizer_options(true);
    int n = tokenizer_files_write(vocab, &options, 64, texts), added;
    TokenizerJson again;
    TokenizerConfig config = tokenizer_config_new();
    Json *doc;
    vocab_added(vocab, &added);
    CHECK(js_parse(texts[1].name, texts[1].text.data, texts[1].text.len, &doc) == OK, "%s", status_message());
    CHECK(tokenizer_json_read("again", doc, true, &again) == OK, "%s", status_message());
    CHECK(again.added.n == added, "%d added tokens became %d", added, again.added.n);
    CHECK(again.pieces.len == texts[0].text.len && memcmp(again.pieces.data, texts[0].text.data, again.pieces.len) == 0,
          "other pieces");
    js_free(doc);
    CHECK(js_parse(texts[2].name, texts[2].text.data, texts[2].text.len, &doc) == OK, "%s", status_message());
    CHECK(tokenizer_config_read("again", doc, false, &config) == OK, "%s", status_message());
    CHECK(config.added.n == added, "%d added tokens became %d", added, config.added.n);
    js_free(doc);
    tokenizer_json_free(&again);
    tokenizer_config_free(&config);
    for (int i = 0; i < n; i++) buf_free(&texts[i].text);
}

static void try_both(const Json *config_doc, const Json *json_doc)
{
    TokenizerConfig config = tokenizer_config_new();
    TokenizerJson json = {0};
    Vocab *vocab = NULL;
    if (tokenizer_config_read("config", config_doc, false, &config) != OK) {
        CHECK(strstr(status_message(), "config"), "message '%s'", status_message());
    } else if (tokenizer_json_read("json", json_doc, config.class == CLASS_GENERAL, &json) != OK) {
        CHECK(strstr(status_message(), "json"), "message '%s'", status_message());
    } else if (vocab_parse("json", json.pieces.data ? json.pieces.data : "", json.pieces.len, NULL, &vocab) == OK &&
               (json.added.n == 0 || vocab_set_added(vocab, json.added.tokens, json.added.n) == OK)) {
        encode(vocab, &config);
        check_round_trip(vocab);
    }
    vocab_free(vocab);
    tokenizer_json_free(&json);
    tokenizer_config_free(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = memchr(data, '\n', size);
    size_t first = end ? (size_t)(end - text) : size;
    Json *config = NULL, *json = NULL;
    if (js_parse("config", text, first, &config) == OK && end &&
        js_parse("json", end + 1, size - first - 1, &json) == OK)
        try_both(config, json);
    js_free(config);
    js_free(json);
    return 0;
}
