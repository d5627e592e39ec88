/* Small allocations and growable buffers. `mem_*` ends the process with exit code 76 and a message when the system has
   no memory left: they are for metadata. Tensors never come from here; see exec/memory. */
#ifndef CAIRN_BASE_MEM_H
#define CAIRN_BASE_MEM_H

#include <stdarg.h>
#include <stddef.h>

/* Ends the process like mem_*; for libraries that allocate themselves. 0: the size is unknown. */
void mem_exhausted(size_t bytes) __attribute__((noreturn));

/* The caller frees with free(). */
void *mem_alloc(size_t bytes);                        /* zeroed; 0 bytes gives a valid pointer */
void *mem_array(size_t count, size_t size);           /* zeroed; overflow is checked */
void *mem_resize(void *p, size_t count, size_t size); /* like realloc; new bytes are not zeroed */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);
char *mem_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Makes room for one more element in a (pointer, count, capacity) array, doubling. */
#define MEM_GROW(p, count, cap)                                                                                        \
    do {                                                                                                               \
        if ((count) >= (cap)) {                                                                                        \
            (cap) = (cap) ? 2 * (cap) : 16;                                                                            \
            (p) = mem_resize((p), (size_t)(cap), sizeof *(p));                                                         \
        }                                                                                                              \
    } while (0)

/* A byte buffer; `data` is always NUL-terminated when not NULL. Zero-initialise; free with buf_free. Appended bytes
   must not lie in the buffer itself. */
typedef struct {
    char *data;
    size_t len, cap;
} Buf;

void buf_append(Buf *b, const void *data, size_t len);
void buf_puts(Buf *b, const char *s);
void buf_printf(Buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(Buf *b, const char *format, va_list args);
void buf_json(Buf *b, const char *s); /* "s" with quotes, escaped for JSON; invalid UTF-8 becomes U+FFFD */
/* A word of a command line, in quotes where a shell needs them; xargs reads it back too. */
void buf_word(Buf *b, const char *word);
/* A JSON number with the fewest digits that read back equal. NaN and infinities become null, since JSON lacks them. */
void buf_double(Buf *b, double x);
/* Writes it to standard output and frees it. main reports a failed write. */
void buf_print(Buf *b);
void buf_free(Buf *b); /* takes a zeroed one */

#endif
