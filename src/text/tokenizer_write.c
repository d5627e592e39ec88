/* The tokenizer as files: vocab.txt, tokenizer.json, tokenizer_config.json, special_tokens_map.json. The texts are
   those that Transformers writes, with sorted keys in tokenizer_config.json. */

#include "text/normalize.h"
#include "text/tokenizer_files.h"
#include "text/vocab.h"

static const char *truth(bool value) { return value ? "true" : "false"; }

static const char *strip_word(int strip) { return strip < 0 ? "null" : truth(strip); }

/* A member whose value is no text. */
static void member(Buf *b, const char *key, const char *value)
{
    buf_key(b, key);
    buf_puts(b, value);
}

static void write_flags(const AddedToken *t, Buf *b)
{
    buf_member_text(b, "content", t->text);
    member(b, "single_word", truth(t->single_word));
    member(b, "lstrip", truth(t->lstrip));
    member(b, "rstrip", truth(t->rstrip));
    member(b, "normalized", truth(t->normalized));
    member(b, "special", truth(t->special));
    buf_puts(b, "}");
}

/* ---- tokenizer.json ---- */

#define PART(kind, id, type) "{\"" kind "\": {\"id\": \"" id "\", \"type_id\": " type "}}"
#define SINGLE                                                                                                         \
    PART("SpecialToken", "[CLS]", "0") ", " PART("Sequence", "A", "0") ", " PART("SpecialToken", "[SEP]", "0")
#define SECOND       PART("Sequence", "B", "1") ", " PART("SpecialToken", "[SEP]", "1")
#define PIECE(piece) "\"" piece "\": {\"id\": \"" piece "\", \"ids\": [%d], \"tokens\": [\"" piece "\"]}"

static void write_json(const Vocab *vocab, const TokenizerOptions *o, Buf *b)
{
    int n;
    const AddedToken *added = vocab_added(vocab, &n);
    buf_puts(b, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [");
    for (int i = 0; i < n; i++) {
        buf_printf(b, "%s{\"id\": %d", i ? ", " : "", (int)added[i].id);
        write_flags(&added[i], b);
    }
    buf_printf(b,
               "], \"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": %s, \"handle_chinese_chars\": %s, "
               "\"strip_accents\": %s, \"lowercase\": %s}, \"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, ",
               truth(o->clean_text), truth(o->split_chinese), strip_word(o->strip_accents), truth(o->lower_case));
    buf_printf(b,
               "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [" SINGLE "], \"pair\": [" SINGLE
               ", " SECOND "], \"special_tokens\": {" PIECE("[CLS]") ", " PIECE("[SEP]") "}}, ",
               (int)vocab_special(vocab).cls, (int)vocab_special(vocab).sep);
    buf_printf(b,
               "\"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}, \"model\": {\"type\": "
               "\"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\", "
               "\"max_input_chars_per_word\": %d, \"vocab\": {",
               WORD_MAX);
    buf_puts(b, "}}}");
}

/* Puts the pieces into the last member of a tokenizer.json that is laid out. They take megabytes when they are parsed.
 */
static void add_pieces(const Vocab *vocab, Buf *text)
{
    static const char end[] = "}\n  }\n}";
    text->len -= strlen(end);
    for (int32_t i = 0; i < vocab_pieces(vocab); i++) {
        buf_puts(text, i ? ",\n      " : "\n      ");
        buf_json(text, vocab_piece(vocab, i));
        buf_printf(text, ": %d", (int)i);
    }
    buf_printf(text, "\n    %s", end);
}

/* ---- tokenizer_config.json ---- */

/* A special token other than BERT's own five. */
static bool is_more(const AddedToken *t, SpecialIds own)
{
    return t->special && t->id != own.pad && t->id != own.unk && t->id != own.cls && t->id != own.sep &&
           t->id != own.mask;
}

/* additional_special_tokens, which Transformers 4 and 5 both read. */
static void write_special_list(const Vocab *vocab, Buf *b)
{
    bool open = false;
    int n;
    const AddedToken *added = vocab_added(vocab, &n);
    for (int i = 0; i < n; i++) {
        if (!is_more(&added[i], vocab_special(vocab))) continue;
        if (open)
            buf_puts(b, ", ");
        else
            member(b, "additional_special_tokens", "[");
        buf_json(b, added[i].text);
        open = true;
    }
    if (open) buf_puts(b, "]");
}

static void write_never_split(const Vocab *vocab, Buf *b)
{
    if (vocab->n_never_split == 0) return;
    member(b, "never_split", "[");
    for (int i = 0; i < vocab->n_never_split; i++) {
        buf_puts(b, i ? ", " : "");
        buf_json(b, vocab->never_split[i]);
    }
    buf_puts(b, "]");
}

static void write_config(const Vocab *vocab, const TokenizerOptions *o, int64_t max_length, Buf *b)
{
    int n;
    const AddedToken *added = vocab_added(vocab, &n);
    buf_puts(b, "{\"added_tokens_decoder\": {");
    for (int i = 0; i < n; i++) {
        buf_printf(b, "%s\"%d\": {", i ? ", " : "", (int)added[i].id);
        write_flags(&added[i], b);
    }
    buf_puts(b, "}");
    write_special_list(vocab, b);
    buf_member_text(b, "cls_token", "[CLS]");
    if (!o->split_words) member(b, "do_basic_tokenize", "false");
    member(b, "do_lower_case", truth(o->lower_case));
    buf_member_text(b, "mask_token", "[MASK]");
    if (o->one_type) member(b, "model_input_names", "[\"input_ids\", \"attention_mask\"]");
    buf_printf(b, ", \"model_max_length\": %lld", (long long)max_length);
    write_never_split(vocab, b);
    buf_member_text(b, "pad_token", "[PAD]");
    buf_member_text(b, "sep_token", "[SEP]");
    if (o->split_special) member(b, "split_special_tokens", "true");
    member(b, "strip_accents", strip_word(o->strip_accents));
    member(b, "tokenize_chinese_chars", truth(o->split_chinese));
    /* Transformers' BertTokenizer always cleans; the general class takes tokenizer.json's word. */
    buf_member_text(b, "tokenizer_class", o->clean_text ? "BertTokenizer" : "PreTrainedTokenizerFast");
    buf_member_text(b, "unk_token", "[UNK]");
    if (o->kind == TOKENIZER_PYTHON) member(b, "use_fast", "false");
    buf_puts(b, "}");
}

static void write_map(const Vocab *vocab, Buf *b)
{
    buf_puts(b, "{");
    write_special_list(vocab, b);
    buf_member_text(b, "cls_token", "[CLS]");
    buf_member_text(b, "mask_token", "[MASK]");
    buf_member_text(b, "pad_token", "[PAD]");
    buf_member_text(b, "sep_token", "[SEP]");
    buf_member_text(b, "unk_token", "[UNK]");
    buf_puts(b, "}");
}

/* ---- the files ---- */

static TokenizerText lay_out(const char *name, Buf *json, const char *end)
{
    TokenizerText text = {.name = name};
    Json *doc;
    CHECK(js_parse(name, json->data, json->len, &doc) == OK, "%s", status_message());
    js_put_indented(&text.text, doc, 0, false);
    buf_puts(&text.text, end);
    js_free(doc);
    json->len = 0;
    return text;
}

int tokenizer_files_write(const Vocab *vocab, const TokenizerOptions *options, int64_t max_length,
                          TokenizerText texts[TOKENIZER_MAX_TEXTS])
{
    int n = 0;
    Buf json = {0};
    memset(texts, 0, TOKENIZER_MAX_TEXTS * sizeof *texts);
    vocab_lines(vocab, &texts[n].text);
    texts[n++].name = "vocab.txt";
    if (options->kind == TOKENIZER_FAST) {
        write_json(vocab, options, &json);
        texts[n] = lay_out("tokenizer.json", &json, ""); /* the library writes no last line end */
        add_pieces(vocab, &texts[n++].text);
    }
    write_config(vocab, options, max_length, &json);
    texts[n++] = lay_out("tokenizer_config.json", &json, "\n");
    write_map(vocab, &json);
    texts[n++] = lay_out("special_tokens_map.json", &json, "\n");
    buf_free(&json);
    return n;
}
