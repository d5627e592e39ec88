/* Between steps: saves, evaluations, votes and stops. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "train/loop_internal.h"
#include "train/result.h"
#include "train/signals.h"

#define SAVE_AGAIN  60.0 /* seconds from a failed save to the retry */
#define BEHIND_MOST 60.0 /* seconds from resuming from memory to the first save, at most */
#define FORMS_EVERY 1000 /* steps between checks of the LayerNorms' forms (contracts.md 5) */

int64_t loop_samples_before(const Run *r, int64_t batch)
{
    return batches_examples(r->source.count, r->c->batch_size, batch);
}

Status loop_save_alone(Loop *l)
{
    const float *weights;
    TRY(saving_fetch(l->saving, &weights));
    TRY(session_check_weights(&l->run->session, weights, l->progress->step));
    l->last_save = clock_monotonic();
    l->save_again = 0;
    TRY(saving_begin(l->saving));
    l->behind = false;
    profile_range(l->profile, l->last_save, "save");
    return OK;
}

static Status save(Loop *l)
{
    l->saved_step = l->progress->step;
    if (session_sharded(&l->run->session)) {
        if (l->saving) saving_settle(l->saving);
        TRY(session_collect(&l->run->session));
    }
    return ranks_follow(l->ranks, ranks_first(l->ranks) ? loop_save_alone(l) : OK);
}

/* All ranks must hold the same weights to the last bit before rank 0 saves them for all. */
static Status check_same(const Loop *l)
{
    const float *weights;
    char hex[33];
    if (!l->ranks) return OK;
    TRY(session_read(&l->run->session, STATE_WEIGHTS, NULL, &weights));
    digest_format(digest_of(weights, (size_t)l->run->session.model->params.size * sizeof *weights), hex);
    session_read_done(&l->run->session, weights);
    log_debug("step %lld: the weights' digest is %s", (long long)l->progress->step, hex);
    return ranks_same(l->ranks, "the digest of the weights", hex);
}

Status loop_save(Loop *l)
{
    TRY(check_same(l));
    TRY(save(l));
    return ranks_follow(l->ranks, ranks_first(l->ranks) ? saving_wait(l->saving) : OK);
}

/* A failed save in the middle of training is retried soon: the previous checkpoint is still good, and the next save may
   succeed. */
static Status save_meanwhile(Loop *l)
{
    Status status = save(l);
    if (l->ranks) ranks_settled(l->ranks, VOTE_SAVE);
    if (status != E_IO) return status;
    l->save_again = clock_monotonic() + SAVE_AGAIN;
    if (ranks_first(l->ranks))
        log_warn("step %lld is not saved, training continues: %s", (long long)l->progress->step, status_message());
    return OK;
}

/* A run that resumed from memory is ahead of the disk, and its first snapshot discards the snapshot that it resumed
   from. So a save to disk comes soon, unless saves are off until the end (`behind` is false then). */
static bool save_due_behind(const Loop *l, double now)
{
    if (!l->behind || l->save_again > 0 || l->progress->step == l->first_step) return false;
    return !l->snapshots || snapshots_stats(l->snapshots).taken > 0 || now - l->last_save >= BEHIND_MOST;
}

static bool save_due_by_clock(const Loop *l)
{
    double every = l->run->c->save_every, now = clock_monotonic();
    if ((l->save_again > 0 && now >= l->save_again) || save_due_behind(l, now)) return true;
    return every > 0 && now - l->last_save >= every;
}

static bool save_due_by_steps(const Loop *l)
{
    int64_t every = l->run->c->save_steps;
    return every > 0 && l->progress->step % every == 0 && l->saved_step != l->progress->step;
}

/* Also due when a run resumes that stopped before this evaluation, and after batches with a skipped update. */
static bool evaluation_due_at(const Loop *l, int64_t step, int64_t batch)
{
    const TrainProgress *p = l->progress;
    int64_t every = l->run->c->eval_every, samples = l->run->eval_samples;
    if (!l->run->evaluate || (every <= 0 && samples <= 0) || step == 0 || p->evaluated == step) return false;
    return step == l->run->schedule.total_steps || (every > 0 && step % every == 0) ||
           (samples > 0 && loop_samples_before(l->run, batch) / samples > p->evaluated_samples / samples);
}

static bool evaluation_due(const Loop *l) { return evaluation_due_at(l, l->progress->step, l->progress->batch); }

/* --max-time leaves too little for another step and a save. A process makes at least one step, whatever its limit, so
   that runs with a short limit make progress too. */
static bool time_is_up(const Loop *l)
{
    double limit = l->run->c->max_time, next = l->slowest_step;
    if (!(limit > 0) || l->progress->step == l->first_step) return false;
    if (evaluation_due(l)) next += l->slowest_evaluation;
    return clock_monotonic() - l->run->started + next + saving_reserve(l->saving) >= limit;
}

/* Checks once a second at most, because the file's folder may be on a file server. */
static bool persist_asked(Loop *l)
{
    const char *path = l->run->c->persist_file;
    double now = clock_monotonic();
    if (!*path || now - l->last_look < 1) return false;
    l->last_look = now;
    return access(path, F_OK) == 0;
}

void loop_vote(Loop *l)
{
    const TrainProgress *p = l->progress;
    if (!l->ranks) return;
    snapshots_vote(l->snapshots, p->step + 1);
    if (persist_asked(l)) ranks_vote(l->ranks, VOTE_PERSIST);
    if (signals_take_save()) ranks_vote(l->ranks, VOTE_SAVE);
    if (!ranks_first(l->ranks)) return;
    if (save_due_by_clock(l)) ranks_vote(l->ranks, VOTE_SAVE);
    double limit = l->run->c->max_time, next = 2 * l->slowest_step; /* the rest of this step, and another */
    if (evaluation_due_at(l, p->step + 1, p->batch + 1)) next += l->slowest_evaluation;
    if (limit > 0 && clock_monotonic() - l->run->started + next + saving_reserve(l->saving) >= limit)
        ranks_vote(l->ranks, VOTE_TIME);
}

static Status evaluate(Loop *l)
{
    Run *run = l->run;
    TrainProgress *p = l->progress;
    double metric = NAN, start = clock_monotonic();
    Buf text = {0};
    Status status = OK;
    TRY_DONE(run->task->evaluate_during(run, l->metrics, &metric, &text));
    log_info("step %lld: %s", (long long)p->step, text.data ? text.data : "");
    if (isnan(p->best_metric) || metric > p->best_metric) {
        p->best_metric = metric;
        p->best_step = p->step;
        TRY_DONE(ranks_follow(l->ranks, ranks_first(l->ranks) ? result_keep_best(run, metric) : OK));
    }
    run->reached = run->task->reached && run->task->reached(run, metric);
    p->evaluated = p->step;
    p->evaluated_samples = loop_samples_before(run, p->batch);
    l->slowest_evaluation = fmax(l->slowest_evaluation, clock_monotonic() - start);
    profile_range(l->profile, start, "evaluation");
done:
    buf_free(&text);
    return status;
}

/* Saves, then returns E_STOPPED with the reason of the stop. */
static Status stop(Loop *l, const char *why)
{
    TRY(loop_save(l));
    return fail(E_STOPPED, "%s at step %lld of %lld; the state is saved in %s, the same command resumes there", why,
                (long long)l->progress->step, (long long)l->run->schedule.total_steps, l->run->c->output_dir);
}

/* Removes the file, so that the same command does not stop at once again. */
static Status stop_to_persist(Loop *l)
{
    const char *path = l->run->c->persist_file;
    char *why = mem_printf("stopped by the file %s", path);
    Status status = stop(l, why);
    if (status == E_STOPPED) (void)unlink(path);
    free(why);
    return status;
}

Status loop_stop_if_asked(Loop *l)
{
    int signal = l->ranks ? ranks_signal(l->ranks) : *signals_stop();
    if (signal) return stop(l, signals_name(signal));
    if (l->ranks ? ranks_agreed(l->ranks, VOTE_TIME) : time_is_up(l)) return stop(l, "--max-time is nearly used up");
    if (l->ranks ? ranks_agreed(l->ranks, VOTE_PERSIST) : persist_asked(l)) return stop_to_persist(l);
    return OK;
}

Status loop_evaluate_if_due(Loop *l)
{
    TRY(loop_stop_if_asked(l));
    if (!evaluation_due(l)) return OK;
    Status status = evaluate(l);
    return status == E_STOPPED ? loop_stop_if_asked(l) : status;
}

Status loop_between_steps(Loop *l)
{
    Run *run = l->run;
    int64_t step = l->progress->step;
    bool changed = false;
    if (step % FORMS_EVERY == 0) {
        TRY(session_check_forms(&run->session, &changed));
        if (changed) log_info("step %lld: a LayerNorm changed its form; planned again", (long long)step);
    }
    TRY(loop_evaluate_if_due(l));
    TRY(snapshots_step(l->snapshots, l->step_s));
    if (l->saving && saving_failed(l->saving)) l->save_again = clock_monotonic() + SAVE_AGAIN;
    bool asked = l->ranks ? ranks_agreed(l->ranks, VOTE_SAVE) : signals_take_save() || save_due_by_clock(l);
    if (step < run->schedule.total_steps && (asked || save_due_by_steps(l))) TRY(save_meanwhile(l));
    return OK;
}
