#include "train/loop/fit.h"

#include "base/test_switch.h"
#include "train/job/task.h"
#include "train/loop/loop_internal.h"
#include "train/ranks/signals.h"

enum { LEAST = 5, USUAL = 20, COLD = 3 }; /* steps to time; the first are slower and are not counted */

#define USUAL_SHARE 0.03 /* of --max-time: more steps than USUAL are timed until then, for short ones vary */
#define TRIAL_SHARE 0.1  /* of --max-time at most, where these are at least LEAST steps */
#define USED_SHARE  0.9  /* of the time that is left; the rest is a margin: machines are slower at times */
/* A step's lines in metrics.jsonl, ranks.jsonl and for TensorBoard, which are not written here: 0.6 to 0.8 ms. */
#define LINES_S 0.001

static Status stopped(const Loop *l)
{
    return fail(E_STOPPED, "%s while --fit-schedule timed steps; nothing is lost, the same command begins again",
                signals_name(ranks_signal(l->ranks)));
}

static Status one_step(Loop *l)
{
    Stats stats;
    double start = clock_monotonic();
    Status status = loop_step(l, &stats);
    if (status == E_STOPPED || (status == OK && ranks_signal(l->ranks))) return stopped(l);
    TRY(status);
    return loop_record(l, &stats, clock_monotonic() - start);
}

/* Rank 0's clock decides for all how many steps there are. */
static Status time_steps(Loop *l, FitTimes *t)
{
    Run *r = l->run;
    double limit = r->c->max_time, begin = clock_monotonic(), counted = begin;
    for (bool more = true; more;) {
        TRY(one_step(l));
        double now = clock_monotonic();
        if (++r->tried == COLD) counted = now;
        t->took = now - begin;
        if (r->tried > COLD)
            t->step_s = LINES_S + test_seconds("FIT_STEP", (now - counted) / (double)(r->tried - COLD));
        bool enough = r->tried >= USUAL && (double)r->tried * t->step_s >= USUAL_SHARE * limit;
        more = r->tried < LEAST || (!enough && t->took < TRIAL_SHARE * limit);
        TRY(ranks_broadcast(l->ranks, &more, sizeof more));
    }
    return OK;
}

static Status time_evaluation(Loop *l, FitTimes *t)
{
    Run *r = l->run;
    Buf text = {0};
    double metric, start = clock_monotonic();
    if (!r->evaluate) return OK;
    Status status = r->task->evaluate_during(r, &metric, &text);
    t->evaluation_s = clock_monotonic() - start + t->save_s / 3; /* best/ has a third of a state's bytes */
    buf_free(&text);
    return status == E_STOPPED ? stopped(l) : status;
}

static Status read_zeros(void *none, int64_t begin, int64_t end, float *to)
{
    (void)none;
    memset(to, 0, (size_t)(end - begin) * sizeof *to);
    return OK;
}

static Status clear_moments(Session *s)
{
    const Holding *h = &s->plan.input.place->holding;
    Intervals *parts = holding_shares(h, SPACE_MODEL, NULL);
    Status status = session_take(s, STATE_M, parts, read_zeros, NULL);
    if (status == OK) status = session_take(s, STATE_V, parts, read_zeros, NULL);
    intervals_free_all(parts, holding_ranks(h));
    return status;
}

Status fit_measure(Run *r, FitTimes *t)
{
    Status status = OK;
    const TrainProgress before = r->progress;
    const LossScaling scaling = r->session.scaling;
    Loop l;
    *t = (FitTimes){0};
    loop_open(&l, r);
    TRY_DONE(ranks_all(l.ranks, saving_open(&l.saving, r)));
    t->reserve_s = saving_reserve(l.saving);
    t->save_s = saving_seconds(l.saving);
    TRY_DONE(time_steps(&l, t));
    TRY_DONE(time_evaluation(&l, t));
    ranks_clear(l.ranks, VOTE_TIME); /* votes by the clock concern the steps taken back */
    ranks_clear(l.ranks, VOTE_END);
    ranks_clear(l.ranks, VOTE_SAVE);
    TRY_DONE(clear_moments(&r->session));
    TRY_DONE(session_set_scaling(&r->session, scaling));
    r->progress = before;
done:
    saving_close(l.saving);
    loop_free(&l);
    return status;
}

/* Seconds of evaluations and saves for each step, and of the saves by the clock for each second. */
static double beside_steps(const Run *r, const FitTimes *t, double *by_clock)
{
    const Config *c = r->c;
    double n = (double)r->source.count, batch = (double)c->batch_size, seconds = 0,
           per_epoch = (double)batches_per_epoch(r->source.count, c->batch_size);
    if (run_evaluates_while_training(r)) {
        if (c->eval_every != 0) seconds += t->evaluation_s / (c->eval_every < 0 ? per_epoch : (double)c->eval_every);
        if (r->eval_samples > 0) seconds += t->evaluation_s * fmin(batch, n) / (double)r->eval_samples;
    }
    if (c->save_steps > 0) seconds += t->save_s / (double)c->save_steps;
    if (c->save_every < 0) seconds += t->save_s / per_epoch;
    *by_clock = c->save_every > 0 ? t->save_s / c->save_every : 0;
    return seconds;
}

static Status count_steps(const Run *r, const FitTimes *t, int64_t *steps)
{
    double by_clock, each = t->step_s + beside_steps(r, t, &by_clock), limit = r->c->max_time,
                     used = clock_monotonic() - r->started,
                     end = t->reserve_s + t->evaluation_s * (run_evaluates_while_training(r) ? 2 : 1);
    double left = USED_SHARE * (limit - used - end), n = floor(left / (each * (1 + by_clock)));
    const char *evaluation = r->evaluate ? SHORT_TEXT(", an evaluation %.3g s", t->evaluation_s) : "",
               *measured = SHORT_TEXT("%lld steps took %.3g s%s", (long long)r->tried, t->took, evaluation);
    if (!(n >= USUAL))
        return fail(E_USAGE,
                    "--fit-schedule: %s. Of --max-time %.0fs, %.3g s are used and %.3g s are kept for the end, so that "
                    "%.0f steps fit; expected %d or more. Give more time, or --max-steps",
                    measured, limit, used, end, fmax(n, 0), USUAL);
    double per_epoch = (double)batches_per_epoch(r->source.count, r->c->batch_size);
    bool all = r->c->source[OPTION_epochs] > FROM_PRESET && n >= ceil(r->c->epochs * per_epoch - 1e-9);
    *steps = (int64_t)fmin(all ? ceil(r->c->epochs * per_epoch - 1e-9) : n, 1e15);
    log_info("--fit-schedule: %s; --max-steps %lld (%.3g epochs) fits into %s%s; the same run again: --max-steps %lld",
             measured, (long long)*steps, (double)*steps / per_epoch, CLOCK_DURATION(limit),
             all ? SHORT_TEXT(", which has room for %.0f", n) : "", (long long)*steps);
    return OK;
}

Status fit_steps(const Run *r, const FitTimes *t, int64_t *steps)
{
    TRY(ranks_all(r->ranks, run_first(r) ? count_steps(r, t, steps) : OK));
    return ranks_broadcast(r->ranks, steps, sizeof *steps);
}
