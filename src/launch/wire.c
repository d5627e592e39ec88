#include "launch/wire.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

enum { LONGEST_LINE = 8192, LONGEST_MESSAGE = 1 << 22 };

void wire_reader(WireReader *r, int fd)
{
    *r = (WireReader){.fd = fd, .heard = clock_monotonic()};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void wire_reader_close(WireReader *r)
{
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
    buf_free(&r->pending);
    r->taken = 0;
}

bool wire_fill(WireReader *r)
{
    char block[16384];
    while (r->fd >= 0) {
        if (r->taken > 0) { /* drops the lines that were taken */
            memmove(r->pending.data, r->pending.data + r->taken, r->pending.len - r->taken + 1); /* the NUL too */
            r->pending.len -= r->taken;
            r->taken = 0;
        }
        ssize_t n = read(r->fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return true;
        if (n <= 0) {
            close(r->fd);
            r->fd = -1;
            return false;
        }
        r->heard = clock_monotonic();
        buf_append(&r->pending, block, (size_t)n);
        if (n < (ssize_t)sizeof block || r->pending.len > LONGEST_MESSAGE) return true;
    }
    return false;
}

static void unescape(char *s)
{
    char *to = s;
    for (; *s; s++) {
        if (*s == '\\' && s[1]) {
            s++;
            *to++ = *s == 'n' ? '\n' : *s;
        } else
            *to++ = *s;
    }
    *to = '\0';
}

char *wire_line(WireReader *r, bool escaped)
{
    char *at = r->pending.data + r->taken;
    size_t left = r->pending.len - r->taken;
    if (left == 0) return NULL;
    char *newline = memchr(at, '\n', left);
    size_t most = escaped ? LONGEST_MESSAGE : LONGEST_LINE;
    if (newline) {
        *newline = '\0';
        r->taken += (size_t)(newline - at) + 1;
    } else if (r->fd < 0 || left >= most) { /* the rest; a Buf ends with a NUL */
        r->taken = r->pending.len;
    } else
        return NULL;
    if (escaped) unescape(at);
    return at;
}

void wire_escape(Buf *b, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n')
            buf_puts(b, "\\n");
        else if (*text == '\\')
            buf_puts(b, "\\\\");
        else
            buf_append(b, text, 1);
    }
    buf_puts(b, "\n");
}

bool wire_write(int fd, const char *data, size_t size, double patience_s)
{
    double until = clock_monotonic() + patience_s;
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN) return false;
        double left = until - clock_monotonic();
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        if (left <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
        poll(&wait, 1, left > 1 ? 1000 : (int)(1e3 * left) + 1);
    }
    return true;
}

bool wire_send(int fd, const char *text)
{
    Buf line = {0};
    wire_escape(&line, text);
    bool sent = wire_write(fd, line.data, line.len, 5);
    int error = errno;
    buf_free(&line);
    errno = error;
    return sent;
}
