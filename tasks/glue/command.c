/* `cairn glue`: fine-tune, evaluate, predict. glue_run reads like the run itself. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/checkpoint.h"
#include "state/export.h"
#include "state/import.h"
#include "state/lock.h"
#include "tasks/glue/labels.h"
#include "tasks/glue/run.h"
#include "train/observe.h"
#include "train/result.h"
#include "train/setup.h"
#include "train/signals.h"
#include "train/train.h"

/* ---- reading ---- */

/* What is wrong whatever the files hold. */
static Status check_use(const Config *c)
{
    if (!c->do_train && !c->do_eval && !glue_predicts(c))
        return fail(E_USAGE, "nothing to do: give --do-train, --do-eval or --do-predict");
    if (c->eval_every > 0 && !c->do_eval)
        return fail(E_USAGE, "--eval-every evaluates while training: give --do-eval too");
    if (!c->do_train && !*c->model)
        return fail(E_USAGE, "--model is needed: random weights without training tell nothing");
    return OK;
}

static Status find_task(GlueRun *r)
{
    if (!glue_task_is_custom(r->c->task)) return glue_task_find(r->c->task, &r->task);
    if ((r->c->do_train || r->c->do_eval) && !*r->c->label_column)
        return fail(E_USAGE, "--task custom: give the labels' column as --label-column (prediction alone needs none)");
    TRY(glue_custom_init(&r->custom, r->c->text_columns, r->c->label_column, r->c->labels));
    r->task = &r->custom.task;
    return OK;
}

static Status open_text(GlueRun *r)
{
    TRY(start_text(r->c, NULL, &r->text));
    r->tokenizer = tokenizer_new(r->text.vocab, r->text.options);
    return OK;
}

static Status open_model(GlueRun *r)
{
    Head head = r->task->regression ? (Head){HEAD_REGRESSION, 1} : (Head){HEAD_CLASSIFIER, r->task->n_labels};
    char *path = NULL;
    Status status = start_model(r->c, &r->text, head, r->c->max_seq_length, &r->model, &path);
    if (status == OK && r->model.config.types < 2 && glue_task_has_pairs(r->task))
        status =
            fail(E_USAGE,
                 "the task %s has pairs of sentences, and %s has token types ('type_vocab_size') for one only; give a "
                 "model that was made for pairs",
                 r->task->name, path);
    free(path);
    return status;
}

static Status read_split(GlueRun *r, const GlueSplit *split, GlueSplitData *d)
{
    d->split = split;
    TRY(glue_read(&d->raw, r->c->data_dir, r->task, split));
    TRY(glue_tokenize(&d->raw, r->task, r->tokenizer, (int)r->c->max_seq_length, signals_stop(), &d->examples));
    double tokens = d->examples.count ? (double)d->examples.offset[d->examples.count] / (double)d->examples.count : 0;
    log_info("%s: %lld examples, %.1f tokens on average", d->raw.path, (long long)d->examples.count, tokens);
    return OK;
}

/* Is a split named by --eval-splits, which is a list of names, or "all". Every name must be one of the task's. */
static Status split_wanted(const GlueRun *r, const GlueSplit *split, bool *wanted)
{
    Status status = OK;
    *wanted = strcmp(r->c->eval_splits, "all") == 0 || *r->c->eval_splits == '\0';
    if (*wanted) return OK;
    char *names = mem_strdup(r->c->eval_splits), *at = names;
    for (char *name = strsep(&at, ","); name && status == OK; name = strsep(&at, ",")) {
        const GlueSplit *named;
        status = glue_split_find(r->task, name, &named);
        if (status == OK && named == split) *wanted = true;
    }
    free(names);
    return status;
}

static Status read_data(GlueRun *r)
{
    const Config *c = r->c;
    bool wanted;
    TRY(split_wanted(r, NULL, &wanted)); /* a wrong name is said before anything is read */
    if (c->do_train) {
        const GlueSplit *split = glue_split_at(r->task, GLUE_TRAIN, 0);
        if (!split)
            return fail(E_USAGE, "the task %s has no training data; use --no-do-train --do-predict", r->task->name);
        TRY(read_split(r, split, &r->train));
        if (!r->train.raw.labelled || r->train.examples.count == 0)
            return fail(E_FORMAT, "%s: nothing to train on (%lld labelled examples)", r->train.raw.path,
                        (long long)r->train.examples.count);
    }
    for (int kind = GLUE_DEV; kind <= GLUE_TEST; kind++) {
        if (kind == GLUE_DEV ? !c->do_eval : !glue_predicts(c)) continue;
        const GlueSplit *split;
        for (int i = 0; (split = glue_split_at(r->task, (GlueSplitKind)kind, i)); i++) {
            TRY(split_wanted(r, split, &wanted));
            if (wanted) TRY(read_split(r, split, &r->splits[r->n_splits++]));
        }
    }
    if (!c->do_train && r->n_splits == 0)
        return fail(E_USAGE, "--eval-splits %s leaves nothing of the task %s to do", c->eval_splits, r->task->name);
    return OK;
}

/* ---- weights and state ---- */

static bool first(const GlueRun *r) { return ranks_first(r->ranks); }

/* A fresh start: random, or imported. New heads are fine for training, not for evaluating what was never trained. */
static Status initial_weights(GlueRun *r)
{
    float *weights = session_fill(&r->session, STATE_WEIGHTS);
    if (!*r->c->model) {
        log_info("starting from random weights, seed %lld", (long long)r->c->seed);
        params_init(&r->model.params, (uint64_t)r->c->seed, weights);
    } else {
        ImportReport report = {0};
        Status status = import_weights(r->c->model, &r->model, (uint64_t)r->c->seed, weights, &report);
        if (status == OK) import_report_log(&report);
        if (status == OK && !r->c->do_train && report.n[IMPORT_NEW])
            status = fail(E_FORMAT, "%s has no trained head for %s; train first", report.path, r->task->name);
        if (status == OK && !r->task->regression && import_report_loaded(&report, "classifier.weight"))
            status = glue_order_labels(r->task, r->c->model, &r->model, weights);
        import_report_free(&report);
        TRY(status);
    }
    return OK;
}

static Status start_or_resume(GlueRun *r, TrainResume *resume)
{
    SessionOptions options = setup_session(&r->setup, r->c, r->c->do_train, r->n_splits > 0);
    TRY(session_open(&r->session, &r->model, &options, r->norm_forms));
    if (!resume->dir) {
        TRY(ranks_follow(r->ranks, first(r) ? initial_weights(r) : OK));
        return start_share(&r->session, false);
    }
    TRY(train_load(resume, &r->session));
    r->progress = resume->progress;
    log_info("going on from %s: step %lld of %lld", resume->dir, (long long)r->progress.step,
             (long long)r->schedule.total_steps);
    return OK;
}

/* ---- the run ---- */

static Status train(GlueRun *r)
{
    TrainFile files[EXPORT_MAX_FILES];
    for (int i = 0; i < r->n_files; i++)
        files[i] = (TrainFile){r->files[i].name, r->files[i].data.data, r->files[i].data.len};
    LoadedExamples loaded = {&r->train.examples, (uint64_t)r->c->seed, r->c->batch_size};
    TrainJob job = {.config = r->c,
                    .session = &r->session,
                    .source = loaded_source(&loaded),
                    .optimizer = r->setup.optimizer,
                    .schedule = r->schedule,
                    .batch_size = r->c->batch_size,
                    .padded_length = r->c->padded ? r->c->max_seq_length : 0,
                    .output_dir = r->c->output_dir,
                    .fingerprint = r->fingerprint.data,
                    .config_json = r->config_json.data,
                    .files = files,
                    .n_files = r->n_files,
                    .planned_peak = r->setup.peak,
                    .evaluate = r->c->eval_every > 0 && r->c->do_eval ? glue_evaluate_during : NULL,
                    .keep_best = glue_keep_best,
                    .context = r,
                    .started = r->started};
    return train_run(&job, &r->progress);
}

static Status export_result(GlueRun *r)
{
    ExportText text;
    glue_export_text(r, &text);
    return result_export(r->c->output_dir, &r->model, &r->session, &text);
}

static Status summarise(GlueRun *r)
{
    RunSummary s;
    double *series = NULL;
    result_summary(&s, r->task->name, &r->setup, &r->session, &r->progress, &series);
    s.wall_s = clock_monotonic() - r->started;
    s.config_json = r->config_json.data;
    if (!(r->progress.seconds > 0)) result_keep_rates(r->c->output_dir, &s);
    for (int i = 0; i < r->n_splits; i++)
        for (int m = 0; r->splits[i].split->kind == GLUE_DEV && m < r->task->n_metrics; m++)
            summary_add_eval(&s, r->splits[i].split->name, glue_metric_name(r->task->metrics[m]),
                             r->splits[i].result.metrics[m]);
    Status status = summary_write(r->c->output_dir, &s);
    if (status == OK) status = report_write(r->c->output_dir, &s);
    free(series);
    return status;
}

/* Does run.json, which is written last, tell of this many steps and of every split that is asked for? */
static bool results_there(const GlueRun *r, int64_t step)
{
    char *names[2 * GLUE_MAX_SPLITS];
    for (int i = 0; i < r->n_splits; i++)
        names[i] = mem_printf("%s %s", r->splits[i].split->name, glue_metric_name(r->task->metrics[0]));
    bool there = !glue_predicts(r->c) && result_there(r->c->output_dir, step, names, r->n_splits);
    for (int i = 0; i < r->n_splits; i++) free(names[i]);
    return there;
}

static Digest data_digest(const GlueRun *r)
{
    Digest parts[2] = {r->train.examples.digest, vocab_digest(r->text.vocab)};
    return digest_of(parts, sizeof parts);
}

/* What must be the same on all ranks: what is evaluated, too, and the sizes and rates of the model. */
static Digest seen_digest(const GlueRun *r)
{
    Digest parts[3 + 2 * GLUE_MAX_SPLITS] = {vocab_digest(r->text.vocab), train_origin(&r->model, "")};
    int n = 2;
    if (r->c->do_train) parts[n++] = r->train.examples.digest;
    for (int i = 0; i < r->n_splits; i++) parts[n++] = r->splits[i].examples.digest;
    return digest_of(parts, (size_t)n * sizeof *parts);
}

static Status plan_run(GlueRun *r)
{
    const Config *c = r->c;
    const Examples *e = c->do_train ? &r->train.examples : &r->splits[0].examples;
    SetupNeed need = {.model = &r->model,
                      .training = c->do_train,
                      .evaluation = r->n_splits > 0,
                      .max_length = c->max_seq_length,
                      .mean_length =
                          e->count ? (double)e->offset[e->count] / (double)e->count : (double)c->max_seq_length,
                      .norm_forms = r->norm_forms};
    Buf table = {0};
    r->setup.ranks = r->ranks;
    TRY(ranks_all(r->ranks, setup_backend(c, &r->setup)));
    if (c->do_train) {
        TRY(setup_optimizer(c, &r->setup.optimizer));
        TRY(setup_schedule(c, r->train.examples.count, &r->schedule));
    }
    TRY(setup_plan(c, &need, &r->setup));
    setup_describe(&r->setup, &table);
    log_info("%s", table.data);
    buf_free(&table);
    return OK;
}

static Status read_all(GlueRun *r)
{
    TRY(find_task(r));
    TRY(open_text(r));
    TRY(open_model(r));
    return read_data(r);
}

/* The next four are rank 0's. */
static Status take_output(GlueRun *r)
{
    TRY(file_make_directories(r->c->output_dir));
    TRY(lock_take(&r->lock, r->c->output_dir));
    return start_clean(r->c->output_dir);
}

/* May this run go on here? */
static Status check_output(GlueRun *r, const TrainResume *resume)
{
    const Config *c = r->c;
    train_fingerprint(r->setup.backend, r->setup.compute, r->setup.micro.tokens, ranks_size(r->ranks), data_digest(r),
                      train_origin(&r->model, c->model), &r->fingerprint);
    TRY(train_compare(c, r->fingerprint.data, resume));
    return train_check_output(c->output_dir);
}

static Status check_space(const GlueRun *r)
{
    return checkpoint_check_space(r->c->output_dir, 2 * checkpoint_bytes(&r->model.params));
}

static bool all_done(const GlueRun *r, const TrainResume *resume)
{
    return resume->dir && resume->progress.finished && resume->progress.step >= r->schedule.total_steps &&
           results_there(r, resume->progress.step);
}

static Status glue_run(GlueRun *r)
{
    const Config *c = r->c;
    Status status = OK;
    TrainResume resume = {0};
    ExportText text;
    TRY_DONE(ranks_open(c, check_use(c), &r->ranks));
    TRY_DONE(ranks_all(r->ranks, read_all(r)));
    if (!c->dry_run) {
        TRY_DONE(ranks_follow(r->ranks, first(r) ? take_output(r) : OK));
        if (c->do_train) TRY_DONE(train_find(c, c->output_dir, r->ranks, &resume));
    }
    TRY_DONE(start_norm_forms(c, &r->model, &resume, r->ranks, &r->norm_forms));
    TRY_DONE(plan_run(r));
    TRY_DONE(ranks_agree(r->ranks, r->setup.backend, r->setup.compute, seen_digest(r)));
    if (c->dry_run) goto done;
    if (c->do_train) TRY_DONE(ranks_follow(r->ranks, first(r) ? check_output(r, &resume) : OK));
    glue_export_text(r, &text);
    TRY_DONE(export_files(&r->model, &text, r->files, &r->n_files));
    r->progress.best_metric = NAN;
    bool over = first(r) && all_done(r, &resume);
    TRY_DONE(ranks_broadcast(r->ranks, &over, sizeof over));
    if (over) {
        r->progress = resume.progress;
        if (first(r)) result_show(r->c->output_dir, r->progress.step);
        goto done;
    }
    if (c->do_train) TRY_DONE(ranks_follow(r->ranks, first(r) ? check_space(r) : OK));
    TRY_DONE(start_or_resume(r, &resume));
    if (c->do_train) {
        bool trained = r->progress.finished && r->progress.step >= r->schedule.total_steps;
        /* run.json is of the run before; the new one is written last */
        if (!trained) TRY_DONE(ranks_follow(r->ranks, first(r) ? summary_remove(c->output_dir) : OK));
        if (!trained) TRY_DONE(train(r));
        TRY_DONE(ranks_follow(r->ranks, first(r) ? export_result(r) : OK));
    }
    TRY_DONE(glue_evaluate_all(r));
    size_t used = session_memory_used(&r->session);
    if (used > r->progress.peak_bytes) r->progress.peak_bytes = used;
    if (c->do_train) TRY_DONE(ranks_follow(r->ranks, first(r) ? summarise(r) : OK));
    if (c->do_train)
        log_info("trained %lld steps, final loss %.6g, %.1f seq/s, peak memory %.1f MiB (planned %.1f MiB); the model "
                 "is in %s",
                 (long long)r->progress.step, r->progress.last_loss,
                 r->progress.seconds > 0 ? (double)r->progress.sequences / r->progress.seconds : 0,
                 (double)r->progress.peak_bytes / (1 << 20), (double)r->setup.peak / (1 << 20), c->output_dir);
done:
    train_resume_free(&resume);
    return status;
}

static void split_free(GlueSplitData *d)
{
    glue_examples_free(&d->raw);
    examples_free(&d->examples);
    free(d->values);
}

Status command_glue(const Config *c)
{
    GlueRun r = {.c = c, .started = clock_monotonic()};
    signals_install();
    config_json(c, &r.config_json);
    Status status = glue_run(&r);
    if (status == E_STOPPED && r.progress.finished)
        status = fail(E_STOPPED, "stopped by %s after training; its state is saved, the same command does the rest",
                      signals_name(*signals_stop()));
    else if (status == E_STOPPED && *signals_stop() && !r.session.train)
        status = fail(E_STOPPED, "stopped by %s, nothing is lost; the same command begins again",
                      signals_name(*signals_stop()));
    lock_release(&r.lock);
    ranks_end(r.ranks, status);
    session_close(&r.session);
    setup_free(&r.setup);
    ranks_close(r.ranks);
    split_free(&r.train);
    for (int i = 0; i < r.n_splits; i++) split_free(&r.splits[i]);
    model_free(&r.model);
    tokenizer_free(r.tokenizer);
    start_text_free(&r.text);
    glue_custom_free(&r.custom);
    export_files_free(r.files, r.n_files);
    buf_free(&r.fingerprint);
    free(r.norm_forms);
    buf_free(&r.config_json);
    return status;
}
