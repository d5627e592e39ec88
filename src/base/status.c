#include "base/status.h"

#include <unistd.h>

enum { MESSAGE_BYTES = 8192 };

static _Thread_local char last[MESSAGE_BYTES]; /* this thread's message */

static const struct {
    const char *name, *meaning;
    int exit_code;
} table[N_STATUSES] = {
#define X(name, code, meaning) {#name, meaning, code},
    STATUS_LIST(X)
#undef X
};

/* Makes `text`, of which `length` bytes were wanted, the last message. The mark of a cut does not follow half a UTF-8
   character. */
static void set_message(char text[MESSAGE_BYTES], int length)
{
    static const char mark[] = "\xe2\x80\xa6";
    if (length >= MESSAGE_BYTES) {
        size_t end = MESSAGE_BYTES - sizeof mark;
        while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) end--;
        memcpy(text + end, mark, sizeof mark);
    }
    strcpy(last, text);
}

/* The arguments may point into the last message, so the new one is built beside it. What the system refuses for lack of
   memory is E_MEMORY, whatever call it was. That of files is named. */
Status status_fail(Status status, const char *format, ...)
{
    CHECK(status != OK, "a failure with the status OK: %s", format);
    char text[MESSAGE_BYTES];
    bool by_system = strstr(format, "%m") != NULL, no_files = by_system && errno == EMFILE;
    bool no_memory = by_system && status == E_IO && errno == ENOMEM;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0) strcpy(text, "(a message that cannot be printed)");
    if (n >= 0 && n < MESSAGE_BYTES && no_files)
        n += snprintf(text + n, sizeof text - (size_t)n, ". Raise the limit on open files (ulimit -n)");
    set_message(text, n);
    return no_memory ? E_MEMORY : status;
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
    if (n < MESSAGE_BYTES)
        n += snprintf(text + n, sizeof text - (size_t)n, ": %s", *last ? last : status_meaning(status));
    set_message(text, n);
    return status;
}

const char *status_message(void) { return last; }

static int is_known(Status status) { return (unsigned)status < N_STATUSES; }

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
