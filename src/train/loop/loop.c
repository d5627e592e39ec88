/* The loop. One turn is one step, then the due work: metrics, evaluation, a save, the end. TrainProgress holds all
   state that changes, so a run can stop and resume at any turn. */
#include <unistd.h>

#include "base/test_switch.h"
#include "comm/meet/report.h"
#include "train/keep/survive.h"
#include "train/keep/suspects.h"
#include "train/loop/audit.h"
#include "train/loop/loop.h"
#include "train/loop/loop_internal.h"

/* For tests: while the file CAIRN_TEST_SLOW<rank> exists, this rank's own work takes ten times as long, and at least 50
   ms longer: the steps of tiny models are short. */
static void slow_down(const Loop *l, double own_s)
{
    const char *path = test_switch("SLOW");
    char *name = path ? mem_printf("%s%d", path, ranks_rank(l->ranks)) : NULL;
    if (name && access(name, F_OK) == 0) (void)usleep((useconds_t)(1e6 * fmax(9 * own_s, 0.05)));
    free(name);
}

static Status turn(Loop *l)
{
    Stats stats;
    const int64_t step = l->progress->step + 1;
    test_at_number("step", step, ranks_rank(l->ranks));
    TRY(profile_step_begin(l->profile));
    double start = clock_monotonic(), busy, before, waited;
    sampling_step(l->sampling, step);
    session_comm_seconds(&l->run->session, &busy, &before);
    Status status = loop_step(l, &stats);
    if (status == E_STOPPED) return loop_stop_if_asked(l); /* the step is lost; saves the state before it */
    TRY(status);
    session_comm_seconds(&l->run->session, &busy, &waited);
    slow_down(l, clock_monotonic() - start - (waited - before));
    double seconds = clock_monotonic() - start;
    if (seconds > l->slowest_step) l->slowest_step = seconds;
    l->step_s = l->step_s > 0 ? 0.9 * l->step_s + 0.1 * seconds : seconds;
    TRY(loop_record(l, &stats, seconds)); /* before what ranks exchange: survivors of it save the state of this step */
    TRY(profile_step_end(l->profile, step, (double)l->n_tokens / (double)l->n_seqs));
    pace_step(l->pace, seconds, waited - before);
    TRY(pace_look(l->pace, l->run));
    return loop_between_steps(l);
}

/* After a value that is not finite, saves the weights of the last update if they are finite; else the previous
   checkpoint stays. */
static Status end_not_finite(Loop *l)
{
    log_error("%s", status_message());
    if (ranks_first(l->ranks)) suspects_not_finite(l->run->c->output_dir, l->first_step, l->progress->step + 1);
    if (l->saving) saving_keep_one_more(l->saving); /* the state to go back to if this one is damaged */
    Status status = loop_save(l);
    if (status == OK)
        return fail(E_NUMERIC,
                    "training stopped: a value is not finite (see above). The last good state, step %lld, is saved in "
                    "%s; resume from it with a lower --learning-rate and --override",
                    (long long)l->progress->step, l->run->c->output_dir);
    log_error("step %lld is not saved: %s", (long long)l->progress->step, status_message());
    return fail(
        E_NUMERIC,
        "training stopped: a value is not finite (see above). The last good state is the newest earlier checkpoint "
        "in %s, if it has one",
        l->run->c->output_dir);
}

/* The weights are those of the last step, whose computation had no difference; all ranks compare them before the save.
 */
static Status end_excluded(Loop *l)
{
    char *why = mem_strdup(status_message());
    Status status = loop_save(l);
    l->persisted = status == OK;
    if (status == OK)
        status = fail(E_PEER, "%s. The state of step %lld is saved in %s", why, (long long)l->progress->step,
                      l->run->c->output_dir);
    else
        status = fail(E_PEER, "%s. Step %lld is not saved: %s", why, (long long)l->progress->step, status_message());
    free(why);
    return status;
}

/* A surviving rank saves a generation from memory, or its own state. */
static Status save_surviving(void *loop, const SurviveFrom *from)
{
    Loop *l = loop;
    if (from->set)
        return persist_write(from->list, from->set, from->rank, from->folder, (int)l->run->c->keep, from->fill,
                             from->fill_context);
    if (!ranks_first(l->ranks) && l->record.step == l->progress->step &&
        metrics_complete(from->folder, &l->record) != OK)
        log_warn("%s", status_message());
    return loop_save_alone(l, from->folder, from->fill, from->fill_context);
}

/* Opens rank 0's files and display. */
static Status open_outputs(Loop *l)
{
    Run *run = l->run;
    int64_t step = l->progress->step, total = run->schedule.total_steps;
    TRY(metrics_open(&l->metrics, run->c->output_dir, step, l->progress->evaluated));
    l->trained_s = metrics_trained(l->metrics);
    l->progress->earlier_s = metrics_wall(l->metrics);
    report_to_agent(REPORT_TRAINS, -1, false);
    l->display = progress_open(total, step, run->c->log_every);
    return OK;
}

/* --gpu-metrics, and --profile's samples. A run without them goes on. */
static void open_sampling(Loop *l)
{
    const Config *c = l->run->c;
    Device *device = l->run->setup.backend->device;
    bool asked = c->gpu_metrics > 0;
    if (!asked && (c->profile == 0 || !device)) return;
    int rank = ranks_rank(l->ranks);
    char *name = rank ? mem_printf("gpu-rank%d.csv", rank) : mem_strdup("gpu.csv"),
         *path = file_join(c->output_dir, name);
    SamplingOptions options = {.every = asked ? c->gpu_metrics : SAMPLING_EVERY,
                               .path = path,
                               .append = l->progress->step > 0,
                               .rank = rank,
                               .keep = c->profile > 0 && rank == 0,
                               .until_taken = !asked};
    if ((asked || rank == 0) && sampling_open(device, &options, &l->sampling) != OK && ranks_local(l->ranks) == 0)
        log_printf(asked ? LOG_WARN : LOG_INFO, "no gpu.csv: %s", status_message());
    MEM_FREE(path, name);
}

/* Logs the time of the gradient exchange, and the part that backward hides. */
static void log_exchange(const Loop *l)
{
    double busy, waited, steps = (double)(l->progress->step - l->first_step + l->run->tried);
    if (!l->ranks || l->progress->step == l->first_step) return;
    session_comm_seconds(&l->run->session, &busy, &waited);
    if (l->run->session.exec_ranks.comm_device) /* a profile records the exchange itself */
        log_info("between ranks: %.3g s of each step were not hidden behind backward", waited / steps);
    if (!(busy > 0)) return;
    log_info("between ranks: %.3g s of each step, %.0f %% of it hidden behind backward", busy / steps,
             100 * (waited < busy ? 1 - waited / busy : 0));
}

void loop_open(Loop *l, Run *run)
{
    TrainProgress *progress = &run->progress;
    *l = (Loop){.run = run,
                .progress = progress,
                .ranks = run->ranks,
                .first_step = progress->step,
                .saved_step = progress->step,
                .behind = progress->snapshot_kept > 0 && (run->c->save_every != 0 || run->c->save_steps > 0),
                .last_save = clock_monotonic(),
                .pace = pace_open(run->ranks),
                .began = clock_monotonic()};
    MicroCapacity cap = run->session.plan.micro;
    cap.tokens =
        run->session.plan.chunk->train.capacity.count[ROWS_TOKENS]; /* slightly more, so that rows fill whole buckets */
    micro_batch_init(&l->micro, cap);
    l->micro.grain = run->session.plan.grain;
    l->index = mem_array((size_t)run->c->batch_size, sizeof *l->index);
    loop_open_shares(l);
}

void loop_free(Loop *l)
{
    pace_close(l->pace);
    micro_batch_free(&l->micro);
    loop_close_shares(&l->shares);
    free(l->index);
}

Status loop_train(Run *run)
{
    Status status = OK;
    TrainProgress *progress = &run->progress;
    Loop l;
    loop_open(&l, run);
    TRY_DONE(ranks_all(l.ranks, saving_open(&l.saving, run)));
    TRY_DONE(ranks_all(l.ranks, ranks_first(l.ranks) ? open_outputs(&l) : OK));
    open_sampling(&l);
    TRY_DONE(profile_open(run->c->output_dir, &run->session, l.sampling, run->c->profile,
                          run->schedule.total_steps - progress->step, &l.profile));
    TRY_DONE(ranks_broadcast_text(run->ranks, &run->fingerprint)); /* any rank may have to write state.json */
    TRY_DONE(ranks_broadcast_text(run->ranks, &run->config_json));
    TRY_DONE(snapshots_open(&l.snapshots, run));
    TRY_DONE(audit_open(&l.audit, run));
    if (audit_notes(l.audit, progress->step + 1)) TRY_DONE(session_note(&run->session));
    progress->finished = false; /* a finished run may continue with more steps */
    if (progress->evaluated_samples < 0) progress->evaluated_samples = loop_samples_before(run, progress->batch - 1);
    TRY_DONE(loop_evaluate_if_due(&l));
    while (progress->step < run->schedule.total_steps && !run->reached) TRY_DONE(turn(&l));
    progress->finished = true;
    TRY_DONE(loop_save(&l));
    log_exchange(&l);
    TRY_DONE(pace_finish(l.pace, run, l.sampling));
done:
    if (status == E_NUMERIC || status == E_PEER) /* a device that fails here fails in the save, too */
        (void)session_drop_gathered(&run->session, progress->step + 1);
    if (status == E_NUMERIC) status = end_not_finite(&l);
    if (l.excluded)
        status = end_excluded(&l);
    else if (status == E_PEER)
        status = survive(run, l.snapshots, l.saving, save_surviving, &l, &l.persisted);
    char *why = status == OK ? NULL : mem_strdup(status_message()); /* what is closed may fail, too */
    if (status == E_DIFFERS) (void)saving_wait(l.saving);           /* all ranks end with it */
    progress->save_stall_s = l.saving ? saving_longest_stall(l.saving) : 0;
    progress->snapshots = snapshots_stats(l.snapshots);
    audit_close(l.audit);
    snapshots_close(l.snapshots, run, status == OK || status == E_STOPPED || l.persisted);
    profile_close(l.profile);
    sampling_close(l.sampling);
    progress_close(l.display);
    metrics_close(l.metrics);
    saving_close(l.saving);
    loop_free(&l);
    if (why) (void)fail(status, "%s", why);
    free(why);
    return status;
}
