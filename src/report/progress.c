/* The progress line. Rates leave out the first steps, which warm up caches. */

#include "base/live_line.h"
#include "report/report.h"

#define WARM_UP   2 /* steps left out of rates */
#define REDRAW_S  0.1
#define SMOOTHING 0.95

struct Progress {
    int64_t total, first, every;
    bool live;
    double smooth, weight; /* exponential mean of the loss, and its bias correction */
    int64_t seen, seqs, tokens;
    double seconds, last_draw;
    char line[512];
};

Progress *progress_open(int64_t total_steps, int64_t first_step, int64_t every)
{
    Progress *p = mem_alloc(sizeof *p);
    *p = (Progress){.total = total_steps, .first = first_step, .every = every};
    p->live = live_line_open(p->line);
    return p;
}

static void update_line(Progress *p, const StepRecord *r)
{
    bool known = p->seen > WARM_UP || p->live; /* a line that stays says what is known */
    double rate = p->seconds > 0 ? (double)p->seqs / p->seconds : r->seq_per_s;
    double tokens = p->seconds > 0 ? (double)p->tokens / p->seconds : r->tokens_per_s;
    const char *eta = p->seen > WARM_UP
                          ? CLOCK_DURATION(p->seconds / (double)(p->seen - WARM_UP) * (double)(p->total - r->step))
                          : "?";
    const char *scale =
        r->loss_scale > 0 ? SHORT_TEXT(" scale=%.0f skipped=%lld", r->loss_scale, (long long)r->skipped) : "";
    snprintf(p->line, sizeof p->line, "step=%lld/%lld loss=%.4f lr=%.3g%s seq/s=%.1f tokens/s=%.0f mem=%.0fMiB%s%s",
             (long long)r->step, (long long)p->total, p->weight > 0 ? p->smooth / p->weight : r->loss, r->lr, scale,
             rate, tokens, (double)r->peak_bytes / (1 << 20), known ? " eta=" : "", known ? eta : "");
}

void progress_step(Progress *p, const StepRecord *r, int64_t n_seqs, int64_t n_tokens, double seconds)
{
    if (++p->seen > WARM_UP) {
        p->seqs += n_seqs;
        p->tokens += n_tokens;
        p->seconds += seconds;
    }
    if (isfinite(r->loss)) {
        p->smooth = SMOOTHING * p->smooth + (1 - SMOOTHING) * r->loss;
        p->weight = SMOOTHING * p->weight + (1 - SMOOTHING);
    }
    double now = clock_monotonic();
    bool last = r->step == p->total;
    if (p->live) {
        if (!last && now - p->last_draw < REDRAW_S) return;
        p->last_draw = now;
        update_line(p, r);
        live_line_draw();
    } else if (last || r->step % p->every == 0) {
        update_line(p, r);
        log_info("%s", p->line);
    }
}

void progress_close(Progress *p)
{
    if (!p) return;
    if (p->live) live_line_close(true);
    free(p);
}
