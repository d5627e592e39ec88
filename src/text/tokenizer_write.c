/* The tokenizer as files: vocab.txt, tokenizer.json, tokenizer_config.json, special_tokens_map.json. The texts are
   those that Transformers writes, with sorted keys in tokenizer_config.json. */
#include <stdio.h>
#include <string.h>

#include "text/normalize.h"
#include "text/tokenizer_files.h"
#include "text/vocab.h"

/* ---- JSON ---- */

static const char *truth(bool value) { return value ? "true" : "false"; }

static const char *strip_word(int strip) { return strip < 0 ? "null" : truth(strip); }

/* Begins a member of an object whose brace is open: a comma, a new line, its key. */
static void open_member(Buf *b, int depth, const char *key)
{
    bool first = b->len && (b->data[b->len - 1] == '{' || b->data[b->len - 1] == '[');
    buf_printf(b, "%s\n%*s", first ? "" : ",", 2 * depth, "");
    if (!key) return;
    buf_json(b, key);
    buf_puts(b, ": ");
}

static void member(Buf *b, int depth, const char *key, const char *value)
{
    open_member(b, depth, key);
    buf_puts(b, value);
}

static void text_member(Buf *b, int depth, const char *key, const char *value)
{
    open_member(b, depth, key);
    buf_json(b, value);
}

static void number_member(Buf *b, int depth, const char *key, int64_t value)
{
    open_member(b, depth, key);
    buf_printf(b, "%lld", (long long)value);
}

static void open_value(Buf *b, int depth, const char *key, const char *bracket)
{
    open_member(b, depth, key);
    buf_puts(b, bracket);
}

static void close_value(Buf *b, int depth, const char *bracket) { buf_printf(b, "\n%*s%s", 2 * depth, "", bracket); }

static void write_pieces(const Vocab *vocab, Buf *out)
{
    for (int32_t i = 0; i < vocab_pieces(vocab); i++) {
        buf_puts(out, vocab_piece(vocab, i));
        buf_puts(out, "\n");
    }
}

/* ---- tokenizer.json ---- */

static void write_flags(const AddedToken *t, int depth, Buf *b)
{
    text_member(b, depth, "content", t->text);
    member(b, depth, "single_word", truth(t->single_word));
    member(b, depth, "lstrip", truth(t->lstrip));
    member(b, depth, "rstrip", truth(t->rstrip));
    member(b, depth, "normalized", truth(t->normalized));
    member(b, depth, "special", truth(t->special));
}

static void write_added(const Vocab *vocab, Buf *b)
{
    int n;
    const AddedToken *added = vocab_added(vocab, &n);
    open_value(b, 1, "added_tokens", "[");
    for (int i = 0; i < n; i++) {
        open_value(b, 2, NULL, "{");
        number_member(b, 3, "id", added[i].id);
        write_flags(&added[i], 3, b);
        close_value(b, 2, "}");
    }
    close_value(b, 1, "]");
}

static void write_part(Buf *b, const char *kind, const char *id, int type)
{
    open_value(b, 3, NULL, "{");
    open_value(b, 4, kind, "{");
    text_member(b, 5, "id", id);
    number_member(b, 5, "type_id", type);
    close_value(b, 4, "}");
    close_value(b, 3, "}");
}

static void write_template(Buf *b, const char *key, bool pair)
{
    open_value(b, 2, key, "[");
    write_part(b, "SpecialToken", "[CLS]", 0);
    write_part(b, "Sequence", "A", 0);
    write_part(b, "SpecialToken", "[SEP]", 0);
    if (pair) write_part(b, "Sequence", "B", 1);
    if (pair) write_part(b, "SpecialToken", "[SEP]", 1);
    close_value(b, 2, "]");
}

static void write_special_id(Buf *b, const char *piece, int32_t id)
{
    open_value(b, 3, piece, "{");
    text_member(b, 4, "id", piece);
    open_value(b, 4, "ids", "[");
    number_member(b, 5, NULL, id);
    close_value(b, 4, "]");
    open_value(b, 4, "tokens", "[");
    text_member(b, 5, NULL, piece);
    close_value(b, 4, "]");
    close_value(b, 3, "}");
}

static void write_frame(const Vocab *vocab, Buf *b)
{
    SpecialIds ids = vocab_special(vocab);
    open_value(b, 1, "post_processor", "{");
    text_member(b, 2, "type", "TemplateProcessing");
    write_template(b, "single", false);
    write_template(b, "pair", true);
    open_value(b, 2, "special_tokens", "{");
    write_special_id(b, "[CLS]", ids.cls);
    write_special_id(b, "[SEP]", ids.sep);
    close_value(b, 2, "}");
    close_value(b, 1, "}");
}

static void write_json(const Vocab *vocab, const TokenizerOptions *o, Buf *b)
{
    buf_puts(b, "{");
    text_member(b, 1, "version", "1.0");
    member(b, 1, "truncation", "null");
    member(b, 1, "padding", "null");
    write_added(vocab, b);
    open_value(b, 1, "normalizer", "{");
    text_member(b, 2, "type", "BertNormalizer");
    member(b, 2, "clean_text", truth(o->clean_text));
    member(b, 2, "handle_chinese_chars", truth(o->split_chinese));
    member(b, 2, "strip_accents", strip_word(o->strip_accents));
    member(b, 2, "lowercase", truth(o->lower_case));
    close_value(b, 1, "}");
    open_value(b, 1, "pre_tokenizer", "{");
    text_member(b, 2, "type", "BertPreTokenizer");
    close_value(b, 1, "}");
    write_frame(vocab, b);
    open_value(b, 1, "decoder", "{");
    text_member(b, 2, "type", "WordPiece");
    text_member(b, 2, "prefix", "##");
    member(b, 2, "cleanup", "true");
    close_value(b, 1, "}");
    open_value(b, 1, "model", "{");
    text_member(b, 2, "type", "WordPiece");
    text_member(b, 2, "unk_token", "[UNK]");
    text_member(b, 2, "continuing_subword_prefix", "##");
    number_member(b, 2, "max_input_chars_per_word", WORD_MAX);
    open_value(b, 2, "vocab", "{");
    for (int32_t i = 0; i < vocab_pieces(vocab); i++) number_member(b, 3, vocab_piece(vocab, i), i);
    close_value(b, 2, "}");
    close_value(b, 1, "}");
    buf_puts(b, "\n}"); /* the library ends the file here */
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
        if (!open) open_value(b, 1, "additional_special_tokens", "[");
        text_member(b, 2, NULL, added[i].text);
        open = true;
    }
    if (open) close_value(b, 1, "]");
}

static void write_roles(Buf *b)
{
    text_member(b, 1, "cls_token", "[CLS]");
    text_member(b, 1, "mask_token", "[MASK]");
    text_member(b, 1, "pad_token", "[PAD]");
    text_member(b, 1, "sep_token", "[SEP]");
    text_member(b, 1, "unk_token", "[UNK]");
}

static void write_decoder(const Vocab *vocab, Buf *b)
{
    int n;
    const AddedToken *added = vocab_added(vocab, &n);
    open_value(b, 1, "added_tokens_decoder", "{");
    for (int i = 0; i < n; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d", (int)added[i].id);
        open_value(b, 2, id, "{");
        write_flags(&added[i], 3, b);
        close_value(b, 2, "}");
    }
    close_value(b, 1, "}");
}

static void write_config(const Vocab *vocab, const TokenizerOptions *o, int64_t max_length, Buf *b)
{
    bool python = o->kind == TOKENIZER_PYTHON;
    int n = vocab->n_never_split;
    char *const *words = vocab->never_split;
    buf_puts(b, "{");
    write_decoder(vocab, b);
    write_special_list(vocab, b);
    text_member(b, 1, "cls_token", "[CLS]");
    if (!o->split_words) member(b, 1, "do_basic_tokenize", "false");
    member(b, 1, "do_lower_case", truth(o->lower_case));
    text_member(b, 1, "mask_token", "[MASK]");
    if (o->one_type) member(b, 1, "model_input_names", "[\n    \"input_ids\",\n    \"attention_mask\"\n  ]");
    number_member(b, 1, "model_max_length", max_length);
    if (n) open_value(b, 1, "never_split", "[");
    for (int i = 0; i < n; i++) text_member(b, 2, NULL, words[i]);
    if (n) close_value(b, 1, "]");
    text_member(b, 1, "pad_token", "[PAD]");
    text_member(b, 1, "sep_token", "[SEP]");
    if (o->split_special) member(b, 1, "split_special_tokens", "true");
    member(b, 1, "strip_accents", strip_word(o->strip_accents));
    member(b, 1, "tokenize_chinese_chars", truth(o->split_chinese));
    /* Transformers' BertTokenizer always cleans; the general class takes tokenizer.json's word. */
    text_member(b, 1, "tokenizer_class", o->clean_text ? "BertTokenizer" : "PreTrainedTokenizerFast");
    text_member(b, 1, "unk_token", "[UNK]");
    if (python) member(b, 1, "use_fast", "false");
    buf_puts(b, "\n}\n");
}

int tokenizer_files_write(const Vocab *vocab, const TokenizerOptions *options, int64_t max_length,
                          TokenizerText texts[TOKENIZER_MAX_TEXTS])
{
    int n = 0;
    memset(texts, 0, TOKENIZER_MAX_TEXTS * sizeof *texts);
    write_pieces(vocab, &texts[n].text);
    texts[n++].name = "vocab.txt";
    if (options->kind == TOKENIZER_FAST) {
        write_json(vocab, options, &texts[n].text);
        texts[n++].name = "tokenizer.json";
    }
    write_config(vocab, options, max_length, &texts[n].text);
    texts[n++].name = "tokenizer_config.json";
    Buf *map = &texts[n].text;
    buf_puts(map, "{");
    write_special_list(vocab, map);
    write_roles(map);
    buf_puts(map, "\n}\n");
    texts[n++].name = "special_tokens_map.json";
    return n;
}
