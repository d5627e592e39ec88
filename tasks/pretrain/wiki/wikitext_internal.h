/* Inside the wikitext cleaner: the tokens that its first pass (wikitext_scan.c) finds for the second (wikitext.c). */
#pragma once

#include "tasks/pretrain/wiki/wikitext.h"

typedef enum {
    TAG_NONE,   /* not a tag of HTML or MediaWiki: text */
    TAG_SILENT, /* removed with its contents; shows nothing where it stands */
    TAG_DROP,   /* removed with its contents */
    TAG_MATH,   /* a formula */
    TAG_RAW,    /* nowiki: its contents are text */
    TAG_TABLE,  /* HTML's table */
    TAG_BREAK,  /* ends a paragraph; its contents stay */
    TAG_SPACE,  /* a blank */
    TAG_INLINE, /* removed; its contents stay */
} TagKind;

/* A construct of the text, [start, end). `end` 0: opened and never closed. */
typedef struct {
    uint32_t start, end;
    uint32_t body, body_end; /* without the brackets */
    uint8_t kind;            /* TokenKind */
} Token;

typedef enum {
    TOKEN_DROP,
    TOKEN_GAP,
    TOKEN_MATH,
    TOKEN_RAW,
    TOKEN_TEMPLATE,
    TOKEN_TABLE,
    TOKEN_LINK,
    TOKEN_VARIANT
} TokenKind;

typedef struct {
    Token *tokens; // (n) by start
    size_t n, cap;
    uint32_t *open; // (n_open) tokens that are not closed yet
    size_t n_open, open_cap;
} WikiTokens;

/* Text in a buffer that has room for an article's from its start. */
typedef struct {
    char *data;
    size_t len, cap;
} Words;

#define MOST_FRAMES 64 /* nested links and templates that are kept */

/* The kept words of a link or template: they end at `at`, and the walk continues at `jump`. */
typedef struct {
    uint32_t at, jump;
} Frame;

struct Wikitext {
    WikiTokens list;
    const char *namespaces;
    Words words; /* the paragraph so far, with room for the whole article */
    Words plain; /* the mended paragraph */
    /* the current article */
    const char *text;
    uint32_t len, at, limit; /* limit: end of the innermost frame */
    size_t next;             /* first token that does not begin before `at` */
    Frame frames[MOST_FRAMES];
    int n_frames;
    bool fresh;        /* at a line's start, after dropped comments and templates */
    bool item;         /* the paragraph is a list item or preformatted: kept if it is prose */
    bool open_table;   /* a table that is never closed */
    int dropped_level; /* level of the heading of a dropped section; 0: none */
    uint64_t external; /* open single brackets, the innermost in bit 0: 1 an external link's */
    size_t sentences, dropped;
    Buf *out;
};

void wikitext_grow(Words *words, size_t n); /* makes room for n bytes more: a template may show more than it has */

static inline void wikitext_append(Wikitext *w, const char *p, size_t n)
{
    if (w->words.cap - w->words.len < n) wikitext_grow(&w->words, n);
    memcpy(w->words.data + w->words.len, p, n);
    w->words.len += n;
}

/* In `words`, in the place of what was left out. No text has such bytes. */
#define WIKITEXT_MARK    '\1' /* it may have given words: its place decides */
#define WIKITEXT_MISSING '\2' /* it gave words, perhaps a number, that Cairn cannot give */

static inline bool wikitext_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static inline char wikitext_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

static inline void wikitext_append_char(Wikitext *w, char c) { wikitext_append(w, &c, 1); }

static inline void wikitext_move_to(Wikitext *w, uint32_t at)
{
    const WikiTokens *list = &w->list;
    w->at = at;
    while (w->next < list->n && list->tokens[w->next].start < at) w->next++;
}

/* ---- wikitext.c ---- */

void wikitext_end_paragraph(Wikitext *w);
void wikitext_append_entity(Wikitext *w); /* at '&' */

/* ---- wikitext_constructs.c ---- */

/* At a token: appends its kept words, or enters them, or skips it. */
void wikitext_at_token(Wikitext *w, const Token *t);
/* The end of the line at `at`, after the constructs that begin on it. */
uint32_t wikitext_line_end(const Wikitext *w, uint32_t at);
/* text[at, end) without blanks around it, in lower case, _ as a blank. False: longer than `size`. */
bool wikitext_lower_name(const Wikitext *w, uint32_t at, uint32_t end, char *name, size_t size);

/* A parameter of a template, without blanks around it: the one of that name, or, with NULL, the n-th unnamed one,
   from 1. `w` is at the template. */
bool wikitext_parameter(const Wikitext *w, const Token *t, const char *name, int n, uint32_t *start, uint32_t *end);
/* Appends text[from, to) without emphasis. False: it has other markup; a part of it may be appended. */
bool wikitext_append_plain(Wikitext *w, uint32_t from, uint32_t to);

/* ---- wikitext_numbers.c ---- */

/* Appends the words of a template of numbers, by its code in the table of forms. False: it shows what Cairn cannot
   give; a part of the words may be appended. */
bool wikitext_append_number(Wikitext *w, const Token *t, char code);
/* Before raised (^) or lowered (_) text at `from`, which ends before `end`: behind a digit a raised number, template or
   italic letter gets the sign, as 10^6, and the number of a fraction, 5<sup>1</sup>/2, a blank. */
void wikitext_begin_script(Wikitext *w, char sign, uint32_t from, uint32_t end);

/* ---- wikitext_mend.c ---- */

/* Leaves single blanks, none at the ends; removes control and invisible characters; closes gaps: "( , x ; )" → "(x)",
   "()" → "", "a , b" → "a, b". `marks`: a mark becomes SENTENCE_GAP where words are missing, else nothing; false: there
   are none. `to` needs the room of `from`. */
void wikitext_mend(const Words *from, bool marks, Words *to);
/* Whether c is a letter or digit of any script. */
bool wikitext_word(uint32_t c);
/* Whether a mended list item reads like a sentence. */
bool wikitext_is_prose(const Words *words);

/* ---- wikitext_scan.c ---- */

/* Finds all constructs that can contain others or lines. */
void wikitext_scan(WikiTokens *list, const char *text, uint32_t len);

/* At text[at] == '<': the kind of the tag, and its end, after '>'. TAG_NONE: not a tag. */
typedef struct {
    TagKind kind;
    bool closing, empty; /* </x>, <x/> */
    char name[20];
    uint32_t end;
} TagAt;
void wikitext_tag_at(const char *text, uint32_t len, uint32_t at, TagAt *tag);

/* ---- wikitext_tables.c ---- */

/* Names in lower case (entities as written). */
TagKind wikitext_tag(const char *name);
uint32_t wikitext_entity(const char *name); /* 0: unknown */
const char *wikitext_kept_template(const char *name);
bool wikitext_silent_template(const char *name); /* it gives no words */
bool wikitext_dropped_section(const char *name);
/* Whether a link with this prefix ("file", "fr") is left out. `namespaces`: more prefixes, with commas; may be NULL. */
bool wikitext_dropped_prefix(const char *namespaces, const char *name, bool written_lower);
