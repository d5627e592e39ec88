/* The terminal behind standard output or standard error: its width, its colours, text wrapped to it. */
#pragma once

#include "base/mem.h"

/* Columns of the terminal; 80 where `fd` is none. */
int terminal_columns(int fd);
/* Whether a line can be drawn again in place. */
bool terminal_redraws(int fd);
/* Whether the terminal has colours and the user wants them: NO_COLOR (no-color.org), in any text, is unset or empty. */
bool terminal_colours(int fd);

#define TERMINAL_BOLD   "\033[1m"
#define TERMINAL_RED    "\033[1;31m"
#define TERMINAL_YELLOW "\033[1;33m"
#define TERMINAL_PLAIN  "\033[0m"

/* Appends the words of `text` in lines of at most `columns`, and a line break. The cursor is at `indent`, to which
   later lines are indented. A longer word is cut, after a comma, dash or slash if it has one. */
void terminal_wrap(Buf *out, const char *text, int indent, int columns);
/* Columns that a UTF-8 text takes: its characters. */
int terminal_width(const char *text, size_t len);
