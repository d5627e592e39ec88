/* Small allocations and growable buffers. `mem_*` ends the process with exit code 76 and a message when the system has
   no memory left: they are for metadata. Tensors never come from here; see exec/memory. */
#pragma once

#include "base/std.h"

/* Ends the process like mem_*; for libraries that allocate themselves. 0: the size is unknown. */
void mem_exhausted(size_t bytes) __attribute__((noreturn));

/* The caller frees with free(). */
void *mem_alloc(size_t bytes);                        /* zeroed; 0 bytes gives a valid pointer */
void *mem_array(size_t count, size_t size);           /* zeroed; overflow is checked */
void *mem_resize(void *p, size_t count, size_t size); /* like realloc; new bytes are not zeroed */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A formatted text of at most 255 bytes without an allocation; more bytes are cut. It lasts as long as its block, and
   what an `if` or a loop governs is a block of its own. */
#define SHORT_TEXT(...) mem_short((char[256]){""}, __VA_ARGS__)
const char *mem_short(char out[256], const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Frees each of the pointers. */
#define MEM_FREE(...) mem_free_all((void *[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))
void mem_free_all(void *const *pointers, size_t n);
void mem_free_texts(char **texts, int64_t n); /* n texts, and their array; takes NULL */

/* Makes room for one more element in a (pointer, count, capacity) array, doubling. */
#define MEM_GROW(p, count, cap)                                                                                        \
    do {                                                                                                               \
        if ((count) >= (cap)) {                                                                                        \
            (cap) = (cap) ? 2 * (cap) : 16;                                                                            \
            (p) = mem_resize((p), (size_t)(cap), sizeof *(p));                                                         \
        }                                                                                                              \
    } while (0)

/* MEM_GROW, and a value is put there. */
#define MEM_PUSH(p, count, cap, ...)                                                                                   \
    do {                                                                                                               \
        MEM_GROW(p, count, cap);                                                                                       \
        (p)[(count)++] = __VA_ARGS__;                                                                                  \
    } while (0)

/* A byte buffer; `data` is always NUL-terminated when not NULL. Zero-initialise; free with buf_free. Appended bytes
   must not lie in the buffer itself. */
typedef struct {
    char *data;
    size_t len, cap;
} Buf;

void buf_room(Buf *b, size_t more); /* makes room for `more` bytes and the NUL */
void buf_append(Buf *b, const void *data, size_t len);
void buf_puts(Buf *b, const char *s);
void buf_printf(Buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(Buf *b, const char *format, va_list args);
/* Length of the UTF-8 character at `s`, which ends with a NUL. For other bytes *valid is 0 and the length is that of
   the longest prefix of a character, at least 1 (Unicode 15, 3.9, "substitution of maximal subparts"). */
size_t buf_utf8_span(const char *s, int *valid);
void buf_utf8(Buf *b, const char *s); /* invalid UTF-8 becomes U+FFFD */
/* Text of a message: \n, \x1b and \xff stand for line feeds, control characters and bytes that are no UTF-8. Tabs stay,
   and line feeds at the end or before two blanks. */
void buf_message(Buf *b, const char *s);
void buf_json(Buf *b, const char *s); /* "s" with quotes, escaped for JSON; invalid UTF-8 as buf_utf8 */
/* A word of a command line, in quotes where a shell needs them; xargs reads it back too. */
void buf_word(Buf *b, const char *word);
/* A JSON number with the fewest digits that read back equal. NaN and infinities become null, since JSON lacks them. */
void buf_double(Buf *b, double x);
/* A member of a JSON object, behind ", " unless the object has just begun; buf_key leaves its value to the caller. */
void buf_key(Buf *b, const char *key);
void buf_member(Buf *b, const char *key, double value);
void buf_member_text(Buf *b, const char *key, const char *value);
/* Writes it to standard output and frees it. main reports a failed write. */
void buf_print(Buf *b);
void buf_free(Buf *b); /* takes a zeroed one */
#define BUF_FREE(...) buf_free_all((Buf *[]){__VA_ARGS__}, sizeof((Buf *[]){__VA_ARGS__}) / sizeof(Buf *))
void buf_free_all(Buf *const *all, size_t n);
