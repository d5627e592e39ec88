/* The tokenizer of a folder, read as Transformers 5 reads it, and written as it loads it:

     vocab.txt                 the pieces, one per line
     tokenizer.json            the tokenizers library's file: pieces, normalizer, added tokens
     tokenizer_config.json     class, case, added tokens
     special_tokens_map.json, added_tokens.json   older places of added tokens

   A key that changes ids is honoured or refused by name (tests/borders.tsv lists all keys). Where two files differ, the
   choice is that of Transformers 5, and a line names both (docs/files.md 4). */
#pragma once

#include <signal.h>

#include "base/base.h"
#include "text/text.h"

typedef struct {
    char *path; /* of the pieces: vocab.txt or tokenizer.json */
    Vocab *vocab;
    TokenizerOptions options;
    bool says_case;    /* a file says it; else a vocabulary with capital letters is cased */
    bool says_accents; /* a file says it */
} TokenizerFiles;

/* `path` is a folder or a file in it. Its tokenizer.json or vocab.txt, or NULL; the caller frees. */
char *tokenizer_files_find(const char *path);

bool tokenizer_files_say(const char *path); /* a file beside the pieces says how text is read */

/* model_max_length of the tokenizer_config.json there; 0: it says none. */
Status tokenizer_files_length(const char *path, int64_t *length);

/* `vocab` is --vocab FILE, a vocab.txt or a tokenizer.json, or NULL: then the pieces are those beside `beside`, which
   is a folder or a file in it, or NULL. The other files are those beside `vocab`, else beside `beside`. E_USAGE without
   pieces; E_FORMAT for a damaged file and for whatever Cairn's tokenizer does not have, by name. A class of another
   tokenizer is only warned of where `vocab` is given. After an error *files is zeroed. */
Status tokenizer_files_read(const char *vocab, const char *beside, const volatile sig_atomic_t *stop,
                            TokenizerFiles *files);
void tokenizer_files_free(TokenizerFiles *files); /* takes a zeroed one */

/* --do-lower-case and --strip-accents: auto, yes or no. Says in a line where the vocabulary's capitals decide. */
void tokenizer_files_choose(TokenizerFiles *files, const char *do_lower_case, const char *strip_accents);

#define TOKENIZER_MAX_TEXTS 4
typedef struct {
    const char *name; /* static */
    Buf text;
} TokenizerText;

/* The files that Transformers 4.57 and 5 load as this tokenizer; returns their number. The Python tokenizer gets no
   tokenizer.json, which could not say it. The caller frees the texts. */
int tokenizer_files_write(const Vocab *vocab, const TokenizerOptions *options, int64_t max_length,
                          TokenizerText texts[TOKENIZER_MAX_TEXTS]);
