/* Between steps: saves, evaluations, votes and stops. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/test_switch.h"
#include "train/job/result.h"
#include "train/job/task.h"
#include "train/loop/loop.h"
#include "train/loop/loop_internal.h"
#include "train/ranks/signals.h"

#define SAVE_AGAIN  60.0 /* seconds from a failed save to the retry */
#define BEHIND_MOST 60.0 /* seconds from resuming from memory to the first save, at most */
#define FORMS_EVERY 1000 /* steps between checks of the LayerNorms' forms (contracts.md 5) */

int64_t loop_samples_before(const Run *r, int64_t batch)
{
    return batches_examples(r->source.count, r->c->batch_size, batch);
}

Status loop_save_alone(Loop *l, const char *folder, CheckpointFill *fill, void *context)
{
    saving_close(l->saving); /* its last save ends before, or is given up */
    TRY(saving_open_alone(&l->saving, l->run, folder, fill, context));
    TRY(saving_begin(l->saving));
    return saving_wait(l->saving);
}

static Status save(Loop *l)
{
    l->saved_step = l->progress->step;
    l->last_save = clock_monotonic();
    l->save_again = 0;
    TRY(saving_begin(l->saving));
    l->behind = false;
    if (ranks_first(l->ranks)) profile_range(l->profile, l->last_save, "save");
    return OK;
}

Status loop_save(Loop *l)
{
    TRY(session_check_same(&l->run->session)); /* the parts of a save are those of different ranks */
    TRY(save(l));
    return saving_wait(l->saving);
}

/* A failed save in the middle of training is retried soon: the previous checkpoint is still good, and the next save may
   succeed. */
static Status save_meanwhile(Loop *l)
{
    Status status = save(l);
    ranks_clear(l->ranks, VOTE_SAVE);
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
    const Config *c = l->run->c;
    int64_t every = c->save_steps, batches = batches_per_epoch(l->run->source.count, c->batch_size);
    if (l->saved_step == l->progress->step) return false;
    return (every > 0 && l->progress->step % every == 0) || (c->save_every < 0 && l->progress->batch % batches == 0);
}

/* `samples`, or a multiple of it, lies behind the last evaluation and not behind `now`. */
static bool passed(const TrainProgress *p, int64_t now, int64_t samples)
{
    return samples > 0 && now / samples > p->evaluated_samples / samples;
}

/* Also due when a run resumes that stopped before this evaluation, and after batches with a skipped update. */
static bool evaluation_due_at(const Loop *l, int64_t step, int64_t batch)
{
    const TrainProgress *p = l->progress;
    const Run *r = l->run;
    int64_t every = r->c->eval_every, now = loop_samples_before(r, batch);
    if (!run_evaluates_while_training(r) || step == 0 || p->evaluated == step) return false;
    return step == r->schedule.total_steps || (every > 0 && step % every == 0) || passed(p, now, r->eval_samples) ||
           (every < 0 && passed(p, now, r->source.count));
}

static bool evaluation_due(const Loop *l) { return evaluation_due_at(l, l->progress->step, l->progress->batch); }

/* --max-time leaves too little for a save, `steps` more steps, and an evaluation where it is due. */
static bool time_is_up(const Loop *l, double steps, bool evaluation)
{
    double limit = l->run->c->max_time, next = steps * l->slowest_step + (evaluation ? l->slowest_evaluation : 0);
    return limit > 0 && clock_monotonic() - l->run->started + next + saving_reserve(l->saving) >= limit;
}

double loop_trained(const Loop *l) { return l->trained_s + (clock_monotonic() - l->began); }

/* --stop-after is used up. */
static bool end_is_due(const Loop *l)
{
    double limit = l->run->c->stop_after;
    return limit > 0 && loop_trained(l) >= limit;
}

Status loop_check_persist_file(const char *path, bool *asked)
{
    struct stat st;
    *asked = false;
    if (!*path || stat(path, &st) != 0) return OK; /* a file server may fail */
    *asked = S_ISREG(st.st_mode) && st.st_size == 0;
    if (*asked) return OK;
    char what[48] = "no regular file";
    if (S_ISREG(st.st_mode)) snprintf(what, sizeof what, "a file of %lld bytes", (long long)st.st_size);
    return fail(E_USAGE,
                "--persist-file %s: expected nothing, or the empty file that asks for a save and a stop and is then "
                "removed; found %s. Give another name",
                path, what);
}

/* Warns once where the name is another file's. */
static bool persist_file_there(Loop *l)
{
    bool asked;
    if (loop_check_persist_file(l->run->c->persist_file, &asked) != OK && !l->persist_refused) {
        log_warn("training continues: %s", status_message());
        l->persist_refused = true;
    }
    return asked;
}

/* Checks once a second at most, because the file's folder may be on a file server. */
static bool persist_asked(Loop *l)
{
    const char *path = l->run->c->persist_file;
    double now = clock_monotonic();
    if (!*path || now - l->last_look < 1) return false;
    l->last_look = now;
    return persist_file_there(l);
}

void loop_vote(Loop *l)
{
    const TrainProgress *p = l->progress;
    if (!l->ranks) return;
    snapshots_vote(l->snapshots, p->step + 1);
    saving_vote(l->saving);
    if (persist_asked(l)) ranks_vote(l->ranks, VOTE_PERSIST);
    if (signals_take_save()) ranks_vote(l->ranks, VOTE_SAVE);
    if (!ranks_first(l->ranks)) return;
    if (save_due_by_clock(l)) ranks_vote(l->ranks, VOTE_SAVE);
    if (time_is_up(l, 2, evaluation_due_at(l, p->step + 1, p->batch + 1))) /* the rest of this step, and another */
        ranks_vote(l->ranks, VOTE_TIME);
    if (end_is_due(l)) ranks_vote(l->ranks, VOTE_END);
}

static Status evaluate(Loop *l)
{
    Run *run = l->run;
    TrainProgress *p = l->progress;
    double metric = NAN, start = clock_monotonic();
    Buf text = {0};
    Status status = OK;
    int rank = ranks_rank(l->ranks);
    test_at_number("evaluate", p->step, rank);
    TRY_DONE(run->task->evaluate_during(run, &metric, &text));
    TRY_DONE(result_write_lines(run, l->metrics));
    log_info("step %lld: %s", (long long)p->step, text.data ? text.data : "");
    test_at_number("evaluated", p->step, rank);
    bool better = !isnan(metric) && !(metric <= p->best_metric); /* best_metric: NaN before the first number */
    bool best = better || metric == p->best_metric;              /* of equal ones the last, which is trained longest */
    if (best) TRY_DONE(result_keep_best(run, metric));
    TRY_DONE(ranks_meet(l->ranks)); /* no rank counts the evaluation before rank 0 has written its lines and best/ */
    p->since_best = better ? 0 : p->since_best + 1;
    if (best) {
        p->best_metric = metric;
        p->best_step = p->step;
    }
    p->evaluated = p->step;
    p->evaluated_samples = loop_samples_before(run, p->batch);
    run->reached = task_reached(run, p);
    if (run->reached && run->c->patience > 0)
        log_info("training ends: --patience %lld, and the last evaluations were no better",
                 (long long)run->c->patience);
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
    bool sign = persist_file_there(l); /* on this rank's host */
    Status status = stop(l, why);
    if (status == E_STOPPED && sign) (void)unlink(path);
    free(why);
    return status;
}

Status loop_stop_if_asked(Loop *l)
{
    int signal = ranks_signal(l->ranks);
    if (signal) return stop(l, signals_name(signal));
    /* Alone, a process makes at least one step, so that runs with a short limit make progress too. */
    bool late = l->progress->step > l->first_step && !l->ranks && time_is_up(l, 1, evaluation_due(l));
    if (late || ranks_agreed(l->ranks, VOTE_TIME)) return stop(l, "--max-time is nearly used up");
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

/* On rank 0 alone, in the folder that is there. */
static Status save_whole(Loop *l)
{
    if (session_scattered(&l->run->session)) return fail(E_FAIL, "this rank does not have the whole state");
    return loop_save_alone(l, l->run->c->output_dir, NULL, NULL);
}

/* The lock moves to the new folder, so that it is on the folder that is written to. */
static Status save_in_new_folder(Loop *l)
{
    Run *run = l->run;
    FolderLock lock;
    if (session_scattered(&run->session)) return save_whole(l);
    TRY(lock_take_new(&lock, run->c->output_dir));
    lock_release(&run->lock);
    run->lock = lock;
    return save_whole(l);
}

static Status metrics_are_lost(Loop *l, const char *lost)
{
    Status saved = save_whole(l);
    char *why = saved == OK ? mem_strdup("is saved") : mem_printf("is not saved (%s)", status_message());
    Status status = fail(E_FAIL,
                         "%s was removed or replaced while this run wrote to it, and its lines so far are gone. The "
                         "state of step %lld %s. The same command resumes and writes the lines from there",
                         lost, (long long)l->progress->step, why);
    free(why);
    return status;
}

/* Ends the run if its output folder or a file of metrics is gone: files that are open would be written where nobody
   looks, and another run could begin in a new folder of that name. */
static Status check_output(Loop *l)
{
    const char *dir = l->run->c->output_dir;
    if (!ranks_first(l->ranks)) return OK;
    const char *lost = l->metrics ? metrics_lost(l->metrics) : NULL; /* looked at first: the folder may go in between */
    test_at_number("looked", l->progress->step, 0);
    if (lock_there(&l->run->lock)) return lost ? metrics_are_lost(l, lost) : OK;
    if (save_in_new_folder(l) != OK)
        return fail(E_FAIL,
                    "%s was removed, renamed or replaced while this run wrote to it. Step %lld is not saved (%s). If "
                    "the folder was renamed, rename it back: the same command resumes from its newest checkpoint",
                    dir, (long long)l->progress->step, status_message());
    return fail(E_FAIL,
                "%s was removed or renamed while this run wrote to it. The state of step %lld is saved in a new folder "
                "of that name, and the same command resumes there; metrics of the steps before are in the old folder",
                dir, (long long)l->progress->step);
}

Status loop_check_forms(Loop *l)
{
    bool changed = false;
    if (l->progress->step % FORMS_EVERY != 0) return OK;
    TRY(saving_leave(l->saving, true)); /* memory may move */
    TRY(session_check_forms(&l->run->session, &changed));
    if (changed) log_info("step %lld: a LayerNorm changed its form; planned again", (long long)l->progress->step);
    return OK;
}

Status loop_between_steps(Loop *l)
{
    Run *run = l->run;
    int64_t step = l->progress->step;
    TRY(check_output(l));
    TRY(loop_check_forms(l));
    TRY(loop_evaluate_if_due(l));
    if (step < run->schedule.total_steps && (l->ranks ? ranks_agreed(l->ranks, VOTE_END) : end_is_due(l))) {
        run->reached = true;
        if (ranks_first(l->ranks))
            log_info("--stop-after: training ends at step %lld of %lld, after %.1f s in it", (long long)step,
                     (long long)run->schedule.total_steps, loop_trained(l));
        return OK;
    }
    TRY(snapshots_step(l->snapshots, l->step_s));
    TRY(saving_step(l->saving));
    if (l->saving && saving_failed(l->saving)) l->save_again = clock_monotonic() + SAVE_AGAIN;
    bool asked = l->ranks ? ranks_agreed(l->ranks, VOTE_SAVE) : signals_take_save() || save_due_by_clock(l);
    if (step < run->schedule.total_steps && (asked || save_due_by_steps(l))) TRY(save_meanwhile(l));
    return saving_leave(l->saving, false);
}
