/* `cairn pretrain`: masked words and next sentences on shards. pretrain_run reads like the run itself. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/table.h"
#include "state/checkpoint.h"
#include "state/import.h"
#include "tasks/pretrain/pretrain.h"
#include "tasks/pretrain/run.h"
#include "tasks/pretrain/stages.h"
#include "train/result.h"
#include "train/signals.h"

/* ---- reading ---- */

static Status check_use(PretrainRun *r)
{
    const Config *c = r->c;
    r->train = c->do_train || !c->do_eval;
    r->evaluate = c->do_eval || *c->eval_dir;
    TRY(pretrain_eval_samples(c, &r->eval_samples));
    if (!r->train && strcmp(c->log_format, "plain") != 0)
        log_warn("--log-format %s is without effect: it tells of training", c->log_format);
    if (!*c->data_dir && (r->train || !*c->eval_dir))
        return fail(E_USAGE, "give the folder of the shards as --data-dir (`cairn shards` makes them), or a dump as "
                             "--input");
    if (!r->train && !*c->model)
        return fail(E_USAGE, "--model is needed: random weights without training tell nothing");
    if (r->train && r->evaluate && !*c->eval_dir)
        return fail(E_USAGE, "--do-eval beside training needs held-out shards: give --eval-dir (`cairn shards "
                             "--eval-fraction` makes them), or --eval-fraction beside --input");
    bool asked = c->eval_every > 0 || c->target_mlm_accuracy > 0 || (r->eval_samples > 0 && r->evaluate);
    if (r->train && c->target_mlm_accuracy > 0 && c->source[OPTION_target_mlm_accuracy] == FROM_PRESET && !r->evaluate)
        return fail(E_USAGE,
                    "--preset %s trains to a masked-word accuracy of %g: give held-out shards as --eval-dir, or "
                    "--target-mlm-accuracy 0 to train without",
                    c->preset, c->target_mlm_accuracy);
    if (r->train && asked && !r->evaluate)
        return fail(E_USAGE, "--eval-every, --eval-samples and --target-mlm-accuracy evaluate while training: give "
                             "--eval-dir too");
    if (r->train && c->target_mlm_accuracy > 0 && c->eval_every == 0 && r->eval_samples == 0)
        return fail(E_USAGE, "--target-mlm-accuracy needs to know when to look: give --eval-every or --eval-samples");
    if (strcmp(c->moments, "carried") == 0 && !*c->model)
        return fail(E_USAGE, "--moments carried: give the run to go on from as --model");
    return OK;
}

static const char *shards_of(const PretrainRun *r, bool evaluation)
{
    return evaluation && *r->c->eval_dir ? r->c->eval_dir : r->c->data_dir;
}

static Status open_model(PretrainRun *r)
{
    const Config *c = r->c;
    bool nsp = strcmp(c->nsp, "on") == 0;
    TRY(start_text(c, shards_of(r, !r->train), &r->text));
    if (r->evaluate) TRY(start_check_shards(&r->text, shards_of(r, true)));
    TRY(start_model(c, &r->text, (Head){HEAD_PRETRAINING, nsp ? 2 : 0}, c->max_seq_length, &r->model, NULL));
    if (nsp && r->model.config.types < 2)
        return fail(E_USAGE, "this model has token types ('type_vocab_size') for one sentence only; give --nsp off");
    return OK;
}

static Status open_shards(PretrainRun *r, bool evaluation, Shards **shards)
{
    const Config *c = r->c;
    ShardsOptions o = {.vocab = r->text.vocab,
                       .max_length = (int)c->max_seq_length,
                       .max_predictions = (int)r->predictions,
                       .seed = (uint64_t)c->seed,
                       .batch_size = c->batch_size,
                       .stored_masks = strcmp(c->masking, "static") == 0,
                       .dynamic_masking = strcmp(c->masking, "dynamic") == 0,
                       .mask_fraction = c->mask_fraction,
                       .whole_words = c->whole_words};
    TRY(shards_open(shards_of(r, evaluation), &o, shards));
    log_info("%s: %lld sequences for %s", shards_of(r, evaluation), (long long)shards_count(*shards),
             evaluation ? "evaluation" : "training");
    return OK;
}

static Status read_data(PretrainRun *r)
{
    const Config *c = r->c;
    const Examples *e;
    enum { LOOKED_AT = 1024 };
    r->predictions = c->predictions > 0 ? c->predictions : (c->max_seq_length * 15 + 99) / 100;
    if (r->train) TRY(open_shards(r, false, &r->shards));
    if (r->evaluate) TRY(open_shards(r, true, &r->eval_shards));
    Shards *any = r->train ? r->shards : r->eval_shards;
    int64_t n = shards_count(any) < LOOKED_AT ? shards_count(any) : LOOKED_AT;
    TRY(shards_range(any, 0, n, &e));
    r->mean_length = (double)e->offset[n] / (double)n;
    return OK;
}

/* Every row, before a run begins that may take days. One that goes on has done so, and its shards' digest is compared,
   but not with --override; what is evaluated on may be another set each time. */
static Status check_rows(PretrainRun *r, bool goes_on)
{
    double start = clock_monotonic();
    if (r->train && (!goes_on || r->c->override)) TRY(shards_check(r->shards, signals_stop()));
    if (r->evaluate) TRY(shards_check(r->eval_shards, signals_stop()));
    log_debug("all rows were checked in %.1f s", clock_monotonic() - start);
    return OK;
}

static bool first(const PretrainRun *r) { return ranks_first(r->ranks); }

/* ---- weights and state ---- */

/* Its step and its data are not taken over. */
static Status carry_state(PretrainRun *r)
{
    TRY(checkpoint_load(r->carried, &r->model.params, session_fill(&r->session, STATE_WEIGHTS),
                        session_fill(&r->session, STATE_M), session_fill(&r->session, STATE_V), NULL));
    log_info("weights and moments are those of %s", r->carried);
    return OK;
}

static Status initial_weights(PretrainRun *r)
{
    float *weights = session_fill(&r->session, STATE_WEIGHTS);
    if (r->carried) {
        TRY(carry_state(r));
    } else if (!*r->c->model) {
        log_info("starting from random weights, seed %lld", (long long)r->c->seed);
        params_init(&r->model.params, (uint64_t)r->c->seed, weights);
    } else {
        ImportReport report = {0};
        Status status = import_weights(r->c->model, &r->model, (uint64_t)r->c->seed, weights, &report);
        if (status == OK) import_report_log(&report);
        if (status == OK && !r->train && report.n[IMPORT_NEW])
            status = fail(E_FORMAT, "%s has no pretraining heads to evaluate; train first", report.path);
        import_report_free(&report);
        TRY(status);
    }
    return OK;
}

static Status start_or_resume(PretrainRun *r, TrainResume *resume)
{
    SessionOptions options = setup_session(&r->setup, r->c, r->train, r->evaluate);
    TRY(session_open(&r->session, &r->model, &options, r->norm_forms));
    if (!resume->dir) {
        TRY(ranks_follow(r->ranks, first(r) ? initial_weights(r) : OK));
        return start_share(&r->session, r->train && strcmp(r->c->moments, "carried") == 0);
    }
    TRY(train_load(resume, &r->session));
    r->progress = resume->progress;
    r->reached = r->c->target_mlm_accuracy > 0 && r->progress.best_metric >= r->c->target_mlm_accuracy;
    log_info("going on from %s: step %lld of %lld", resume->dir, (long long)r->progress.step,
             (long long)r->schedule.total_steps);
    return OK;
}

/* ---- the run ---- */

static int64_t preset_batch(const char *preset)
{
    static const char key[] = "batch_size=";
    Buf settings = {0};
    const char *at = config_preset(preset, &settings) == OK ? strstr(settings.data, key) : NULL;
    int64_t size = at ? strtoll(at + strlen(key), NULL, 10) : 0;
    buf_free(&settings);
    return size;
}

/* A batch of another size than the preset's is another recipe. Nothing is rescaled behind anybody's back. */
static void say_what_differs(const PretrainRun *r)
{
    const Config *c = r->c;
    if (c->batch_size > shards_count(r->shards))
        log_warn("--batch-size %lld: there are %lld sequences; every step takes all of them, and no more",
                 (long long)c->batch_size, (long long)shards_count(r->shards));
    if (!*c->preset || c->batch_size == preset_batch(c->preset)) return;
    log_info("--batch-size %lld in place of the preset's: nothing else is changed with it; the learning rate is %g, "
             "the steps are %lld",
             (long long)c->batch_size, c->learning_rate, (long long)r->schedule.total_steps);
}

static Status plan_run(PretrainRun *r)
{
    const Config *c = r->c;
    SetupNeed need = {.model = &r->model,
                      .training = r->train,
                      .evaluation = r->evaluate,
                      .max_length = c->max_seq_length,
                      .max_masked = r->predictions,
                      .mean_length = r->mean_length,
                      .data_bytes = (r->train ? shards_memory(r->shards, r->mean_length, true) : 0) +
                                    (r->evaluate ? shards_memory(r->eval_shards, r->mean_length, false) : 0),
                      .norm_forms = r->norm_forms};
    Buf table = {0};
    r->setup.ranks = r->ranks;
    TRY(ranks_all(r->ranks, setup_backend(c, &r->setup)));
    if (r->train) {
        TRY(setup_optimizer(c, &r->setup.optimizer));
        TRY(setup_schedule(c, shards_count(r->shards), &r->schedule));
        say_what_differs(r);
    }
    TRY(setup_plan(c, &need, &r->setup));
    setup_describe(&r->setup, &table);
    log_info("%s", table.data);
    buf_free(&table);
    return OK;
}

static Digest data_digest(const PretrainRun *r)
{
    Digest parts[2] = {shards_digest(r->shards), vocab_digest(r->text.vocab)};
    return digest_of(parts, sizeof parts);
}

void pretrain_export_text(const PretrainRun *r, ExportText *text)
{
    *text = (ExportText){.vocab = r->text.file.data,
                         .vocab_len = r->text.file.len,
                         .lower_case = r->text.options.lower_case,
                         .strip_accents = r->text.options.strip_accents};
}

Status pretrain_keep_best(void *context, int64_t step, double metric)
{
    PretrainRun *r = context;
    ExportText text;
    pretrain_export_text(r, &text);
    return result_keep_best(r->c->output_dir, &r->model, &r->session, &text, step, metric);
}

static double sequences_per_second(const PretrainRun *r)
{
    return r->progress.seconds > 0 ? (double)r->progress.sequences / r->progress.seconds : 0;
}

/* How much faster the reader is than the trainer: it must never be what a run waits for. */
static void say_reader(const PretrainRun *r)
{
    ShardsWork work = shards_work(r->shards);
    if (!(work.busy > 0 && r->progress.seconds > 0)) return;
    double reads = (double)work.tokens / work.busy, trains = (double)r->progress.tokens / r->progress.seconds;
    log_info("the reader makes %.3g tokens/s, %.0f times what training takes; training waited for it %.2f s in all",
             reads, reads / trains, work.waited);
}

/* Sequences from one evaluation to the next: of --eval-every and --eval-samples, what is less. */
static int64_t between_evaluations(const PretrainRun *r)
{
    int64_t steps = pretrain_samples(r, r->c->eval_every), samples = r->eval_samples;
    return steps > 0 && (samples == 0 || steps < samples) ? steps : samples;
}

static Status train(PretrainRun *r)
{
    const Config *c = r->c;
    TrainFile files[EXPORT_MAX_FILES];
    for (int i = 0; i < r->n_files; i++)
        files[i] = (TrainFile){r->files[i].name, r->files[i].data.data, r->files[i].data.len};
    bool during = r->evaluate && (c->eval_every > 0 || r->eval_samples > 0);
    TrainJob job = {.config = c,
                    .session = &r->session,
                    .source = shards_source(r->shards),
                    .optimizer = r->setup.optimizer,
                    .schedule = r->schedule,
                    .batch_size = c->batch_size,
                    .padded_length = c->padded ? c->max_seq_length : 0,
                    .output_dir = c->output_dir,
                    .fingerprint = r->fingerprint.data,
                    .config_json = r->config_json.data,
                    .files = files,
                    .n_files = r->n_files,
                    .planned_peak = r->setup.peak,
                    .evaluate = during ? pretrain_evaluate_during : NULL,
                    .eval_samples = r->eval_samples,
                    .keep_best = pretrain_keep_best,
                    .enough = &r->reached,
                    .context = r,
                    .started = r->started};
    double tokens = (c->padded ? (double)c->max_seq_length : r->mean_length) * (double)c->batch_size;
    RunLogStart start = {.optimizer = &r->setup.optimizer,
                         .schedule = &r->schedule,
                         .train_samples = pretrain_samples(r, r->schedule.total_steps),
                         .eval_samples = r->evaluate ? shards_count(r->eval_shards) : 0,
                         .predictions = r->predictions,
                         .micros = (int64_t)ceil(tokens / (double)r->setup.micro.tokens / ranks_size(r->ranks)),
                         .samples = pretrain_samples(r, r->progress.batch),
                         .evaluated = r->progress.evaluated_samples,
                         .every = during ? between_evaluations(r) : 0};
    runlog_start(r->log, &start);
    Status status = train_run(&job, &r->progress);
    bool success = status == OK && (r->reached || !(c->target_mlm_accuracy > 0));
    if (status != E_STOPPED && status != E_PEER) /* those go on */
        runlog_stop(r->log, pretrain_samples(r, r->progress.batch), success, sequences_per_second(r));
    if (status == OK) say_reader(r);
    return status;
}

static Status export_result(PretrainRun *r)
{
    ExportText text;
    pretrain_export_text(r, &text);
    return result_export(r->c->output_dir, &r->model, &r->session, &text);
}

static Status summarise(PretrainRun *r)
{
    RunSummary s;
    double *series = NULL;
    result_summary(&s, "pretrain", &r->setup, &r->session, &r->progress, &series);
    s.wall_s = clock_monotonic() - r->started;
    s.config_json = r->config_json.data;
    if (!(r->progress.seconds > 0)) result_keep_rates(r->c->output_dir, &s);
    if (r->evaluate) {
        summary_add_eval(&s, "eval", "mlm_accuracy", r->result.mlm_accuracy);
        summary_add_eval(&s, "eval", "mlm_loss", r->result.mlm_loss);
        if (!isnan(r->result.nsp_accuracy)) summary_add_eval(&s, "eval", "nsp_accuracy", r->result.nsp_accuracy);
    }
    Status status = summary_write(r->c->output_dir, &s);
    if (status == OK) status = report_write(r->c->output_dir, &s);
    free(series);
    return status;
}

static Status evaluate_at_end(PretrainRun *r)
{
    double target = r->c->target_mlm_accuracy;
    Buf text = {0};
    if (!r->evaluate) return OK;
    TRY(pretrain_evaluate(r));
    pretrain_describe(&r->result, &text);
    if (!r->train && target > 0)
        buf_printf(&text, "; %s the target of %g", r->result.mlm_accuracy >= target ? "that reaches" : "below", target);
    log_info("evaluation: %s (%lld sequences, %.1f seq/s)", text.data, (long long)r->result.sequences,
             (double)r->result.sequences / r->result.seconds);
    buf_free(&text);
    return ranks_follow(r->ranks, first(r) ? pretrain_write_results(r) : OK);
}

/* The folder has the results of this very run. */
static bool all_done(const PretrainRun *r, const TrainResume *resume)
{
    char *name[] = {(char *)"eval mlm_accuracy"};
    bool target = r->c->target_mlm_accuracy > 0 && resume->progress.best_metric >= r->c->target_mlm_accuracy;
    return resume->dir && resume->progress.finished && (target || resume->progress.step >= r->schedule.total_steps) &&
           result_there(r->c->output_dir, resume->progress.step, name, r->evaluate ? 1 : 0) &&
           (!r->evaluate || pretrain_results_there(r));
}

static void say_end(const PretrainRun *r)
{
    if (!(r->progress.seconds > 0)) {
        log_info("training was finished before, at step %lld; the model is in %s", (long long)r->progress.step,
                 r->c->output_dir);
        return;
    }
    log_info(
        "trained %lld steps, final loss %.6g, %.1f seq/s, peak memory %.1f MiB (planned %.1f MiB); the model is in %s",
        (long long)r->progress.step, r->progress.last_loss, sequences_per_second(r),
        (double)r->progress.peak_bytes / (1 << 20), (double)r->setup.peak / (1 << 20), r->c->output_dir);
}

static Status read_all(PretrainRun *r)
{
    TRY(open_model(r));
    return read_data(r);
}

/* The next three are rank 0's. */
static Status take_output(PretrainRun *r)
{
    TRY(file_make_directories(r->c->output_dir));
    TRY(lock_take(&r->lock, r->c->output_dir));
    return start_clean(r->c->output_dir);
}

/* May this run go on here? */
static Status check_output(PretrainRun *r, const TrainResume *resume)
{
    const Config *c = r->c;
    train_fingerprint(r->setup.backend, r->setup.compute, r->setup.micro.tokens, ranks_size(r->ranks), data_digest(r),
                      train_origin(&r->model, c->model), &r->fingerprint);
    TRY(train_compare(c, r->fingerprint.data, resume));
    return train_check_output(c->output_dir);
}

static Status begin_output(PretrainRun *r, const TrainResume *resume)
{
    TRY(checkpoint_check_space(r->c->output_dir, 2 * checkpoint_bytes(&r->model.params)));
    return runlog_open(&r->log, r->c, resume->dir != NULL);
}

/* What must be the same on all ranks: what is evaluated, too, and the sizes and rates of the model. */
static Digest seen_digest(const PretrainRun *r)
{
    Digest parts[3] = {train_origin(&r->model, "")};
    int n = 1;
    if (r->train) parts[n++] = data_digest(r);
    if (r->evaluate) parts[n++] = shards_digest(r->eval_shards);
    return digest_of(parts, (size_t)n * sizeof *parts);
}

static Status pretrain_run(PretrainRun *r)
{
    const Config *c = r->c;
    Status status = OK;
    TrainResume resume = {0};
    ExportText text;
    TRY_DONE(ranks_all(r->ranks, read_all(r)));
    if (!c->dry_run) {
        TRY_DONE(ranks_follow(r->ranks, first(r) ? take_output(r) : OK));
        if (r->train) TRY_DONE(train_find(c, c->output_dir, r->ranks, &resume));
    }
    TRY_DONE(ranks_all(r->ranks, check_rows(r, resume.dir != NULL)));
    TRY_DONE(start_norm_forms(c, &r->model, &resume, r->ranks, &r->norm_forms));
    TRY_DONE(plan_run(r));
    TRY_DONE(ranks_agree(r->ranks, r->setup.backend, r->setup.compute, seen_digest(r)));
    if (c->dry_run) goto done;
    if (r->train) TRY_DONE(ranks_follow(r->ranks, first(r) ? check_output(r, &resume) : OK));
    pretrain_export_text(r, &text);
    TRY_DONE(export_files(&r->model, &text, r->files, &r->n_files));
    r->progress.best_metric = NAN;
    bool there = first(r) && r->train && all_done(r, &resume);
    TRY_DONE(ranks_broadcast(r->ranks, &there, sizeof there));
    if (there) {
        r->progress = resume.progress;
        if (first(r)) result_show(c->output_dir, r->progress.step);
        goto done;
    }
    if (r->train) TRY_DONE(ranks_follow(r->ranks, first(r) ? begin_output(r, &resume) : OK));
    TRY_DONE(start_or_resume(r, &resume));
    if (r->train) {
        bool over = r->progress.finished && (r->reached || r->progress.step >= r->schedule.total_steps);
        /* run.json is of the run before; the new one is written last */
        if (!over) TRY_DONE(ranks_follow(r->ranks, first(r) ? summary_remove(c->output_dir) : OK));
        if (!over) TRY_DONE(train(r));
        TRY_DONE(ranks_follow(r->ranks, first(r) ? export_result(r) : OK));
    }
    TRY_DONE(evaluate_at_end(r));
    size_t used = session_memory_used(&r->session);
    if (used > r->progress.peak_bytes) r->progress.peak_bytes = used;
    if (!r->train) goto done;
    TRY_DONE(ranks_follow(r->ranks, first(r) ? summarise(r) : OK));
    say_end(r);
done:
    train_resume_free(&resume);
    return status;
}

/* --max-seq-length where nobody gave one: the shards'. `with` becomes the configuration that says so. */
static Status adopt_length(PretrainRun *r, Config *with)
{
    const Config *c = r->c;
    *with = *c;
    r->c = with;
    if (c->source[OPTION_max_seq_length] != FROM_DEFAULT) return OK;
    return start_shards_length(shards_of(r, !r->train), &with->max_seq_length);
}

/* The stages before training, where --input asks for them; then r->c is a configuration with their paths. What is wrong
   with the use is said before they begin. */
static Status prepare(PretrainRun *r, Stages *stages, Config *with)
{
    const Config *given = r->c;
    if (!*given->input) {
        Status use = check_use(r);
        if (use == OK) use = adopt_length(r, with);
        return ranks_open(r->c, use, &r->ranks);
    }
    Status use = stages_plan(stages, given);
    r->c = &stages->training;
    if (use == OK) use = check_use(r);
    TRY(ranks_open(given, use, &r->ranks));
    return ranks_follow(r->ranks, first(r) ? stages_make(stages) : OK); /* the others find the shards that it made */
}

static Status look_for_carried(PretrainRun *r)
{
    TRY(checkpoint_newest(r->c->model, NULL, &r->carried));
    if (r->carried) return OK;
    return fail(E_USAGE, "--moments carried: %s holds no checkpoint; give the output folder of a run", r->c->model);
}

/* --moments carried: all of the other run is read from its newest checkpoint, which is a model folder of its own; the
   run need not have ended. `with` becomes the configuration that says so. */
static Status find_carried(PretrainRun *r, Config *with)
{
    if (!r->train || strcmp(r->c->moments, "carried") != 0) return OK;
    TRY(ranks_follow(r->ranks, first(r) ? look_for_carried(r) : OK));
    Buf path = {0};
    buf_puts(&path, r->carried ? r->carried : "");
    Status status = ranks_broadcast_text(r->ranks, &path);
    free(r->carried);
    r->carried = mem_strdup(path.data);
    buf_free(&path);
    TRY(status);
    *with = *r->c;
    with->model = r->carried;
    r->c = with;
    return OK;
}

Status command_pretrain(const Config *c)
{
    PretrainRun r = {.c = c, .started = clock_monotonic()};
    Stages stages = {0};
    Config sized, carrying;
    signals_install();
    Status status = prepare(&r, &stages, &sized);
    if (status == OK) {
        config_json(r.c, &r.config_json); /* as it was given */
        status = find_carried(&r, &carrying);
    }
    if (status != OK) {
        ranks_end(r.ranks, status);
        ranks_close(r.ranks);
        buf_free(&r.config_json);
        free(r.carried);
        stages_free(&stages);
        return status;
    }
    status = pretrain_run(&r);
    if (status == E_STOPPED && r.progress.finished)
        status = fail(E_STOPPED, "stopped by %s after training; its state is saved, the same command does the rest",
                      signals_name(*signals_stop()));
    else if (status == E_STOPPED && *signals_stop() && !r.session.train)
        status = fail(E_STOPPED, "stopped by %s, nothing is lost; the same command begins again",
                      signals_name(*signals_stop()));
    runlog_close(r.log);
    lock_release(&r.lock);
    ranks_end(r.ranks, status);
    session_close(&r.session);
    setup_free(&r.setup);
    ranks_close(r.ranks);
    shards_close(r.shards);
    shards_close(r.eval_shards);
    model_free(&r.model);
    start_text_free(&r.text);
    export_files_free(r.files, r.n_files);
    buf_free(&r.fingerprint);
    buf_free(&r.config_json);
    free(r.norm_forms);
    free(r.carried);
    stages_free(&stages);
    return status;
}
