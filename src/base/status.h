/* Errors. Every fallible function returns Status. `return fail(E_IO, "%s: ...", path)` records a per-thread message,
   TRY passes it on, TRY_DONE passes it on through the function's one `done:` label. A message says what was expected,
   what was found, where, and what to do. CHECK is for programmer errors only. */
#pragma once

#include "base/std.h"

/* X(name, exit code, meaning) */
#define STATUS_LIST(X)                                                                                                 \
    X(OK, 0, "done")                                                                                                   \
    X(E_FAIL, 1, "failed")                                                                                             \
    X(E_USAGE, 2, "usage")                                                                                             \
    X(E_IO, 1, "input/output error")                                                                                   \
    X(E_FORMAT, 1, "bad input")                                                                                        \
    X(E_NUMERIC, 1, "not a finite number")                                                                             \
    X(E_STOPPED, 75, "stopped by a signal or a limit, with its work saved; run again to resume")                       \
    X(E_BUSY, 75, "in use by another process, run again later")                                                        \
    X(E_MEMORY, 76, "does not fit in memory")                                                                          \
    X(E_PEER, 77, "a rank or host was lost; run again to resume")                                                      \
    X(E_DIFFERS, 78, "other bits than before")                                                                         \
    X(E_CORRUPT, 79, "checkpoint corrupt and no good one left, or a model, shard or text changed since it was made")

typedef enum {
#define X(name, code, meaning) name,
    STATUS_LIST(X)
#undef X
        N_STATUSES
} Status;

#define fail(...) status_not_ok(status_fail(__VA_ARGS__))

/* status_fail() never returns OK. Compilers do not see that, and would warn of results that are unset only after OK. */
static inline Status status_not_ok(Status status)
{
    if (status == OK) __builtin_unreachable();
    return status;
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        Status try_status_ = (call);                                                                                   \
        if (try_status_ != OK) return try_status_;                                                                     \
    } while (0)

/* For functions that hold something: `Status status = OK;` at the top, `done:` before the clean-up. */
#define TRY_DONE(call)                                                                                                 \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != OK) goto done;                                                                                   \
    } while (0)

/* Never compiled out. Prints the condition and the message, then aborts. */
#define CHECK(cond, ...)                                                                                               \
    do {                                                                                                               \
        if (!(cond)) status_abort(__FILE__, __LINE__, #cond, __VA_ARGS__);                                             \
    } while (0)

/* Records this thread's message and returns `status`, which must not be OK. The arguments may contain status_message();
   %m works. */
Status status_fail(Status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Puts "context: " before this thread's message and returns `status`: `return status_context(s, "row %d", i);`. OK
   returns OK and changes nothing. */
Status status_context(Status status, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* This thread's last message; "" without one. Valid until the next fail on this thread. An ellipsis ends a message that
   was cut at 8 KiB. */
const char *status_message(void);
const char *status_name(Status status);    /* "E_IO" */
const char *status_meaning(Status status); /* "input/output error" */
int status_exit_code(Status status);
void status_abort(const char *file, int line, const char *cond, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));
