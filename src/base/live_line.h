/* A line on the terminal that is redrawn in place. Log messages clear it and draw it again. A second one hides the
   first until it is closed. */
#pragma once

#include <stdbool.h>

/* `line` is the caller's buffer, drawn as far as the terminal is wide; "" draws nothing. Returns false where standard
   error is not a terminal that can redraw a line: then there is nothing to close. */
bool live_line_open(const char *line);
void live_line_draw(void);
/* Leaves the line on the terminal (`keep`), or clears it. */
void live_line_close(bool keep);
