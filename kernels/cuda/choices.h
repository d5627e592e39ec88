/* Which algorithm a library was found to be fastest with, per product: kept in a file per GPU and library version, so
   that runs on the same machine make the same choice and have the same bits. Plain host code; knows no library. */
#pragma once

#include "kernels/cuda/product.h"

#define CHOICE_WORDS 8

typedef struct {
    uint64_t algorithm[CHOICE_WORDS]; /* the library's own */
    double seconds;                   /* when it was timed; for people */
} Choice;

#ifdef __cplusplus
extern "C" {
#endif
/* Reads the file of `about` (GPU, library, versions), $XDG_CACHE_HOME/cairn/products-<digest of about>.txt, else below
   $HOME/.cache. A damaged file is named in a warning and not used. */
void choices_open(const char *about);
void choices_close(void);
bool choices_kept(void); /* there is a place for the file */
const char *choices_path(void);
bool choices_find(const ProductShape *shape, Choice *choice);
void choices_add(const ProductShape *shape, const Choice *choice);
void choices_save(void); /* if something was added; a failure is a warning, once */
/* Between ranks: rank 0's choices as text, taken by the others in place of their own. After that these time nothing and
   keep no file. A rank with another GPU or library warns and keeps its own choices. */
void choices_give(Buf *text);
void choices_take(const Buf *text);
#ifdef __cplusplus
}

/* A shape as numbers that can be ordered and written down. */
#    include <array>
typedef std::array<int64_t, 11> ProductKey;
ProductKey product_key(const ProductShape *shape);
#endif
