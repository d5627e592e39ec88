/* Inside the wikitext cleaner: what its first pass (wikitext_scan.c) finds and its second (wikitext.c) walks over. */
#ifndef CAIRN_TASKS_PRETRAIN_WIKI_WIKITEXT_INTERNAL_H
#define CAIRN_TASKS_PRETRAIN_WIKI_WIKITEXT_INTERNAL_H

#include <stdbool.h>

#include "tasks/pretrain/wiki/wikitext.h"

typedef enum {
    TAG_NONE,   /* no tag of HTML or MediaWiki: text */
    TAG_DROP,   /* goes with all in it */
    TAG_MATH,   /* a formula */
    TAG_RAW,    /* nowiki: its inside is text */
    TAG_TABLE,  /* HTML's table */
    TAG_BREAK,  /* ends a paragraph; its inside stays */
    TAG_SPACE,  /* a blank */
    TAG_INLINE, /* goes, its inside stays */
} TagKind;

/* A construct of the text, [start, end). `end` 0: opened and never closed. */
typedef struct {
    uint32_t start, end;
    uint32_t body, body_end; /* without the brackets */
    uint8_t kind;            /* TokenKind */
} Token;

typedef enum { TOKEN_DROP, TOKEN_MATH, TOKEN_RAW, TOKEN_TEMPLATE, TOKEN_TABLE, TOKEN_LINK, TOKEN_VARIANT } TokenKind;

typedef struct {
    Token *tokens; // (n) by start
    size_t n, cap;
    uint32_t *open; // (n_open) tokens that are not closed yet
    size_t n_open, open_cap;
} TokenList;

/* Text in a buffer whose room was made before. */
typedef struct {
    char *data;
    size_t len, cap;
} Words;

/* Single blanks, none at the ends; controls and what is not seen go; what holes left is mended: "( , x ; )" → "(x)",
   "()" → "", "a , b" → "a, b". `to` needs the room of `from`. */
void wikitext_mend(const Words *from, Words *to);
/* Does a list item, mended, read like a sentence? */
bool wikitext_is_prose(const Words *words);

/* Finds all constructs that can hold others or lines. */
void wikitext_scan(TokenList *list, const char *text, uint32_t len);

/* At text[at] == '<': the kind of the tag there, and where it ends (behind '>'). TAG_NONE: no tag. */
typedef struct {
    TagKind kind;
    bool closing, empty; /* </x>, <x/> */
    char name[20];
    uint32_t end;
} TagAt;
void wikitext_tag_at(const char *text, uint32_t len, uint32_t at, TagAt *tag);

/* Tables; names in lower case (entities as written). */
TagKind wikitext_tag(const char *name);
uint32_t wikitext_entity(const char *name); /* 0: unknown */
const char *wikitext_kept_template(const char *name);
bool wikitext_dropped_section(const char *name);
/* Does a link with this prefix ("file", "fr") leave nothing? `namespaces`: more of them, with commas; may be NULL. */
bool wikitext_dropped_prefix(const char *namespaces, const char *name, bool written_lower);

#endif
