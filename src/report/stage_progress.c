#include "report/stage_progress.h"

#include "base/base.h"
#include "base/live_line.h"
#include "base/test_switch.h"

#define LIVE_S  0.2
#define QUIET_S 30.0

void stage_progress_open(StageProgress *p)
{
    *p = (StageProgress){.started = clock_monotonic(), .first_done = -1};
    p->last = p->started;
    p->live = live_line_open(p->line);
}

bool stage_progress_due(StageProgress *p)
{
    return clock_monotonic() - p->last >= test_seconds("PROGRESS", p->live ? LIVE_S : QUIET_S);
}

void stage_progress_show(StageProgress *p, double done, const char *what)
{
    p->last = clock_monotonic();
    if (p->first_done < 0) { /* an earlier run's share took no time here */
        p->first_done = done;
        p->started = p->last;
    }
    double rate = p->last > p->started ? (done - p->first_done) / (p->last - p->started) : 0;
    const char *left = rate > 0 ? CLOCK_DURATION((1 - done) / rate) : "?";
    bool known = rate > 0 || p->live; /* a line that stays says what is known */
    if (isnan(done))
        snprintf(p->line, sizeof p->line, "%s", what);
    else
        snprintf(p->line, sizeof p->line, "%5.1f %%  %s%s%s", 100 * done, what, known ? "  eta=" : "",
                 known ? left : "");
    if (p->live)
        live_line_draw();
    else
        log_info("%s", p->line);
}

void stage_progress_close(StageProgress *p)
{
    if (p->live) live_line_close(false);
    p->live = false;
}

const char *stage_format_bytes(double bytes, char out[24])
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    int unit = 0;
    while (bytes >= 999.5 && unit < 4) bytes /= 1000, unit++;
    snprintf(out, 24, unit == 0 ? "%.0f %s" : "%.3g %s", bytes, units[unit]);
    return out;
}
