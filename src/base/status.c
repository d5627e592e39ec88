#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 8192 };

/* What this thread failed with last. */
static _Thread_local struct {
    char text[MESSAGE_BYTES];
    const char *file; /* a string literal: __FILE__ */
    int line;
    char where[128];
} last;

static const struct {
    const char *name, *meaning;
    int exit_code;
} table[] = {
#define X(name, code, meaning) {#name, meaning, code},
    STATUS_LIST(X)
#undef X
};

/* Marks a text that vsnprintf had to cut, without leaving half a UTF-8 character before the mark. */
static void mark_cut(char *text, size_t size)
{
    static const char mark[] = "\xe2\x80\xa6";
    size_t end = size - sizeof mark;
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) end--;
    memcpy(text + end, mark, sizeof mark);
}

/* The arguments may point into the last message, so it is replaced only when the new one is complete. */
Status status_fail(Status status, const char *file, int line, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0) strcpy(text, "(a message that cannot be printed)");
    if (n >= MESSAGE_BYTES) mark_cut(text, sizeof text);
    strcpy(last.text, text);
    last.file = file;
    last.line = line;
    return status;
}

Status status_context(Status status, const char *format, ...)
{
    if (status == OK) return OK;
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0) return status;
    if (n < MESSAGE_BYTES) {
        const char *why = last.text[0] ? last.text : status_meaning(status);
        n += snprintf(text + n, sizeof text - (size_t)n, ": %s", why);
    }
    if (n >= MESSAGE_BYTES) mark_cut(text, sizeof text);
    strcpy(last.text, text);
    return status;
}

const char *status_message(void) { return last.text; }

const char *status_where(void)
{
    if (!last.file) return "";
    const char *slash = strrchr(last.file, '/');
    snprintf(last.where, sizeof last.where, "%s:%d", slash ? slash + 1 : last.file, last.line);
    return last.where;
}

static int is_known(Status status) { return (size_t)status < sizeof table / sizeof *table; }

const char *status_name(Status status) { return is_known(status) ? table[status].name : "E_?"; }

const char *status_meaning(Status status) { return is_known(status) ? table[status].meaning : "unknown status"; }

int status_exit_code(Status status) { return is_known(status) ? table[status].exit_code : 1; }

void status_abort(const char *file, int line, const char *cond, const char *format, ...)
{
    char text[MESSAGE_BYTES];
    int n = snprintf(text, sizeof text, "internal error at %s:%d: not (%s): ", file, line, cond);
    if (n > 0 && n < MESSAGE_BYTES) {
        va_list args;
        va_start(args, format);
        vsnprintf(text + n, sizeof text - (size_t)n, format, args);
        va_end(args);
    }
    size_t len = strlen(text);
    if (len == sizeof text - 1) len--;
    text[len] = '\n';
    ssize_t ignored = write(STDERR_FILENO, text, len + 1);
    (void)ignored;
    abort();
}
