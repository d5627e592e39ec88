#include "train/run/run.h"

#include "state/checkpoint/checkpoint.h"
#include "state/models/manifest.h"
#include "train/job/result.h"
#include "train/keep/resume.h"
#include "train/keep/spare.h"
#include "train/loop/audit.h"
#include "train/loop/loop.h"
#include "train/loop/verify.h"
#include "train/ranks/signals.h"
#include "train/run/begin.h"
#include "train/run/check.h"
#include "train/run/start.h"

/* Collective: rank 0 does it, the others get its status. */
static Status on_first(Run *r, Status (*work)(Run *)) { return ranks_all(r->ranks, run_first(r) ? work(r) : OK); }

/* ---- the start ---- */

static Status check(Run *r)
{
    TRY(r->task->check(r));
    if (!r->train && !*r->c->model)
        return fail(E_USAGE, "--model is needed: without training, random weights are useless");
    TRY(setup_check_addresses(r->c, 1)); /* Gloo connects before the backend is opened */
    return check_options(r->c, r->train);
}

static Status look_around(Run *r)
{
    check_doubts(r->c, r->ranks, r->train);
    if (*r->c->model) TRY(manifest_check_model(r->c->model));
    return !r->verify && r->task->folder ? check_places(r->c) : OK;
}

static Status look_for_carried(Run *r)
{
    TRY(checkpoint_newest(r->c->model, 0, 0, &r->seen, &r->carried));
    if (r->carried) return OK;
    return fail(E_USAGE, "--moments carried: %s holds no checkpoint; give the output folder of a run", r->c->model);
}

/* --moments carried: everything of the other run is read from its newest checkpoint, which is a model folder of its
   own. That run need not have ended. */
static Status find_carried(Run *r)
{
    if (!r->train || strcmp(r->c->moments, "carried") != 0) return OK;
    TRY(on_first(r, look_for_carried));
    TRY(ranks_broadcast_path(r->ranks, &r->carried));
    r->replaced = *r->c;
    r->replaced.model = r->carried;
    r->c = &r->replaced;
    return OK;
}

/* Removes what killed writers left in the output folder and in its best/, and takes what survivors saved beside. */
static Status take_output(Run *r)
{
    char *best = file_join(r->c->output_dir, "best");
    Status status = lock_take(&r->lock, r->c->output_dir);
    if (status == OK) status = file_remove_temporaries(r->c->output_dir);
    if (status == OK) status = file_remove_temporaries(best);
    if (status == OK) status = spare_join(r->c->output_dir);
    free(best);
    return status;
}

Status run_open_backend(Run *r)
{
    r->setup.ranks = r->ranks;
    return r->setup.backend ? OK : ranks_all(r->ranks, setup_backend(r->c, &r->setup));
}

Status run_make_plan(Run *r)
{
    const Config *c = r->c;
    PlanInput need = {.model = &r->model,
                      .training = r->train,
                      .evaluation = r->evaluate,
                      .max_length = c->max_seq_length,
                      .norm_forms = r->norm_forms};
    TRY(run_open_backend(r));
    if (r->train) {
        TRY(setup_optimizer(c, &r->setup.optimizer));
        TRY(setup_schedule(c, r->source.count, &r->schedule));
        if (run_first(r) && !c->fit_schedule) check_length(r);
    }
    r->task->need(r, &need);
    return setup_plan(c, &need, &r->setup);
}

static void log_plan(const Run *r)
{
    const RunPlan *p = &r->setup.plan;
    Buf text = {0};
    run_plan_describe(p, &text);
    if (r->setup.devices)
        buf_printf(&text, "; %sgradients go from GPU to GPU: %s",
                   p->input.place->grid.stages > 1 ? "boundaries and " : "", place_devices_describe(r->setup.devices));
    if (r->c->verbose || r->c->dry_run) run_plan_table(p, &text);
    log_info("%s", text.data);
    buf_free(&text);
}

/* Collective. The ranks that write their parts of checkpoints. */
static Status find_writers(Run *r, const char *output_dir)
{
    r->setup.sees = mem_array((size_t)ranks_size(r->ranks), sizeof *r->setup.sees);
    return ranks_see(r->ranks, output_dir, r->setup.sees);
}

static void log_output(const Run *r)
{
    const Config *c = r->c;
    int n = ranks_size(r->ranks), away = 0;
    Buf text = {0};
    if (!r->task->folder) return;
    const char *steps = c->fit_schedule
                            ? SHORT_TEXT("as many steps as %s has room for, each", CLOCK_DURATION(c->max_time))
                            : SHORT_TEXT("%lld steps", (long long)r->schedule.total_steps);
    if (r->train)
        buf_printf(&text, "training: %s of %lld %s; the model and the results go to %s", steps,
                   (long long)r->given->batch_size, run_rows(r), c->output_dir);
    else
        buf_printf(&text, "evaluation; the results go to %s", c->output_dir);
    for (int i = 0; r->setup.sees && i < n; i++) away += !r->setup.sees[i];
    if (away && !c->dry_run)
        buf_printf(&text, "; %d of %d ranks do not see rank 0's %s: rank 0 saves for them", away, n, c->output_dir);
    log_info("%s", text.data);
    buf_free(&text);
}

/* ---- checks of the output folder ---- */

/* Equal on all ranks: the data, and the sizes and rates of the model. */
static Digest seen_digest(const Run *r)
{
    Digest parts[4] = {vocab_digest(r->text.vocab), resume_origin(&r->model, "")};
    int n = 2;
    if (r->train) parts[n++] = r->task->train_digest(r);
    if (r->evaluate) parts[n++] = r->task->eval_digest(r);
    return digest_of(parts, (size_t)n * sizeof *parts);
}

static void make_fingerprint(Run *r)
{
    Digest data[2] = {r->task->train_digest(r), vocab_digest(r->text.vocab)};
    resume_fingerprint(r, digest_of(data, sizeof data), &r->fingerprint);
}

/* The run that finished had as long a --stop-after. */
static bool stopped_before(const Run *r)
{
    double before = 0;
    const char *stored = js_string(js_get(js_get(r->resume.state, "config"), "stop-after"), "off");
    if (!(r->c->stop_after > 0) || clock_parse_duration(stored, &before) != OK) return false;
    return before >= r->c->stop_after;
}

static bool trained(const Run *r, const TrainProgress *p)
{
    return p->finished && (task_reached(r, p) || p->step >= r->schedule.total_steps || stopped_before(r));
}

/* E_USAGE if this run must not resume here, or would replace a foreign model. */
static Status check_output(Run *r)
{
    Config c = *r->c;
    c.batch_size = r->given->batch_size; /* as recorded */
    make_fingerprint(r);
    TRY(resume_compare(&c, r->fingerprint.data, &r->resume, trained(r, &r->resume.progress)));
    return check_foreign_model(c.output_dir);
}

/* Collective. A run that ended before shows its results again. */
static Status show_if_done(Run *r, bool *done)
{
    *done = run_first(r) && resume_found(&r->resume) && trained(r, &r->resume.progress) && r->task->results_there &&
            r->task->results_there(r);
    TRY(ranks_broadcast(r->ranks, done, sizeof *done));
    if (!*done) return OK;
    r->progress = r->resume.progress;
    if (run_first(r)) result_show(r->c->output_dir, r->progress.step);
    return OK;
}

static Status check_space(Run *r) { return checkpoint_check_space(r->c->output_dir, 2 * run_checkpoint_bytes(r)); }

static Status open_output(Run *r)
{
    TRY(check_space(r));
    return r->task->open_output ? r->task->open_output(r) : OK;
}

/* ---- training and the end ---- */

/* Removes the summary of the run before, because the new one is written last, and the best model of another run, which
   no evaluation of this one might replace. */
static Status remove_before(Run *r)
{
    TRY(summary_remove(r->c->output_dir));
    if (r->progress.step > 0 || !run_evaluates_while_training(r)) return OK;
    char *best = file_join(r->c->output_dir, "best");
    Status status = file_remove_tree(best);
    free(best);
    return status;
}

static Status train(Run *r)
{
    const Task *task = r->task;
    if (!trained(r, &r->progress)) {
        TRY(on_first(r, remove_before));
        if (task->training_begins) TRY(task->training_begins(r));
        Status status = loop_train(r);
        if (task->training_ends) task->training_ends(r, status);
        TRY(status);
    }
    return result_publish(r);
}

static void log_best(const Run *r)
{
    const TrainProgress *p = &r->progress;
    const char *out = r->c->output_dir, *by = r->metric ? r->metric : "its evaluation";
    long long best = (long long)p->best_step;
    if (best == 0 && p->evaluated > 0) log_warn("no evaluation gave a number: %s/best has no model of this run", out);
    if (best == 0) return;
    if (best == p->step)
        log_info("the model of step %lld, the last and the best by %s (%.4f), is published", best, by, p->best_metric);
    else if (result_step(r, p) == p->best_step)
        log_info("the model of step %lld, the best by %s (%.4f), is published; --final last publishes the last", best,
                 by, p->best_metric);
    else
        log_info("the model of the last step is published; the best by %s (%.4f), of step %lld, is in %s/best", by,
                 p->best_metric, best, out);
}

static void log_end(const Run *r)
{
    const TrainProgress *p = &r->progress;
    if (!(p->seconds > 0)) {
        log_info("training was finished before, at step %lld; the model is in %s", (long long)p->step,
                 r->c->output_dir);
        return;
    }
    log_info(
        "trained %lld steps, final loss %.6g, %.1f seq/s, peak memory %.1f MiB (planned %.1f MiB); the model is in %s",
        (long long)p->step, p->last_loss, (double)p->sequences / p->seconds, (double)p->peak_bytes / (1 << 20),
        (double)run_plan_peak(&r->session.plan) / (1 << 20), r->c->output_dir);
}

/* ---- the run ---- */

static Status finish(Run *r)
{
    if (!lock_there(&r->lock))
        return fail(E_FAIL, "%s was removed, renamed or replaced while this run wrote to it; its results are not whole",
                    r->c->output_dir);
    return result_write(r);
}

static Status verify(Run *r)
{
    make_fingerprint(r);
    TRY(verify_fingerprint(r));
    TRY(begin_or_resume(r));
    return verify_steps(r);
}

/* A run that resumes keeps what was a default when it began. `recorded`: the options for state.json. */
static void keep_former(Run *r, Config *recorded)
{
    const Json *stored = js_get(r->resume.state, "config");
    Buf kept = {0};
    if (!resume_found(&r->resume) || !config_keep_former(recorded, stored, &kept)) goto done;
    log_info("resuming from %s: %s stays, as that run has it; the default of new runs is another", r->resume.name,
             kept.data);
    if (r->c != &r->replaced) r->replaced = *r->c;
    (void)config_keep_former(&r->replaced, stored, &kept);
    r->c = &r->replaced;
done:
    buf_free(&kept);
}

/* For state.json and run.json. What a launcher or a job gave this start alone is left out. The batch size and the
   model are the user's: a task may count sequences in place of rows, and take a folder in that of the model. */
static void record_options(Run *r, Config *c)
{
    static char automatic[] = "auto";
    c->batch_size = r->given->batch_size;
    c->model = r->given->model;
    if (c->source[OPTION_rendezvous] == FROM_ENVIRONMENT) c->rendezvous = automatic;
    if (c->source[OPTION_max_time] == FROM_ENVIRONMENT) c->max_time = 0;
    config_json(c, &r->config_json);
}

/* A run goes on with the tokenizer that it began with. */
static Status keep_tokenizer(Run *r)
{
    TokenizerKind *kind = &r->text.options.kind;
    bool python = r->verify ? start_resumes_python(r->verify->dir, "auto")
                            : r->train && start_resumes_python(r->c->output_dir, r->c->resume);
    *kind = python ? TOKENIZER_PYTHON : TOKENIZER_FAST;
    return ranks_broadcast(r->ranks, kind, sizeof *kind);
}

static Status live(Run *r)
{
    const Task *task = r->task;
    bool done;
    Config recorded = *r->c; /* before --moments carried replaces --model */
    TRY(find_carried(r));
    const Config *c = r->c;
    TRY(keep_tokenizer(r));
    TRY(ranks_all(r->ranks, task->open(r)));
    if (r->data.len) log_info("%s", r->data.data);
    bool writes = !c->dry_run && !r->verify && task->folder;
    if (writes) TRY(on_first(r, take_output));
    if (!c->dry_run && r->train) TRY(resume_find(c, writes ? c->output_dir : "", r->ranks, &r->resume));
    keep_former(r, &recorded);
    TRY(begin_keep_fitted(r, &recorded));
    c = r->c;
    record_options(r, &recorded);
    if (writes && r->train) TRY(audit_check_excluded(r));
    TRY(start_norm_forms(c, &r->model, &r->resume, r->ranks, &r->norm_forms));
    if (r->train) TRY(find_writers(r, writes ? c->output_dir : NULL));
    ExportText text = run_export_text(r);
    TRY(export_files(&r->model, &text, r->files, &r->n_files)); /* megabytes, which the plan counts */
    TRY(run_make_plan(r));
    log_plan(r);
    if (task->check_data) TRY(ranks_all(r->ranks, task->check_data(r)));
    TRY(ranks_agree(r->ranks, r->setup.backend, c->virtual_ranks > 0, r->setup.compute, seen_digest(r)));
    if (r->verify) return verify(r);
    if (c->dry_run) log_output(r);
    if (c->dry_run) return r->train ? on_first(r, check_space) : OK;
    if (r->train) TRY(on_first(r, check_output));
    TRY(show_if_done(r, &done));
    if (done) return OK;
    log_output(r);
    if (r->train) TRY(on_first(r, open_output));
    TRY(begin_or_resume(r));
    if (r->train && r->c->fit_schedule) {
        TRY(begin_fitted(r, &recorded));
        buf_free(&r->config_json);
        record_options(r, &recorded);
    }
    if (r->train) TRY(train(r));
    if (r->evaluate) TRY(task->evaluate(r));
    if (r->evaluate) TRY(on_first(r, result_write_evaluation));
    size_t used = session_memory_used(&r->session);
    if (used > r->progress.peak_bytes) r->progress.peak_bytes = used;
    if (!r->train) return OK;
    TRY(on_first(r, finish));
    log_end(r);
    log_best(r);
    return OK;
}

/* The message of a stop outside the training loop, which has its own. */
static Status explain_stop(const Run *r, Status status)
{
    if (status != E_STOPPED) return status;
    const char *signal = signals_name(*signals_stop());
    if (r->progress.finished)
        return fail(E_STOPPED, "stopped by %s after training; the state is saved, the same command does the rest",
                    signal);
    if (*signals_stop() && !r->session.plan.input.training)
        return fail(E_STOPPED, "stopped by %s, nothing is lost; the same command begins again", signal);
    return status;
}

Status run_task(const Config *c, const Task *task, Verify *of)
{
    Run r = {.task = task,
             .verify = of,
             .own = mem_alloc(task->size),
             .c = c,
             .given = c,
             .started = clock_monotonic(),
             .progress = {.best_metric = NAN}};
    clock_iso(r.started_at, sizeof r.started_at);
    signals_install();
    Status status = explain_stop(&r, ranks_open(c, check(&r), &r.ranks));
    if (status == OK) status = on_first(&r, look_around);
    if (status == OK) status = ranks_hosts(r.ranks, &r.hosts);
    if (status == OK && task->prepare) status = task->prepare(&r);
    if (status == OK) status = explain_stop(&r, live(&r));
    resume_free(&r.resume);
    lock_release(&r.lock);
    ranks_end(r.ranks, status);
    session_close(&r.session);
    setup_free(&r.setup);
    ranks_close(r.ranks);
    task->close(&r);
    free(r.own);
    model_free(&r.model);
    tokenizer_files_free(&r.text);
    export_files_free(r.files, r.n_files);
    BUF_FREE(&r.data, &r.fingerprint, &r.config_json, &r.hosts, &r.waited_for);
    checkpoint_seen_free(&r.seen);
    MEM_FREE(r.norm_forms, r.carried);
    return status;
}
