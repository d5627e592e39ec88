/* The loop. One turn is one step: the batch by its number, its micro-batches, the update; then what is due: metrics,
   evaluation, a save, the end. Everything that varies is in TrainProgress, so a run can stop and go on at any turn. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/observe.h"
#include "train/profile.h"
#include "train/ranks.h"
#include "train/result.h"
#include "train/saving.h"
#include "train/signals.h"
#include "train/snapshots.h"
#include "train/survive.h"
#include "train/train.h"

#define SAVE_AGAIN  60.0 /* seconds from a save that failed to the next try */
#define BEHIND_MOST 60.0 /* seconds after a start out of memory to the first save, at most */
#define FORMS_EVERY 1000 /* steps between looks at the LayerNorms' forms (contracts.md 5) */

typedef struct {
    Run *run;
    TrainProgress *progress; /* the run's */
    Ranks *ranks;            /* NULL: one */
    Snapshots *snapshots;    /* NULL: none */
    bool behind;             /* it went on from memory, and disk has an older state, or none: until the first save */
    bool persisted;          /* a rank was lost, and this one saved what it held */
    Saving *saving;          /* this and the next two: of rank 0, else NULL */
    Metrics *metrics;
    Progress *display;
    Profile *profile;  /* NULL: none */
    StepRecord record; /* of the last step here */
    MicroBatch micro;
    /* the step's sequences: index into examples, order in micro-batches; (batch_size) each */
    const Examples *examples;
    int64_t *index, *order;
    MicroRange *ranges;
    int64_t n_seqs, n_tokens, n_masked;                 /* of the step, on all ranks */
    int64_t n_labelled;                                 /* its sequences that have a label: the loss is their mean */
    int64_t *share;                                     /* with ranks: the places of this one's sequences, (n_share) */
    int64_t n_share, n_micros;                          /* of this rank; it may have none */
    LossScaling before;                                 /* fp16: as the step found it */
    int64_t first_step;                                 /* of this process */
    int64_t saved_step;                                 /* the newest that a save of this process began with */
    double last_save, slowest_step, slowest_evaluation; /* seconds */
    double save_again;                                  /* a save failed: tried again at this time; 0: none failed */
    double step_s;                                      /* of a step, a mean of the last ones */
    double last_look;                                   /* for --persist-file */
} Loop;

static double per_epoch(const Run *r) { return (double)batches_per_epoch(r->source.count, r->c->batch_size); }

/* Sequences that training has seen before this batch. */
static int64_t samples_before(const Run *r, int64_t batch)
{
    return batches_examples(r->source.count, r->c->batch_size, batch);
}

/* ---- one step ---- */

static void fill(Loop *l, int64_t m)
{
    const MicroRange *r = &l->ranges[m];
    const Run *run = l->run;
    micro_fill(&l->micro, l->examples, l->index, l->order + r->first, r->count, run_padded_length(run),
               run->session.model->config.pad_token_id);
}

/* The update was skipped because the gradient is not finite: say where it began. The weights are as before the step.
   Each micro-batch starts from a clear gradient, so that none is blamed for what another left in it. With ranks each
   looks at its own, and all say what the first of them found. */
static Status find_own_bad(Loop *l)
{
    for (int64_t m = 0; m < l->n_micros; m++) {
        TRY(session_begin(&l->run->session, (uint32_t)l->progress->batch, l->n_labelled, l->n_masked));
        fill(l, m);
        Status status = session_find_bad(&l->run->session, &l->micro);
        if (status != OK) return status;
    }
    return OK;
}

static Status find_bad(Loop *l)
{
    TRY(ranks_all(l->ranks, find_own_bad(l)));
    return fail(E_NUMERIC, "the gradient's norm is not finite, although every tensor is: its sum overflows. "
                           "Lower --learning-rate");
}

static Status explain_not_finite(Loop *l, int64_t step)
{
    LossScaling *scaling = &l->run->session.scaling;
    *scaling = l->before; /* of the state that is saved */
    Status status = find_bad(l);
    if (session_scale_is_dynamic(&l->run->session))
        return status_context(status,
                              "step %lld: the gradient is not finite even at loss scale %.0f, the least there is (%lld "
                              "updates were skipped since training began)",
                              (long long)step, (double)scaling->scale, (long long)scaling->skipped);
    if (scaling->scale > 0)
        return status_context(status, "step %lld, at the fixed loss scale %.0f (--loss-scale dynamic would lower it)",
                              (long long)step, (double)scaling->scale);
    return status_context(status, "step %lld", (long long)step);
}

/* The batch of this number and its micro-batches. */
static Status take_batch(Loop *l)
{
    const Run *run = l->run;
    const MicroCapacity *cap = &run->session.plan.micro;
    TRY(run->source.step(run->source.self, l->progress->batch, &l->examples, l->index, &l->n_seqs));
    bool pairs = run->session.model->head.kind == HEAD_PRETRAINING; /* shards may have none, or not of all */
    l->n_tokens = l->n_masked = l->n_labelled = 0;
    for (int64_t i = 0; i < l->n_seqs; i++) {
        l->n_tokens += example_length(l->examples, l->index[i]);
        l->n_masked += example_masked(l->examples, l->index[i]);
        l->n_labelled += !pairs || l->examples->label[l->index[i]] >= 0;
    }
    l->n_share = l->n_seqs;
    if (l->ranks)
        l->n_share = rank_share(l->examples, l->index, l->n_seqs, run_padded_length(run), ranks_rank(l->ranks),
                                ranks_size(l->ranks), l->share);
    l->n_micros = micro_split_some(l->examples, l->index, l->ranks ? l->share : NULL, l->n_share, cap,
                                   run_padded_length(run), l->order, l->ranges);
    return OK;
}

static void cast_votes(Loop *l);

/* In fp16 stats->finite may be 0: the update was skipped, and training goes on with a smaller loss scale. */
static Status run_step(Loop *l, Stats *stats)
{
    Run *run = l->run;
    Session *s = &run->session;
    int64_t step = l->progress->step + 1;
    l->before = s->scaling;
    TRY(take_batch(l));
    TRY(session_begin(s, (uint32_t)l->progress->batch, l->n_labelled, l->n_masked));
    double start = clock_monotonic();
    for (int64_t m = 0; m < l->n_micros - 1; m++, start = clock_monotonic()) {
        fill(l, m);
        TRY(session_micro(s, &l->micro));
        profile_range(l->profile, start, "micro-batch %lld", (long long)m);
    }
    if (l->n_micros > 0) fill(l, l->n_micros - 1);
    cast_votes(l);
    TRY(session_last(s, l->n_micros > 0 ? &l->micro : NULL));
    profile_range(l->profile, start, "micro-batch %lld", (long long)(l->n_micros - 1));
    start = clock_monotonic();
    snapshots_settle(l->snapshots);
    TRY(session_update(s, &run->setup.optimizer, step, schedule_rate(&run->schedule, step), stats));
    profile_range(l->profile, start, "update");
    bool goes_on = session_scale_is_dynamic(s) && l->before.scale > LOSS_SCALE_LEAST;
    return stats->finite || goes_on ? OK : explain_not_finite(l, step);
}

/* The step's loss from its sums: what its gradient is of. */
static void take_losses(const Loop *l, const Stats *stats, StepRecord *r)
{
    const Head *head = &l->run->session.model->head;
    double labelled = (double)l->n_labelled, masked = (double)l->n_masked;
    r->pretraining = head->kind == HEAD_PRETRAINING;
    if (!r->pretraining) {
        r->loss = stats->loss[0] / labelled;
        return;
    }
    r->mlm_loss = masked > 0 ? stats->loss[0] / masked : 0;
    r->mlm_accuracy = masked > 0 ? (double)stats->correct[0] / masked : NAN;
    r->nsp_loss = head->labels && labelled > 0 ? stats->loss[1] / labelled : NAN;
    r->loss = r->mlm_loss + (isnan(r->nsp_loss) ? 0 : r->nsp_loss);
}

/* Asking a device is a call to its driver: every step at first, while libraries still set up what they do late. */
static void measure_peak(const Loop *l)
{
    TrainProgress *p = l->progress;
    const Session *s = &l->run->session;
    if (s->options.backend->device && p->step - l->first_step > 4 && p->step % 100 != 0) return;
    size_t used = session_memory_used(s);
    if (used > p->peak_bytes) p->peak_bytes = used;
}

static Status record_step(Loop *l, const Stats *stats, double seconds)
{
    int64_t n_seqs = l->n_seqs, n_tokens = l->n_tokens;
    TrainProgress *p = l->progress;
    p->step++;
    p->batch++;
    p->sequences += n_seqs;
    p->tokens += n_tokens;
    p->seconds += seconds;
    measure_peak(l);
    StepRecord record = {.step = p->step,
                         .epoch = (double)p->batch / per_epoch(l->run),
                         .lr = schedule_rate(&l->run->schedule, p->step),
                         .grad_norm = stats->grad_norm,
                         .seq_per_s = (double)n_seqs / seconds,
                         .tokens_per_s = (double)n_tokens / seconds,
                         .peak_bytes = p->peak_bytes,
                         .wall_s = clock_monotonic() - l->run->started,
                         .loss_scale = (double)l->before.scale,
                         .skipped = l->before.skipped};
    take_losses(l, stats, &record);
    l->record = record;
    p->last_loss = record.loss;
    p->loss_sum += record.loss;
    if (!ranks_first(l->ranks)) return OK;
    TRY(metrics_step(l->metrics, &record));
    progress_step(l->display, &record, n_seqs, n_tokens, seconds);
    return OK;
}

/* fp16: the batch is consumed, the step is not made: `step` counts updates (contracts.md 3). */
static void record_skip(Loop *l)
{
    const LossScaling *now = &l->run->session.scaling;
    l->progress->batch++;
    log_info(
        "step %lld: the gradient overflows at loss scale %.0f; the update is skipped (%lld so far), the next has %.0f",
        (long long)l->progress->step + 1, (double)l->before.scale, (long long)now->skipped, (double)now->scale);
}

/* ---- what is due between steps ---- */

static Status save_alone(Loop *l)
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
    return ranks_follow(l->ranks, ranks_first(l->ranks) ? save_alone(l) : OK);
}

/* All ranks hold the same weights to the last bit: else what is saved would be one rank's opinion. */
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

/* Until it is durable. */
static Status save_whole(Loop *l)
{
    TRY(check_same(l));
    TRY(save(l));
    return ranks_follow(l->ranks, ranks_first(l->ranks) ? saving_wait(l->saving) : OK);
}

/* A save that fails in the middle of training costs nothing yet: the state before is there, and the next one may
   succeed, so it is tried again soon. */
static Status save_meanwhile(Loop *l)
{
    Status status = save(l);
    if (l->ranks) ranks_settled(l->ranks, VOTE_SAVE);
    if (status != E_IO) return status;
    l->save_again = clock_monotonic() + SAVE_AGAIN;
    if (ranks_first(l->ranks))
        log_warn("step %lld is not saved, training goes on: %s", (long long)l->progress->step, status_message());
    return OK;
}

/* Memory alone holds what this run had made before it was killed; once there is a snapshot again, that is given up. So
   disk comes first, unless it is to have nothing before the end. */
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

/* Also where a run that was stopped before this evaluation goes on, and after batches whose update was skipped. */
static bool evaluation_due_at(const Loop *l, int64_t step, int64_t batch)
{
    const TrainProgress *p = l->progress;
    int64_t every = l->run->c->eval_every, samples = l->run->eval_samples;
    if (!l->run->evaluate || (every <= 0 && samples <= 0) || step == 0 || p->evaluated == step) return false;
    return step == l->run->schedule.total_steps || (every > 0 && step % every == 0) ||
           (samples > 0 && samples_before(l->run, batch) / samples > p->evaluated_samples / samples);
}

static bool evaluation_due(const Loop *l) { return evaluation_due_at(l, l->progress->step, l->progress->batch); }

/* Too little is left of --max-time for another step and a save. A process makes one step whatever its limit is: runs
   that are too short for all else still come to an end. */
static bool time_is_up(const Loop *l)
{
    double limit = l->run->c->max_time, next = l->slowest_step;
    if (!(limit > 0) || l->progress->step == l->first_step) return false;
    if (evaluation_due(l)) next += l->slowest_evaluation;
    return clock_monotonic() - l->run->started + next + saving_reserve(l->saving) >= limit;
}

/* Looks once a second at most: the file's folder may be another machine's. */
static bool persist_asked(Loop *l)
{
    const char *path = l->run->c->persist_file;
    double now = clock_monotonic();
    if (!*path || now - l->last_look < 1) return false;
    l->last_look = now;
    return access(path, F_OK) == 0;
}

/* What this rank wants all to do after the step that runs. Rank 0 alone looks at the clock. */
static void cast_votes(Loop *l)
{
    const TrainProgress *p = l->progress;
    if (!l->ranks) return;
    snapshots_vote(l->snapshots, p->step + 1);
    if (persist_asked(l)) ranks_vote(l->ranks, VOTE_PERSIST);
    if (signals_take_save()) ranks_vote(l->ranks, VOTE_SAVE);
    if (!ranks_first(l->ranks)) return;
    if (save_due_by_clock(l)) ranks_vote(l->ranks, VOTE_SAVE);
    double limit = l->run->c->max_time, next = 2 * l->slowest_step; /* the rest of this one, and another */
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
    p->evaluated_samples = samples_before(run, p->batch);
    l->slowest_evaluation = fmax(l->slowest_evaluation, clock_monotonic() - start);
    profile_range(l->profile, start, "evaluation");
done:
    buf_free(&text);
    return status;
}

/* Saves and says why training ends here. */
static Status stop(Loop *l, const char *why)
{
    TRY(save_whole(l));
    return fail(E_STOPPED, "%s at step %lld of %lld; the state is saved in %s, the same command resumes there", why,
                (long long)l->progress->step, (long long)l->run->schedule.total_steps, l->run->c->output_dir);
}

/* The file has done its work: the same command must not stop at once again. */
static Status stop_to_persist(Loop *l)
{
    const char *path = l->run->c->persist_file;
    char *why = mem_printf("stopped by the file %s", path);
    Status status = stop(l, why);
    if (status == E_STOPPED) (void)unlink(path);
    free(why);
    return status;
}

static Status stop_if_asked(Loop *l)
{
    int signal = l->ranks ? ranks_signal(l->ranks) : *signals_stop();
    if (signal) return stop(l, signals_name(signal));
    if (l->ranks ? ranks_agreed(l->ranks, VOTE_TIME) : time_is_up(l)) return stop(l, "--max-time is nearly used up");
    if (l->ranks ? ranks_agreed(l->ranks, VOTE_PERSIST) : persist_asked(l)) return stop_to_persist(l);
    return OK;
}

static Status evaluate_if_due(Loop *l)
{
    TRY(stop_if_asked(l));
    if (!evaluation_due(l)) return OK;
    Status status = evaluate(l);
    return status == E_STOPPED ? stop_if_asked(l) : status;
}

static Status between_steps(Loop *l)
{
    Run *run = l->run;
    int64_t step = l->progress->step;
    bool changed = false;
    if (step % FORMS_EVERY == 0) {
        TRY(session_check_forms(&run->session, &changed));
        if (changed) log_info("step %lld: a LayerNorm changed its form; planned again", (long long)step);
    }
    TRY(evaluate_if_due(l));
    TRY(snapshots_step(l->snapshots, l->step_s));
    if (l->saving && saving_failed(l->saving)) l->save_again = clock_monotonic() + SAVE_AGAIN;
    bool asked = l->ranks ? ranks_agreed(l->ranks, VOTE_SAVE) : signals_take_save() || save_due_by_clock(l);
    if (step < run->schedule.total_steps && (asked || save_due_by_steps(l))) TRY(save_meanwhile(l));
    return OK;
}

/* ---- the whole ---- */

static Status turn(Loop *l)
{
    Stats stats;
    TRY(profile_step_begin(l->profile));
    double start = clock_monotonic();
    Status status = run_step(l, &stats);
    if (status == E_STOPPED) return stop_if_asked(l); /* the step is lost; the state before it is saved */
    TRY(status);
    double seconds = clock_monotonic() - start;
    if (seconds > l->slowest_step) l->slowest_step = seconds;
    l->step_s = l->step_s > 0 ? 0.9 * l->step_s + 0.1 * seconds : seconds;
    TRY(profile_step_end(l->profile, l->progress->step + 1, (double)l->n_tokens / (double)l->n_seqs));
    if (!stats.finite) {
        record_skip(l);
    } else {
        TRY(record_step(l, &stats, seconds));
    }
    return between_steps(l);
}

/* The end after a value that is not finite: the weights of the last update are saved if they are good; if they are not,
   what was saved before stays. */
static Status end_not_finite(Loop *l)
{
    log_error("%s", status_message());
    Status status = save_whole(l);
    if (status == OK)
        return fail(E_NUMERIC,
                    "training stopped: a value is not finite (see above). The last good state, step %lld, is saved in "
                    "%s; go on from it with a lower --learning-rate and --override",
                    (long long)l->progress->step, l->run->c->output_dir);
    log_error("step %lld is not saved: %s", (long long)l->progress->step, status_message());
    return fail(
        E_NUMERIC,
        "training stopped: a value is not finite (see above). The last good state is the newest checkpoint that "
        "%s held before, if it held one",
        l->run->c->output_dir);
}

/* For a rank that is left. */
static Status persist_alone(void *loop, const SnapshotList *list, const SnapshotSet *set)
{
    Loop *l = loop;
    if (set) return persist_write(list, set, l->run->c->output_dir, (int)l->run->c->keep);
    if (!l->saving) TRY(saving_open(&l->saving, l->run));
    if (!ranks_first(l->ranks) && l->record.step == l->progress->step &&
        metrics_complete(l->run->c->output_dir, &l->record) != OK)
        log_warn("%s", status_message());
    TRY(save_alone(l));
    return saving_wait(l->saving);
}

/* What is written and shown. */
static Status open_outputs(Loop *l)
{
    Run *run = l->run;
    int64_t step = l->progress->step, total = run->schedule.total_steps;
    TRY(saving_open(&l->saving, run));
    TRY(metrics_open(&l->metrics, run->c->output_dir, step));
    l->display = progress_open(total, step, run->c->log_every);
    l->profile = profile_open(run->c->output_dir, &run->session, run->c->profile, total - step);
    return OK;
}

/* How long gradients were under way, and how much of that backward did not hide. */
static void say_exchange(const Loop *l)
{
    double busy, waited, steps = (double)(l->progress->step - l->first_step);
    exec_comm_seconds(l->run->session.train, &busy, &waited);
    if (!l->ranks || steps < 1) return;
    if (l->run->session.options.gpus) /* how long they were under way, a profile tells */
        log_info("between ranks: %.3g s of each step were not hidden behind backward", waited / steps);
    if (!(busy > 0)) return;
    log_info("between ranks: %.3g s of each step, %.0f %% of it hidden behind backward", busy / steps,
             100 * (waited < busy ? 1 - waited / busy : 0));
}

Status train_run(Run *run)
{
    Status status = OK;
    TrainProgress *progress = &run->progress;
    Loop l = {.run = run,
              .progress = progress,
              .ranks = run->ranks,
              .first_step = progress->step,
              .saved_step = progress->step,
              .behind = progress->snapshot_kept > 0 && (run->c->save_every > 0 || run->c->save_steps > 0),
              .last_save = clock_monotonic()};
    size_t batch = (size_t)run->c->batch_size;
    MicroCapacity cap = run->session.plan.micro;
    cap.tokens = run->session.plan.train.capacity.count[ROWS_TOKENS]; /* a little more, for rows to be whole buckets */
    micro_batch_init(&l.micro, cap);
    l.index = mem_array(batch, sizeof *l.index);
    l.order = mem_array(batch, sizeof *l.order);
    l.share = mem_array(batch, sizeof *l.share);
    l.ranges = mem_array(batch, sizeof *l.ranges);
    TRY_DONE(ranks_follow(l.ranks, ranks_first(l.ranks) ? open_outputs(&l) : OK));
    TRY_DONE(survive_share(run));
    TRY_DONE(snapshots_open(&l.snapshots, run));
    progress->finished = false; /* a finished run may go on with more steps */
    if (progress->evaluated_samples < 0) progress->evaluated_samples = samples_before(run, progress->batch - 1);
    TRY_DONE(evaluate_if_due(&l));
    while (progress->step < run->schedule.total_steps && !run->reached) TRY_DONE(turn(&l));
    progress->finished = true;
    TRY_DONE(save_whole(&l));
    say_exchange(&l);
done:
    if (status == E_NUMERIC) status = end_not_finite(&l);
    if (status == E_PEER) status = survive(run, l.snapshots, l.saving, persist_alone, &l, &l.persisted);
    progress->save_stall_s = l.saving ? saving_longest_stall(l.saving) : 0;
    progress->snapshots = snapshots_stats(l.snapshots);
    snapshots_close(l.snapshots, run, status == OK || status == E_STOPPED || l.persisted);
    profile_close(l.profile);
    progress_close(l.display);
    metrics_close(l.metrics);
    saving_close(l.saving);
    micro_batch_free(&l.micro);
    free(l.index);
    free(l.order);
    free(l.share);
    free(l.ranges);
    return status;
}
