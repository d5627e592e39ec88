/* Inside text/: what each of a tokenizer's files says, before they are brought together (tokenizer_files.c). */
#pragma once

#include "base/json.h"
#include "text/tokenizer_files.h"

#define UNSAID            (-2) /* the file does not say it */
#define ONE_TYPE_BY_CLASS 2

/* Each UNSAID, 0 or 1; strip_accents −1 too, for null. */
typedef struct {
    int lower_case, strip_accents, split_chinese, clean_text;
} TokenizerWords;

/* Tokens in the file's order; an id of −1 is the piece's, or the next one. Owns the texts. */
typedef struct {
    AddedToken *tokens; // (n)
    int n, cap;
} TokenList;
void token_list_add(TokenList *list, const AddedToken *token); /* copies the text */
const AddedToken *token_list_find(const TokenList *list, const char *text);
void token_list_free(TokenList *list);

/* true, false, or absent: *value stays. */
Status tokenizer_bool(const char *file, const char *context, const Json *object, const char *key, int *value);
/* true, false, null (−1), or absent: *value stays. */
Status tokenizer_bool_or_null(const char *file, const char *context, const Json *object, const char *key, int *value);
/* A string, or an object as in added_tokens, whose absent flags are false; normalized is the opposite of special. The
   text belongs to the document. */
Status tokenizer_token(const char *file, const char *key, const Json *value, bool special, AddedToken *token);
/* The text of a token that is a string or an object; NULL: it is neither. */
const char *tokenizer_token_text(const Json *value);
/* Fails, naming the key, the value and what to do. */
Status tokenizer_refuse(const char *file, const char *key, const Json *value, const char *expected);

/* ---- tokenizer.json ---- */
typedef struct {
    Buf pieces; /* as lines of vocab.txt */
    TokenizerWords words;
    TokenList added;
} TokenizerJson;
/* E_FORMAT, naming the component, for anything but BERT's. Of a `general` class the file is the whole tokenizer; else a
   component that is null says nothing. */
Status tokenizer_json_read(const char *name, const Json *doc, bool general, TokenizerJson *out);
void tokenizer_json_free(TokenizerJson *json);

/* ---- tokenizer_config.json, special_tokens_map.json, added_tokens.json ---- */
typedef enum {
    CLASS_UNSAID,
    CLASS_BERT,   /* builds BERT's tokenizer from the pieces and tokenizer_config.json */
    CLASS_GENERAL /* is what tokenizer.json says */
} TokenizerClass;

typedef struct {
    TokenizerClass class;
    int one_type; /* UNSAID, 0, 1 or ONE_TYPE_BY_CLASS */
    TokenizerWords words;
    bool lists_added;   /* has added_tokens_decoder, and then Transformers reads no older place */
    TokenList added;    /* added_tokens_decoder */
    TokenList special;  /* *_token and extra_special_tokens */
    char **never_split; // (n_never_split)
    int n_never_split;
    int basic_tokenize, use_fast, split_special; /* UNSAID, 0 or 1 */
} TokenizerConfig;

TokenizerConfig tokenizer_config_new(void);
void tokenizer_config_free(TokenizerConfig *config);
/* `class_given`: --vocab names the pieces, so a class of another tokenizer is warned of, not refused. */
Status tokenizer_config_read(const char *file, const Json *doc, bool class_given, TokenizerConfig *config);
/* tokenizer_class, of tokenizer_config.json or config.json. */
Status tokenizer_class_read(const char *file, const Json *value, bool class_given, TokenizerConfig *config);
Status tokenizer_length_read(const char *file, const Json *doc, int64_t *length); /* 0: says none */
/* Tokens with a role go to `special`, those of additional_special_tokens to `list`. */
Status tokenizer_special_map_read(const char *file, const Json *doc, TokenList *special, TokenList *list);
Status tokenizer_added_read(const char *file, const Json *doc, const TokenList *special, TokenList *added);
