/* Text to token ids: BERT's WordPiece, equal to Hugging Face's tokenizers (docs/contracts.md 11).

   A Vocab maps pieces to ids, is read-only once made, and any number of threads may share it. A Tokenizer is a Vocab, a
   few options and a cache of 4 MiB with the words that it met: each thread that encodes has its own. The classes of
   characters (space, punctuation, lower case, accent) are frozen in unicode_tables.c, which names the versions that
   they come from. */
#pragma once

#include <signal.h>

#include "base/base.h"

typedef struct Vocab Vocab;

/* One piece per line, id = line number from 0. The reader accepts a byte order mark, CR or CRLF line ends, a missing
   last line end and blank lines at the end. Errors: missing, empty, not UTF-8, a blank line between pieces, a
   NUL byte, a piece twice, a line of more than 1000 bytes (each names the line), [PAD] [UNK] [CLS] [SEP] or [MASK]
   missing. Errors call the text `name`. E_STOPPED once *stop (may be NULL) is not 0. The caller frees. */
Status vocab_read(const char *path, const volatile sig_atomic_t *stop, Vocab **vocab);
Status vocab_parse(const char *name, const char *text, size_t len, const volatile sig_atomic_t *stop, Vocab **vocab);
Status vocab_write(const Vocab *vocab, const char *path); /* durable; one piece and \n per line */
void vocab_free(Vocab *vocab);                            /* takes NULL */
int32_t vocab_size(const Vocab *vocab);   /* ids, and so embeddings: the lines and the added tokens beyond them */
int32_t vocab_pieces(const Vocab *vocab); /* lines of vocab.txt */
const char *vocab_piece(const Vocab *vocab, int32_t id);               /* 0 ≤ id < size; lives as long as the Vocab */
int32_t vocab_find(const Vocab *vocab, const char *piece, size_t len); /* of the lines; −1 if absent */
Digest vocab_digest(const Vocab *vocab); /* of the bytes that vocab_write writes, then of what vocab_set_… added */

typedef struct {
    int32_t pad, unk, cls, sep, mask;
} SpecialIds;
SpecialIds vocab_special(const Vocab *vocab);

/* A token that is looked for in the text before words are cut. */
typedef struct {
    char *text;
    int32_t id;
    bool special, normalized, single_word, lstrip, rstrip; /* as in tokenizer.json's added_tokens */
} AddedToken;

/* Adds to the five special pieces, which every Vocab looks for; one of them in the list takes the list's flags. Copies.
   Call once, before a Tokenizer is made. E_FORMAT, which names the token, for an id that is neither its piece's nor the
   next one beyond the lines, and for an empty or repeated token. */
Status vocab_set_added(Vocab *vocab, const AddedToken *added, int n);
const AddedToken *vocab_added(const Vocab *vocab, int *n); /* with the five, ascending by id */
/* Words that the Python tokenizer neither lower-cases nor cuts at punctuation. Copies; call before a Tokenizer is made.
 */
Status vocab_set_never_split(Vocab *vocab, const char *const *words, int n);

/* The tokenizer of Transformers that is the reference. */
typedef enum {
    TOKENIZER_FAST,  /* the tokenizers library, which Transformers 5 uses */
    TOKENIZER_PYTHON /* BertTokenizer of Transformers 4, in Python */
} TokenizerKind;

typedef struct {
    TokenizerKind kind;
    bool lower_case;
    int strip_accents;  /* −1: as lower_case (Hugging Face's None), 0 no, 1 yes */
    bool split_chinese; /* true in every published BERT */
    bool split_special; /* Hugging Face's split_special_tokens: [SEP] in the text counts as text */
    bool clean_text;    /* false: control characters stay */
    bool split_words;   /* false: do_basic_tokenize false, words are cut at white space only and not lower-cased */
    bool one_type;      /* model_input_names has no token_type_ids: both texts of a pair have type 0 */
} TokenizerOptions;

/* Options of the published models. */
static inline TokenizerOptions tokenizer_options(bool lower_case)
{
    return (TokenizerOptions){
        .lower_case = lower_case, .strip_accents = -1, .split_chinese = true, .clean_text = true, .split_words = true};
}

typedef struct Tokenizer Tokenizer;

Tokenizer *tokenizer_new(const Vocab *vocab, TokenizerOptions options); /* the Vocab must outlive it */
void tokenizer_free(Tokenizer *t);                                      /* takes NULL */

/* A growable list of ids. Zero-initialise; `count = 0` empties it for the next text. */
typedef struct {
    int32_t *ids; // (count)
    size_t count, cap;
} TokenIds;
void token_ids_free(TokenIds *ids);

/* Appends the ids of `text` (UTF-8) to `out`, without [CLS] and [SEP] around them. Added tokens written in the text
   give their ids. Bytes that are not UTF-8 count as U+FFFD, which is left out as control characters are;
   text_utf8_error finds them. */
void tokenizer_encode(Tokenizer *t, const char *text, size_t len, TokenIds *out);

/* Encodes the beginning of a text of any length: stops where `out` has `most` ids or more. tokenizer_pair with a
   max_len up to `most` gives the same as for the whole text, if the other text is whole and has fewer than `most`. */
void tokenizer_encode_first(Tokenizer *t, const char *text, size_t len, size_t most, TokenIds *out);

/* Appends to an empty Buf the words that are cut into pieces, with a blank between two: Google's BasicTokenizer. */
void tokenizer_words(const Tokenizer *t, const char *text, size_t len, Buf *out);

/* [CLS] a [SEP] or [CLS] a [SEP] b [SEP] with token types 0…0 1…1 (one_type: 0…0), cut to max_len (longest-first) as
   the reference does it: both sides keep half of the room, unless one needs less, and of an odd room the longer side
   one more (on a tie b; with the Python tokenizer always a). `b` is NULL where there is no second text, or an empty
   one. max_len is at least 2, with b 3. Returns the length. */
int tokenizer_pair(const Tokenizer *t, const TokenIds *a, const TokenIds *b, int max_len, int32_t *ids, // (max_len)
                   uint8_t *types);                                                                     // (max_len)

/* Offset of the first byte that is not UTF-8 (overlong, surrogate, beyond U+10FFFF and cut sequences included), or −1.
 */
int64_t text_utf8_error(const char *text, size_t len);

/* Trains a WordPiece vocabulary: the five special pieces; the kept characters, as a word's first; with ## those that
   continue a word of the text; then merges by count, of ties the one with the older pieces. So a kept character is
   never [UNK] where a word begins, nor within a word where the text has it so. A vocabulary that is full keeps no
   longer piece that the text does not use, cut as a tokenizer cuts it: a further merge takes its place. The same words
   with the same counts give the same vocabulary, in whatever order and portions they are added. Memory: the distinct
   words. */
typedef struct {
    int32_t size;      /* lines wanted */
    int32_t alphabet;  /* most different characters kept, the most frequent ones; 0: 1000 */
    int64_t min_count; /* pairs seen less often are not merged; 0: 2 */
    int max_piece;     /* longest piece in characters, without ##; 0: 32 */
    TokenizerOptions normalisation;
} VocabTraining;
typedef struct VocabTrainer VocabTrainer;
VocabTrainer *vocab_trainer_new(VocabTraining options);
/* `text` is any number of whole lines: no word continues in the next call. Leaves out special pieces, and words of more
   than 100 characters, which always become [UNK]. */
void vocab_trainer_add(VocabTrainer *t, const char *text, size_t len);
/* Adds the words of `more`, which was made with the same options. */
void vocab_trainer_merge(VocabTrainer *t, VocabTrainer *more);
/* Call once. Text that gives fewer pieces than asked makes a smaller Vocab, with a warning. Errors: no words; a size
   without room for any character. */
Status vocab_trainer_finish(VocabTrainer *t, Vocab **vocab);
void vocab_trainer_free(VocabTrainer *t); /* takes NULL */
