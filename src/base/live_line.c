#include "base/live_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"

static const char *shown; /* NULL: none is open */

static void clear_line(void)
{
    if (shown && *shown) fputs("\r\033[K", stderr);
}

void live_line_draw(void)
{
    struct winsize size;
    int columns = 80;
    if (!shown || !*shown) return;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) columns = size.ws_col;
    fprintf(stderr, "\r\033[K%.*s", columns - 1, shown);
    fflush(stderr);
}

bool live_line_open(const char *line)
{
    const char *term = getenv("TERM");
    if (!isatty(STDERR_FILENO) || !term || strcmp(term, "dumb") == 0) return false;
    shown = line;
    log_set_hook(clear_line, live_line_draw);
    return true;
}

void live_line_close(bool keep)
{
    log_set_hook(NULL, NULL);
    if (keep && *shown) fputc('\n', stderr);
    if (!keep) clear_line();
    shown = NULL;
}
