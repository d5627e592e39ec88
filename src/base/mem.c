#include "base/mem.h"

#include <unistd.h>

#include "base/machine_memory.h"
#include "base/status.h"

void mem_exhausted(size_t bytes)
{
    char text[256], asked[48] = "";
    size_t addresses = process_free_addresses();
    if (bytes) snprintf(asked, sizeof asked, " (%zu bytes were asked for)", bytes);
    int n = addresses < bytes
                ? snprintf(text, sizeof text,
                           "error: the limits of this process on its address space (ulimit -v, -d) leave %.1f MiB of "
                           "memory%s; raise them or use a smaller configuration\n",
                           (double)addresses / (1 << 20), asked)
                : snprintf(text, sizeof text,
                           "error: the system has no memory left%s; free some memory or use a smaller configuration\n",
                           asked);
    ssize_t ignored = write(STDERR_FILENO, text, (size_t)n);
    (void)ignored;
    _exit(status_exit_code(E_MEMORY));
}

void *mem_alloc(size_t bytes) { return mem_array(bytes, 1); }

void *mem_array(size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size) mem_exhausted(SIZE_MAX);
    void *p = count && size ? calloc(count, size) : calloc(1, 1);
    if (!p) mem_exhausted(count * size);
    return p;
}

void *mem_resize(void *p, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size) mem_exhausted(SIZE_MAX);
    size_t bytes = count * size;
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q) mem_exhausted(bytes);
    return q;
}

char *mem_strdup(const char *s) { return mem_strndup(s, strlen(s)); }

char *mem_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = mem_alloc(len + 1);
    memcpy(copy, s, len);
    return copy;
}

char *mem_printf(const char *format, ...)
{
    Buf b = {0};
    va_list args;
    va_start(args, format);
    buf_vprintf(&b, format, args);
    va_end(args);
    return b.data;
}

const char *mem_short(char out[256], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out, 256, format, args);
    va_end(args);
    return out;
}

void mem_free_all(void *const *pointers, size_t n)
{
    for (size_t i = 0; i < n; i++) free(pointers[i]);
}

void mem_free_texts(char **texts, int64_t n)
{
    for (int64_t i = 0; texts && i < n; i++) free(texts[i]);
    free(texts);
}

void buf_room(Buf *b, size_t more)
{
    if (more >= SIZE_MAX / 2 - b->len) mem_exhausted(more);
    size_t need = b->len + more + 1;
    if (need <= b->cap) return;
    size_t cap = b->cap < 32 ? 64 : 2 * b->cap;
    b->cap = cap < need ? need : cap;
    b->data = mem_resize(b->data, b->cap, 1);
}

void buf_append(Buf *b, const void *data, size_t len)
{
    buf_room(b, len);
    if (len) memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_puts(Buf *b, const char *s) { buf_append(b, s, strlen(s)); }

void buf_printf(Buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    buf_vprintf(b, format, args);
    va_end(args);
}

void buf_vprintf(Buf *b, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    buf_room(b, 0);
    int n = vsnprintf(b->data + b->len, b->cap - b->len, format, args);
    CHECK(n >= 0, "the format \"%s\" cannot be printed", format);
    if ((size_t)n >= b->cap - b->len) {
        buf_room(b, (size_t)n);
        vsnprintf(b->data + b->len, b->cap - b->len, format, again);
    }
    va_end(again);
    b->len += (size_t)n;
}

size_t buf_utf8_span(const char *text, int *valid)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char first = s[0], low = 0x80, high = 0xbf; /* of the second byte */
    size_t need = first < 0x80                     ? 1
                  : first >= 0xc2 && first <= 0xdf ? 2
                  : first >= 0xe0 && first <= 0xef ? 3
                  : first >= 0xf0 && first <= 0xf4 ? 4
                                                   : 0;
    if (first == 0xe0) low = 0xa0;  /* no overlong forms */
    if (first == 0xed) high = 0x9f; /* no surrogates */
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f; /* not above U+10FFFF */
    size_t n = 1;
    for (; n < need && s[n] >= low && s[n] <= high; n++) {
        low = 0x80;
        high = 0xbf;
    }
    *valid = n == need;
    return n;
}

#define REPLACEMENT "\xef\xbf\xbd"

void buf_utf8(Buf *b, const char *s)
{
    buf_puts(b, "");
    for (int valid; *s;) {
        size_t n = buf_utf8_span(s, &valid);
        buf_append(b, valid ? s : REPLACEMENT, valid ? n : strlen(REPLACEMENT));
        s += n;
    }
}

/* Bytes of the character at `s` that a message shows as they are; 0: those of a control character, C1's too, are
   escaped. */
static size_t shown_span(const unsigned char *s)
{
    int valid;
    size_t n = buf_utf8_span((const char *)s, &valid);
    int feed = s[0] == '\n' && (!s[1] || (s[1] == ' ' && s[2] == ' '));
    int control = (s[0] < 0x20 && s[0] != '\t' && !feed) || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0);
    return valid && !control ? n : 0;
}

void buf_message(Buf *b, const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t plain = 0, n;
        while (s[plain] && (n = shown_span(s + plain)) > 0) plain += n;
        buf_append(b, s, plain);
        s += plain;
        if (*s == '\n')
            buf_puts(b, "\\n");
        else if (*s)
            buf_printf(b, "\\x%02x", *s);
        s += *s != '\0';
    }
}

static void json_escape(Buf *b, char c)
{
    static const char names[][2] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                    {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i][0] == c) {
            buf_append(b, (char[]){'\\', names[i][1]}, 2);
            return;
        }
    }
    buf_printf(b, "\\u%04x", (unsigned)(unsigned char)c);
}

void buf_json(Buf *b, const char *s)
{
    buf_puts(b, "\"");
    while (*s) {
        size_t plain = 0; /* a run that needs no escape, in one piece */
        int valid = 1;
        while (s[plain] && (unsigned char)s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\') {
            size_t n = buf_utf8_span(s + plain, &valid);
            if (!valid) break;
            plain += n;
        }
        buf_append(b, s, plain);
        s += plain;
        if (!valid) {
            s += buf_utf8_span(s, &valid);
            buf_puts(b, REPLACEMENT);
        } else if (*s) {
            json_escape(b, *s++);
        }
    }
    buf_puts(b, "\"");
}

void buf_word(Buf *b, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        buf_puts(b, word);
        return;
    }
    buf_puts(b, "'");
    for (const char *p = word; *p; p++)
        if (*p == '\'')
            buf_puts(b, "'\"'\"'");
        else
            buf_append(b, p, 1);
    buf_puts(b, "'");
}

static int reads_back(char *text, size_t size, int digits, double x)
{
    snprintf(text, size, "%.*g", digits, x);
    return strtod(text, NULL) == x;
}

void buf_double(Buf *b, double x)
{
    char text[32];
    if (!isfinite(x)) {
        buf_puts(b, "null");
    } else if (x == 0) {
        buf_puts(b, signbit(x) ? "-0.0" : "0"); /* "-0" would be read as an integer, and lose its sign */
    } else if (x == trunc(x) && fabs(x) < 1e15) {
        buf_printf(b, "%.0f", x); /* 100, not 1e+02 */
    } else {
        int digits = reads_back(text, sizeof text, 15, x) ? 1 : 16;
        while (!reads_back(text, sizeof text, digits, x)) digits++;
        buf_puts(b, text);
    }
}

void buf_key(Buf *b, const char *key)
{
    if (b->len && b->data[b->len - 1] != '{') buf_puts(b, ", ");
    buf_json(b, key);
    buf_puts(b, ": ");
}

void buf_member(Buf *b, const char *key, double value)
{
    buf_key(b, key);
    buf_double(b, value);
}

void buf_member_text(Buf *b, const char *key, const char *value)
{
    buf_key(b, key);
    buf_json(b, value);
}

void buf_print(Buf *b)
{
    fwrite(b->data, 1, b->len, stdout);
    buf_free(b);
}

void buf_free(Buf *b)
{
    free(b->data);
    *b = (Buf){0};
}

void buf_free_all(Buf *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++) buf_free(all[i]);
}
