/* Messages for people, on stderr, one line each: "error: …", "warning: …", "debug: …", and LOG_INFO without a prefix. A
   final newline is added. The further lines of a table begin with two blanks; other line feeds, control characters and
   what is no UTF-8 are escaped (buf_message), since messages quote arguments, names and contents of files. From any
   thread (one write(2) per line, under one lock), errno is kept; not from signal handlers. The live progress line is
   cleared first and drawn again. */
#pragma once

#include <stddef.h>

typedef enum { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } LogLevel;

void log_set_level(LogLevel level); /* default LOG_INFO */
/* Prefix of every later line: "rank 3 on node07: …". Copied; NULL for none. */
void log_set_name(const char *name);
void log_printf(LogLevel level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Called before and after every line, so that a progress line can be cleared and drawn again. NULL: none. They run
   under the log's lock and must not log. */
void log_set_hook(void (*before)(void), void (*after)(void));
/* Takes every line in place of stderr, its newline with it; under the log's lock. NULL: stderr again. */
void log_set_sink(void (*sink)(const char *line, size_t size));

#define log_error(...) log_printf(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_printf(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_printf(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_printf(LOG_DEBUG, __VA_ARGS__)
