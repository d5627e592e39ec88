#include "base/live_line.h"

#include <unistd.h>

#include "base/log.h"
#include "base/terminal.h"

static const char *shown, *below; /* the one that is drawn, and the one that it hides; NULL: none */

static void clear_line(void)
{
    if (shown && *shown) fputs("\r\033[K", stderr);
}

void live_line_draw(void)
{
    if (!shown || !*shown) return;
    fprintf(stderr, "\r\033[K%.*s", terminal_columns(STDERR_FILENO) - 1, shown);
    fflush(stderr);
}

bool live_line_open(const char *line)
{
    if (!terminal_redraws(STDERR_FILENO)) return false;
    clear_line();
    below = shown;
    shown = line;
    log_set_hook(clear_line, live_line_draw);
    return true;
}

void live_line_close(bool keep)
{
    if (!below) log_set_hook(NULL, NULL);
    if (keep && *shown) fputc('\n', stderr);
    if (!keep) clear_line();
    shown = below;
    below = NULL;
    live_line_draw();
}
