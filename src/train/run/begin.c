#include "train/run/begin.h"

#include "train/job/result.h"
#include "train/job/task.h"
#include "train/keep/resume.h"
#include "train/loop/fit.h"
#include "train/run/check.h"

/* Rank 0's weights of a run that does not resume: imported, or random. */
static Status initial_weights(Run *r)
{
    float *weights = session_fill(&r->session);
    if (!*r->c->model) {
        if (r->tried == 0)
            log_info("starting from random weights (%s), seed %lld", r->c->model_config, (long long)r->c->seed);
        params_init(&r->model.params, (uint64_t)r->c->seed, weights);
        return OK;
    }
    ImportReport report = {0};
    Status status = import_weights(r->c->model, &r->model, (uint64_t)r->c->seed, weights, &report);
    if (status == OK && r->tried == 0) import_report_log(&report);
    if (status == OK && r->task->take_import) status = r->task->take_import(r, &report, weights);
    import_report_free(&report);
    return status;
}

/* Says nothing after --fit-schedule's steps, when the log has it. --moments carried takes neither the step nor the data
   over. */
static Status begin_fresh(Run *r)
{
    if (r->carried && r->tried == 0) log_info("weights and moments are those of %s", r->carried);
    if (r->carried) return load_checkpoint(r->carried, &r->seen, &r->session, false);
    TRY(ranks_all(r->ranks, run_first(r) ? initial_weights(r) : OK));
    return session_share(&r->session);
}

Status begin_or_resume(Run *r)
{
    SessionOptions options = setup_session(&r->setup, r->c);
    TRY(session_open(&r->session, &r->setup.plan, &options));
    if (!resume_found(&r->resume)) return begin_fresh(r);
    TRY(resume_load(&r->resume, &r->session));
    r->progress = r->resume.progress;
    r->reached = task_reached(r, &r->progress);
    log_info("resuming from %s: step %lld of %lld", r->resume.name, (long long)r->progress.step,
             (long long)r->schedule.total_steps);
    if (run_first(r) && !r->verify) result_expect_best(r);
    return OK;
}

/* ---- --fit-schedule ---- */

/* From here on the run is that of --max-steps. */
static void set_steps(Run *r, Config *recorded, int64_t steps)
{
    if (r->c != &r->replaced) r->replaced = *r->c;
    r->c = &r->replaced;
    r->replaced.max_steps = recorded->max_steps = steps;
    r->replaced.fit_schedule = recorded->fit_schedule = false;
}

Status begin_keep_fitted(Run *r, Config *recorded)
{
    if (!r->train || !r->c->fit_schedule || !resume_found(&r->resume)) return OK;
    int64_t steps = js_int(js_get(js_get(r->resume.state, "config"), "max-steps"), 0);
    if (steps < 1)
        return fail(E_USAGE,
                    "--fit-schedule: %s is of a run whose steps follow from --epochs. Leave --fit-schedule out, give "
                    "another --output-dir, or --resume never",
                    r->resume.name);
    log_info("--fit-schedule: %s is of a run with --max-steps %lld, which stays", r->resume.name, (long long)steps);
    set_steps(r, recorded, steps);
    return OK;
}

Status begin_fitted(Run *r, Config *recorded)
{
    FitTimes times;
    int64_t steps;
    TRY(fit_measure(r, &times));
    TRY(begin_fresh(r));
    TRY(fit_steps(r, &times, &steps));
    set_steps(r, recorded, steps);
    TRY(setup_schedule(r->c, r->source.count, &r->schedule));
    if (run_first(r)) check_length(r);
    return OK;
}
