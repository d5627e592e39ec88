/* Text to token ids: BERT's WordPiece, equal to Hugging Face's BertTokenizer (the Python one; docs/contracts.md 11).

   A Vocab maps pieces to ids; a Tokenizer is a Vocab and two options. Both are read-only after they are made, so any
   number of threads may share them. Unicode tables are frozen in unicode_tables.c (generated, version named there). */
#ifndef CAIRN_TEXT_TEXT_H
#define CAIRN_TEXT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

typedef struct Vocab Vocab;

/* One piece per line, id = line number from 0. Errors: missing, empty, not UTF-8 (names the line), a piece twice,
   [PAD] [UNK] [CLS] [SEP] [MASK] missing. */
Status vocab_read(const char *path, Vocab **vocab);
Status vocab_parse(const char *name, const char *text, size_t len, Vocab **vocab);
Status vocab_write(const Vocab *vocab, const char *path);
void vocab_free(Vocab *vocab);
int32_t vocab_size(const Vocab *vocab);
const char *vocab_piece(const Vocab *vocab, int32_t id);
int32_t vocab_find(const Vocab *vocab, const char *piece, size_t len); /* −1 if absent */
Digest vocab_digest(const Vocab *vocab);

typedef struct {
    int32_t pad, unk, cls, sep, mask;
} SpecialIds;
SpecialIds vocab_special(const Vocab *vocab);

typedef struct {
    bool lower_case;
    int strip_accents; /* −1: as lower_case (Hugging Face's None), 0 no, 1 yes */
    bool split_chinese; /* true in every published BERT */
} TokenizerOptions;

typedef struct Tokenizer Tokenizer;

Tokenizer *tokenizer_new(const Vocab *vocab, TokenizerOptions options); /* the Vocab must outlive it */
void tokenizer_free(Tokenizer *t);
const Vocab *tokenizer_vocab(const Tokenizer *t);

/* A growable list of ids. */
typedef struct {
    int32_t *ids;
    size_t count, cap;
} TokenIds;
void token_ids_free(TokenIds *ids);

/* Appends the ids of `text` (UTF-8; the caller has validated it: see text_utf8_error), without special tokens. */
void tokenizer_encode(const Tokenizer *t, const char *text, size_t len, TokenIds *out);

/* [CLS] a [SEP] or [CLS] a [SEP] b [SEP] with token types 0…0 1…1, cut to max_len by removing tokens from the longer
   side's end, one at a time (longest-first; on a tie from b, as Hugging Face does). `b` may be NULL. ids and types have
   room for max_len. Returns the length. */
int tokenizer_pair(const Tokenizer *t, const TokenIds *a, const TokenIds *b, int max_len, int32_t *ids, uint8_t *types);

/* Offset of the first byte that is not UTF-8 (overlong, surrogate, beyond U+10FFFF and cut sequences included), or −1. */
int64_t text_utf8_error(const char *text, size_t len);

/* Trains a WordPiece vocabulary: the five special pieces first, then single characters, then merges by count. The same input
   gives the same vocabulary for any number of threads. `size` is the number of lines wanted. */
typedef struct {
    int32_t size;
    int min_count;   /* pieces seen less often are not merged; default 2 */
    int max_piece;   /* longest piece in characters; default 32 */
    TokenizerOptions normalisation;
} VocabTraining;
typedef struct VocabTrainer VocabTrainer;
VocabTrainer *vocab_trainer_new(VocabTraining options);
void vocab_trainer_add(VocabTrainer *t, const char *text, size_t len);
Status vocab_trainer_finish(VocabTrainer *t, Vocab **vocab); /* fewer pieces than asked: a smaller Vocab, and a warning */
void vocab_trainer_free(VocabTrainer *t);

#endif
